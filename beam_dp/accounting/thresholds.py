"""Thresholds that pay for novel items: those that only the added user holds (MAD Theorem 3.3, SIPS Alg. 2).

A new user may bring t novel items, t from 1 to the degree cap; with t of them none weighs more than
h(t) = max_bias/sqrt(t) (l2 weights) or 1/t (l1 weights). At threshold rho the chance that any of t
independent noises lifts its item over is at most delta if each does so with probability
p(t) = 1 - (1 - delta)^(1/t); hence rho = max over t of h(t) + (noise's upper quantile at p(t)).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy import special

from beam_dp import checks

_LEAST_TAIL = 2.0**-100
"""Noise is drawn with tail probabilities in steps of 2^-128 (beam_dp.core.noise); stay well above."""


def gaussian_threshold(*, sigma: float, delta: float, max_degree: int, max_bias: float = 1.0) -> float:
    """Return rho for Gaussian noise: max over t in 1..max_degree of max_bias/sqrt(t) + sigma * isf(p(t)).

    Args:
        sigma: standard deviation of this round's noise.
        delta: what this round's novel items may cost.
        max_degree: the degree cap.
        max_bias: b_max of MAD's biased rounds.
    """
    checks.positive("sigma", sigma)
    checks.at_least("max_bias", max_bias, 1.0)
    t, tail = _tails(delta, max_degree)
    return float(np.max(max_bias / np.sqrt(t) - sigma * special.ndtri(tail)))


def union_threshold(*, sigma: float, delta: float, max_degree: int) -> float:
    """Return rho = 1 + sigma * isf(delta / max_degree), for weights that may follow the noise.

    Pooled evidence adds up noisy weights of rounds whose weights depend on earlier noise. Then the weight of
    a novel item is only known to be at most 1, and its events need not be independent: a union bound
    (specification, section 4).
    """
    checks.positive("sigma", sigma)
    checks.delta(delta)
    tail = check_tail(delta / checks.max_degree(max_degree), delta, max_degree)
    return float(1.0 - sigma * special.ndtri(tail))


def laplace_threshold(*, scale: float, delta: float, max_degree: int) -> float:
    """Return rho for Laplace noise: max over t in 1..max_degree of 1/t + scale * isf(p(t))."""
    checks.positive("scale", scale)
    t, tail = _tails(delta, max_degree)
    quantile = np.where(tail <= 0.5, -np.log(2.0 * tail), np.log(2.0 * (1.0 - tail)))
    return float(np.max(1.0 / t + scale * quantile))


def _tails(delta: float, max_degree: int) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return t = 1..max_degree and p(t), by log1p and expm1: 1 - delta would lose a small delta's digits."""
    checks.delta(delta)
    t = np.arange(1.0, checks.max_degree(max_degree) + 1.0)
    tail = -np.expm1(np.log1p(-delta) / t)
    check_tail(float(tail[-1]), delta, max_degree)
    return t, tail


def check_tail(tail: float, delta: float, max_degree: int) -> float:
    """Return an item's tail probability if noise can be drawn that far out.

    Raises:
        ValueError: naming delta, from which it follows.
    """
    if tail < _LEAST_TAIL:
        raise ValueError(
            f"delta must be large enough for noise drawn from 128 bits, got {delta!r} a round with "
            f"max_degree={max_degree}, a chance below 2^-100 an item; raise delta or lower max_degree"
        )
    return tail
