"""The readers as PTransforms; all they add to the plain functions is where the ranges come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Literal

import apache_beam as beam
import pyarrow as pa

from beam_dp import checks
from beam_dp.io.columns import check_columns
from beam_dp.io.delimited import DelimitedFormat, read_delimited
from beam_dp.io.documents import read_documents
from beam_dp.io.files import check_readable
from beam_dp.io.jsonlines import read_json_lines
from beam_dp.io.parquet import read_parquet
from beam_dp.io.ranges import RANGE_BYTES, ByteRange, byte_ranges
from beam_dp.io.tokens import WORDS, check_token_pattern, tokenize_items


class _ReadTables(beam.PTransform):
    """Files of a pattern -> their byte ranges -> tables.

    The pattern is expanded when the pipeline runs; the ranges are spread over the workers.
    """

    def __init__(
        self, file_pattern: str, range_bytes: int, read: Callable[[ByteRange], Iterator[pa.Table]]
    ) -> None:
        super().__init__()
        if not isinstance(file_pattern, str) or not file_pattern:
            raise ValueError(f"file_pattern must be a file name or pattern (a str), got {file_pattern!r}")
        self._file_pattern = file_pattern
        self._range_bytes = checks.integer("range_bytes", range_bytes, low=1)
        self._read = read

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Wire pattern, ranges and tables."""
        return (
            begin
            | "Pattern" >> beam.Create([self._file_pattern])
            | "Ranges" >> beam.FlatMap(_ranges, self._range_bytes).with_output_types(ByteRange)
            | "Spread" >> beam.Reshuffle()
            | "Read" >> beam.FlatMap(self._read).with_output_types(pa.Table)
        )


def _ranges(file_pattern: str, range_bytes: int) -> Iterator[ByteRange]:
    for path, size in check_readable(file_pattern, "file_pattern"):
        yield from byte_ranges(path, size, range_bytes)


class ReadDelimitedPairs(_ReadTables):
    """Pairs from delimited text -> PCollection[pa.Table] of `user` and `item`; see `read_delimited`.

    Args:
        file_pattern: one file or a pattern such as `gs://bucket/pairs-*.tsv`. Files that end in .gz, .bz2 or
            .zst are decompressed, each by one worker.
        delimiter, user_column, item_column, header: see `DelimitedFormat`.
        range_bytes: at most so many bytes of a file are read as one unit of work.

    Raises:
        ValueError: a parameter is out of its range. Bad data raise InputError when the pipeline runs.
    """

    def __init__(
        self,
        file_pattern: str,
        *,
        delimiter: str,
        user_column: str | int = 0,
        item_column: str | int = 1,
        header: bool | None = None,
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        layout = DelimitedFormat(
            delimiter=delimiter, user_column=user_column, item_column=item_column, header=header
        )
        super().__init__(file_pattern, range_bytes, partial(read_delimited, layout=layout))


class ReadParquetPairs(_ReadTables):
    """Pairs from Parquet -> PCollection[pa.Table] of `user` and `item`; see `read_parquet`.

    Args:
        file_pattern: one file or a pattern such as `gs://bucket/pairs-*.parquet`.
        user_column: name, or number counted from 0, of a column of strings, bytes or integers.
        item_column: likewise, or of lists of these, which give one row per element.
        range_bytes: about so many bytes of a file are read as one unit of work, at least one row group.

    Raises:
        ValueError: a parameter is out of its range. Bad data raise InputError when the pipeline runs.
    """

    def __init__(
        self,
        file_pattern: str,
        *,
        user_column: str | int,
        item_column: str | int,
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        check_columns(user_column, item_column)
        read = partial(read_parquet, user_column=user_column, item_column=item_column)
        super().__init__(file_pattern, range_bytes, read)


class ReadJsonLinesPairs(_ReadTables):
    """Pairs from JSON lines -> PCollection[pa.Table] of `user` and `item`; see `read_json_lines`.

    Args:
        file_pattern: one file or a pattern such as `gs://bucket/pairs-*.jsonl.gz`. Files that end in .gz,
            .bz2 or .zst are decompressed, each by one worker.
        user_column: name of a field of every object: a string or an integer.
        item_column: likewise, or a list of these, which gives one row per element.
        range_bytes: at most so many bytes of a file are read as one unit of work.

    Raises:
        ValueError: a parameter is out of its range. Bad data raise InputError when the pipeline runs.
    """

    def __init__(
        self, file_pattern: str, *, user_column: str, item_column: str, range_bytes: int = RANGE_BYTES
    ) -> None:
        check_columns(user_column, item_column, numbers=False)
        read = partial(read_json_lines, user_column=user_column, item_column=item_column)
        super().__init__(file_pattern, range_bytes, read)


class ReadDocuments(_ReadTables):
    """Lines of plain text -> PCollection[pa.Table] of `user` and `item` (the document); see `read_documents`.

    Args:
        file_pattern: one file or a pattern such as `gs://bucket/posts-*.txt`. Files that end in .gz, .bz2 or
            .zst are decompressed, each by one worker.
        user_per: "line" or "file": whether a user is a line or all lines of a file.
        range_bytes: at most so many bytes of a file are read as one unit of work.

    Raises:
        ValueError: a parameter is out of its range. Bad data raise InputError when the pipeline runs.
    """

    def __init__(
        self,
        file_pattern: str,
        *,
        user_per: Literal["line", "file"] = "line",
        range_bytes: int = RANGE_BYTES,
    ) -> None:
        if user_per not in ("line", "file"):
            raise ValueError(f"user_per must be 'line' or 'file', got {user_per!r}")
        super().__init__(file_pattern, range_bytes, partial(read_documents, user_per=user_per))


class Tokenize(beam.PTransform):
    """PCollection[pa.Table] of documents -> the same of their distinct tokens; see `tokenize_items`.

    Args:
        lowercase: whether to put documents into lower case first.
        token_pattern: regular expression of Python's `re`; every non-empty match is a token.

    Raises:
        ValueError: `token_pattern` is not a regular expression, or has capturing groups.
    """

    def __init__(self, *, lowercase: bool = True, token_pattern: str = WORDS) -> None:
        super().__init__()
        check_token_pattern(token_pattern)
        self._tokenize = partial(tokenize_items, lowercase=lowercase, token_pattern=token_pattern)

    def expand(self, documents: beam.PCollection) -> beam.PCollection:
        """Apply `tokenize_items` to every table."""
        return documents | "Tokenize" >> beam.Map(self._tokenize).with_output_types(pa.Table)
