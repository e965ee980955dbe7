"""Water filling: each user's unit of l1 weight runs down its list, past items that are full already.

In pass p a user sends all its remaining mass to its p-th item. An item of level W that receives A keeps
min(A, target - W); what is too much goes back, the same fraction to everyone who sent. It is the greedy
algorithm for l1 weights in a constant number of rounds (specification, section 4).

All masses and levels are integers on one fine grid of 2^-mass_bits. Levels and remaining masses never fall
when a user is added, exactly; mass is conserved up to a few steps per returned sending, for which `unit_mass`
pays. So the levels have l1 sensitivity at most 1 for any number of passes (docs/water_filling_proof.md).

A new user displaces others onto items that had no mass before, maybe onto very many. So an item enters the
release by a coin only, of probability min(1, level): `thin_and_round`.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numba as nb
import numpy as np
import numpy.typing as npt

from beam_dp.core import grid
from beam_dp.core.blocks import Answers, Block, ItemBlock, PartialSums, UserBlock
from beam_dp.core.randomness import keyed_bits

MAX_PASSES = 100
"""Each pass is an exchange there and one back; ten reach nearly all that more would."""
MAX_TARGET = 2.0**16
"""Keeps the masses' grid fine enough for 2^28 returned sendings, in the worst case."""

_LOW_BITS = 26
_LOW = (1 << _LOW_BITS) - 1
_MARGIN_BITS = 13
_ROUNDING_BITS = 20
_EXACT = 1 << 53


@dataclass(frozen=True, kw_only=True)
class WaterFillingParameters:
    """The numbers of a water filling; `beam_dp.transforms.WaterFillingWeights` checks their ranges."""

    passes: int
    """K in 1..MAX_PASSES: how many items of its list a user can reach."""
    target: float
    """tau in [1, MAX_TARGET]: an item that weighs so much is full; usually rho + beta * scale."""

    @property
    def mass_bits(self) -> int:
        """A mass of 1 is 2^mass_bits steps: 52, less if the target would not fit into 61 bits."""
        return min(52, 61 - math.ceil(math.log2(self.target)))

    @property
    def unit_mass(self) -> int:
        """Every user's mass in steps: 1 - 2^-13; the rest pays for all rounding (see the proof)."""
        return (1 << self.mass_bits) - (1 << (self.mass_bits - _MARGIN_BITS))

    @property
    def full(self) -> int:
        """The target in steps, rounded to a weight that `thin_and_round` need not round."""
        return math.floor(self.target * (1 << _ROUNDING_BITS)) << (self.mass_bits - _ROUNDING_BITS)


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Senders(Block):
    """The users of one shard who still have mass and an item to send it to."""

    shard: int
    mass: npt.NDArray[np.int64]
    """Shape (senders,): the mass each has left, in steps; > 0."""
    offsets: npt.NDArray[np.int64]
    """Shape (senders + 1,): sender s has yet to visit items offsets[s]..offsets[s + 1] - 1, at least one."""
    items: npt.NDArray[np.int32]
    """Shape (edges,): positions in the user block's keys, each sender's in the order of their priority."""
    slices: npt.NDArray[np.int64]
    """Shape (item shards + 1,): as in the user block."""


def first_senders(block: UserBlock, parameters: WaterFillingParameters) -> Senders:
    """Return all users of a block, with all their mass and the first `passes` items of their lists.

    Raises:
        ValueError: if the block has biases: they would mean nothing here.
    """
    if block.bias is not None:
        raise ValueError("user blocks must have no biases for water filling; use it as the only round")
    everyone = np.full(block.num_users, parameters.unit_mass, np.int64)
    mass, offsets, items = _trim(block.offsets, block.items, everyone, 0, parameters.passes)
    return Senders(shard=block.shard, mass=mass, offsets=offsets, items=items, slices=block.slices)


