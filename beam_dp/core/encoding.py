"""From rows to user blocks: split a table by user shard, then build each shard's block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numba as nb
import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dp.core.blocks import Pairs, UserBlock
from beam_dp.core.keys import dictionary, unify
from beam_dp.core.randomness import RunKey, edge_priority, placement_hash, shard_of

USER = "user"
ITEM = "item"


def split_pairs(table: pa.Table, *, run_key: RunKey, num_shards: int) -> Iterator[tuple[int, Pairs]]:
    """Split a pair table (columns `user` and `item`) by the hash of the user.

    Yields:
        (user shard, its pairs), for each shard that got any.

    Raises:
        InputError: if a column has a null or a type without an agreed identity.
    """
    user_codes, users = dictionary(table.column(USER), "user")
    item_codes, items = dictionary(table.column(ITEM), "item")
    shards = shard_of(placement_hash(users, run_key.derive("user shard")), num_shards)
    bounds, user_codes, item_codes = _group(shards, user_codes, item_codes, num_shards)
    user_scratch = np.full(len(users), -1, np.int32)
    item_scratch = np.full(len(items), -1, np.int32)
    for shard in np.flatnonzero(np.diff(bounds)):
        rows = slice(bounds[shard], bounds[shard + 1])
        used_users, user_index = _compact(user_codes[rows], user_scratch)
        used_items, item_index = _compact(item_codes[rows], item_scratch)
        yield (
            int(shard),
            Pairs(
                users=users.take(used_users),
                user_index=user_index,
                items=items.take(used_items),
                item_index=item_index,
            ),
        )


def build_user_block(
    shard: int,
    parts: Iterable[Pairs],
    *,
    run_key: RunKey,
    num_item_shards: int,
    max_degree: int | None = None,
    window: bytes = b"",
) -> UserBlock:
    """Merge the pairs of one user shard into its block of distinct edges.

    Users, items and each user's items are ordered by keyed hashes, so the block depends on the set of pairs
    alone, not on the order in which they came.

    Args:
        shard: the user shard's number.
        parts: all pairs of the users of this shard.
        run_key: of the priorities, each a function of (run key, window, user, item).
        num_item_shards: Q.
        max_degree: keep each user's first `max_degree` items only, and only those in the dictionary; None
            keeps all, as algorithms that refill the lists in later rounds need.
        window: identity of the window in which the users are collected.
    """
    parts = list(parts)
    user_maps, users = unify([part.users for part in parts])
    item_maps, items = unify([part.items for part in parts])
    user_hashes = placement_hash(users, run_key.derive("user priority", window=window))
    item_hashes = placement_hash(items, run_key.derive("item priority", window=window))
    user_order = np.argsort(user_hashes, kind="stable")
    user_rank = np.empty(len(users), np.int32)
    user_rank[user_order] = np.arange(len(users), dtype=np.int32)

    count = sum(len(part.user_index) for part in parts)
    edge_users, edge_items = np.empty(count, np.int32), np.empty(count, np.int32)
    position = 0
    for part, user_map, item_map in zip(parts, user_maps, item_maps, strict=True):
        stop = position + len(part.user_index)
        edge_users[position:stop] = user_map[part.user_index]
        edge_items[position:stop] = item_map[part.item_index]
        position = stop
    bounds, _, edge_items = _group(user_rank, edge_users, edge_items, len(users))
    cap = count if max_degree is None else max_degree
    offsets, edges = _sort_and_cap(bounds, edge_items, user_hashes[user_order], item_hashes, cap)

    used = np.zeros(len(items), np.bool_)
    used[edges] = True
    kept = np.flatnonzero(used)
    kept = kept[np.argsort(item_hashes[kept], kind="stable")]
    new_position = np.empty(len(items), np.int32)
    new_position[kept] = np.arange(len(kept), dtype=np.int32)
    item_shards = shard_of(item_hashes[kept], num_item_shards)
    return UserBlock(
        shard=shard,
        offsets=offsets,
        items=new_position[edges],
        keys=items.take(kept),
        slices=np.searchsorted(item_shards, np.arange(num_item_shards + 1)).astype(np.int64),
    )


@nb.njit(cache=True, nogil=True)
def _group(
    group_of_user: npt.NDArray[np.int32],
    users: npt.NDArray[np.int32],
    items: npt.NDArray[np.int32],
    num_groups: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Order pairs by the group of their user (stable counting sort); return the bounds and the pairs."""
    bounds = np.zeros(num_groups + 1, np.int64)
    for user in users:
        bounds[group_of_user[user] + 1] += 1
    for group in range(num_groups):
        bounds[group + 1] += bounds[group]
    following = bounds[:-1].copy()
    grouped_users, grouped_items = np.empty_like(users), np.empty_like(items)
    for row, user in enumerate(users):
        group = group_of_user[user]
        grouped_users[following[group]] = user
        grouped_items[following[group]] = items[row]
        following[group] += 1
    return bounds, grouped_users, grouped_items


@nb.njit(cache=True, nogil=True)
def _compact(
    codes: npt.NDArray[np.int32], scratch: npt.NDArray[np.int32]
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int32]]:
    """Renumber codes in order of appearance; `scratch` is -1 for every code, before and after."""
    used = np.empty(len(codes), np.int32)
    index = np.empty(len(codes), np.int32)
    count = 0
    for row, code in enumerate(codes):
        if scratch[code] < 0:
            scratch[code] = count
            used[count] = code
            count += 1
        index[row] = scratch[code]
    for code in used[:count]:
        scratch[code] = -1
    return used[:count].copy(), index


@nb.njit(cache=True, nogil=True)
def _sort_and_cap(
    bounds: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    user_hashes: npt.NDArray[np.uint64],
    item_hashes: npt.NDArray[np.uint64],
    cap: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Order each user's items by priority, drop repeats, and keep the first `cap`."""
    num_users = len(bounds) - 1
    offsets = np.zeros(num_users + 1, np.int64)
    kept = np.empty(len(items), np.int32)
    end = 0
    for user in range(num_users):
        mine = items[bounds[user] : bounds[user + 1]]
        priorities = np.empty(len(mine), np.uint64)
        for edge, item in enumerate(mine):
            priorities[edge] = edge_priority(user_hashes[user], item_hashes[item])
        order = np.argsort(priorities)
        first = end
        run = end  # where the kept items of the current priority begin
        for position, edge in enumerate(order):
            if position > 0 and priorities[edge] != priorities[order[position - 1]]:
                run = end
            # A repeat has the same priority; so may, very rarely, another item whose hash collides.
            repeated = False
            for earlier in range(run, end):
                if kept[earlier] == mine[edge]:
                    repeated = True
            if not repeated and end - first < cap:
                kept[end] = mine[edge]
                end += 1
        offsets[user + 1] = end
    return offsets, kept[:end].copy()
