"""Writing results: one item a line, earlier results go, other files stay, failures leave nothing."""

from __future__ import annotations

import json
from pathlib import Path

import apache_beam as beam
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dp import InputError
from pipelines.outputs import (
    SUFFIXES,
    WriteItems,
    WriteReport,
    check_targets,
    one_line,
    remove_results,
    removing_unfinished,
    results,
)

ITEMS = ["plain", "ü\u2028", "", "two\nlines", "cr\rlf\r\n", "a\\nb"]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ITEMS as text and Parquet and the report of a run."""
    folder = tmp_path_factory.mktemp("written")
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        items = pipeline | beam.Create(ITEMS)
        items | "Text" >> WriteItems(str(folder / "items"), "text")
        items | "Parquet" >> WriteItems(str(folder / "items"), "parquet")
        items | "Report" >> WriteReport(str(folder / "report.json"), {"first": 1, "second": [2]})
    return folder


def test_one_line_escapes_line_breaks_only():
    assert [one_line(item) for item in ITEMS] == [
        *("plain", "ü\u2028", "", "two\\nlines", "cr\\rlf\\r\\n", "a\\nb")
    ]


def test_writes_one_item_a_line(written):
    text = (written / "items-00000-of-00001.txt").read_bytes().decode()
    assert sorted(text.removesuffix("\n").split("\n")) == sorted(map(one_line, ITEMS))


def test_writes_exact_items_to_parquet(written):
    table = pq.read_table(written / "items-00000-of-00001.parquet")
    assert table.column_names == ["item"]
    assert sorted(table["item"].to_pylist()) == sorted(ITEMS)


def test_writes_the_report_and_the_number_of_items_to_one_file(written):
    text = (written / "report.json").read_text()
    assert text == json.dumps({"first": 1, "second": [2], "released_items": 6}, indent=2) + "\n"
    assert names(written) == ["items-00000-of-00001.parquet", "items-00000-of-00001.txt", "report.json"]


OTHERS = (
    *("out", "out.txt", "out-00000-of-00002", "out-00000-of-00002.txt.gz", "out-00000-of-00002.parquet"),
    *("out-abcde-of-fghij.txt", "out2-00000-of-00002.txt", "an-out-00000-of-00002.txt"),
)  # fmt: skip


def test_finds_and_removes_the_results_of_a_prefix_and_nothing_else(tmp_path):
    mine = ["out-00000-of-00002.txt", "out-00001-of-00002.txt", "out-00004-of-00007.txt", "report.json"]
    for name in (*mine, *OTHERS):
        (tmp_path / name).touch()
    prefix = str(tmp_path / "out")
    assert results(prefix, "text") == [str(tmp_path / name) for name in mine[:3]]
    assert results(prefix, "parquet") == [str(tmp_path / "out-00000-of-00002.parquet")]
    remove_results(prefix, "text", str(tmp_path / "report.json"))
    assert names(tmp_path) == sorted(OTHERS)
    remove_results(prefix, "text", str(tmp_path / "report.json"))
    assert names(tmp_path) == sorted(OTHERS), "removing nothing is no error"


def test_finds_results_in_the_working_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "out-00000-of-00001.txt").touch()
    assert results("out", "text") == ["./out-00000-of-00001.txt"]
    assert results("./out", "text") == ["./out-00000-of-00001.txt"]


def test_targets_may_be_new_or_of_an_earlier_run(tmp_path):
    inputs = [str(tmp_path / "in.txt")]
    (tmp_path / "in.txt").touch()
    for _ in range(2):
        check_targets(str(tmp_path / "new" / "out"), "text", str(tmp_path / "report.json"), inputs)
        check_targets(str(tmp_path / "out"), "text", None, inputs)
        for name in (*OTHERS, "out-00000-of-00001.txt", "report.json"):
            (tmp_path / name).touch()


@pytest.mark.parametrize(
    ("prefix", "report", "message"),
    [
        ("", None, "output must be a file name without any of * ? [, got ''"),
        ("a*", None, "output must be a file name without any of * ? [, got 'a*'"),
        ("a[1]/b", None, "output must be a file name without any of * ? [, got 'a[1]/b'"),
        ("a", "r?", "report must be a file name without any of * ? [, got 'r?'"),
        ("a", "folder", "report must name a file, got the directory 'folder'"),
        (
            "data",
            None,
            "output must not overwrite an input file, got './data-00000-of-00001.txt' for both; "
            "choose another name",
        ),
        (
            "a",
            "folder/../linked",
            "report must not overwrite an input file, got 'folder/../linked' for both; choose another name",
        ),
        (
            "dat",
            None,
            "output must not be the beginning of the name of other results, got 'dat' beside "
            "'./dat-a-00000-of-00003.txt'; choose another prefix",
        ),
    ],
)
def test_refuses_targets_that_would_destroy_something(prefix, report, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("data-00000-of-00001.txt", "dat-a-00000-of-00003.txt", "dat-b-00000-of-00003.txt"):
        (tmp_path / name).touch()
    (tmp_path / "linked").symlink_to(tmp_path / "data-00000-of-00001.txt")
    (tmp_path / "folder").mkdir()
    with pytest.raises(ValueError) as caught:
        check_targets(prefix, "text", report, [str(tmp_path / "data-00000-of-00001.txt")])
    assert str(caught.value) == message


@pytest.mark.parametrize("output_format", SUFFIXES)
def test_beam_deletes_results_of_longer_prefixes_which_is_why_they_are_refused(output_format, tmp_path):
    # If this fails, Beam has become more careful, and `check_targets` may be less.
    other = tmp_path / f"out-more-00000-of-00001{SUFFIXES[output_format]}"
    other.touch()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        pipeline | beam.Create(ITEMS) | WriteItems(str(tmp_path / "out"), output_format)
    assert not other.exists()


def fail_on_last(item: str) -> str:
    if item == ITEMS[-1]:
        raise InputError("the last one is bad")
    return item


def write_and_fail(folder: Path) -> None:
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        items = pipeline | beam.Create(ITEMS, reshuffle=False) | beam.Map(fail_on_last)
        items | "Items" >> WriteItems(str(folder / "out"), "text")
        items | "Report" >> WriteReport(str(folder / "report.json"), {})


def test_a_failed_run_leaves_no_temporary_folder_of_its_own(tmp_path):
    others = ["beam-temp-out-more-" + "0" * 32, "beam-temp-in-" + "0" * 32, "beam-temp-out-notes", "out-x"]
    for name in others:
        (tmp_path / name).mkdir()
    with pytest.raises(InputError):
        write_and_fail(tmp_path)
    left = sorted(set(names(tmp_path)) - set(others))
    assert [name[: -len("-" + "0" * 32)] for name in left] == ["beam-temp-out", "beam-temp-report.json"]
    targets = (str(tmp_path / "out"), str(tmp_path / "report.json"), None)
    with pytest.raises(InputError), removing_unfinished(*targets):
        write_and_fail(tmp_path)
    assert names(tmp_path) == sorted(others)


def test_a_run_that_succeeds_keeps_everything(tmp_path):
    (tmp_path / ("beam-temp-out-" + "0" * 32)).mkdir()
    with removing_unfinished(str(tmp_path / "out"), "gs://bucket/report.json"):
        pass
    assert len(names(tmp_path)) == 1


def test_an_interrupted_run_is_cleaned_up_too(tmp_path):
    (tmp_path / ("beam-temp-out-" + "0" * 32)).mkdir()
    with pytest.raises(KeyboardInterrupt), removing_unfinished(str(tmp_path / "out"), "gs://bucket/report"):
        raise KeyboardInterrupt
    assert names(tmp_path) == []
