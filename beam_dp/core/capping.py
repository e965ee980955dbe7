"""Bound how many items a user contributes to: the degree cap."""

from __future__ import annotations

import dataclasses

import numba as nb
import numpy as np
import numpy.typing as npt

from beam_dp.core.blocks import UserBlock


def cap_degrees(block: UserBlock, max_degree: int) -> UserBlock:
    """Keep each user's first `max_degree` items.

    A user's items stand in the order of persistent random priorities, so this is a uniform subsample, and
    taking items away later (found ones) lets the next in line move up. The block's dictionary stays as it
    is: answers for the full block fit the capped one and the other way round.
    """
    offsets, items = _cap(block.offsets, block.items, max_degree)
    return dataclasses.replace(block, offsets=offsets, items=items)


@nb.njit(cache=True, nogil=True)
def _cap(
    offsets: npt.NDArray[np.int64], items: npt.NDArray[np.int32], max_degree: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    capped = np.zeros(len(offsets), np.int64)
    kept = np.empty(len(items), np.int32)
    end = 0
    for user in range(len(offsets) - 1):
        start = offsets[user]
        for edge in range(start, min(start + max_degree, offsets[user + 1])):
            kept[end] = items[edge]
            end += 1
        capped[user + 1] = end
    return capped, kept[:end].copy()
