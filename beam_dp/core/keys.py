"""Identities of users and items as one ragged byte array.

A key is the full identity, as bytes: UTF-8 for text, decimal text for integers, the coder's bytes for
anything else. Two keys are the same user or item exactly when their bytes are equal; hashes only place and
order them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from beam_dp.errors import InputError


@dataclass(frozen=True, eq=False, slots=True)
class Keys:
    """`n` byte strings: key `k` is `data[offsets[k]:offsets[k + 1]]`."""

    offsets: npt.NDArray[np.int64]
    """Shape (n + 1,), non-decreasing, from 0."""
    data: npt.NDArray[np.uint8]
    """Shape (offsets[n],)."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @classmethod
    def from_arrow(cls, array: pa.Array) -> Keys:
        """Take over an Arrow array of large_binary (without nulls), copying only a sliced or empty one."""
        if len(array) == 0:
            return cls(np.zeros(1, np.int64), np.zeros(0, np.uint8))
        _, offsets_buffer, data_buffer = array.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int64, len(array) + 1, array.offset * 8)
        start, stop = int(offsets[0]), int(offsets[-1])
        data = np.frombuffer(data_buffer or b"", np.uint8, stop - start, start if stop > start else 0)
        return cls(offsets - start if start else offsets, data)

    @classmethod
    def from_bytes(cls, values: Sequence[bytes]) -> Keys:
        """Build from Python byte strings."""
        return cls.from_arrow(pa.array(values, pa.large_binary()))

    def to_arrow(self) -> pa.Array:
        """Return the same bytes as an Arrow large_binary array, without copying."""
        buffers = [None, pa.py_buffer(self.offsets), pa.py_buffer(self.data)]
        return pa.Array.from_buffers(pa.large_binary(), len(self), buffers)

    def to_bytes(self) -> list[bytes]:
        """Return the keys as Python byte strings."""
        values: list[bytes] = self.to_arrow().to_pylist()
        return values

    def take(self, indices: npt.NDArray[np.integer]) -> Keys:
        """Return the keys at `indices`, in that order."""
        return Keys.from_arrow(self.to_arrow().take(pa.array(indices)))

    def slice(self, start: int, stop: int) -> Keys:
        """Return keys start..stop - 1; what is sent on holds only their bytes."""
        offsets = self.offsets[start : stop + 1]
        return Keys(offsets - offsets[0], self.data[offsets[0] : offsets[-1]])


def unify(parts: Sequence[Keys]) -> tuple[list[npt.NDArray[np.int32]], Keys]:
    """Merge dictionaries: the distinct keys of all parts, and each part's keys as indices into them."""
    if not parts:
        return [], Keys.from_bytes([])
    encoded = pa.concat_arrays([part.to_arrow() for part in parts]).dictionary_encode()
    indices = encoded.indices.to_numpy()
    bounds = np.cumsum([len(part) for part in parts])[:-1]
    return np.split(indices, bounds), Keys.from_arrow(encoded.dictionary)


def dictionary(column: pa.ChunkedArray, name: str) -> tuple[npt.NDArray[np.int32], Keys]:
    """Split a column into codes (int32, one a row) and the keys they stand for.

    Args:
        column: strings, binaries, integers, or a dictionary of those.
        name: the column's name for error messages.

    Raises:
        InputError: on a null, or a type whose values have no agreed identity (floats, times, nested types).
    """
    value_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
    if not (is_bytes_like(value_type) or pa.types.is_integer(value_type)):
        raise InputError(
            f"{name} must be a column of strings, binaries or integers, got {value_type}; "
            "cast it to one of these first"
        )
    column = (
        column.unify_dictionaries() if pa.types.is_dictionary(column.type) else column.dictionary_encode()
    )
    encoded = column.combine_chunks()
    if isinstance(encoded, pa.ChunkedArray):  # what combine_chunks gives for no chunk at all
        return np.zeros(0, np.int32), Keys.from_bytes([])
    values = encoded.dictionary
    if encoded.null_count or values.null_count:
        raise InputError(f"{name} must not be None (null), got at least one; filter such rows out first")
    if pa.types.is_integer(value_type):
        values = values.cast(pa.string())
    return encoded.indices.to_numpy().astype(np.int32, copy=False), Keys.from_arrow(
        values.cast(pa.large_binary())
    )


def is_bytes_like(data_type: pa.DataType) -> bool:
    """Tell whether values of an Arrow type are byte strings or text."""
    return bool(
        pa.types.is_string(data_type)
        or pa.types.is_large_string(data_type)
        or pa.types.is_binary(data_type)
        or pa.types.is_large_binary(data_type)
    )
