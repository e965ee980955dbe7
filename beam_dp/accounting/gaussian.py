"""The Gaussian mechanism: calibration, and exact composition of adaptive rounds."""

from __future__ import annotations

import math

import dp_accounting
from scipy import special

from beam_dp import checks

_UP = 1.0 + 2.0**-30
"""Every sigma is raised by this factor, far more than the calibration's and double arithmetic's error."""

MIN_SCALE, MAX_SCALE = 2.0**-10, 2.0**20
"""Scales of noise between which the grid (beam_dp.core.grid) is fine enough, and does not end."""

MAX_EPSILON = 1e5
"""Beyond this there is no privacy left to calibrate."""


def check_scale(scale: float, epsilon: float) -> float:
    """Return a scale of noise if it fits the grid.

    Raises:
        ValueError: naming epsilon, from which it follows.
    """
    if not MIN_SCALE <= scale <= MAX_SCALE:
        way_out = "raise" if scale > MAX_SCALE else "lower"
        raise ValueError(
            f"epsilon must give noise of a scale from 2^-10 to 2^20, got epsilon={epsilon!r}, for which a "
            f"round needs {scale:g}; {way_out} epsilon"
        )
    return scale


def gaussian_delta(sigma: float, epsilon: float) -> float:
    """Return the exact delta of the Gaussian mechanism of sensitivity 1 (Balle and Wang 2018, Theorem 8).

    Evaluated with log-cdfs, so that it stays accurate for large epsilon.
    """
    a, b = 0.5 / sigma, epsilon * sigma
    first = float(special.log_ndtr(a - b))
    second = epsilon + float(special.log_ndtr(-a - b))
    return math.exp(first) * -math.expm1(min(0.0, second - first))


def calibrate_sigma(epsilon: float, delta: float) -> float:
    """Return the least sigma, rounded up, for which N(0, sigma^2) on l2 sensitivity 1 is (epsilon, delta)-DP.

    Neighbouring relation: whatever the sensitivity was measured in; here add or remove one user.

    Raises:
        ValueError: if epsilon or delta is out of range, or epsilon above MAX_EPSILON.
    """
    epsilon, delta = checks.epsilon(epsilon), checks.delta(delta)
    if epsilon > MAX_EPSILON:
        raise ValueError(f"epsilon must be at most {MAX_EPSILON:g}, got {epsilon!r}; lower epsilon")
    return float(dp_accounting.get_sigma_gaussian(epsilon, delta)) * _UP


def split_sigma(sigma: float, share: float) -> float:
    """Return the sigma of a round that spends `share` of 1/sigma^2.

    Adaptive Gaussian rounds of sensitivity 1 with sum of 1/sigma_r^2 = 1/sigma^2 are together exactly as
    private as one with sigma (Dong, Roth and Su 2022, Corollary 3.3): a first round with 2% of the budget
    costs 2%, where basic composition of (epsilon, delta) would charge it sqrt(2%).
    """
    return checks.positive("sigma", sigma) / math.sqrt(checks.between("share", share, 1e-12, 1.0)) * _UP
