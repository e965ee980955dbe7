"""Reading (user, item) pairs from delimited text, such as TSV and CSV, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from beam_dp.errors import InputError
from beam_dp.io.columns import check_columns, check_different, find_column
from beam_dp.io.fields import Fields, count_fields, field_texts, line_problem, parse_pairs, wrong_line
from beam_dp.io.ranges import CHUNK_BYTES, ByteRange, first_line, line_chunks, line_number


@dataclass(frozen=True, kw_only=True)
class DelimitedFormat:
    """How a delimited file is laid out; checked at construction (ValueError)."""

    delimiter: str
    """One ASCII character between the fields. With a comma, fields may be in double quotes, inside which two
    double quotes stand for one; with any other delimiter a quote is a character like any other. Line breaks
    inside quotes are not supported: files are cut into ranges at line breaks."""
    user_column: str | int = 0
    """Column of the users: number counted from 0, or name in the header line."""
    item_column: str | int = 1
    """Column of the items, likewise."""
    header: bool | None = None
    """Whether the first line of each file holds column names; None: only if a column is given by name."""

    def __post_init__(self) -> None:
        delimiter = self.delimiter
        if (
            not isinstance(delimiter, str)
            or len(delimiter) != 1
            or not delimiter.isascii()
            or delimiter in '"\r\n\0'
        ):
            raise ValueError(
                "delimiter must be one ASCII character other than a double quote, a line break or NUL,"
                f" got {delimiter!r}"
            )
        check_columns(self.user_column, self.item_column)
        if self.header is not None and not isinstance(self.header, bool):
            raise ValueError(f"header must be True, False or None, got {self.header!r}")
        if self.header is False and self.has_names:
            raise ValueError(
                "header must be True or None if a column is given by name, got False; give user_column and"
                " item_column by number to read a file without header line"
            )

    @property
    def has_names(self) -> bool:
        """Whether a column is given by name."""
        return isinstance(self.user_column, str) or isinstance(self.item_column, str)

    @property
    def has_header(self) -> bool:
        """Whether files start with a header line."""
        return self.has_names if self.header is None else self.header


def read_delimited(
    part: ByteRange, layout: DelimitedFormat, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[pa.Table]:
    """Yield the pairs of the lines that start in a range, one table for each chunk of lines.

    Fields are text as it stands, also if they look like numbers; an empty field is the empty string. Blank
    lines are skipped.

    Args:
        part: what to read.
        layout: delimiter, columns and header.
        chunk_bytes: approximate size of the text behind one table.

    Yields:
        Pair tables: `user` and `item`, both dictionary<int32, string>, at least one row.

    Raises:
        InputError: a column is missing, a line has another number of fields than the first line of the file,
            a quote is not closed on its line, a carriage return is not followed by a line feed, or a user or
            item is not valid UTF-8.
    """
    first = _read_first_line(part.path, layout)
    if first is None:
        return
    fields, data_start = first
    for chunk_start, chunk in line_chunks(part, chunk_bytes):
        offset = max(chunk_start, data_start)
        lines = chunk[offset - chunk_start :] if offset > chunk_start else chunk
        if not lines:
            continue
        table = parse_pairs(lines, fields)
        if table is None:
            wrong_offset, reason = wrong_line(lines, fields)
            number = line_number(part.path, offset + wrong_offset)
            raise InputError(f"line {number} of {part.path} {reason}")
        if table.num_rows:
            yield table


def check_delimited_columns(path: str, layout: DelimitedFormat) -> None:
    """Check that the first line of a file has the user and the item column; nothing if the file is empty.

    Raises:
        InputError: it has not. The message names the parameter and the number of columns, not their names,
            since the first line of a file without header is data.
    """
    _read_first_line(path, layout)


def _read_first_line(path: str, layout: DelimitedFormat) -> tuple[Fields, int] | None:
    """Return the fields of a file and the offset of the first byte after its header, None if it is empty."""
    first = first_line(path)
    if first is None:
        return None
    offset, line = first
    problem = line_problem(line, layout.delimiter)
    names: list[str] = []
    if problem is None and layout.has_names:
        try:
            names = field_texts(line, layout.delimiter)
        except UnicodeDecodeError:
            problem = "is not valid UTF-8; convert the file to UTF-8"
    if problem is not None:
        raise InputError(f"line {line_number(path, offset)} of {path} {problem}")
    columns = count_fields(line, layout.delimiter)
    has = f"{path}, which has {columns} column{'s' * (columns != 1)}"
    user = find_column("user_column", layout.user_column, count=columns, names=names, has=has)
    item = find_column("item_column", layout.item_column, count=columns, names=names, has=has)
    check_different(user, item, layout.user_column, layout.item_column, path=path)
    fields = Fields(delimiter=layout.delimiter, columns=columns, user=user, item=item)
    return fields, offset + len(line) if layout.has_header else 0