def sent_sums(senders: Senders) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Sum what each item is sent in this pass, its high and its low 26 bits apart: they cannot overflow.

    Returns:
        Two vectors of shape (keys of the user block,).
    """
    return _sums(senders.offsets, senders.items, senders.mass, int(senders.slices[-1]))


def messages(senders: Senders, sums: tuple[npt.NDArray[np.int64], ...]) -> Iterator[tuple[int, PartialSums]]:
    """Cut the sums of a later pass by item shard, and leave out the shards to which nobody sends.

    Yields:
        (item shard, its slice).
    """
    asked = np.unique(np.searchsorted(senders.slices, senders.items[senders.offsets[:-1]], side="right") - 1)
    for shard in asked:
        start, stop = int(senders.slices[shard]), int(senders.slices[shard + 1])
        yield (
            int(shard),
            PartialSums(shard=senders.shard, sums=tuple(vector[start:stop] for vector in sums)),
        )


def keep(
    level: npt.NDArray[np.int64],
    high: npt.NDArray[np.int64],
    low: npt.NDArray[np.int64],
    parameters: WaterFillingParameters,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.float64]]:
    """On the items' side: return the new levels, and which fraction of what was sent goes back.

    Both never fall when a level or what was sent rises: the level exactly, the fraction because each
    operation on doubles is rounded monotonically.

    Args:
        level: in steps, at most `full`.
        high: sums of the high bits sent.
        low: sums of the low bits sent.
        parameters: the same as for `first_senders`.
    """
    room = parameters.full - level
    high = high + (low >> _LOW_BITS)
    low = low & _LOW
    fits = (high < room >> _LOW_BITS) | ((high == room >> _LOW_BITS) & (low <= room & _LOW))
    kept = np.where(fits, (np.where(fits, high, 0) << _LOW_BITS) + low, room)
    # Beyond 2^53 the high part is rounded; adding the low one could then let a larger sum look smaller.
    sent = high.astype(np.float64) * float(1 << _LOW_BITS) + np.where(high < _EXACT, low, 0)
    back = np.zeros(len(level))
    np.divide(room.astype(np.float64), sent, out=back, where=~fits)
    np.subtract(1.0, back, out=back, where=~fits)
    return level + kept, back


def answers(
    items: ItemBlock, back: npt.NDArray[np.float64], parts: Iterable[PartialSums]
) -> Iterator[tuple[int, Answers]]:
    """Answer the user shards that sent something in this pass.

    Yields:
        (user shard, its items' fractions in the order in which it holds them).
    """
    rows = dict(zip(items.askers, items.rows, strict=True))
    for part in parts:
        yield part.shard, Answers(shard=items.shard, values=back[rows[part.shard]])


def gather_answers(senders: Senders, parts: Iterable[Answers]) -> npt.NDArray[np.float64]:
    """Put answers together: shape (keys of the user block,), NaN where this shard had sent nothing.

    Raises:
        ValueError: if an item to which somebody sent did not answer.
    """
    values = np.full(int(senders.slices[-1]), np.nan)
    for part in parts:
        values[senders.slices[part.shard] : senders.slices[part.shard + 1]] = part.values
    if np.isnan(values[senders.items[senders.offsets[:-1]]]).any():
        raise ValueError(
            "item blocks must be those that these user blocks were first summed into; "
            "got answers that do not fit them"
        )
    return values


def take_back(senders: Senders, back: npt.NDArray[np.float64]) -> Senders:
    """On the users' side: return who has mass left for the next item.

    Args:
        senders: those of this pass.
        back: shape (keys of the user block,), from `keep`.
    """
    returned = np.floor(senders.mass * back[senders.items[senders.offsets[:-1]]]).astype(np.int64)
    mass, offsets, items = _trim(senders.offsets, senders.items, returned, 1, len(senders.items))
    return dataclasses.replace(senders, mass=mass, offsets=offsets, items=items)


def fill(block: UserBlock, parameters: WaterFillingParameters) -> npt.NDArray[np.int64]:
    """Run all passes over one user block that holds all users.

    Returns:
        Shape (len(block.keys),): levels, in steps.
    """
    level = np.zeros(len(block.keys), np.int64)
    senders = first_senders(block, parameters)
    while len(senders.mass):
        level, back = keep(level, *sent_sums(senders), parameters)
        senders = take_back(senders, back)
    return level


def thin_and_round(items: ItemBlock, secret: bytes, parameters: WaterFillingParameters) -> ItemBlock:
    """Let a coin of probability min(1, level) decide who keeps a weight, and round it to multiples of 2^-20.

    Both are keyed by the item. The rounding is up or down, with a mean that is the level: rounding each level
    down could change the weights of many items by a whole step each where a user changed them by much less. A
    weight of 0 would never be released, so what passes the coin gets at least 2^-20.

    Args:
        items: whose weights are levels, in steps.
        secret: 32 bytes from `RunKey.derive`, for this purpose, round and window alone.
        parameters: the same as for `keep`.

    Returns:
        The items, their weights on the grid (`beam_dp.core.grid`); 0 where the coin says no.
    """
    shift = parameters.mass_bits - _ROUNDING_BITS
    fraction = (1 << shift) - 1
    level = items.weight
    drawn = np.flatnonzero((level > 0) & ((level < 1 << parameters.mass_bits) | ((level & fraction) > 0)))
    bits = keyed_bits(items.keys.take(drawn), secret)
    coin = (bits[:, 0] >> np.uint64(64 - parameters.mass_bits)).astype(np.int64) < level[drawn]
    up = (bits[:, 1] & np.uint64(fraction)).astype(np.int64)
    weight = level >> shift
    weight[drawn] = np.where(coin, np.maximum((level[drawn] + up) >> shift, 1), 0)
    return dataclasses.replace(items, weight=weight << (grid.BITS - _ROUNDING_BITS))


def water_filling_weights(
    users: UserBlock, items: ItemBlock, parameters: WaterFillingParameters, secret: bytes
) -> ItemBlock:
    """Return the items with thinned water filling weights: the plain twin of `WaterFillingWeights`.

    Args:
        users: all users, in one block, capped.
        items: the items of that block (`beam_dp.in_memory.introduce`).
        parameters: passes and target.
        secret: as for `thin_and_round`.
    """
    level = np.zeros(len(items.keys), np.int64)
    level[items.rows[items.askers.index(users.shard)]] = fill(users, parameters)
    return thin_and_round(dataclasses.replace(items, weight=level), secret, parameters)


@nb.njit(cache=True, nogil=True)
def _sums(
    offsets: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    mass: npt.NDArray[np.int64],
    num_items: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    high, low = np.zeros(num_items, np.int64), np.zeros(num_items, np.int64)
    for sender in range(len(mass)):
        item = items[offsets[sender]]
        high[item] += mass[sender] >> _LOW_BITS
        low[item] += mass[sender] & _LOW
    return high, low


@nb.njit(cache=True, nogil=True)
def _trim(
    offsets: npt.NDArray[np.int64],
    items: npt.NDArray[np.int32],
    mass: npt.NDArray[np.int64],
    visited: int,
    most: int,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int32]]:
    """Skip `visited` items of each list, take up to `most` of the rest; drop who can send nothing."""
    left, kept = np.empty(len(mass), np.int64), np.empty(len(items), np.int32)
    bounds = np.zeros(len(mass) + 1, np.int64)
    count, end = 0, 0
    for sender in range(len(mass)):
        start = offsets[sender] + visited
        stop = min(offsets[sender + 1], start + most)
        if mass[sender] == 0 or start >= stop:
            continue
        kept[end : end + stop - start] = items[start:stop]
        end += stop - start
        left[count] = mass[sender]
        count += 1
        bounds[count] = end
    return left[:count].copy(), bounds[: count + 1].copy(), kept[:end].copy()
