"""Finding and opening input files on any file system that Beam knows."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

import pyarrow as pa
from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from beam_dp.errors import InputError

# Arrow decompresses in small steps, knows concatenated streams, and notices a file that was cut short, which
# Beam's own decompression takes for the end of the file.
_ARROW_CODECS = {
    CompressionTypes.GZIP: "gzip",
    CompressionTypes.BZIP2: "bz2",
    CompressionTypes.ZSTD: "zstd",
}


def is_compressed(path: str) -> bool:
    """Whether the file's extension says that it is compressed as a whole (such as .gz, .bz2, .zst)."""
    kind: str = CompressionTypes.detect_compression_type(path)
    return bool(kind != CompressionTypes.UNCOMPRESSED)


def check_readable(file_pattern: str, parameter: str = "input") -> list[tuple[str, int]]:
    """Return (path, size in bytes) of every file that matches, sorted; for compressed files the stored size.

    Opens the first file, to find out now rather than on a worker that it cannot be opened.

    Raises:
        InputError: nothing matches, the file system is unknown, or the first match is a directory or cannot
            be opened. The message names `parameter` and the pattern.
    """
    rule = f"{parameter} must name at least one readable file, got"
    # Beam finds nothing by a pattern without any folder.
    folder = "" if "/" in file_pattern else "./"
    try:
        matches = FileSystems.match([folder + file_pattern])[0].metadata_list
    except (ValueError, OSError, BeamIOError) as error:
        raise InputError(f"{rule} {file_pattern!r}, which cannot be listed: {error}") from None
    if not matches:
        raise InputError(f"{rule} no match for {file_pattern!r}")
    files = sorted((str(match.path).removeprefix(folder), int(match.size_in_bytes)) for match in matches)
    try:
        FileSystems.open(files[0][0], compression_type=CompressionTypes.UNCOMPRESSED).close()
    except IsADirectoryError:
        example = files[0][0].rstrip("/") + "/*"
        raise InputError(
            f"{rule} the directory {files[0][0]!r}; give a pattern such as {example!r}"
        ) from None
    except (OSError, BeamIOError) as error:
        raise InputError(f"{rule} {files[0][0]!r}, which cannot be opened: {type(error).__name__}") from None
    return files


@contextmanager
def open_plain(path: str) -> Iterator[BinaryIO]:
    """Open the stored bytes of a file, whatever its extension; seekable."""
    with FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED) as file:
        yield cast(BinaryIO, file)


@contextmanager
def open_text(path: str) -> Iterator[BinaryIO]:
    """Open the bytes of a file, decompressed if its extension says so; seekable only if not compressed.

    Raises:
        InputError: while reading, if the compressed bytes are damaged or cut short.
    """
    kind = CompressionTypes.detect_compression_type(path)
    if kind == CompressionTypes.UNCOMPRESSED:
        with open_plain(path) as file:
            yield file
    elif kind in _ARROW_CODECS:
        codec = _ARROW_CODECS[kind]
        try:
            with open_plain(path) as file, pa.input_stream(file, compression=codec) as stream:
                yield cast(BinaryIO, io.BufferedReader(stream))
        except OSError as error:
            raise InputError(f"{path} cannot be decompressed as {codec}: {error}") from None
    else:
        with FileSystems.open(path) as file:
            yield cast(BinaryIO, file)
