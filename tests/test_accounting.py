"""Calibration, thresholds and conversions: exact values, other people's computations, and the safe side."""

import math

import dp_accounting
import mpmath
import numpy as np
import pytest
from dp_accounting import rdp
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from beam_dp.accounting import (
    approximate_zcdp_delta,
    calibrate_sigma,
    check_scale,
    gaussian_delta,
    gaussian_threshold,
    laplace_threshold,
    split_sigma,
    zcdp_delta,
    zcdp_rho,
    zcdp_sigma,
)

epsilons = st.floats(math.log(1e-3), math.log(20)).map(math.exp)
deltas = st.floats(math.log(1e-12), math.log(0.5)).map(math.exp)
shares = st.floats(0.001, 1.0)


def exact_gaussian_delta(sigma: float, epsilon: float) -> mpmath.mpf:
    """Balle and Wang, Theorem 8, in 60 digits."""
    with mpmath.workdps(60):
        sigma, epsilon = mpmath.mpf(sigma), mpmath.mpf(epsilon)
        first = mpmath.ncdf(1 / (2 * sigma) - epsilon * sigma)
        return first - mpmath.exp(epsilon) * mpmath.ncdf(-1 / (2 * sigma) - epsilon * sigma)


# --- the Gaussian mechanism ---


def test_sigma_of_the_specification():
    assert f"{calibrate_sigma(1, 5e-6):.5f}" == "3.88414"


@settings(max_examples=300, deadline=None)
@given(epsilons, deltas)
@example(1.0, 5e-6)
@example(1e-3, 1e-12)
@example(20.0, 0.5)
def test_sigma_is_never_rounded_down_and_hardly_up(epsilon, delta):
    sigma = calibrate_sigma(epsilon, delta)
    assert exact_gaussian_delta(sigma, epsilon) <= delta
    assert exact_gaussian_delta(sigma * (1 - 1e-8), epsilon) > delta


@settings(max_examples=200, deadline=None)
@given(epsilons, deltas)
def test_gaussian_delta_is_exact(epsilon, delta):
    # For small epsilon the two terms nearly cancel: 1e-9 allows for what doubles keep there.
    sigma = calibrate_sigma(epsilon, delta)
    assert gaussian_delta(sigma, epsilon) == pytest.approx(
        float(exact_gaussian_delta(sigma, epsilon)), rel=1e-9
    )


@settings(max_examples=50, deadline=None)
@given(epsilons, deltas)
def test_sigma_agrees_with_dp_accounting(epsilon, delta):
    theirs = dp_accounting.get_sigma_gaussian(epsilon, delta)
    assert theirs <= calibrate_sigma(epsilon, delta) <= theirs * (1 + 1e-8)


@settings(max_examples=50, deadline=None)
@given(epsilons, deltas, deltas)
def test_sigma_falls_with_epsilon_and_with_delta(epsilon, one, other):
    small, large = sorted((one, other))
    assert calibrate_sigma(epsilon, large) <= calibrate_sigma(epsilon, small) * (1 + 1e-9)
    assert calibrate_sigma(2 * epsilon, small) < calibrate_sigma(epsilon, small)


def test_an_epsilon_without_any_privacy_is_refused():
    with pytest.raises(ValueError) as error:
        calibrate_sigma(1e300, 1e-12)
    assert str(error.value) == "epsilon must be at most 100000, got 1e+300; lower epsilon"


@pytest.mark.parametrize(
    ("scale", "epsilon", "end"),
    [
        (2.0**21, 1e-7, "for which a round needs 2.09715e+06; raise epsilon"),
        (2.0**-11, 5000.0, "for which a round needs 0.000488281; lower epsilon"),
        (math.inf, 1e-320, "for which a round needs inf; raise epsilon"),
    ],
)
def test_scales_off_the_grid_are_refused(scale, epsilon, end):
    with pytest.raises(ValueError) as error:
        check_scale(scale, epsilon)
    assert str(error.value) == (
        f"epsilon must give noise of a scale from 2^-10 to 2^20, got epsilon={epsilon!r}, {end}"
    )


@settings(max_examples=100)
@given(st.floats(0.01, 1000.0), st.lists(shares, min_size=1, max_size=6))
def test_split_rounds_spend_no_more_than_the_whole(sigma, parts):
    total = math.fsum(parts)
    spent = math.fsum(split_sigma(sigma, part / total) ** -2 for part in parts)
    assert spent <= sigma**-2
    assert spent >= sigma**-2 * (1 - 1e-8)


# --- thresholds ---


