"""Reading documents from plain text, one per line; tokens.py makes items of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np
import pyarrow as pa

from beam_dp.errors import InputError
from beam_dp.io.ranges import CHUNK_BYTES, ByteRange, line_chunks, line_number


def read_documents(
    part: ByteRange, *, user_per: Literal["line", "file"] = "line", chunk_bytes: int = CHUNK_BYTES
) -> Iterator[pa.Table]:
    """Yield the lines that start in a range as documents, one table for each chunk of lines.

    The text of a document does not include its line end; blank lines are skipped.

    Args:
        part: what to read.
        user_per: "line": every line is a user of its own, named by the file and the byte offset of the line
            in the (decompressed) file; "file": all lines of a file are one user's, named by the file.
        chunk_bytes: approximate size of the text behind one table.

    Yields:
        Tables of `user`, dictionary<int32, string>, and `item`, string: the document. At least one row.

    Raises:
        InputError: a line is not valid UTF-8.
    """
    for offset, lines in line_chunks(part, chunk_bytes):
        starts, documents = [], []
        position = offset
        for line in lines.split(b"\n"):
            document = line.removesuffix(b"\r")
            if document:
                starts.append(position)
                documents.append(document)
            position += len(line) + 1
        if not documents:
            continue
        try:
            items = pa.array(documents, pa.binary()).cast(pa.string())
        except pa.ArrowInvalid:
            items = None
        if items is None:
            wrong = next(index for index, document in enumerate(documents) if not _is_utf8(document))
            number = line_number(part.path, starts[wrong])
            raise InputError(f"line {number} of {part.path} is not valid UTF-8; convert the file to UTF-8")
        if user_per == "line":
            names = [f"{part.path}:{start}" for start in starts]
            codes = np.arange(len(names), dtype=np.int32)
        else:
            names = [part.path]
            codes = np.zeros(len(documents), np.int32)
        users = pa.DictionaryArray.from_arrays(codes, pa.array(names, pa.string()))
        yield pa.table([users, items], names=["user", "item"])


def _is_utf8(document: bytes) -> bool:
    try:
        document.decode()
    except UnicodeDecodeError:
        return False
    return True
