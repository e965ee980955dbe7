"""The data sets of the utility benchmark, each as a pair table with the columns `user` and `item`.

Public data and made data only: exact counts of it may be printed.
"""

from __future__ import annotations

import gzip
import json
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv

from beam_dp import RunKey
from beam_dp.core.blocks import Pairs, UserBlock
from beam_dp.core.encoding import build_user_block, split_pairs
from benchmarks.published import read_higgs
from benchmarks.synthetic import zipf_sets
from examples.stdlib_identifiers import user_item_pairs


@dataclass(frozen=True, kw_only=True)
class Source:
    """Where a corpus comes from."""

    name: str
    unit: str
    """What plays the user and what the item."""
    read: Callable[[Path], pa.Table]
    """(file) -> pair table; the file is ignored if there is none."""
    file: str | None = None
    """The file's name in the data folder; None for a corpus that is made here."""

    def path(self, folder: Path | None) -> Path | None:
        """Return what to give to `read`, or None if the file is not there."""
        if self.file is None:
            return Path()
        path = None if folder is None else folder / self.file
        return path if path is not None and path.exists() else None


@dataclass(frozen=True, kw_only=True)
class Encoded:
    """A corpus under one run key, ready for `select_in_memory` and for the sequential baselines."""

    block: UserBlock
    frequency: npt.NDArray[np.int64]
    """How many users hold each of the block's items."""


class Corpus:
    """A corpus's pairs, held so that encoding it for another seed is cheap."""

    def __init__(self, source: Source, table: pa.Table) -> None:
        self.source = source
        self.table = table
        self._pairs: list[Pairs] = [
            pairs for _, pairs in split_pairs(table, run_key=RunKey.from_seed(0), num_shards=1)
        ]

    def encode(self, seed: int) -> Encoded:
        """Build the block of all users; uncapped, because `select_in_memory` caps by the plan."""
        block = build_user_block(0, self._pairs, run_key=RunKey.from_seed(seed), num_item_shards=1)
        return Encoded(block=block, frequency=np.bincount(block.items, minlength=len(block.keys)))


def read_dependencies(path: Path) -> pa.Table:
    """Read the Debian package index: package, each of its dependencies."""
    return _table((row["package"], name) for row in _json_lines(path) for name in row["depends"])


def read_description_words(path: Path) -> pa.Table:
    """Read the Debian package index: maintainer, each word of their packages' lower-cased descriptions."""
    return _table(
        (row["maintainer"], word)
        for row in _json_lines(path)
        for word in re.findall(r"\w+", row["description"].lower())
    )


def read_stdlib(_: Path) -> pa.Table:
    """Read the running Python's standard library: source file, each of its identifiers."""
    return _table(user_item_pairs(Path(sysconfig.get_path("stdlib")), skipped=[]))


def make_zipf(_: Path) -> pa.Table:
    """Make the synthetic corpus of `benchmarks.synthetic`, scale 1."""
    sets = zipf_sets()
    return pa.table(
        {"user": np.repeat(np.arange(len(sets.offsets) - 1), np.diff(sets.offsets)), "item": sets.items}
    )


def write_pairs(table: pa.Table, path: Path) -> None:
    """Write `user<TAB>item` lines without a header."""
    options = pyarrow.csv.WriteOptions(include_header=False, delimiter="\t", quoting_style="none")
    pyarrow.csv.write_csv(table.select(["user", "item"]), path, options)


def _json_lines(path: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def _table(pairs: Iterable[tuple[str, str]]) -> pa.Table:
    users, items = [], []
    for user, item in pairs:
        users.append(user)
        items.append(item)
    return pa.table({"user": pa.array(users, pa.string()), "item": pa.array(items, pa.string())})


SOURCES = (
    Source(
        name="Higgs",
        unit="user: acting Twitter user; item: target user",
        file="higgs_activity.tsv.gz",
        read=read_higgs,
    ),
    Source(
        name="Debian dependencies",
        unit="user: package; item: a package it depends on",
        file="debian_packages.jsonl.gz",
        read=read_dependencies,
    ),
    Source(
        name="Debian words",
        unit="user: maintainer; item: word of a package's one-line description",
        file="debian_packages.jsonl.gz",
        read=read_description_words,
    ),
    Source(
        name="Python identifiers",
        unit="user: source file of the standard library; item: identifier",
        read=read_stdlib,
    ),
    Source(name="Zipf", unit="synthetic; lists as long as film reviews", read=make_zipf),
)