def test_thresholds_of_the_specification():
    sigma = calibrate_sigma(1, 5e-6)
    assert f"{gaussian_threshold(sigma=sigma, delta=5e-6, max_degree=100):.4f}" == "20.7897"
    assert gaussian_threshold(sigma=sigma, delta=5e-6, max_degree=100) == pytest.approx(20.78974, abs=6e-6)
    assert gaussian_threshold(sigma=sigma, delta=5e-6, max_degree=3) == pytest.approx(18.63524, abs=6e-6)


def exceeds(rho: float, top, degree: int, isf, delta: float) -> list[bool]:
    """For each t: whether the chance that any of t novel items passes is above delta, in 60 digits."""
    with mpmath.workdps(60):
        chances = []
        for t in range(1, degree + 1):
            one = isf(mpmath.mpf(rho) - top(t))
            chances.append(1 - (1 - one) ** t > delta)
        return chances


def gaussian_tail(sigma: float):
    return lambda x: mpmath.ncdf(-x / mpmath.mpf(sigma))


def laplace_tail(scale: float):
    def tail(x):
        half = mpmath.exp(-abs(x) / mpmath.mpf(scale)) / 2
        return half if x >= 0 else 1 - half

    return tail


@settings(max_examples=60, deadline=None)
@given(st.floats(0.1, 100.0), deltas, st.integers(1, 60), st.floats(1.0, 4.0))
def test_gaussian_threshold_pays_for_any_number_of_novel_items(sigma, delta, degree, max_bias):
    rho = gaussian_threshold(sigma=sigma, delta=delta, max_degree=degree, max_bias=max_bias)
    step = 1e-12 * (rho + sigma)  # ndtri's relative error is a few 1e-15

    def top(t):
        return max_bias / mpmath.sqrt(t)

    assert not any(exceeds(rho + step, top, degree, gaussian_tail(sigma), delta))
    assert any(exceeds(rho - step, top, degree, gaussian_tail(sigma), delta))


@settings(max_examples=60, deadline=None)
@given(st.floats(0.1, 100.0), st.one_of(deltas, st.floats(0.5, 0.99)), st.integers(1, 60))
@example(10.0, 0.99, 1)
def test_laplace_threshold_pays_for_any_number_of_novel_items(scale, delta, degree):
    rho = laplace_threshold(scale=scale, delta=delta, max_degree=degree)
    step = 1e-12 * (abs(rho) + scale)

    def top(t):
        return mpmath.mpf(1) / t

    assert not any(exceeds(rho + step, top, degree, laplace_tail(scale), delta))
    assert any(exceeds(rho - step, top, degree, laplace_tail(scale), delta))


def test_laplace_threshold_by_brute_force():
    """Cap 1 by the closed form; cap 100 by searching rho over the chance itself."""
    assert laplace_threshold(scale=1.0, delta=1e-5, max_degree=1) == pytest.approx(
        1 + math.log(1 / 2e-5), rel=1e-14
    )

    def worst_log_chance(rho: float) -> float:
        chances = [-math.expm1(t * math.log1p(-stats.laplace.sf(rho - 1 / t))) for t in range(1, 101)]
        return math.log(max(chances)) - math.log(1e-5)

    searched = optimize.brentq(worst_log_chance, 5.0, 30.0, xtol=1e-13)
    assert laplace_threshold(scale=1.0, delta=1e-5, max_degree=100) == pytest.approx(searched, rel=1e-11)


@pytest.mark.parametrize("threshold", [gaussian_threshold, laplace_threshold])
def test_tails_too_small_for_the_noise_are_refused(threshold):
    scale = {"sigma": 1.0} if threshold is gaussian_threshold else {"scale": 1.0}
    with pytest.raises(ValueError) as error:
        threshold(**scale, delta=1e-28, max_degree=1000)
    assert str(error.value) == (
        "delta must be large enough for noise drawn from 128 bits, got 1e-28 a round with max_degree=1000, a "
        "chance below 2^-100 an item; raise delta or lower max_degree"
    )


# --- zCDP ---

