"""The baselines' input: every user's distinct items, as one CSR pair of arrays."""

from typing import Any, NamedTuple

import numpy as np
from numba import njit
from numpy.typing import ArrayLike, NDArray

from beam_dp import checks
from beam_dp.errors import InputError


class UserSets(NamedTuple):
    """User `u` holds the distinct items `items[offsets[u]:offsets[u + 1]]`.

    The three fields, in this order, are the leading arguments of every baseline: `select_...(*sets, ...)`.
    """

    offsets: NDArray[np.int64]
    """Length users + 1, from 0, never falling; the last entry is the length of `items`."""
    items: NDArray[np.int32]
    """Item ids in 0..num_items - 1, distinct within a user."""
    num_items: int
    """Length of the weights and of the answer; ids that no user holds are allowed."""


def user_sets_from_pairs(users: ArrayLike, items: ArrayLike) -> UserSets:
    """Groups `(user, item)` pairs of dense non-negative ids by user, dropping duplicate pairs."""
    user_ids = _ids("users", users)
    item_ids = _ids("items", items)
    if len(user_ids) != len(item_ids):
        raise InputError("users and items must have equal lengths; give one entry of each per pair")
    num_users = int(user_ids.max(initial=-1)) + 1
    num_items = int(item_ids.max(initial=-1)) + 1
    if num_items > np.iinfo(np.int32).max or num_users * num_items > np.iinfo(np.int64).max:
        raise InputError("users and items must be small dense ids; number them with np.unique first")
    keys = np.sort(user_ids * num_items + item_ids)
    keys = keys[np.diff(keys, prepend=-1) > 0]  # ten times faster here than np.unique, which hashes
    owners, held = np.divmod(keys, max(num_items, 1))
    offsets = np.zeros(num_users + 1, np.int64)
    np.cumsum(np.bincount(owners, minlength=num_users), out=offsets[1:])
    return UserSets(offsets, held.astype(np.int32), num_items)


def shuffled_sets(
    offsets: ArrayLike,
    items: ArrayLike,
    num_items: int,
    *,
    rng: np.random.Generator,
    max_degree: int | None = None,
) -> UserSets:
    """Users in random order, each with its items in random order and at most `max_degree` of them.

    Both sequential algorithms then simply walk the result from front to back. A user's random sample and
    order do not depend on what other users hold, which their sensitivity proofs need.
    """
    sets = checked_sets(offsets, items, num_items)
    if max_degree is not None:
        checks.max_degree(max_degree)
    degrees = np.diff(sets.offsets)
    visits = rng.permutation(len(degrees))
    turn = np.empty_like(visits)
    turn[visits] = np.arange(len(visits))
    order = np.lexsort((rng.random(len(sets.items)), np.repeat(turn, degrees)))
    degrees = degrees[visits]
    first = np.cumsum(degrees) - degrees
    rank = np.arange(len(order)) - np.repeat(first, degrees)
    if max_degree is not None:
        order = order[rank < max_degree]
        degrees = np.minimum(degrees, max_degree)
    new_offsets = np.concatenate(([0], np.cumsum(degrees))).astype(np.int64)
    return UserSets(new_offsets, sets.items[order], sets.num_items)


def checked_sets(offsets: ArrayLike, items: ArrayLike, num_items: int) -> UserSets:
    """The arrays with their exact types; raises `InputError` if they are not the CSR form of user sets.

    A wrong id would make the compiled loops write outside the weights, a repeated one would let a user move
    an item twice and break the sensitivity.
    """
    most = int(np.iinfo(np.int32).max)
    num_items = checks.integer("num_items", num_items, low=0, high=most, way_out="use the largest id plus 1")
    offset_array = _ids("offsets", offsets)
    item_array = _ids("items", items)
    if len(offset_array) == 0 or offset_array[0] != 0 or offset_array[-1] != len(item_array):
        raise InputError("offsets must start with 0 and end with len(items); build them with np.cumsum")
    if (np.diff(offset_array) < 0).any():
        raise InputError("offsets must never fall; build them with np.cumsum of the users' degrees")
    if (item_array >= num_items).any():
        raise InputError("items must be below num_items; raise num_items or renumber the items")
    if _has_repeats(offset_array, item_array, num_items):
        raise InputError("items must be distinct within a user; build the sets with user_sets_from_pairs")
    return UserSets(offset_array, item_array.astype(np.int32), num_items)


def _ids(name: str, values: ArrayLike) -> NDArray[np.int64]:
    array: NDArray[Any] = np.asarray(values)
    if array.size == 0:
        array = array.astype(np.int64)  # np.asarray([]) is float
    if array.ndim != 1 or array.dtype.kind not in "iu" or (array.size and array.min() < 0):
        raise InputError(
            f"{name} must be a one-dimensional array of integers >= 0, got {array.ndim} dimension(s) of "
            f"{array.dtype}; number the values with np.unique(..., return_inverse=True)"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


@njit(cache=True, nogil=True)
def _has_repeats(offsets: NDArray[np.int64], items: NDArray[np.int64], num_items: int) -> bool:
    last_holder = np.full(num_items, -1, np.int64)
    for user in range(len(offsets) - 1):
        for edge in range(offsets[user], offsets[user + 1]):
            if last_holder[items[edge]] == user:
                return True
            last_holder[items[edge]] = user
    return False
