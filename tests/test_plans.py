"""Plans: what each round spends, and that all rounds together spend what was given."""

import json
import math
from itertools import product

import pytest
from dp_accounting import pld
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.accounting import approximate_zcdp_delta, calibrate_sigma, gaussian_delta, gaussian_threshold
from beam_dp.algorithms import (
    ALGORITHMS,
    DpSips,
    Mad,
    Mad2R,
    WeightedGaussian,
    WeightedLaplace,
    algorithm_named,
)
from beam_dp.plans import make_plan

EPSILON, DELTA, CAP = 1.0, 1e-5, 100

SPLITS = [
    WeightedGaussian(),
    WeightedLaplace(),
    DpSips(),
    DpSips(rounds=1),
    DpSips(rounds=5, ratio=0.5),
    DpSips(rounds=4, ratio=1.0),
    DpSips(budget_split=(0.1, 0.9)),
    Mad(),
    Mad(max_adaptive_degree=2, beta=0.0),
    Mad2R(),
    Mad2R(budget_split=(0.3, 0.7), max_bias=1.0, min_bias=1.0),
]
PROFILES = ["tight", "paper"]


def plan_of(algorithm, profile="tight", epsilon=EPSILON, delta=DELTA, max_degree=CAP):
    return make_plan(
        epsilon=epsilon, delta=delta, max_degree=max_degree, algorithm=algorithm, profile=profile
    )


# --- all algorithms ---


@pytest.mark.parametrize(("algorithm", "profile"), list(product(SPLITS, PROFILES)), ids=str)
def test_shares_sum_to_1_and_novel_items_cost_half_of_delta(algorithm, profile):
    plan = plan_of(algorithm, profile)
    assert math.fsum(r.share for r in plan.rounds) == pytest.approx(1, abs=1e-12)
    # Laplace noise is pure epsilon-DP and leaves all of delta to the novel items.
    novel = DELTA if isinstance(algorithm, WeightedLaplace) else DELTA / 2
    assert math.fsum(r.delta for r in plan.rounds) == pytest.approx(novel, rel=1e-12)
    for r in plan.rounds:
        assert r.delta == pytest.approx(novel * r.share, rel=1e-12)


@pytest.mark.parametrize(("algorithm", "profile"), list(product(SPLITS, PROFILES)), ids=str)
def test_thresholds_are_those_of_the_round(algorithm, profile):
    plan = plan_of(algorithm, profile)
    for number, r in enumerate(plan.rounds):
        if r.sigma is None:
            assert r.mad is None
            assert 1 / EPSILON <= r.laplace_scale <= (1 + 1e-8) / EPSILON
            continue
        max_bias = algorithm.max_bias if isinstance(algorithm, Mad2R) and number == 1 else 1.0
        expected = gaussian_threshold(sigma=r.sigma, delta=r.delta, max_degree=CAP, max_bias=max_bias)
        assert r.threshold == expected
        assert r.laplace_scale is None


@pytest.mark.parametrize(("algorithm", "profile"), list(product(SPLITS, PROFILES)), ids=str)
def test_reports_are_ready_for_json_and_carry_the_guarantee(algorithm, profile):
    report = json.loads(json.dumps(plan_of(algorithm, profile).report()))
    assert report["guarantee"] == {
        "epsilon": EPSILON,
        "delta": DELTA,
        "neighbouring_relation": "add or remove one user",
        "unit": "one user with all their items",
    }
    assert (report["algorithm"], report["profile"]) == (algorithm.name, profile)
    assert len(report["rounds"]) == len(plan_of(algorithm, profile).rounds)


# --- tight: exact composition ---


def composed_delta(plan) -> float:
    """The delta at plan.epsilon of all rounds' Gaussians, by dp_accounting's privacy loss distributions."""
    total = None
    for r in plan.rounds:
        one = pld.privacy_loss_distribution.from_gaussian_mechanism(
            r.sigma, sensitivity=1.0, value_discretization_interval=1e-4
        )
        total = one if total is None else total.compose(one)
    return total.get_delta_for_epsilon(plan.epsilon)