# SIPS Tables 4 and 5: rho, delta_CDP, epsilon, delta_DP, alpha. The paper prints delta to 3 digits, some cut
# rather than rounded, and two of its alphas (58.443, 46.334) have a wrong digit: 1e-4 and 1.8e-4 off, relatively.
SIPS_TABLES = [
    (0.001, 1e-5, 0.14, 5.00e-5, 77.033),
    (0.005, 1e-5, 0.338, 5.08e-5, 37.037),
    (0.01, 1e-5, 0.495, 4.99e-5, 27.128),
    (0.05, 1e-5, 1.2, 4.99e-5, 13.283),
    (0.1, 1e-5, 1.765, 4.96e-5, 9.86),
    (0.5, 1e-5, 4.41, 4.90e-5, 5.127),
    (0.005, 1e-9, 0.62, 1.04e-9, 64.073),
    (0.0055, 1e-8, 0.62, 1.02e-8, 58.443),
    (0.006, 1e-7, 0.62, 1.01e-7, 53.732),
    (0.007, 1e-6, 0.62, 1.01e-6, 46.334),
    (0.0083, 1e-5, 0.62, 1.01e-5, 39.398),
    (0.01, 1e-4, 0.62, 1.01e-4, 33.037),
    (0.013, 1e-3, 0.62, 1.01e-3, 25.863),
]


@pytest.mark.parametrize(("rho", "delta_cdp", "epsilon", "delta_dp", "alpha"), SIPS_TABLES)
def test_zcdp_conversions_are_those_of_the_sips_paper(rho, delta_cdp, epsilon, delta_dp, alpha):
    digit = 10.0 ** (math.floor(math.log10(delta_dp)) - 2)
    assert abs(approximate_zcdp_delta(rho, delta_cdp, epsilon) - delta_dp) < digit
    assert zcdp_delta(rho, epsilon)[1] == pytest.approx(alpha, rel=2.2e-4)


rhos = st.floats(math.log(1e-6), math.log(10)).map(math.exp)


def log_zcdp_bound(rho: float, epsilon: float, alpha: float) -> float:
    """SIPS eq. (5) at one alpha: the logarithm of a valid delta."""
    return (alpha - 1) * (alpha * rho - epsilon) - math.log(alpha - 1) + alpha * math.log1p(-1 / alpha)


@settings(max_examples=200, deadline=None)
@given(rhos, st.floats(0.001, 30.0))
def test_zcdp_delta_is_a_valid_bound(rho, epsilon):
    """Each alpha gives a valid delta, and the returned alpha gives the returned one."""
    delta, alpha = zcdp_delta(rho, epsilon)
    assert alpha > 1
    assert delta >= math.exp(min(0.0, log_zcdp_bound(rho, epsilon, alpha))) * (1 - 1e-6)
    sigma = zcdp_sigma(rho)
    assert delta + 1e-300 >= exact_gaussian_delta(sigma, epsilon)


@settings(max_examples=200, deadline=None)
@given(rhos.filter(lambda rho: rho > 1e-4), st.floats(1.2, 1e4))
def test_zcdp_delta_is_nearly_the_least_bound(rho, ratio):
    """For the deltas one accounts with; for larger ones it may search beside the least, on the safe side."""
    epsilon = ratio * rho
    delta, _ = zcdp_delta(rho, epsilon)
    least = min(log_zcdp_bound(rho, epsilon, 1 + x) for x in np.geomspace(1e-4, 1e8, 4000))
    assume(least < math.log(1e-3))
    assert delta <= math.exp(min(0.0, least)) * (1 + 1e-6) + 1e-300


@settings(max_examples=50, deadline=None)
@given(st.floats(0.001, 5.0), st.floats(1.2, 1e3))
def test_zcdp_delta_agrees_with_dp_accounting(rho, ratio):
    """dp_accounting minimises the same bound over a grid of Renyi orders."""
    delta, alpha = zcdp_delta(rho, ratio * rho)
    orders = 1 + (alpha - 1) * np.linspace(0.99, 1.01, 21)
    theirs, _ = rdp.rdp_privacy_accountant.compute_delta(orders, rho * orders, ratio * rho)
    assert delta == pytest.approx(theirs, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.floats(0.001, 20.0), deltas)
def test_zcdp_rho_inverts_the_conversion_from_below(epsilon, delta):
    rho = zcdp_rho(epsilon, delta)
    assert zcdp_delta(rho, epsilon)[0] <= delta
    assert zcdp_delta(rho * (1 + 1e-6), epsilon)[0] > delta


@settings(max_examples=50, deadline=None)
@given(st.floats(0.01, 10.0), deltas)
def test_zcdp_costs_more_than_the_gaussian_itself(epsilon, delta):
    """The Gaussian with zCDP's sigma is (epsilon, delta)-DP, by its exact curve."""
    sigma = zcdp_sigma(zcdp_rho(epsilon, delta))
    assert exact_gaussian_delta(sigma, epsilon) <= delta


@given(rhos)
def test_zcdp_sigma_is_never_rounded_down(rho):
    assert 1 / (2 * zcdp_sigma(rho) ** 2) <= rho
    assert 1 / (2 * zcdp_sigma(rho) ** 2) >= rho * (1 - 1e-8)
