"""Zero-concentrated DP and its conversion, as DP-SIPS accounts (dp_sips, Lemmas 6 to 8, Corollary 9)."""

from __future__ import annotations

import math

from scipy import optimize

from beam_dp import checks


def zcdp_delta(rho: float, epsilon: float) -> tuple[float, float]:
    """Convert rho-zCDP to (epsilon, delta)-DP (SIPS eq. (4) and (5)).

    delta = inf over alpha > 1 of exp((alpha - 1)(alpha rho - epsilon)) / (alpha - 1) * (1 - 1/alpha)^alpha.
    Every alpha gives a valid delta, so an inexact minimum errs on the safe side.

    Returns:
        (delta, at most 1; the alpha that gave it).
    """

    def log_delta(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        alpha = 1.0 + excess
        return excess * (alpha * rho - epsilon) - log_excess + alpha * (log_excess - math.log1p(excess))

    checks.positive("rho", rho)
    # The best of a coarse search over all alphas, then a fine one beside it.
    coarse = [0.25 * step for step in range(-120, 121)]
    centre = min(coarse, key=log_delta)
    result = optimize.minimize_scalar(
        log_delta, bounds=(centre - 0.25, centre + 0.25), method="bounded", options={"xatol": 1e-10}
    )
    return min(1.0, math.exp(min(0.0, float(result.fun)))), 1.0 + math.exp(float(result.x))


def approximate_zcdp_delta(rho: float, delta: float, epsilon: float) -> float:
    """Convert delta-approximate rho-zCDP to (epsilon, returned delta)-DP (SIPS Corollary 9)."""
    return delta + (1.0 - delta) * zcdp_delta(rho, epsilon)[0]


def zcdp_rho(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP implies (epsilon, delta)-DP, rounded down."""
    epsilon, delta = checks.epsilon(epsilon), checks.delta(delta)
    low, high = 0.0, epsilon  # at rho = epsilon the exponent (alpha - 1)(alpha - 1) epsilon is positive
    while zcdp_delta(high, epsilon)[0] <= delta:
        high *= 2.0
    for _ in range(100):
        middle = 0.5 * (low + high)
        if zcdp_delta(middle, epsilon)[0] <= delta:
            low = middle
        else:
            high = middle
    return low * (1.0 - 2.0**-30)


def zcdp_sigma(rho: float) -> float:
    """Return the sigma of a Gaussian round of sensitivity 1 that is rho-zCDP (SIPS Definition 12)."""
    return math.sqrt(0.5 / rho) * (1.0 + 2.0**-30)
