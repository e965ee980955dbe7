"""Between two rounds: what each user block must know about its items before the next round.

Everything here is computed from noisy weights that the privacy proof counts as published, so it is
post-processing and free.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt

from beam_dp import checks
from beam_dp.core import grid
from beam_dp.core.blocks import ItemBlock, UserBlock

FOUND = -1.0
"""The status of a released item; other statuses are biases in [0, 1], 0 for a dropped item."""


@dataclass(frozen=True, kw_only=True)
class Biasing:
    """How MAD2R prepares its second round (MAD Alg. 5, lines 10 to 14)."""

    next_threshold: float
    """The threshold of the coming round."""
    lower_margin: float
    """C_lb * sigma: an item is assumed to weigh at least its noisy weight less this; >= 0."""
    upper_margin: float | None
    """C_ub * sigma: an item is assumed to weigh at most its estimate plus this; >= 0. None: drop nothing."""

    def __post_init__(self) -> None:
        checks.positive("next_threshold", self.next_threshold)
        checks.at_least("lower_margin", self.lower_margin, 0.0)
        if self.upper_margin is not None:
            checks.at_least("upper_margin", self.upper_margin, 0.0)


@dataclass(frozen=True, kw_only=True)
class Dropping:
    """Give up items that can hardly reach the next threshold, and leave the others their normal weight."""

    next_threshold: float
    """The threshold of the coming round."""
    upper_margin: float
    """C_ub * sigma: an item is assumed to weigh at most its estimate plus this; >= 0."""

    def __post_init__(self) -> None:
        checks.positive("next_threshold", self.next_threshold)
        checks.at_least("upper_margin", self.upper_margin, 0.0)


Preparation = Biasing | Dropping
"""What a round's estimates are used for before the next one, besides removing what was found."""


def item_status(items: ItemBlock, preparation: Preparation | None) -> npt.NDArray[np.float64]:
    """Return each item's status for the next round: FOUND, 0 (dropped) or its bias.

    Without `preparation` every item that was not found keeps the bias 1 (DP-SIPS).
    """
    status = np.ones(len(items.keys))
    if items.noisy is None or items.found is None:
        raise ValueError("items must have been through noise and threshold before any can be removed")
    noisy = grid.to_float(items.noisy)
    if isinstance(preparation, Biasing):
        lower = np.maximum(noisy - preparation.lower_margin, 0.0)
        # min(1, next/lower) without dividing by zero
        status = preparation.next_threshold / np.maximum(lower, preparation.next_threshold)
    if preparation is not None and preparation.upper_margin is not None:
        status[noisy + preparation.upper_margin < preparation.next_threshold] = 0.0
    status[items.found] = FOUND
    return status


def remove_found(block: UserBlock, status: npt.NDArray[np.float64]) -> UserBlock:
    """Take the found items out of all lists and set the bias of the rest.

    Args:
        block: the users' lists, full or capped.
        status: shape (len(block.keys),), from `item_status`.
    """
    offsets, items = _remove(block.offsets, block.items, status)
    bias = np.maximum(status, 0.0)
    return dataclasses.replace(
        block, offsets=offsets, items=items, bias=None if np.all(bias[items] == 1.0) else bias
    )


@nb.njit(cache=True, nogil=True)
def _remove(
    offsets: npt.NDArray[np.int64], items: npt.NDArray[np.int32], status: npt.NDArray[np.float64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    left = np.zeros(len(offsets), np.int64)
    kept = np.empty(len(items), np.int32)
    end = 0
    for user in range(len(offsets) - 1):
        for edge in range(offsets[user], offsets[user + 1]):
            if status[items[edge]] >= 0.0:
                kept[end] = items[edge]
                end += 1
        left[user + 1] = end
    return left, kept[:end].copy()
