"""Reading (user, item) pairs from JSON lines: one JSON object per line.

The standard parser, line by line: pyarrow.json infers one type per block, so it could not tell a string from
a number or name the line that is wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pyarrow as pa

from beam_dp.errors import InputError
from beam_dp.io.ranges import CHUNK_BYTES, ByteRange, first_line, line_chunks, line_number


class _WrongLineError(ValueError):
    """What is wrong with a line, completing a sentence that starts with the line's name; holds no data."""


def read_json_lines(
    part: ByteRange, *, user_column: str, item_column: str, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[pa.Table]:
    """Yield the pairs of the lines that start in a range, one table for each chunk of lines.

    A string stands for its text, an integer for its decimal text. An item that is a list gives one row per
    element; an empty list none. Blank lines are skipped.

    Args:
        part: what to read.
        user_column: name of a field of every object.
        item_column: likewise.
        chunk_bytes: approximate size of the text behind one table.

    Yields:
        Pair tables: `user` and `item`, both dictionary<int32, string>, at least one row.

    Raises:
        InputError: a line is not valid UTF-8 or JSON, is not an object, has no such field, or a user or item
            is neither a string nor an integer.
    """
    for offset, lines in line_chunks(part, chunk_bytes):
        users: list[str] = []
        items: list[str] = []
        position = offset
        for line in lines.split(b"\n"):
            if line.strip():
                user, user_items = _parse(line, position, part.path, user_column, item_column)
                users.extend([user] * len(user_items))
                items.extend(user_items)
            position += len(line) + 1
        if users:
            columns = [pa.array(texts, pa.string()).dictionary_encode() for texts in (users, items)]
            yield pa.table(columns, names=["user", "item"])


def check_json_lines_columns(path: str, *, user_column: str, item_column: str) -> None:
    """Check that the first line of a file has the user and the item field; nothing if the file is empty.

    Raises:
        InputError: it has not, or cannot be read; see `read_json_lines`.
    """
    first = first_line(path)
    if first is not None and first[1].strip():
        offset, line = first
        _parse(line, offset, path, user_column, item_column)


def _parse(line: bytes, offset: int, path: str, user_column: str, item_column: str) -> tuple[str, list[str]]:
    """Return the user and the items of a line at a byte offset of a file."""
    try:
        return _pairs(line, user_column, item_column)
    except _WrongLineError as error:
        reason = str(error)
    raise InputError(f"line {line_number(path, offset)} of {path} {reason}")


def _pairs(line: bytes, user_column: str, item_column: str) -> tuple[str, list[str]]:
    try:
        text = line.decode()
    except UnicodeDecodeError:
        raise _WrongLineError("is not valid UTF-8; convert the file to UTF-8") from None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        raise _WrongLineError("is not valid JSON; write one JSON object per line") from None
    if not isinstance(record, dict):
        raise _WrongLineError("is not a JSON object; write one JSON object per line")
    item = _field(record, "item_column", item_column)
    items = item if isinstance(item, list) else [item]
    user = _text(_field(record, "user_column", user_column), "user_column", user_column)
    return user, [_text(value, "item_column", item_column) for value in items]


def _field(record: dict[str, object], parameter: str, column: str) -> object:
    if column not in record:
        raise _WrongLineError(f"has no field {column!r}; {parameter} must name a field of every line")
    return record[column]


def _text(value: object, parameter: str, column: str) -> str:
    if isinstance(value, str):
        # Only an escape such as "\ud800" can give text that UTF-8 cannot write.
        if not value.isascii() and any("\ud800" <= character <= "\udfff" for character in value):
            raise _WrongLineError(
                f"has half of a surrogate pair in the field {column!r} ({parameter}); write whole characters"
            )
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    kinds = "strings, integers or lists of these" if parameter == "item_column" else "strings or integers"
    raise _WrongLineError(
        f"has null or a value of another type in the field {column!r};"
        f" {parameter} must name a field of {kinds}"
    )
