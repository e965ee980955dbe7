"""Parsing lines of delimited text in bulk with pyarrow.csv, and finding out which line is wrong if one is.

pyarrow alone would accept a quoted line break inside one chunk and misread it where two chunks meet. Here
every line that is not blank is exactly one row, or an error; so the result cannot depend on where a file is
cut.
"""

from __future__ import annotations

import io
from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv

from beam_dp.io.ranges import BOM

_TEXT = pa.dictionary(pa.int32(), pa.string())

_STRAY_RETURN = "has a carriage return that is not followed by a line feed; end lines with LF or CRLF"
_OPEN_QUOTE = (
    "has a double quote that is not closed; line breaks inside quotes are not supported,"
    " and a quote inside quotes is written twice"
)
_NOT_UTF8 = "is not valid UTF-8 in the user or item field; convert the file to UTF-8"


@dataclass(frozen=True, kw_only=True)
class Fields:
    """How to cut the lines of one file into fields, and which two to keep."""

    delimiter: str
    """One ASCII character. With a comma, fields may be in double quotes."""
    columns: int
    """Number of fields in every line."""
    user: int
    """Number of the user field, counted from 0."""
    item: int
    """Number of the item field, counted from 0."""


def parse_pairs(lines: bytes, fields: Fields) -> pa.Table | None:
    """Return the pair table of whole lines (ending with a line feed), or None if some line is wrong.

    Both columns are dictionary<int32, string>; blank lines give no row.
    """
    if not _ends_cleanly(lines):
        return None
    user, item = str(fields.user), str(fields.item)
    try:
        table = pa_csv.read_csv(
            _source(lines),
            pa_csv.ReadOptions(
                column_names=[str(number) for number in range(fields.columns)], block_size=_block_size(lines)
            ),
            _parse_options(fields.delimiter),
            pa_csv.ConvertOptions(
                include_columns=[user, item],
                column_types={user: _TEXT, item: _TEXT},
                null_values=[],
                strings_can_be_null=False,
            ),
        )
    except pa.ArrowInvalid:
        return None
    if fields.delimiter == "," and b'"' in lines:
        last = lines[lines.rstrip(b"\r\n").rfind(b"\n") + 1 :]
        if table.num_rows != _count_lines(lines) or not _closes_quotes(last, fields.delimiter):
            return None
    return table.rename_columns(["user", "item"])


def wrong_line(lines: bytes, fields: Fields) -> tuple[int, str]:
    """Return (offset, reason) of the first wrong line of a chunk for which `parse_pairs` gave None.

    The reason completes a sentence that starts with the line's name, and contains nothing of the line.
    """
    every_line = io.BytesIO(lines).readlines()
    # Lines are independent, so a prefix is wrong from the first wrong line on.
    index = bisect_left(
        range(len(every_line)),
        True,
        key=lambda last: parse_pairs(b"".join(every_line[: last + 1]), fields) is None,
    )
    line = every_line[index]
    reason = line_problem(line, fields.delimiter)
    if reason is None:
        found = count_fields(line, fields.delimiter)
        reason = _NOT_UTF8
        if found != fields.columns:
            reason = (
                f"has {found} field{'s' * (found != 1)}, but the first line of the file has {fields.columns};"
                " every line must have as many"
            )
    return sum(map(len, every_line[:index])), reason


def line_problem(line: bytes, delimiter: str) -> str | None:
    """Return what is wrong with how a line ends, or None; see `wrong_line`."""
    if not _ends_cleanly(line):
        return _STRAY_RETURN
    if not _closes_quotes(line, delimiter):
        return _OPEN_QUOTE
    return None


def count_fields(line: bytes, delimiter: str) -> int:
    """Return the number of fields of one line that is not blank."""
    return int(_as_header(line, delimiter).num_columns)


def field_texts(line: bytes, delimiter: str) -> list[str]:
    """Return the fields of one line that is not blank.

    Raises:
        UnicodeDecodeError: they are not UTF-8.
    """
    return list(_as_header(line, delimiter).column_names)


def _as_header(line: bytes, delimiter: str) -> pa.Table:
    # A line in the place of the header needs no types and no checks: its fields become the names.
    return pa_csv.read_csv(
        _source(line), pa_csv.ReadOptions(block_size=_block_size(line)), _parse_options(delimiter)
    )


def _ends_cleanly(lines: bytes) -> bool:
    # pyarrow ends a row at a lone carriage return too, but files are cut and lines counted at line feeds.
    return b"\r" not in lines or lines.count(b"\r") == lines.count(b"\r\n")


def _closes_quotes(line: bytes, delimiter: str) -> bool:
    if delimiter != "," or b'"' not in line:
        return True
    # A quote left open swallows the line break between the line and its copy: at most one row instead of two.
    twice = line + line
    options = pa_csv.ReadOptions(autogenerate_column_names=True, block_size=_block_size(twice))
    try:
        rows: int = pa_csv.read_csv(_source(twice), options, _parse_options(delimiter)).num_rows
    except pa.ArrowInvalid:
        return False
    return rows == 2


def _count_lines(lines: bytes) -> int:
    """Count the lines that are not blank."""
    codes = np.frombuffer(lines, np.uint8)
    ends = np.flatnonzero(codes == ord("\n"))
    lengths = np.diff(ends, prepend=-1) - 1
    blank = (lengths == 0) | ((lengths == 1) & (codes[ends - 1] == ord("\r")))
    return int(ends.size - np.count_nonzero(blank))


def _parse_options(delimiter: str) -> pa_csv.ParseOptions:
    return pa_csv.ParseOptions(delimiter=delimiter, quote_char='"' if delimiter == "," else False)


def _source(lines: bytes) -> pa.BufferReader:
    # pyarrow drops what looks like a byte order mark; in the middle of a file it is data.
    return pa.BufferReader(BOM + lines if lines.startswith(BOM) else lines)


def _block_size(lines: bytes) -> int:
    # One block, so that no line is longer than a block and each column has one dictionary.
    return len(lines) + len(BOM)
