"""Biased weights of one user (MAD Alg. 4, UserWeights)."""

from __future__ import annotations

import math

import numba as nb
import numpy as np
import numpy.typing as npt


@nb.njit(cache=True, nogil=True)
def user_weights(  # noqa: PLR0912, one algorithm, line by line
    bias: npt.NDArray[np.float64], min_bias: float, max_bias: float, weights: npt.NDArray[np.float64]
) -> None:
    """Spread one user's unit of l2 norm over its items, less to those with a bias below 1.

    On return `min_bias/sqrt(d) <= weights <= max_bias/sqrt(d)` and the l2 norm is at most 1 (MAD Lemma B.4).

    Args:
        bias: shape (d,), the share of the normal weight 1/sqrt(d) that each item should get, in (0, 1].
        min_bias: b_min in [0.5, 1].
        max_bias: b_max >= 1.
        weights: shape (d,), filled in.
    """
    degree = len(bias)
    normal = 1.0 / math.sqrt(degree)
    highest = max_bias * normal
    norm, unbiased = 0.0, 0
    for i in range(degree):
        if bias[i] < 1.0:
            weights[i] = max(min_bias, bias[i]) * normal
            norm += weights[i] ** 2
        else:
            unbiased += 1
    if unbiased == degree:
        weights[:] = normal
        return
    if unbiased > 0:
        rest = min(highest, math.sqrt((1.0 - norm) / unbiased))
        for i in range(degree):
            if bias[i] >= 1.0:
                weights[i] = rest
        norm += unbiased * rest**2
    # Lines 6 to 10: spend what is left on the items below their normal weight. Each turn either uses it up
    # or lifts at least one item to `highest`, so `degree` turns suffice; rounding cannot keep it going.
    nearly_normal = normal * (1.0 - 1e-12)  # an item lifted to `highest` = normal may end an ulp below it
    for _ in range(degree):
        small_norm, largest = 0.0, 0.0
        for i in range(degree):
            if weights[i] < nearly_normal:
                small_norm += weights[i] ** 2
                largest = max(largest, weights[i])
        left = 1.0 - norm
        if left <= 0.0 or small_norm == 0.0:
            return
        factor = min(highest / largest, math.sqrt(1.0 + left / small_norm))
        if factor <= 1.0:
            return
        for i in range(degree):
            if weights[i] < nearly_normal:
                weights[i] *= factor
        norm += (factor**2 - 1.0) * small_norm
