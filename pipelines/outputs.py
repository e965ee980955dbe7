"""Writing items and the report, and clearing what an earlier or failed run left."""

from __future__ import annotations

import glob
import json
import os
import shutil
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


def remove_results(prefix: str, output_format: OutputFormat) -> None:
    """Delete the files of an earlier run, so that its shards never mix with this one's."""
    pattern = f"{prefix}-?????-of-?????{SUFFIXES[output_format]}"
    if old := [found.path for found in FileSystems.match([pattern])[0].metadata_list]:
        FileSystems.delete(old)


def remove_unfinished(target: str) -> None:
    """Delete the temporary folders beside a local target that a failed run left."""
    if "://" not in target:
        folder, name = os.path.split(os.path.abspath(target))
        for left in glob.glob(os.path.join(glob.escape(folder), f"beam-temp-{glob.escape(name)}-*")):
            shutil.rmtree(left, ignore_errors=True)