TIGHT = [
    (WeightedGaussian(), 1.0, 1e-5),
    (Mad(), 2.0, 1e-6),
    (DpSips(), 1.0, 1e-5),
    (DpSips(rounds=6, ratio=0.7), 0.5, 1e-4),
    (DpSips(budget_split=(0.5, 0.5)), 3.0, 1e-8),
    (Mad2R(), 1.0, 1e-5),
    (Mad2R(budget_split=(0.3, 0.7)), 0.3, 1e-3),
]


@pytest.mark.parametrize(("algorithm", "epsilon", "delta"), TIGHT, ids=str)
def test_tight_plans_spend_exactly_delta_by_privacy_loss_distributions(algorithm, epsilon, delta):
    plan = plan_of(algorithm, epsilon=epsilon, delta=delta)
    spent = composed_delta(plan) + math.fsum(r.delta for r in plan.rounds)
    # The PLD rounds losses up to multiples of 1e-4, a round each: it overstates delta by up to about
    # rounds * 1e-4 * (d log delta / d epsilon), which stays below 1e-3 of delta per unit of slope 10.
    slope = abs(
        math.log(
            gaussian_delta(calibrate_sigma(epsilon, delta / 2), epsilon + 1e-3)
            / gaussian_delta(calibrate_sigma(epsilon, delta / 2), epsilon)
        )
    )
    assert spent <= delta * (1 + 1e-3 + len(plan.rounds) * 0.1 * slope)
    assert spent >= delta * (1 - 1e-3)


@settings(max_examples=100, deadline=None)
@given(
    st.floats(0.01, 20.0),
    st.floats(math.log(1e-10), math.log(0.5)).map(math.exp),
    st.sampled_from(SPLITS),
    st.sampled_from([1, 3, 100]),
)
def test_tight_gaussians_are_together_the_calibrated_one(epsilon, delta, algorithm, cap):
    if isinstance(algorithm, Mad | Mad2R) and algorithm.max_adaptive_degree == 2 and cap == 1:
        return
    plan = plan_of(algorithm, epsilon=epsilon, delta=delta, max_degree=cap)
    if plan.rounds[0].sigma is None:
        return
    sigma = math.fsum(r.sigma**-2 for r in plan.rounds) ** -0.5
    assert gaussian_delta(sigma, epsilon) <= delta / 2
    assert sigma == pytest.approx(calibrate_sigma(epsilon, delta / 2), rel=1e-8)
    for r in plan.rounds:
        assert (r.sigma / sigma) ** -2 == pytest.approx(r.share, rel=1e-7)


def test_tight_beats_paper_in_every_last_round():
    for algorithm in (DpSips(), DpSips(budget_split=(0.1, 0.9)), Mad2R(budget_split=(0.1, 0.9))):
        tight, paper = plan_of(algorithm).rounds[-1], plan_of(algorithm, "paper").rounds[-1]
        assert tight.sigma < paper.sigma
        assert tight.threshold < paper.threshold


# --- paper: what the papers do ---


@pytest.mark.parametrize(
    "algorithm",
    [Mad2R(), Mad2R(budget_split=(0.25, 0.75)), DpSips(budget_split=(0.1, 0.9)), DpSips(budget_split=(1.0,))],
    ids=str,
)
def test_explicit_splits_compose_by_adding_epsilon_and_delta(algorithm):
    plan = plan_of(algorithm, "paper")
    for r in plan.rounds:
        assert r.sigma == calibrate_sigma(r.share * EPSILON, r.share * DELTA / 2)
        # Each round is (share epsilon, share delta)-DP: Theorem 3.3 of MAD.
        spent = gaussian_delta(r.sigma, r.share * EPSILON) + r.delta
        assert spent <= r.share * DELTA
        assert spent >= r.share * DELTA * (1 - 1e-6)


def test_paper_mad2r_splits_1_to_9():
    assert [r.share for r in plan_of("mad2r", "paper").rounds] == [0.1, 0.9]
    assert [r.share for r in plan_of("mad2r", "tight").rounds] == [0.02, 0.98]


