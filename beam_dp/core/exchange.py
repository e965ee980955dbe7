"""The two directions of an exchange, as functions: partial sums to item shards, answers back by position."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from beam_dp.core import grid
from beam_dp.core.blocks import Answers, ItemBlock, PartialSums, UserBlock
from beam_dp.core.keys import unify


def partial_sums(
    block: UserBlock, sums: tuple[npt.NDArray[np.int64], ...], *, introduce: bool
) -> Iterator[tuple[int, PartialSums]]:
    """Cut a user block's sums by item shard.

    Args:
        block: whose users were summed over.
        sums: vectors of shape (len(block.keys),).
        introduce: send the item keys along, as the first message of a run must.

    Yields:
        (item shard, its slice), for each shard with any item of this block.
    """
    for shard in np.flatnonzero(np.diff(block.slices)):
        start, stop = int(block.slices[shard]), int(block.slices[shard + 1])
        yield (
            int(shard),
            PartialSums(
                shard=block.shard,
                sums=tuple(vector[start:stop] for vector in sums),
                keys=block.keys.slice(start, stop) if introduce else None,
            ),
        )


def introduce_items(shard: int, parts: Iterable[PartialSums]) -> ItemBlock:
    """Build an item block from first messages: who holds which items. Its weights are 0."""
    parts = sorted(parts, key=lambda part: part.shard)
    if any(part.keys is None for part in parts):
        raise ValueError("the first message to an item shard must carry the item keys")
    rows, keys = unify([part.keys for part in parts if part.keys is not None])
    return ItemBlock(
        shard=shard,
        keys=keys,
        askers=tuple(part.shard for part in parts),
        rows=tuple(rows),
        weight=np.zeros(len(keys), np.int64),
    )


def total_sums(
    items: ItemBlock, parts: Iterable[PartialSums], count: int
) -> tuple[npt.NDArray[np.int64], ...]:
    """Add up partial sums by item: `count` vectors of shape (len(items.keys),), on the grid.

    Integers, so the result does not depend on the order in which the parts come.
    """
    rows = dict(zip(items.askers, items.rows, strict=True))
    totals = tuple(np.zeros(len(items.keys), np.int64) for _ in range(count))
    for part in parts:
        for total, vector in zip(totals, part.sums, strict=True):
            grid.add_saturating(total, rows[part.shard], vector)
    return totals


def answers(items: ItemBlock, values: npt.NDArray[np.float64]) -> Iterator[tuple[int, Answers]]:
    """Send one value per item back to every user shard that holds the item.

    Yields:
        (user shard, its items' values in the order in which it asked).
    """
    for asker, rows in zip(items.askers, items.rows, strict=True):
        yield asker, Answers(shard=items.shard, values=values[rows])


def gather_answers(block: UserBlock, parts: Iterable[Answers]) -> npt.NDArray[np.float64]:
    """Put the answers of all item shards together: shape (len(block.keys),).

    Raises:
        ValueError: if an item shard did not answer, or two did for the same items.
    """
    values = np.empty(len(block.keys))
    answered = 0
    for part in parts:
        values[block.slices[part.shard] : block.slices[part.shard + 1]] = part.values
        answered += len(part.values)
    if answered != len(values):
        raise ValueError(
            "item blocks must be those that these user blocks were first summed into; "
            "got answers that do not fit them"
        )
    return values
