"""Uniform weights: the same weight to each of a user's items (SIPS Alg. 2, MAD Alg. 3)."""

from __future__ import annotations

import math
from typing import Literal

import numba as nb
import numpy as np
import numpy.typing as npt

from beam_dp.core import grid
from beam_dp.core.blocks import UserBlock

Norm = Literal["l1", "l2"]


def uniform_sums(block: UserBlock, norm: Norm, max_growth: float = math.inf) -> npt.NDArray[np.int64]:
    """Sum each item's weights over the users of a block.

    A user who lists l items, d of them not dropped, gives each of these d the weight
    min(1/sqrt(d), max_growth/sqrt(l)) (norm "l2", for Gaussian noise) or min(1/d, max_growth/l) ("l1", for
    Laplace noise), rounded down to the grid: sensitivity 1 in that norm under adding or removing one user,
    since no user's weights depend on another's.

    Args:
        block: the users' lists; a bias of 0 marks a dropped item, other biases count as 1.
        norm: the norm in which a user's weights are at most 1.
        max_growth: >= 1; how many times the weight it would have if nothing were dropped an item may get.

    Returns:
        Shape (len(block.keys),), on the grid.
    """
    power = -0.5 if norm == "l2" else -1.0
    return _sum_weights(block.offsets, block.items, _dropped(block), power, max_growth, grid.SCALE)


def exposure_sums(block: UserBlock) -> npt.NDArray[np.int64]:
    """Sum each item's exposure: 1/sqrt(l) from every user who lists it among l items, not dropped.

    Rounded up to the grid, so that no weight of `uniform_sums` exceeds max_growth times its exposure.

    Returns:
        Shape (len(block.keys),), on the grid.
    """
    return _sum_exposure(block.offsets, block.items, _dropped(block), grid.SCALE)


def _dropped(block: UserBlock) -> npt.NDArray[np.bool_]:
    if block.bias is None:
        return np.zeros(len(block.keys), np.bool_)
    return block.bias == 0.0


@nb.njit(cache=True, nogil=True)
def _sum_weights(
    offsets: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    dropped: npt.NDArray[np.bool_],
    power: float,
    max_growth: float,
    scale: float,
) -> npt.NDArray[np.int64]:
    total = np.zeros(len(dropped), np.int64)
    for user in range(len(offsets) - 1):
        mine = items[offsets[user] : offsets[user + 1]]
        degree = 0
        for item in mine:
            if not dropped[item]:
                degree += 1
        if degree == 0:
            continue
        share = min(float(degree) ** power, max_growth * float(len(mine)) ** power)
        weight = np.int64(math.floor(share * scale))
        for item in mine:
            if not dropped[item]:
                total[item] += weight
    return total


@nb.njit(cache=True, nogil=True)
def _sum_exposure(
    offsets: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    dropped: npt.NDArray[np.bool_],
    scale: float,
) -> npt.NDArray[np.int64]:
    total = np.zeros(len(dropped), np.int64)
    for user in range(len(offsets) - 1):
        mine = items[offsets[user] : offsets[user + 1]]
        if len(mine) == 0:
            continue
        exposure = np.int64(math.ceil(scale / math.sqrt(len(mine))))
        for item in mine:
            if not dropped[item]:
                total[item] += exposure
    return total