@pytest.mark.parametrize("algorithm", [DpSips(), DpSips(rounds=5, ratio=0.5), DpSips(rounds=1)], ids=str)
def test_geometric_dp_sips_adds_up_in_zcdp(algorithm):
    plan = plan_of(algorithm, "paper")
    rho = math.fsum(0.5 * r.sigma**-2 for r in plan.rounds)
    novel = math.fsum(r.delta for r in plan.rounds)
    spent = approximate_zcdp_delta(rho, novel, EPSILON)  # SIPS Theorem 1 and Corollary 9
    assert spent <= DELTA * (1 + 1e-12)
    assert spent >= DELTA * (1 - 1e-6)
    for r in plan.rounds:
        assert 0.5 * r.sigma**-2 == pytest.approx(r.share * rho, rel=1e-7)


def test_geometric_shares_grow_by_the_inverse_ratio():
    assert DpSips().shares() == pytest.approx((1 / 13, 3 / 13, 9 / 13), rel=1e-12)
    assert DpSips(rounds=3, ratio=1.0).shares() == pytest.approx((1 / 3, 1 / 3, 1 / 3), rel=1e-12)
    assert DpSips(rounds=1).shares() == (1.0,)


@pytest.mark.parametrize("algorithm", [WeightedGaussian(), WeightedLaplace(), Mad()], ids=str)
def test_one_round_algorithms_have_one_accounting(algorithm):
    assert plan_of(algorithm, "tight").rounds == plan_of(algorithm, "paper").rounds


def test_basic_and_mad_have_the_numbers_of_the_specification():
    basic, mad = plan_of("weighted_gaussian").rounds[0], plan_of("mad").rounds[0]
    assert (round(basic.sigma, 5), round(basic.threshold, 4)) == (3.88414, 20.7897)
    assert (mad.sigma, mad.threshold) == pytest.approx((basic.sigma, basic.threshold), rel=1e-8)
    assert mad.mad.adaptive_threshold == pytest.approx(20.78974 + 2 * 3.88414, abs=2e-5)
    assert (mad.mad.max_adaptive_degree, mad.mad.min_bias, mad.mad.max_bias) == (50, 1.0, 1.0)


# --- what rounds need of each other ---


def test_only_dp_sips_of_several_rounds_refills():
    refilling = {str(algorithm) for algorithm in SPLITS if plan_of(algorithm).refills}
    assert refilling == {str(a) for a in SPLITS if isinstance(a, DpSips) and a != DpSips(rounds=1)}


def test_weights_are_l1_for_laplace_noise_only():
    assert {algorithm.name for algorithm in SPLITS if plan_of(algorithm).norm == "l1"} == {"weighted_laplace"}


def test_biasing_of_mad2r_has_the_margins_of_the_first_round():
    plan = plan_of(Mad2R(lower_confidence=1.5, upper_confidence=2.5))
    biasing = plan.preparation(0)
    first, second = plan.rounds
    assert biasing.next_threshold == second.threshold
    assert (biasing.lower_margin, biasing.upper_margin) == (1.5 * first.sigma, 2.5 * first.sigma)
    assert plan_of(DpSips()).preparation(0) is None


@pytest.mark.parametrize("cap", [1, 2, 3, 49, 50, 51, 1_000_000])
def test_default_adaptive_degree_is_50_or_the_cap(cap):
    plan = plan_of("mad", max_degree=cap, delta=1e-3)
    assert plan.rounds[0].mad.max_adaptive_degree == max(2, min(50, cap))


