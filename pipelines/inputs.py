"""Input options shared by all pipelines, and the reader they describe."""

from __future__ import annotations

import argparse
from typing import Any

import apache_beam as beam
import pyarrow as pa

from beam_dp import InputError, io
from beam_dp.io.files import is_compressed

FORMATS = ("tsv", "csv", "jsonl", "parquet", "text")
_DELIMITERS = {"tsv": "\t", "csv": ","}

_BYTES_PER_SHARD = 64 << 20
_MIN_SHARDS = 8
_MAX_SHARDS = 1 << 14
_COMPRESSION_FACTOR = 5
"""How much text a compressed byte stands for, roughly; Parquet is compressed too."""


def column(text: str) -> str | int:
    """Read a column option: a 0-based number, or a name."""
    return int(text) if text.isdecimal() else text


def flag(text: str) -> bool:
    """Read the value of a flag; job templates have to give one."""
    if text not in ("true", "false"):
        raise argparse.ArgumentTypeError(f"must be true or false, got {text!r}")
    return text == "true"


def add_flag(group: argparse._ArgumentGroup, name: str, description: str) -> None:
    """Add an option that is given as --name, --name=true or --name=false."""
    group.add_argument(
        name, nargs="?", const=True, default=False, type=flag, metavar="true|false", help=description
    )


def add_input_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that say what to read, and which columns hold users and items."""
    group = parser.add_argument_group("input")
    group.add_argument("--input", required=True, help="file or pattern to read")
    group.add_argument(
        "--input_format",
        choices=FORMATS,
        default="tsv",
        help="tsv (default), csv, jsonl, parquet, or text: plain documents, whose words are the items",
    )
    group.add_argument(
        "--user_column",
        type=column,
        help="column of the user: a name (then text has a header line) or a 0-based number; default 0",
    )
    group.add_argument("--item_column", type=column, help="column of the item, likewise; default 1")
    add_flag(group, "--header", "skip the first line of each tsv or csv file")
    add_flag(group, "--tokenize", "the item column holds documents; take their words as items")
    group.add_argument("--token_pattern", help="regular expression of a word")
    add_flag(group, "--keep_case", "do not lower-case documents")
    group.add_argument(
        "--user_per",
        choices=("line", "file"),
        help="for text: each line is one user's document (default), or each file is",
    )
    group.add_argument(
        "--num_shards",
        type=int,
        help="user shards and item shards; default by the input's size; changes speed and memory only",
    )


def read_pairs(given: argparse.Namespace) -> beam.PTransform:
    """Return the checked reader of pair tables that the options describe.

    Raises:
        ValueError: naming the option that does not fit the format, or the columns.
        InputError: if the file is missing or, as far as its beginning shows, has no such column.
    """
    _refuse_unused(given)
    tokens: dict[str, Any] = {"lowercase": not given.keep_case}
    if given.token_pattern is not None:
        tokens["token_pattern"] = given.token_pattern
    if given.input_format == "text":
        io.check_readable(given.input)
        documents = io.ReadDocuments(given.input, user_per=given.user_per or "line")
        return _Chain(documents, "Words", io.Tokenize(**tokens))
    read = _table_reader(given)
    return _Chain(read, "Words", io.Tokenize(**tokens)) if given.tokenize else read


def default_num_shards(given: argparse.Namespace) -> int:
    """Return the shards asked for, or enough for blocks of about 64 MB of text, at least 8."""
    if given.num_shards is not None:
        return int(given.num_shards)
    size = sum(
        length * (_COMPRESSION_FACTOR if is_compressed(path) or given.input_format == "parquet" else 1)
        for path, length in io.check_readable(given.input)
    )
    return min(max(_MIN_SHARDS, -(-size // _BYTES_PER_SHARD)), _MAX_SHARDS)


def _table_reader(given: argparse.Namespace) -> beam.PTransform:
    path, kind = given.input, given.input_format
    user: Any = 0 if given.user_column is None else given.user_column
    item: Any = 1 if given.item_column is None else given.item_column
    first = io.check_readable(path)[0][0]
    if kind == "parquet":
        io.check_parquet_columns(first, user_column=user, item_column=item)
        as_text = beam.Map(text_items, item_column=item).with_output_types(pa.Table)
        return _Chain(io.ReadParquetPairs(path, user_column=user, item_column=item), "ItemsAsText", as_text)
    if kind == "jsonl":
        for name in ("user_column", "item_column"):
            if getattr(given, name) is None:
                raise ValueError(
                    f"{name} must be given with input_format=jsonl; it names a field of each object"
                )
        io.check_json_lines_columns(first, user_column=user, item_column=item)
        return io.ReadJsonLinesPairs(path, user_column=user, item_column=item)
    layout = io.DelimitedFormat(
        delimiter=_DELIMITERS[kind],
        user_column=user,
        item_column=item,
        header=True if given.header else None,
    )
    io.check_delimited_columns(first, layout)
    return io.ReadDelimitedPairs(
        path, delimiter=layout.delimiter, user_column=user, item_column=item, header=layout.header
    )


def text_items(table: pa.Table, item_column: str | int) -> pa.Table:
    """Return a pair table with its items as text, since text is what is written; Parquet may hold bytes.

    Raises:
        InputError: if bytes are not text; better now than when such an item is released.
    """
    items = table["item"]
    if not pa.types.is_dictionary(items.type):
        items = items.dictionary_encode()
    try:
        items = items.cast(pa.dictionary(pa.int32(), pa.large_string()))
    except pa.ArrowInvalid:
        raise InputError(
            f"item_column must be a column of text, got {item_column!r} of bytes that are not valid UTF-8; "
            "write the items as text"
        ) from None
    return table.set_column(table.column_names.index("item"), "item", items)


def _refuse_unused(given: argparse.Namespace) -> None:
    """Refuse options that the chosen format would ignore."""
    kind = given.input_format
    text = kind == "text"
    tokens = text or given.tokenize
    unused = {
        "user_column": text and given.user_column is not None,
        "item_column": text and given.item_column is not None,
        "header": given.header and kind not in _DELIMITERS,
        "user_per": given.user_per is not None and not text,
        "tokenize": given.tokenize and text,
        "token_pattern": given.token_pattern is not None and not tokens,
        "keep_case": given.keep_case and not tokens,
    }
    for name, is_unused in unused.items():
        if is_unused:
            raise ValueError(
                f"{name} must not be given with input_format={kind}"
                + ("" if text or name in ("header", "user_per") else " without tokenize")
                + ", where it has no meaning; leave it out"
            )


class _Chain(beam.PTransform):
    """A reader and what follows it, as one reader."""

    def __init__(self, read: beam.PTransform, label: str, then: beam.PTransform):
        super().__init__()
        self._read = read
        self._label = label
        self._then = then

    def expand(self, begin: beam.pvalue.PBegin) -> beam.PCollection:
        """Apply both."""
        return begin | "Files" >> self._read | self._label >> self._then
