"""Writing items and the report, and clearing what an earlier or a failed run left."""

from __future__ import annotations

import glob
import json
import os
import re
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import apache_beam as beam
import pyarrow as pa
from apache_beam.io.filesystems import FileSystems

OutputFormat = Literal["text", "parquet"]
SUFFIXES: dict[OutputFormat, str] = {"text": ".txt", "parquet": ".parquet"}


class WriteItems(beam.PTransform):
    """Items (text) -> files PREFIX-00000-of-0000N.txt, one item a line; or .parquet with one column `item`.

    A line break inside an item is written as the two characters \\n (or \\r), so that a line is an item;
    Parquet keeps it.
    """

    def __init__(self, prefix: str, output_format: OutputFormat):
        super().__init__()
        self._prefix = prefix
        self._format: OutputFormat = output_format

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        """Write, in as many files as the runner finds right."""
        suffix = SUFFIXES[self._format]
        if self._format == "text":
            lines = items | "OneLine" >> beam.Map(one_line).with_output_types(str)
            return lines | "Text" >> beam.io.WriteToText(self._prefix, file_name_suffix=suffix)
        rows = items | "Row" >> beam.Map(lambda item: {"item": item})
        schema = pa.schema([("item", pa.string())])
        return rows | "Parquet" >> beam.io.WriteToParquet(self._prefix, schema, file_name_suffix=suffix)


class WriteReport(beam.PTransform):
    """Items -> one JSON file: the given report and the number of items, which is as private as the items."""

    def __init__(self, path: str, report: dict[str, Any]):
        super().__init__()
        self._path = path
        self._report = report

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        """Count and write."""
        report = self._report
        return (
            items
            | "Count" >> beam.combiners.Count.Globally()
            | "Json" >> beam.Map(lambda count: json.dumps({**report, "released_items": count}, indent=2))
            | "Text" >> beam.io.WriteToText(self._path, num_shards=1, shard_name_template="")
        )


def one_line(item: str) -> str:
    """Write an item's line breaks as escapes."""
    return item.replace("\r", "\\r").replace("\n", "\\n")


def results(prefix: str, output_format: OutputFormat) -> list[str]:
    """Return the result files that lie under a prefix, of this or an earlier run, sorted."""
    return _files(prefix, output_format, r"-\d{5}-of-\d{5}")


def check_targets(
    prefix: str, output_format: OutputFormat, report: str | None, inputs: Collection[str]
) -> None:
    """Check that writing will destroy nothing but earlier results of the same prefix.

    Raises:
        ValueError: naming the option that is no file name, or whose files are a folder, input files or
            results of another prefix.
    """
    for option, path in (("output", prefix), ("report", report)):
        if path is not None and (not path or set(path) & set("*?[")):
            raise ValueError(f"{option} must be a file name without any of * ? [, got {path!r}")
    if report is not None and os.path.isdir(report):
        raise ValueError(f"report must name a file, got the directory {report!r}")
    mine = results(prefix, output_format)
    read = {os.path.realpath(path) for path in inputs}
    for option, paths in (("output", mine), ("report", [report] if report else [])):
        for path in paths:
            if os.path.realpath(path) in read:
                raise ValueError(
                    f"{option} must not overwrite an input file, got {path!r} for both; choose another name"
                )
    # Beam deletes PREFIX-*-of-0000N before it writes: also the results of PREFIX-more.
    if others := set(_files(prefix, output_format, r"-.*-of-\d{5}")) - set(mine):
        raise ValueError(
            f"output must not be the beginning of the name of other results, got {prefix!r} beside "
            f"{min(others)!r}; choose another prefix"
        )


def _files(prefix: str, output_format: OutputFormat, shard: str) -> list[str]:
    """Return the files whose names are the prefix, a shard (a regular expression) and the suffix."""
    suffix = SUFFIXES[output_format]
    if not os.path.dirname(prefix):  # Beam finds nothing by a pattern without any folder
        prefix = os.path.join(os.curdir, prefix)
    found = FileSystems.match([f"{prefix}-*-of-?????{suffix}"])[0].metadata_list
    name = re.compile(re.escape(os.path.basename(prefix)) + shard + re.escape(suffix))
    return sorted(str(file.path) for file in found if name.fullmatch(os.path.basename(file.path)))


def remove_results(prefix: str, output_format: OutputFormat, report: str | None) -> None:
    """Delete the files of an earlier run, so that neither its shards nor its report mix with this one's."""
    old = results(prefix, output_format)
    if report is not None and FileSystems.exists(report):
        old.append(report)
    if old:
        FileSystems.delete(old)


@contextmanager
def removing_unfinished(*targets: str | None) -> Iterator[None]:
    """If the run fails, delete the temporary folders that it left beside local targets."""
    try:
        yield
    except BaseException:
        for target in targets:
            if target and "://" not in target:
                folder, name = os.path.split(os.path.abspath(target))
                unfinished = os.path.join(
                    glob.escape(folder), f"beam-temp-{glob.escape(name)}-{'[0-9a-f]' * 32}"
                )
                for left in glob.glob(unfinished):
                    shutil.rmtree(left, ignore_errors=True)
        raise
