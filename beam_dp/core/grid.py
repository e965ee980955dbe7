"""The fixed grid on which weights, noise and thresholds are compared: multiples of 2^-32 as int64.

Integers make sums independent of their order, so a result does not depend on shards or workers, and keep
the released comparison free of a float's low bits. Sums saturate instead of wrapping round: cutting at a
constant is monotone and shrinks differences, so no sensitivity grows by it.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

BITS = 32
SCALE = float(1 << BITS)
SATURATION = 1 << 61
"""Two saturated sums still add up without overflow."""


def round_down(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round weights to the grid, never up: the norm of a user's weights must not grow."""
    return np.floor(values * SCALE).astype(np.int64)


def nearest(values: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
    """Round noise to the grid, cut at the saturation."""
    return np.clip(np.rint(values * SCALE), -float(SATURATION), float(SATURATION)).astype(np.int64)


def threshold(value: float) -> int:
    """Round a threshold up to the grid and one step further, which covers the rounding of the noise."""
    return math.ceil(value * SCALE) + 1


def to_float(values: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Return grid values as ordinary numbers."""
    return values / SCALE


def add_saturating(
    total: npt.NDArray[np.int64], rows: npt.NDArray[np.integer], part: npt.NDArray[np.int64]
) -> None:
    """Add `part` (non-negative) to `total[rows]` in place; `rows` are distinct."""
    total[rows] = np.minimum(total[rows] + part, SATURATION)
