"""Splitting text files into byte ranges and reading the lines of one range, a chunk at a time.

A line ends with a line feed, and belongs to the range in which it starts; so every line of a file belongs to
exactly one range, wherever the file is cut.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from beam_dp.errors import InputError
from beam_dp.io.files import is_compressed, open_text

RANGE_BYTES = 64 << 20
"""Default size of one range in bytes: a few seconds of work, so that workers stay evenly busy."""

CHUNK_BYTES = 16 << 20
"""Default size of one chunk in bytes; a reader holds a small multiple of it in memory."""

BOM = b"\xef\xbb\xbf"
"""The mark that some programs write at the start of UTF-8 files."""

# pyarrow.csv addresses one block with 32-bit integers.
_LONGEST_CHUNK = (1 << 31) - 1


@dataclass(frozen=True)
class ByteRange:
    """The part of a file from byte `start` up to byte `end`."""

    path: str
    start: int
    """First byte, counted from 0."""
    end: int | None
    """One after the last byte; None for the whole of a file that cannot be split."""


def byte_ranges(path: str, size: int, range_bytes: int = RANGE_BYTES) -> Iterator[ByteRange]:
    """Cut a file of `size` bytes into ranges of at most `range_bytes`; none if it is empty.

    A compressed file is one range.
    """
    if is_compressed(path):
        yield ByteRange(path, 0, None)
        return
    for start in range(0, size, range_bytes):
        yield ByteRange(path, start, min(start + range_bytes, size))


def line_chunks(part: ByteRange, chunk_bytes: int = CHUNK_BYTES) -> Iterator[tuple[int, bytes]]:
    """Yield (offset, lines) for the lines that start inside a range.

    The lines of a chunk are about `chunk_bytes`, or one longer line; they always end with a line feed (one is
    added if the file's last line has none). The offset is the position of the chunk in the (decompressed)
    file. A byte order mark at the start of the file is left out.

    Raises:
        InputError: a line is longer than 2 GiB.
    """
    with open_text(part.path) as file:
        position = part.start
        if position > 0:
            # Starting one byte early finds the line feed that ends the previous line, if it is there.
            file.seek(position - 1)
            position += len(file.readline()) - 1
        while part.end is None or position < part.end:
            wanted = chunk_bytes if part.end is None else min(chunk_bytes, part.end - position)
            data = file.read(wanted)
            if not data:
                return
            if not data.endswith(b"\n"):
                data += file.readline()
            offset = position
            position += len(data)
            if offset == 0 and data.startswith(BOM):
                offset, data = len(BOM), data[len(BOM) :]
            if len(data) >= _LONGEST_CHUNK:
                raise InputError(
                    f"a line of {part.path} that starts at or after byte {offset} is longer than 2 GiB; "
                    "lines must end with a line feed"
                )
            if data:
                yield offset, data if data.endswith(b"\n") else data + b"\n"


def is_blank(line: bytes) -> bool:
    """Whether a line (bytes, with or without its line end) is empty."""
    return line in (b"", b"\n", b"\r\n")


def first_line(path: str) -> tuple[int, bytes] | None:
    """Return (offset, line) of the first line that is not blank, or None; the line ends with a line feed."""
    # A chunk of one byte is one line.
    for offset, line in line_chunks(ByteRange(path, 0, None), chunk_bytes=1):
        if not is_blank(line):
            return offset, line
    return None


def line_number(path: str, offset: int) -> int:
    """Return the number, counted from 1, of the line at a byte offset of the (decompressed) file.

    Reads the file from its start, so it is meant for error messages.
    """
    breaks = 0
    with open_text(path) as file:
        while offset > 0 and (data := file.read(min(CHUNK_BYTES, offset))):
            breaks += data.count(b"\n")
            offset -= len(data)
    return breaks + 1
