"""Reading (user, item) pairs from Parquet by row groups, keeping its dictionary encoding.

No Python object is made per row.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from beam_dp.errors import InputError
from beam_dp.io.columns import check_different, find_column
from beam_dp.io.files import open_plain
from beam_dp.io.ranges import ByteRange

BATCH_ROWS = 1 << 20
"""Default number of rows of one table; a reader holds a small multiple of it in memory."""


def read_parquet(
    part: ByteRange, *, user_column: str | int, item_column: str | int, batch_rows: int = BATCH_ROWS
) -> Iterator[pa.Table]:
    """Yield the pairs of a range's row groups, one table for each batch of rows.

    Row group i of n belongs to the range that contains byte floor(i / n * size of the file): about where it
    lies, and inside exactly one range. An item that is a list gives one row per element; an empty list none.

    Args:
        part: what to read.
        user_column: name, or number counted from 0, of a column of strings, bytes or integers.
        item_column: likewise, or of lists of these.
        batch_rows: approximate number of pairs in one table.

    Yields:
        Pair tables: `user` and `item`, dictionary<int32, string or binary> or an integer type, at least one
        row. A dictionary may hold values that the table does not use.

    Raises:
        InputError: the file cannot be read as Parquet, a column is missing or of another type, a user or item
            is null, or a string is not valid UTF-8.
    """
    with open_plain(part.path) as file:
        size = file.seek(0, os.SEEK_END)
        if size == 0:
            return
        with _unreadable_as_input_error(part.path):
            plain = pq.ParquetFile(file)
        if plain.metadata.num_rows == 0:
            return
        user, item = _find_columns(part.path, plain.schema_arrow, user_column, item_column)
        with _unreadable_as_input_error(part.path):
            groups = pq.ParquetFile(
                file, metadata=plain.metadata, read_dictionary=_byte_columns(plain, user, item)
            )
        row = 0
        for group in range(plain.num_row_groups):
            in_group = plain.metadata.row_group(group).num_rows
            start = size * group // plain.num_row_groups
            if part.start <= start and (part.end is None or start < part.end):
                rows = _rows_per_batch(plain.metadata.row_group(group), item, batch_rows)
                for batch in _batches(part.path, groups, group, [user, item], rows):
                    table = _pairs(batch.column(user), batch.column(item), part.path, row)
                    row += batch.num_rows
                    if table.num_rows:
                        yield table
            else:
                row += in_group


def check_parquet_columns(path: str, *, user_column: str | int, item_column: str | int) -> None:
    """Check that the schema of a file has the user and the item column; nothing if it has no row.

    Raises:
        InputError: it has not, or the file cannot be read as Parquet. The message names the parameter and the
            columns of the file.
    """
    with open_plain(path) as file:
        if file.seek(0, os.SEEK_END) == 0:
            return
        with _unreadable_as_input_error(path):
            plain = pq.ParquetFile(file)
        if plain.metadata.num_rows > 0:
            _find_columns(path, plain.schema_arrow, user_column, item_column)


@contextmanager
def _unreadable_as_input_error(path: str) -> Iterator[None]:
    # The messages of pyarrow may quote the file, so only the kind of error is passed on.
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise InputError(
            f"{path} cannot be read as Parquet ({type(error).__name__});"
            " check that it is a whole Parquet file"
        ) from None


def _find_columns(
    path: str, schema: pa.Schema, user_column: str | int, item_column: str | int
) -> tuple[str, str]:
    """Return the names of the user and the item column."""
    names: list[str] = schema.names
    has = f"{path}, which has the columns {', '.join(map(repr, names))}"
    user = find_column("user_column", user_column, count=len(names), names=names, has=has)
    item = find_column("item_column", item_column, count=len(names), names=names, has=has)
    check_different(user, item, user_column, item_column, path=path)
    for parameter, number in (("user_column", user), ("item_column", item)):
        if names.count(names[number]) > 1:
            raise InputError(
                f"{parameter} must be a column whose name occurs once in {path}, got {names[number]!r}"
            )
    item_type = schema.types[item]
    if _is_list(item_type):
        item_type = item_type.value_type
    kinds = "strings, bytes or integers"
    if not _is_key(schema.types[user]):
        raise InputError(
            f"user_column must be a column of {kinds},"
            f" got {user_column!r} of type {schema.types[user]} in {path}"
        )
    if not _is_key(item_type):
        raise InputError(
            f"item_column must be a column of {kinds}, or of lists of these,"
            f" got {item_column!r} of type {schema.types[item]} in {path}"
        )
    return names[user], names[item]


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _is_key(kind: pa.DataType) -> bool:
    value = kind.value_type if pa.types.is_dictionary(kind) else kind
    types = pa.types
    return bool(
        types.is_integer(value)
        or types.is_string(value)
        or types.is_large_string(value)
        or types.is_string_view(value)
        or types.is_binary(value)
        or types.is_large_binary(value)
        or types.is_binary_view(value)
    )


def _byte_columns(file: pq.ParquetFile, user: str, item: str) -> list[str]:
    """Return the paths of the columns that can be read as dictionaries: strings and bytes."""
    leaves = [file.schema.column(number) for number in range(len(file.schema))]
    return [
        leaf.path
        for leaf in leaves
        if leaf.physical_type == "BYTE_ARRAY"
        and (leaf.path in (user, item) or leaf.path.startswith(f"{item}."))
    ]


def _rows_per_batch(group: pq.RowGroupMetaData, item: str, batch_rows: int) -> int:
    """Return how many rows of a row group have about `batch_rows` items; fewer if they are lists."""
    rows: int = group.num_rows
    items = rows
    for column in (group.column(number) for number in range(group.num_columns)):
        if column.path_in_schema == item or column.path_in_schema.startswith(f"{item}."):
            items = max(items, column.num_values)
    return max(1, batch_rows * rows // max(items, 1))


def _batches(
    path: str, file: pq.ParquetFile, group: int, columns: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    with _unreadable_as_input_error(path):
        yield from file.iter_batches(batch_size=rows, row_groups=[group], columns=columns)


def _pairs(users: pa.Array, items: pa.Array, path: str, first_row: int) -> pa.Table:
    """Return the pair table of one batch of rows; `first_row` is the index of its first row in the file."""
    for name, column in (("user", users), ("item", items)):
        _check_no_null(column, f"the {name}", path, first_row)
        _check_utf8(column, name, path, first_row)
    if _is_list(items.type):
        parents = pc.list_parent_indices(items)
        elements = pc.list_flatten(items)
        if elements.null_count:
            parent = parents[_first_null(elements)].as_py()
            raise InputError(
                f"row {first_row + parent} (from 0) of {path} has a null in its list of items; remove it"
            )
        users, items = users.take(parents), elements
    return pa.table([users, items], names=["user", "item"])


def _check_no_null(column: pa.Array, name: str, path: str, first_row: int) -> None:
    if column.null_count:
        row = first_row + _first_null(column)
        raise InputError(f"row {row} (from 0) of {path} has a null as {name}; remove the row")


def _first_null(column: pa.Array) -> int:
    first: int = pc.index(column.is_null(), True).as_py()
    return first


def _check_utf8(column: pa.Array, name: str, path: str, first_row: int) -> None:
    # Parquet readers do not check text; later steps rely on it.
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        pass
    else:
        return
    row = next((row for row in range(len(column)) if not _is_utf8(column[row])), 0)
    # Zero stands for "unknown": another batch with the same dictionary may hold the wrong value.
    raise InputError(
        f"row {first_row + row} (from 0) of {path} or a later one has {name} text that is not valid UTF-8;"
        " convert it, or store the column as bytes"
    )


def _is_utf8(value: pa.Scalar) -> bool:
    try:
        value.as_py()
    except UnicodeDecodeError:
        return False
    return True