# --- errors ---


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"epsilon": 0},
            "epsilon must be a finite number > 0, got 0; common values lie between 0.1 and 10",
        ),
        (
            {"delta": 1},
            "delta must be a number > 0 and < 1, got 1; choose it well below 1 / (number of users)",
        ),
        (
            {"max_degree": 0},
            "max_degree must be an integer from 1 to 1000000, got 0; it bounds the items counted of one user, "
            "100 is common",
        ),
        ({"profile": "loose"}, "profile must be 'tight' or 'paper', got 'loose'"),
        (
            {"algorithm": "mad3r"},
            "algorithm must be one of weighted_gaussian, weighted_laplace, dp_sips, mad, mad2r, pooled_mad, pooled_gaussian, parallel_greedy, got 'mad3r'",
        ),
        (
            {"algorithm": 3},
            "algorithm must be an algorithm of beam_dp.algorithms or its name, got 3",
        ),
        (
            {"algorithm": Mad(max_adaptive_degree=101)},
            "max_adaptive_degree must be at most max_degree=100, got 101; leave it out for the default, 50 or "
            "max_degree if that is less",
        ),
    ],
    ids=str,
)
def test_bad_arguments_are_named(arguments, text):
    with pytest.raises(ValueError) as error:
        make_plan(**{"epsilon": EPSILON, "delta": DELTA, "max_degree": CAP, **arguments})
    assert str(error.value) == text


def test_adaptive_thresholds_beyond_the_grid_are_refused():
    with pytest.raises(ValueError) as error:
        plan_of(Mad(beta=1e9))
    tau = gaussian_threshold(sigma=calibrate_sigma(1, 5e-6), delta=5e-6, max_degree=CAP)
    tau += 1e9 * calibrate_sigma(1, 5e-6)
    assert str(error.value) == (
        "the adaptive threshold must lie between 1 and 6.71089e+07 for MAD's proof and arithmetic, got "
        f"{tau:g}; lower delta or raise epsilon"
    )


@pytest.mark.parametrize(
    ("kind", "arguments", "text"),
    [
        (DpSips, {"rounds": 0}, "rounds must be an integer from 1 to 100, got 0"),
        (DpSips, {"rounds": 2.0}, "rounds must be an integer from 1 to 100, got 2.0"),
        (DpSips, {"ratio": 0}, "ratio must be a number > 0 and <= 1, got 0"),
        (DpSips, {"ratio": 1.5}, "ratio must be a number > 0 and <= 1, got 1.5"),
        (DpSips, {"ratio": math.nan}, "ratio must be a finite number, got nan"),
        (
            DpSips,
            {"rounds": 2, "budget_split": (0.1, 0.9)},
            "budget_split must not be combined with rounds or ratio; it sets both",
        ),
        (
            DpSips,
            {"budget_split": (0.1, 0.8)},
            "budget_split must be at least one share, each > 0, that sum to 1, got (0.1, 0.8); give for "
            "instance 0.1,0.9",
        ),
        (
            Mad,
            {"max_adaptive_degree": 1},
            "max_adaptive_degree must be an integer from 2 to 1000000, got 1; leave it out for the default, 50 "
            "or max_degree if that is less",
        ),
        (Mad, {"beta": -1}, "beta must be a finite number >= 0, got -1"),
        (Mad2R, {"beta": math.inf}, "beta must be a finite number, got inf"),
        (Mad2R, {"min_bias": 0.4}, "min_bias must be a number from 0.5 to 1, got 0.4"),
        (Mad2R, {"max_bias": 0.9}, "max_bias must be a finite number >= 1, got 0.9"),
        (Mad2R, {"lower_confidence": -0.1}, "lower_confidence must be a finite number >= 0, got -0.1"),
        (Mad2R, {"upper_confidence": math.nan}, "upper_confidence must be a finite number, got nan"),
        (
            Mad2R,
            {"budget_split": (1.0,)},
            "budget_split must be 2 shares, each > 0, that sum to 1, got (1.0,); give for instance 0.1,0.9",
        ),
    ],
    ids=str,
)
def test_bad_parameters_of_algorithms_are_named(kind, arguments, text):
    with pytest.raises(ValueError) as error:
        kind(**arguments)
    assert str(error.value) == text


def test_names_give_the_default_algorithms():
    for name, kind in ALGORITHMS.items():
        assert algorithm_named(name) == kind()
        assert kind.name == name
