"""Uniform weights: the same weight to each of a user's items (SIPS Alg. 2, MAD Alg. 3)."""

from __future__ import annotations

from typing import Literal

import numba as nb
import numpy as np
import numpy.typing as npt

from beam_dp.core import grid
from beam_dp.core.blocks import UserBlock

Norm = Literal["l1", "l2"]


def uniform_sums(block: UserBlock, norm: Norm) -> npt.NDArray[np.int64]:
    """Sum each item's weights over the users of a block.

    A user with d items gives each 1/sqrt(d) (norm "l2", for Gaussian noise) or 1/d ("l1", for Laplace
    noise), rounded down to the grid: sensitivity 1 in that norm under adding or removing one user, since no
    user's weights depend on another's.

    Returns:
        Shape (len(block.keys),), on the grid.
    """
    degrees = np.diff(block.offsets)
    values = np.zeros(int(degrees.max(initial=0)) + 1)
    values[1:] = np.arange(1, len(values), dtype=np.float64) ** (-0.5 if norm == "l2" else -1.0)
    return _sum(block.offsets, block.items, grid.round_down(values), len(block.keys))


@nb.njit(cache=True, nogil=True)
def _sum(
    offsets: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    weight_of_degree: npt.NDArray[np.int64],
    num_items: int,
) -> npt.NDArray[np.int64]:
    total = np.zeros(num_items, np.int64)
    for user in range(len(offsets) - 1):
        weight = weight_of_degree[offsets[user + 1] - offsets[user]]
        for edge in range(offsets[user], offsets[user + 1]):
            total[items[edge]] += weight
    return total
