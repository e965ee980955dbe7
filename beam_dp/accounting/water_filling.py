"""The threshold for thinned water filling weights and Laplace noise (docs/water_filling_proof.md).

An item of weight W is released if a coin of probability c(W) = min(1, W) says so and W + noise reaches rho,
which has probability at most T(W) = exp((W - rho) / scale) / 2. One user changes the weights by x_i >= 0 of
sum at most 1. Coins that differ matter with probability at most

    sum of (c(W_i + x_i) - c(W_i)) * T(W_i + x_i)
        <= max over a in [0, 1), x in (0, 1] of min(1, (1 - a) / x) * T(a + x)
        =  exp((1 - rho) / scale) / 2 * max(1, exp(e - 1) / e)  with e = 1/scale, the factor 1 where e <= 1.

Both directions of the neighbouring relation cost this delta once, and one item alone attains it.
"""

from __future__ import annotations

import math

from beam_dp import checks

_LEAST_SCALE, _LARGEST_SCALE = 2.0**-5, 2.0**9
_LEAST_TAIL = 2.0**-80
_ROUNDING = 2.0**-20
"""Added to ln(1/delta): more than rounding the weights, the noise and this formula can cost."""


def water_filling_delta(*, scale: float, threshold: float) -> float:
    """Return what the coins of one user's items cost: the delta of a thinned release at this threshold.

    Args:
        scale: of the Laplace noise: 1/epsilon.
        threshold: rho.
    """
    checks.positive("scale", scale)
    checks.number("threshold", threshold)
    return 0.5 * math.exp((1.0 - threshold) / scale + _log_factor(scale) + _ROUNDING)


def water_filling_threshold(*, scale: float, delta: float) -> float:
    """Return rho: 1 + scale * (ln(1/(2 delta)) + max(0, e - 1 - ln e)), e = 1/scale; at least 1.

    Neighbouring relation: add or remove one user, with any number of items.

    Args:
        scale: of the Laplace noise: 1/epsilon, from 1/32 to 512.
        delta: all of it pays for the coins.

    Raises:
        ValueError: for a scale or a delta beyond what the noise's 128 bits and the grid are fine enough for.
    """
    scale = checks.between("scale", scale, _LEAST_SCALE, _LARGEST_SCALE)
    delta = checks.delta(delta)
    # Where e > 1 the worst item weighs 1 - 1/e and gains a whole unit: it is released as one of 2 - 1/e is.
    rounded = math.log(0.5 / delta) + _log_factor(scale) + _ROUNDING
    threshold = max(1.0, 1.0 + scale * rounded)
    tail = 0.5 * math.exp(-threshold / scale)
    if tail < _LEAST_TAIL:
        raise ValueError(
            f"delta must be large enough for noise drawn from 128 bits, got {delta!r} with scale={scale!r}, "
            f"a chance of {tail:g} for a light item; raise delta or lower epsilon"
        )
    return threshold


def _log_factor(scale: float) -> float:
    rate = 1.0 / scale
    return rate - 1.0 - math.log(rate) if rate > 1.0 else 0.0
