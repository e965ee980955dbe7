"""Thresholds for thinned releases: a coin, likelier the more an item is exposed, pays for light items.

An item is released if its noisy weight reaches rho *and* a coin with probability c(V) = 1 - exp(-rate * V)
says so, V being its exposure: the sum over its holders of 1/sqrt(length of the holder's list). A user with
l listed items changes l exposures by 1/sqrt(l) each. The coins that differ between the data with and without
the user matter only where the noisy weight of a so lightly exposed item reaches rho; summed over the list,
that is at most

    l * (c(V + x) - c(V)) * Q((rho - growth * V - y) / sigma),    x = 1/sqrt(l),  y = min(1, growth * x),

for the worst exposure V of others, Q being the normal upper tail. The proof is in docs/privacy.md. An item
that can reach rho is exposed far more than that, and passes the coin almost surely. So only what could hardly
be released anyway is given up, and rho is lower than where each of l novel items is paid for in full.
"""

from __future__ import annotations

import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import special

from beam_dp import checks
from beam_dp.accounting.thresholds import check_tail

_RATES = np.geomspace(2.0, 8.0, 8)
"""Rates tried, in units of growth / sigma: about how fast the normal tail falls where it is worth delta."""
_TERNARY_STEPS = 45
_BISECTIONS = 34
_ROUNDING = 1.0 + 1e-6
"""Far more than rounding exposures and weights to the grid, and the search for the worst V, can add."""


def thinning_delta(
    *, threshold: float, rate: float, sigma: float, max_degree: int, max_growth: float
) -> float:
    """Return the probability that the coins of a user's items make a difference, bounded from above.

    Args:
        threshold: rho.
        rate: of the coin, per unit of exposure; > 0.
        sigma: standard deviation of the noise of the compared estimate.
        max_degree: the degree cap: the longest list.
        max_growth: how many times its exposure's share a user may give an item; >= 1.
    """
    # Lists of length low..high together, the worst of each factor; short lists and the longest one exactly.
    lengths = [*range(1, min(8, max_degree) + 1)]
    while lengths[-1] < max_degree - 1:
        lengths.append(min(max_degree - 1, max(lengths[-1] + 1, math.floor(1.1 * lengths[-1]))))
    if lengths[-1] < max_degree:
        lengths.append(max_degree)
    high = np.array(lengths, np.float64)
    low = np.concatenate([[1.0], high[:-1] + 1.0])
    # Coins that differ: l * exp(-rate V) * (1 - exp(-rate x)). Without exp(-rate V) this rises with l.
    differing = -np.expm1(-rate / np.sqrt(high)) * high
    own = np.minimum(1.0, max_growth / np.sqrt(low))

    def log_reached(exposure: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        margin = (threshold - own - max_growth * exposure) / sigma
        return -rate * exposure + special.log_ndtr(-margin)

    # Concave in V, since the normal tail is log-concave: the worst V by ternary search, all lengths at once.
    left = np.zeros_like(own)
    right = np.full_like(own, (threshold + 12.0 * sigma) / max_growth)
    for _ in range(_TERNARY_STEPS):
        one, two = left + (right - left) / 3.0, right - (right - left) / 3.0
        rising = log_reached(one) < log_reached(two)
        left, right = np.where(rising, one, left), np.where(rising, right, two)
    worst = np.exp(np.maximum(log_reached(left), log_reached(right)))
    return float(np.max(differing * worst)) * _ROUNDING


@functools.cache
def thinned_threshold(
    *, sigma: float, delta: float, max_degree: int, max_growth: float
) -> tuple[float, float]:
    """Return the lowest threshold, and the coin's rate, for which `thinning_delta` is at most delta.

    Args:
        sigma: standard deviation of the noise of the compared estimate.
        delta: what this round's light items may cost.
        max_degree: the degree cap.
        max_growth: as for `thinning_delta`.

    Raises:
        ValueError: naming a parameter out of range.
    """
    checks.positive("sigma", sigma)
    checks.delta(delta)
    checks.max_degree(max_degree)
    checks.at_least("max_growth", max_growth, 1.0)
    check_tail(delta / max_degree, delta, max_degree)

    def lowest(rate: float) -> float:
        low, high = 0.0, 2.0 + sigma * 40.0
        for _ in range(_BISECTIONS):
            middle = 0.5 * (low + high)
            spent = thinning_delta(
                threshold=middle, rate=rate, sigma=sigma, max_degree=max_degree, max_growth=max_growth
            )
            low, high = (low, middle) if spent <= delta else (middle, high)
        return high

    rates = [float(rate) * max_growth / sigma for rate in _RATES]
    thresholds = [lowest(rate) for rate in rates]
    best = int(np.argmin(thresholds))
    return thresholds[best], rates[best]
