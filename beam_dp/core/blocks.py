"""What flows between the transforms: immutable blocks of arrays.

    pairs -> Pairs -> UserBlock --PartialSums--> ItemBlock --Answers--> UserBlock ...

P user shards hold the edges, Q item shards hold what is known per item. A user block lists its items
ordered by item shard, so what it sends to item shard q, and what comes back, is one contiguous slice:
after the first message, which carries the item keys, both sides speak in arrays by position.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pickle import PickleBuffer, dumps, loads

import numpy as np
import numpy.typing as npt

from beam_dp.core.keys import Keys


class Block:
    """Base of everything that is shipped; it has one coder, `encode` and `decode`."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Pairs(Block):
    """Some (user, item) pairs of one user shard, on their way to the user block; repeats allowed."""

    users: Keys
    user_index: npt.NDArray[np.int32]
    """Shape (pairs,): positions in `users`."""
    items: Keys
    item_index: npt.NDArray[np.int32]
    """Shape (pairs,): positions in `items`."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class UserBlock(Block):
    """All distinct (user, item) edges of the users of one shard. Users have no names any more."""

    shard: int
    offsets: npt.NDArray[np.int64]
    """Shape (users + 1,): the edges of user u are offsets[u]..offsets[u + 1] - 1."""
    items: npt.NDArray[np.int32]
    """Shape (edges,): positions in `keys`; each user's items in the order of their priority."""
    keys: Keys
    """The items of this block, ordered by item shard; fixed for the whole run."""
    slices: npt.NDArray[np.int64]
    """Shape (item shards + 1,): keys slices[q]..slices[q + 1] - 1 belong to item shard q."""
    bias: npt.NDArray[np.float64] | None = None
    """Shape (len(keys),): fraction of its normal weight an item should get (MAD Alg. 4), at most 1; 0 for a
    dropped item, which keeps its place in the lists but gets no weight. None: all 1."""

    @property
    def num_users(self) -> int:
        """The number of users in this block."""
        return len(self.offsets) - 1


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class PartialSums(Block):
    """What user shard `shard` sends to one item shard: sums over its own users, by position."""

    shard: int
    sums: tuple[npt.NDArray[np.int64], ...]
    """Vectors of shape (slice,), on the grid, non-negative."""
    keys: Keys | None = None
    """Shape (slice,): the items themselves, in the first message only."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class Answers(Block):
    """What item shard `shard` answers to one user shard: one value per item, in the order it was asked."""

    shard: int
    values: npt.NDArray[np.float64]
    """Shape (slice,)."""


@dataclass(frozen=True, eq=False, kw_only=True, slots=True)
class ItemBlock(Block):
    """What is known about the items of one shard."""

    shard: int
    keys: Keys
    """The distinct items of this shard."""
    askers: tuple[int, ...]
    """The user shards that hold any of these items."""
    rows: tuple[npt.NDArray[np.int32], ...]
    """For each asker the positions in `keys` of its items, in the order of its slice."""
    weight: npt.NDArray[np.int64]
    """Shape (len(keys),): this round's weight on the grid; 0 exactly where no user gave any."""
    exposure: npt.NDArray[np.int64] | None = None
    """Shape (len(keys),): this round's exposure (see `weights.uniform.exposure_sums`), on the grid."""
    noisy: npt.NDArray[np.int64] | None = None
    """Shape (len(keys),): the estimate that is compared with the threshold, on the grid: this round's weight
    plus noise, or the precision-weighted mean of all rounds'; -SATURATION where none was computed."""
    evidence: npt.NDArray[np.float64] | None = None
    """Shape (len(keys),): sum over the rounds of (weight + noise) / sigma^2, in grid steps, if they pool."""
    found: npt.NDArray[np.bool_] | None = None
    """Shape (len(keys),): whether the item has been released, in this or an earlier round."""


_ALIGNMENT = 8
_LENGTH = struct.Struct("<q")


def encode(block: Block) -> bytes:
    """Serialise a block: a small pickle, then the arrays' bytes, each copied once."""
    buffers: list[PickleBuffer] = []
    frame = dumps(block, protocol=5, buffer_callback=buffers.append)
    raw = [buffer.raw() for buffer in buffers]
    header = [_LENGTH.pack(len(raw)), _LENGTH.pack(len(frame))] + [_LENGTH.pack(len(part)) for part in raw]
    parts: list[bytes | memoryview] = list(header)
    for part in (memoryview(frame), *raw):
        parts += [part, bytes(-len(part) % _ALIGNMENT)]
    return b"".join(parts)


def encoded_size(block: Block) -> int:
    """Return about how many bytes `encode` gives, without copying the arrays."""
    buffers: list[PickleBuffer] = []
    frame = dumps(block, protocol=5, buffer_callback=buffers.append)
    return len(frame) + sum(len(buffer.raw()) + _LENGTH.size for buffer in buffers)


def decode(data: bytes) -> Block:
    """Restore a block; its arrays are read-only views of `data`."""
    view = memoryview(data)
    count, frame_length = struct.unpack_from("<2q", view)
    lengths = struct.unpack_from(f"<{count}q", view, 2 * _LENGTH.size)
    position = (2 + count) * _LENGTH.size
    parts = []
    for length in (frame_length, *lengths):
        parts.append(view[position : position + length])
        position += length + -length % _ALIGNMENT
    block: Block = loads(parts[0], buffers=parts[1:])
    return block
