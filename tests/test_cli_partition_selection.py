"""The command line: every format gives the same items, errors are one line, and nothing leaks anywhere."""

from __future__ import annotations

import base64
import gzip
import json
import logging
import os
import random
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import beam_dp
from beam_dp import RunKey
from beam_dp.algorithms import DEFAULT_POOLED_GAUSSIAN_SPLIT, DEFAULT_POOLED_MAD_SPLIT
from pipelines.partition_selection import main
from tests.conftest import ALGORITHMS_AND_PROFILES

ROOT = Path(__file__).parents[1]
BUDGET = ("--epsilon=2", "--delta=1e-2", "--max_degree=8")
FASTEST = "--algorithm=weighted_gaussian"
"""For what does not depend on the algorithm; it has the fewest stages."""
SECRET = "s3cr"
"""Part of every user's and item's name: it must never be in a log, a message or a report."""

Pairs = list[tuple[str, str]]
Writer = Callable[[Path, Pairs], list[str]]


def make_pairs(num_users: int, seed: int) -> Pairs:
    """Users with 1 to 6 of 60 items, popular ones first: fewer than max_degree, so the cap plays no part."""
    rng = random.Random(seed)
    pairs = []
    for user in range(num_users):
        items = {min(int(rng.expovariate(0.06)), 59) for _ in range(rng.randint(1, 6))}
        pairs += [(f"{SECRET}user{user}", f"{SECRET}itemü{item}") for item in sorted(items)]
    return pairs


PAIRS = make_pairs(300, seed=1)


def call(*arguments: str) -> int | str | None:
    """Call `main` in this process and return the exit code."""
    try:
        return main(list(arguments))
    except SystemExit as stop:
        return stop.code


def files_in(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def lines_of(prefix: Path, suffix: str = ".txt") -> list[str]:
    name = re.compile(re.escape(prefix.name) + r"-\d{5}-of-\d{5}" + re.escape(suffix))
    files = sorted(path for path in prefix.parent.iterdir() if name.fullmatch(path.name))
    assert files
    return [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]


def released(folder: Path, *arguments: str) -> list[str]:
    assert call(*BUDGET, FASTEST, "--seed=1", f"--output={folder / 'out'}", *arguments) == 0
    return sorted(lines_of(folder / "out"))


def table_text(delimiter: str, header: str = "") -> Callable[[Pairs], str]:
    return lambda pairs: header + "".join(f"{user}{delimiter}{item}\n" for user, item in pairs)


def by_user(pairs: Pairs) -> dict[str, list[str]]:
    items = defaultdict(list)
    for user, item in pairs:
        items[user].append(item)
    return items


def json_lines(records: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def parquet_table(pairs: Pairs) -> pa.Table:
    users, items = zip(*pairs, strict=True)
    return pa.table({"size": range(len(pairs)), "who": users, "what": items})


def as_file(name: str, content: Callable[[Pairs], str | bytes], *arguments: str) -> Writer:
    """Return a function that writes one file of pairs and gives the options to read it."""

    def write(folder: Path, pairs: Pairs) -> list[str]:
        data = content(pairs)
        data = data.encode() if isinstance(data, str) else data
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
        return [f"--input={folder / name}", *arguments]

    return write


def as_parquet(content: Callable[[Pairs], pa.Table], user: str, item: str, *arguments: str) -> Writer:
    def write(folder: Path, pairs: Pairs) -> list[str]:
        pq.write_table(content(pairs), folder / "in.parquet", row_group_size=100)
        columns = [f"--user_column={user}", f"--item_column={item}"]
        return [f"--input={folder / 'in.parquet'}", "--input_format=parquet", *columns, *arguments]

    return write


def as_many_files(folder: Path, pairs: Pairs) -> list[str]:
    for part in range(3):
        text = table_text("\t")(pairs[part::3])
        (folder / f"part-{part}.tsv").write_text(text, encoding="utf-8")
    return [f"--input={folder / 'part-*.tsv'}"]


def as_file_per_user(folder: Path, pairs: Pairs) -> list[str]:
    for number, items in enumerate(by_user(pairs).values()):
        (folder / f"user-{number}.txt").write_text("\n".join(items), encoding="utf-8")
    return [f"--input={folder / 'user-*.txt'}", "--input_format=text", "--user_per=file"]


def documents(pairs: Pairs) -> Iterator[tuple[str, str]]:
    """One text for each user: all items, some twice, in upper case and with punctuation."""
    for user, items in by_user(pairs).items():
        yield user, f"{', '.join(items)}. {items[0].upper()}!"


def item_lists(pairs: Pairs) -> pa.Table:
    items = by_user(pairs)
    return pa.table({"who": list(items), "what": list(items.values())})


FORMATS: dict[str, Writer] = {
    "tsv": as_file("in.tsv", table_text("\t")),
    "tsv_gz": as_file("in.tsv.gz", table_text("\t")),
    "tsv_in_files": as_many_files,
    "tsv_of_documents": as_file(
        "in.tsv", lambda pairs: "".join(f"{u}\t{d}\n" for u, d in documents(pairs)), "--tokenize"
    ),
    "csv_by_name": as_file(
        "in.csv",
        lambda pairs: "what,size,who\n" + "".join(f'"{item}",1,{user}\r\n' for user, item in pairs),
        *("--input_format=csv", "--user_column=who", "--item_column=what"),
    ),
    "csv_by_number": as_file(
        "in.csv",
        lambda pairs: "what,size,who\n" + "".join(f"{item},1,{user}\n" for user, item in pairs),
        *("--input_format=csv", "--user_column=2", "--item_column=0", "--header"),
    ),
    "jsonl": as_file(
        "in.jsonl",
        lambda pairs: json_lines([{"who": user, "what": item} for user, item in pairs]),
        *("--input_format=jsonl", "--user_column=who", "--item_column=what"),
    ),
    "jsonl_lists_gz": as_file(
        "in.jsonl.gz",
        lambda pairs: json_lines([{"who": user, "what": items} for user, items in by_user(pairs).items()]),
        *("--input_format=jsonl", "--user_column=who", "--item_column=what"),
    ),
    "jsonl_of_documents": as_file(
        "in.jsonl",
        lambda pairs: json_lines([{"who": user, "what": text} for user, text in documents(pairs)]),
        *("--input_format=jsonl", "--user_column=who", "--item_column=what", "--tokenize=true"),
    ),
    "parquet_by_name": as_parquet(parquet_table, "who", "what"),
    "parquet_by_number": as_parquet(parquet_table, "1", "2", "--header=false"),
    "parquet_lists": as_parquet(item_lists, "who", "what"),
    "parquet_bytes": as_parquet(
        lambda pairs: pa.table([pa.array([item.encode() for item in pair]) for pair in zip(*pairs, strict=True)], ["who", "what"]),
        *("who", "what"),
    ),
    "parquet_of_documents_as_bytes": as_parquet(
        lambda pairs: pa.table({"who": list(by_user(pairs)), "what": [text.encode() for _, text in documents(pairs)]}),
        *("who", "what", "--tokenize"),
    ),
    "text_by_line": as_file(
        "in.txt", lambda pairs: "".join(f"{text}\n" for _, text in documents(pairs)), "--input_format=text"
    ),
    "text_by_file": as_file_per_user,
}  # fmt: skip


@pytest.fixture(scope="module")
def tsv(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the option that names the pairs as TSV."""
    (option,) = FORMATS["tsv"](tmp_path_factory.mktemp("input"), PAIRS)
    return option


@pytest.fixture(scope="module")
def expected(tsv: str, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Return the items released of PAIRS with BUDGET, the fastest algorithm and seed 1."""
    items = released(tmp_path_factory.mktemp("expected"), tsv)
    assert 10 < len(items) < len({item for _, item in PAIRS}), "some, not all"
    assert set(items) < {item for _, item in PAIRS}
    return items


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_gives_the_same_items(name, tmp_path, expected):
    (tmp_path / "in").mkdir()
    arguments = FORMATS[name](tmp_path / "in", PAIRS)
    assert released(tmp_path, *arguments) == expected


def test_keeps_case_and_takes_a_token_pattern(tmp_path):
    (tmp_path / "in.txt").write_text("Aa-Bb cc\n" * 100)
    arguments = (f"--input={tmp_path / 'in.txt'}", "--input_format=text")
    assert released(tmp_path, *arguments) == ["aa", "bb", "cc"]
    assert released(tmp_path, *arguments, "--keep_case") == ["Aa", "Bb", "cc"]
    assert released(tmp_path, *arguments, r"--token_pattern=[\w-]+") == ["aa-bb", "cc"]


@pytest.mark.parametrize("shards", [1, 7])
def test_the_number_of_shards_does_not_change_the_items(shards, tsv, tmp_path, expected):
    assert released(tmp_path, tsv, f"--num_shards={shards}") == expected


def test_takes_beam_options(tsv, tmp_path, expected):
    workers = ("--direct_num_workers=2", "--direct_running_mode=multi_threading")
    assert released(tmp_path, tsv, *workers, "--num_shards=3") == expected


def test_takes_a_runner(tsv, tmp_path, expected, capsys):
    # An unknown option may belong to another runner; Beam logs that it does nothing with it.
    assert released(tmp_path, tsv, "--runner=FnApiRunner", "--of_another_runner=1") == expected
    assert capsys.readouterr().out == "", "the summary is for local runs; others may end later"


def test_writes_parquet(tsv, tmp_path, expected):
    arguments = (f"--output={tmp_path / 'out'}", "--seed=1", "--output_format=parquet")
    assert call(*BUDGET, FASTEST, tsv, *arguments) == 0
    assert files_in(tmp_path) == ["out-00000-of-00001.parquet"]
    table = pq.read_table(tmp_path / "out-00000-of-00001.parquet")
    assert table.schema == pa.schema([("item", pa.string())])
    assert sorted(table["item"].to_pylist()) == expected


def test_without_seed_every_run_draws_other_noise(tmp_path):
    pairs = [(f"{user}", f"item{user % 100}") for user in range(300)]
    (option,) = FORMATS["tsv"](tmp_path, pairs)
    runs = []
    for number in range(2):
        prefix = tmp_path / f"run{number}"
        arguments = (FASTEST, "--epsilon=0.1", "--delta=0.4", "--max_degree=1", f"--output={prefix}")
        assert call(option, *arguments) == 0
        runs.append(set(lines_of(prefix)))
    # Each of 100 items is found with probability about 1/2: equal sets have probability below 2^-50.
    assert all(10 < len(items) < 90 for items in runs)
    assert runs[0] != runs[1]


ROUND_KEYS = {"threshold", "share", "delta"}
ROUNDS = {"weighted_gaussian": 1, "weighted_laplace": 1, "dp_sips": 3, "mad": 1, "mad2r": 2} | {
    "pooled_mad": len(DEFAULT_POOLED_MAD_SPLIT),
    "pooled_gaussian": len(DEFAULT_POOLED_GAUSSIAN_SPLIT),
    "parallel_greedy": 1,
}
PARAMETERS: dict[str, set[str]] = {
    "weighted_gaussian": set(),
    "weighted_laplace": set(),
    "dp_sips": {"rounds", "ratio", "budget_split"},
    "mad": {"max_adaptive_degree", "beta"},
    "mad2r": {
        *("max_adaptive_degree", "beta", "budget_split", "min_bias", "max_bias"),
        *("lower_confidence", "upper_confidence"),
    },
    "pooled_mad": {
        *("max_adaptive_degree", "beta", "budget_split", "delta_split", "min_bias", "max_bias"),
        *("lower_confidence", "upper_confidence"),
    },
    "pooled_gaussian": {"budget_split", "delta_split", "max_growth", "upper_confidence"},
    "parallel_greedy": {"passes", "beta"},
}
MORE_ROUND_KEYS = {
    "mad": {"mad"},
    "mad2r": {"mad"},
    "pooled_mad": {"mad", "pooled_sigma"},
    "pooled_gaussian": {"pooled_sigma", "thinning_rate", "max_growth"},
    "parallel_greedy": {"water_filling"},
}


def run_with_report(folder: Path, *arguments: str) -> dict[str, Any]:
    report = folder / "report.json"
    assert call(*BUDGET, f"--output={folder / 'out'}", f"--report={report}", *arguments) == 0
    found: dict[str, Any] = json.loads(report.read_text(encoding="utf-8"))
    assert found["released_items"] == len(lines_of(folder / "out")) > 5
    return found


@pytest.mark.parametrize(("algorithm", "profile"), ALGORITHMS_AND_PROFILES)
def test_every_algorithm_runs_and_reports_its_guarantee(algorithm, profile, tsv, tmp_path):
    report = run_with_report(tmp_path, tsv, f"--algorithm={algorithm}", f"--profile={profile}")
    assert files_in(tmp_path) == ["out-00000-of-00001.txt", "report.json"]
    assert list(report) == [
        *("guarantee", "algorithm", "algorithm_parameters", "profile", "max_degree", "rounds"),
        *("version", "released_items"),
    ]
    assert report["guarantee"] == {
        "epsilon": 2.0,
        "delta": 0.01,
        "neighbouring_relation": "add or remove one user",
        "unit": "one user with all their items",
    }
    assert (report["algorithm"], report["profile"], report["max_degree"]) == (algorithm, profile, 8)
    assert report["version"] == beam_dp.__version__
    assert set(report["algorithm_parameters"]) == PARAMETERS[algorithm]
    noise = "laplace_scale" if algorithm in ("weighted_laplace", "parallel_greedy") else "sigma"
    more = MORE_ROUND_KEYS.get(algorithm, set())
    assert len(report["rounds"]) == ROUNDS[algorithm]
    for round_numbers in report["rounds"]:
        assert set(round_numbers) == {noise, *ROUND_KEYS, *more}
        assert min(round_numbers[key] for key in (noise, *ROUND_KEYS)) > 0
        if "mad" in more:
            assert set(round_numbers["mad"]) == {
                *("adaptive_threshold", "max_adaptive_degree", "min_bias", "max_bias")
            }
    assert sum(round_numbers["share"] for round_numbers in report["rounds"]) == pytest.approx(1)


@pytest.mark.parametrize(("algorithm", "split"), [("dp_sips", [0.1, 0.2, 0.3, 0.4]), ("mad2r", [0.3, 0.7])])
def test_budget_split_sets_the_shares(algorithm, split, tsv, tmp_path):
    shares = ",".join(map(str, split))
    report = run_with_report(tmp_path, tsv, f"--algorithm={algorithm}", f"--budget_split={shares}")
    assert [numbers["share"] for numbers in report["rounds"]] == pytest.approx(split)


def test_max_adaptive_degree_is_used(tsv, tmp_path):
    report = run_with_report(tmp_path, tsv, "--algorithm=mad2r", "--max_adaptive_degree=2")
    assert [numbers["mad"]["max_adaptive_degree"] for numbers in report["rounds"]] == [2, 2]


def test_nothing_in_the_report_but_the_number_of_items_depends_on_the_data(tsv, tmp_path):
    (tmp_path / "in").mkdir()
    other = FORMATS["jsonl_lists_gz"](tmp_path / "in", make_pairs(90, seed=2))
    reports = [run_with_report(tmp_path, FASTEST, *arguments) for arguments in ([tsv], other)]
    counts = [report.pop("released_items") for report in reports]
    assert reports[0] == reports[1]
    assert counts[0] != counts[1], "else the test shows little"


def test_the_run_key_shows_nowhere(tsv, tmp_path, capsys, monkeypatch, caplog):
    secret = random.Random(3).randbytes(32)
    monkeypatch.setattr(RunKey, "fresh", classmethod(lambda cls: cls(secret)))
    caplog.set_level(logging.DEBUG)
    report = run_with_report(tmp_path, tsv, FASTEST)
    shown = [json.dumps(report), (tmp_path / "report.json").read_text(), *capsys.readouterr()]
    # Only our own loggers: at DEBUG Beam's print the graph, with the pickled functions in it.
    shown += [record.getMessage() for record in caplog.records if record.name.startswith(("beam_dp", "pipelines"))]  # fmt: skip
    for form in (secret.hex(), base64.b64encode(secret).decode(), repr(secret)[2:-1]):
        assert not any(form[:12] in text for text in shown)


def test_a_seed_is_marked_as_not_private(tsv, tmp_path, capsys):
    report = run_with_report(tmp_path, tsv, FASTEST, "--seed=1234567")
    assert report.pop("seeded") == "NOT PRIVATE: run with a seed, for tests"
    assert "1234567" not in json.dumps(report)
    error = capsys.readouterr().err
    assert error.splitlines()[0] == "warning: --seed is for tests; this output is NOT private"
    assert "1234567" not in error


def test_prints_a_summary_and_nothing_else(tsv, tmp_path, capsys):
    report = run_with_report(tmp_path, tsv, "--algorithm=weighted_laplace", "--profile=paper")
    assert capsys.readouterr().out == (
        f"released   {report['released_items']} items\n"
        "guarantee  epsilon=2, delta=0.01, add or remove one user\n"
        "algorithm  weighted_laplace (paper), at most 8 items of a user\n"
        f"result     {tmp_path / 'out-00000-of-00001.txt'}\n"
        f"report     {tmp_path / 'report.json'}\n"
    )
    assert released(tmp_path, tsv)
    assert capsys.readouterr().out == (
        "guarantee  epsilon=2, delta=0.01, add or remove one user\n"
        "algorithm  weighted_gaussian (tight), at most 8 items of a user\n"
        f"result     {tmp_path / 'out-00000-of-00001.txt'}\n"
    )


PROGRESS = re.compile(r"\[ *\d+\.\d s\] [a-z0-9 :]+")


def test_shows_stages_with_elapsed_time_and_no_data(tsv, tmp_path, capsys):
    run_with_report(tmp_path, tsv, "--algorithm=mad")
    out, error = capsys.readouterr()
    lines = error.splitlines()
    assert len(lines) == 7
    assert all(PROGRESS.fullmatch(line) for line in lines)
    assert SECRET not in error + out
    assert str(len({user for user, _ in PAIRS})) not in error + out
    assert str(len(PAIRS)) not in error + out


def test_logs_contain_no_data(tsv, tmp_path, caplog):
    caplog.set_level(logging.INFO)
    for name in ("beam_dp", "pipelines"):
        caplog.set_level(logging.DEBUG, logger=name)
    run_with_report(tmp_path, tsv, "--algorithm=mad2r")
    (tmp_path / "bad.tsv").write_text(f"{SECRET}\t{SECRET}\n{SECRET}\n")
    assert call(*BUDGET, f"--input={tmp_path / 'bad.tsv'}", f"--output={tmp_path / 'bad'}") == 2
    assert SECRET not in caplog.text
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    ("name", "algorithm", "output_format"),
    [
        ("tsv", "mad2r", "text"),
        ("csv_by_name", "dp_sips", "parquet"),
        ("csv_by_number", "weighted_laplace", "text"),  # a header line and nothing else
        ("jsonl", "weighted_gaussian", "text"),
        ("parquet", "weighted_gaussian", "text"),
        ("text_by_line", "weighted_gaussian", "parquet"),
    ],
)
def test_an_empty_file_is_an_empty_result(name, algorithm, output_format, tmp_path):
    formats = {**FORMATS, "parquet": as_file("in.parquet", lambda _: b"", "--input_format=parquet")}
    (tmp_path / "in").mkdir()
    arguments = formats[name](tmp_path / "in", [])
    report = tmp_path / "report.json"
    targets = (f"--output={tmp_path / 'out'}", f"--report={report}", f"--output_format={output_format}")
    assert call(*BUDGET, f"--algorithm={algorithm}", *arguments, *targets) == 0
    assert json.loads(report.read_text())["released_items"] == 0
    (result,) = tmp_path.glob("out-*")
    if output_format == "text":
        assert (result.name, result.read_bytes()) == ("out-00000-of-00001.txt", b"")
    else:
        assert (result.name, pq.read_table(result).num_rows) == ("out-00000-of-00001.parquet", 0)
    assert len(list(tmp_path.iterdir())) == 3


def test_earlier_results_of_more_shards_do_not_mix_with_new_ones(tsv, tmp_path, expected):
    for shard in range(5):
        (tmp_path / f"out-{shard:05}-of-00005.txt").write_text("old\n")
    others = (
        *("out.txt", "out-notes.txt", "out-00000-of-00005.parquet", "out-abcde-of-fghij.txt"),
        *("outer-00000-of-00001.txt", "my-out-00000-of-00001.txt", "out-00000-of-00005.txt.gz"),
    )
    for name in others:
        (tmp_path / name).write_text("other\n")
    assert released(tmp_path, tsv) == expected
    assert files_in(tmp_path) == sorted([*others, "out-00000-of-00001.txt"])
    assert {(tmp_path / name).read_text() for name in others} == {"other\n"}


def test_line_breaks_in_items_are_escaped_in_text_and_kept_in_parquet(tmp_path):
    records = [{"who": user, "what": ["one\ntwo", "cr\rlf\n", "plain"]} for user in range(100)]
    (tmp_path / "in.jsonl").write_text(json_lines(records))
    columns = ("--input_format=jsonl", "--user_column=who", "--item_column=what")
    arguments = (f"--input={tmp_path / 'in.jsonl'}", *columns)
    # Each item weighs 100/sqrt(3) = 58, 44 standard deviations above the threshold.
    assert released(tmp_path, *arguments) == ["cr\\rlf\\n", "one\\ntwo", "plain"]
    target = (FASTEST, f"--output={tmp_path / 'out'}", "--output_format=parquet")
    assert call(*BUDGET, *arguments, *target) == 0
    table = pq.read_table(tmp_path / "out-00000-of-00001.parquet")
    assert sorted(table["item"].to_pylist()) == ["cr\rlf\n", "one\ntwo", "plain"]


def fails(capsys: pytest.CaptureFixture[str], folder: Path, message: str, *arguments: str) -> None:
    """Check that a run ends with code 2, this one line on stderr, and a folder as it was."""
    before = files_in(folder)
    assert call(*arguments) == 2
    out, error = capsys.readouterr()
    lines = [line for line in error.splitlines() if not PROGRESS.fullmatch(line)]
    assert lines == [f"error: {message}"]
    assert out == ""
    assert SECRET not in error
    assert files_in(folder) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        *(
            (
                [f"--epsilon={value}"],
                f"epsilon must be a finite number > 0, got {float(value)}; common values lie between 0.1 and 10",
            )
            for value in ("0", "-1", "nan", "inf")
        ),
        (["--epsilon=true"], "argument --epsilon: invalid float value: 'true'; --help lists the options"),
        *(
            (
                [f"--delta={value}"],
                f"delta must be a number > 0 and < 1, got {float(value)}; choose it well below 1 / (number of users)",
            )
            for value in ("0", "1", "nan")
        ),
        (
            ["--max_degree=0"],
            "max_degree must be an integer from 1 to 1000000, got 0; it bounds the items counted of one user, 100 is common",
        ),
        (["--max_degree=1.5"], "argument --max_degree: invalid int value: '1.5'; --help lists the options"),
        (["--num_shards=0"], "num_shards must be an integer from 1 to 65536, got 0"),
        (
            ["--foo", "3"],
            "options must be this pipeline's or Beam's, got --foo 3; --help lists this pipeline's",
        ),
        (
            ["--max_adaptive=3"],
            "options must be this pipeline's or Beam's, got --max_adaptive=3; --help lists this pipeline's",
        ),
        (
            ["--algorithm=best"],
            "argument --algorithm: invalid choice: 'best' (choose from 'weighted_gaussian', "
            "'weighted_laplace', 'dp_sips', 'mad', 'mad2r', 'pooled_mad', 'pooled_gaussian', 'parallel_greedy'); --help lists the options",
        ),
        (
            ["--budget_split=0.1,0.9", "--algorithm=mad"],
            "budget_split must be given with algorithm dp_sips or mad2r or pooled_mad or pooled_gaussian only, got algorithm mad; "
            "leave it out or choose one of these",
        ),
        (
            ["--max_adaptive_degree=5", "--algorithm=dp_sips"],
            "max_adaptive_degree must be given with algorithm mad or mad2r or pooled_mad only, got algorithm dp_sips; "
            "leave it out or choose one of these",
        ),
        (
            ["--max_adaptive_degree=9", "--algorithm=mad2r"],
            "max_adaptive_degree must be at most max_degree=8, got 9; "
            "leave it out for the default, 50 or max_degree if that is less",
        ),
        (
            ["--budget_split=0.1;0.9", "--algorithm=mad2r"],
            "budget_split must be numbers separated by commas, got '0.1;0.9'; give for instance 0.1,0.9",
        ),
        (
            ["--budget_split=0.1,0.8", "--algorithm=dp_sips"],
            "budget_split must be at least one share, each > 0, that sum to 1, got (0.1, 0.8); "
            "give for instance 0.1,0.9",
        ),
        (
            ["--budget_split=0.1,nan", "--algorithm=mad2r"],
            "budget_split must be a finite number, got nan",
        ),
        (
            ["--budget_split=1", "--algorithm=mad2r"],
            "budget_split must be 2 shares, each > 0, that sum to 1, got (1.0,); give for instance 0.1,0.9",
        ),
        (
            ["--header=yes"],
            "argument --header: must be true or false, got 'yes'; --help lists the options",
        ),
        (
            ["--token_pattern=x"],
            "token_pattern must not be given with input_format=tsv without tokenize, where it has no "
            "meaning; leave it out",
        ),
        (
            ["--keep_case"],
            "keep_case must not be given with input_format=tsv without tokenize, where it has no meaning; "
            "leave it out",
        ),
        (
            ["--user_per=line"],
            "user_per must not be given with input_format=tsv, where it has no meaning; leave it out",
        ),
        (
            ["--header", "--input_format=jsonl"],
            "header must not be given with input_format=jsonl, where it has no meaning; leave it out",
        ),
        (
            ["--header", "--input_format=parquet"],
            "header must not be given with input_format=parquet, where it has no meaning; leave it out",
        ),
        (
            ["--user_column=0", "--input_format=text"],
            "user_column must not be given with input_format=text, where it has no meaning; leave it out",
        ),
        (
            ["--item_column=0", "--input_format=text"],
            "item_column must not be given with input_format=text, where it has no meaning; leave it out",
        ),
        (
            ["--tokenize", "--input_format=text"],
            "tokenize must not be given with input_format=text, where it has no meaning; leave it out",
        ),
        (
            ["--token_pattern=(", "--tokenize"],
            "token_pattern must be a regular expression of Python's re, got '(':"
            " missing ), unterminated subpattern at position 0",
        ),
        (
            ["--token_pattern=(a)", "--input_format=text"],
            "token_pattern must have no capturing groups, got '(a)'; write (?:...) instead of (...)",
        ),
        (
            ["--item_column=0"],
            "item_column must be another column than user_column, got 0 for both",
        ),
        (["--output="], "output must be a file name without any of * ? [, got ''"),
        (["--output=out*"], "output must be a file name without any of * ? [, got 'out*'"),
    ],
)  # fmt: skip
def test_refuses_options(arguments, message, tsv, tmp_path, capsys):
    targets = (f"--output={tmp_path / 'out'}", f"--report={tmp_path / 'report.json'}")
    fails(capsys, tmp_path, message, *BUDGET, tsv, *targets, *arguments)


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ([], "--input, --output, --epsilon, --delta, --max_degree"),
        (["--input=x", "--output=y", "--epsilon=1", "--max_degree=3"], "--delta"),
    ],
)
def test_refuses_to_guess_required_options(given, missing, tmp_path, capsys):
    message = f"the following arguments are required: {missing}; --help lists the options"
    fails(capsys, tmp_path, message, *given)


DASH = "line {} of {{path}} "
FIRST = f"{SECRET}a\t{SECRET}b\n"
JSON = ("--input_format=jsonl", "--user_column=u", "--item_column=i")
PARQUET = ("--input_format=parquet", "--user_column=u", "--item_column=i")


def parquet_of(users: pa.Array | list[Any], items: pa.Array | list[Any]) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"u": users, "i": items}), sink)
    return sink.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (
            FIRST,
            ["--item_column=2"],
            "item_column must number a column (from 0) of {path}, which has 2 columns, got 2",
        ),
        (
            FIRST,
            ["--user_column=who"],
            "user_column must name a column of {path}, which has 2 columns, got 'who'",
        ),
        (
            FIRST + f"{SECRET}\n",
            [],
            "line 2 of {path} has 1 field, but the first line of the file has 2; every line must have as many",
        ),
        (
            f"{SECRET},x\n{SECRET},y,z\n",
            ["--input_format=csv"],
            "line 2 of {path} has 3 fields, but the first line of the file has 2; every line must have as many",
        ),
        (
            f'{SECRET},x\n{SECRET},"y\n',
            ["--input_format=csv"],
            "line 2 of {path} has a double quote that is not closed; line breaks inside quotes are not "
            "supported, and a quote inside quotes is written twice",
        ),
        (
            FIRST.encode() + b"\xff\tb\n",
            [],
            "line 2 of {path} is not valid UTF-8 in the user or item field; convert the file to UTF-8",
        ),
        (
            SECRET.encode() + b"\n\xff\n",
            ["--input_format=text"],
            "line 2 of {path} is not valid UTF-8; convert the file to UTF-8",
        ),
        (
            f'{{"u": "{SECRET}", "i": "x"}}\n{{"u": "{SECRET}"\n',
            JSON,
            "line 2 of {path} is not valid JSON; write one JSON object per line",
        ),
        (
            f'{{"u": "{SECRET}", "i": "x"}}\n{{"u": "{SECRET}", "i": null}}\n',
            JSON,
            "line 2 of {path} has null or a value of another type in the field 'i'; "
            "item_column must name a field of strings, integers or lists of these",
        ),
        (
            f'{{"u": "{SECRET}", "i": "x"}}\n{{"u": "{SECRET}"}}\n',
            JSON,
            "line 2 of {path} has no field 'i'; item_column must name a field of every line",
        ),
        (
            f'{{"u": "{SECRET}", "j": "x"}}\n',
            JSON,
            "line 1 of {path} has no field 'i'; item_column must name a field of every line",
        ),
        (
            f'["{SECRET}"]\n',
            JSON,
            "line 1 of {path} is not a JSON object; write one JSON object per line",
        ),
        (
            parquet_of([SECRET, None], ["x", "y"]),
            PARQUET,
            "row 1 (from 0) of {path} has a null as the user; remove the row",
        ),
        (
            parquet_of([SECRET, SECRET], [["x"], ["y", None]]),
            PARQUET,
            "row 1 (from 0) of {path} has a null in its list of items; remove it",
        ),
        (
            parquet_of([SECRET], ["x"]),
            ["--input_format=parquet", "--user_column=u", "--item_column=item"],
            "item_column must name a column of {path}, which has the columns 'u', 'i', got 'item'",
        ),
        (
            parquet_of([SECRET], ["x"]),
            ["--input_format=parquet", "--user_column=0", "--item_column=2"],
            "item_column must number a column (from 0) of {path}, which has the columns 'u', 'i', got 2",
        ),
        (
            parquet_of([SECRET], [0.5]),
            PARQUET,
            "item_column must be a column of strings, bytes or integers, or of lists of these, "
            "got 'i' of type double in {path}",
        ),
        (
            parquet_of([SECRET], [SECRET.encode() + b"\xff"]),
            PARQUET,
            "item_column must be a column of text, got 'i' of bytes that are not valid UTF-8; "
            "write the items as text",
        ),
        (
            f"{SECRET} is not Parquet",
            PARQUET,
            "{path} cannot be read as Parquet (ArrowInvalid); check that it is a whole Parquet file",
        ),
    ],
)  # fmt: skip
def test_bad_data_end_the_run_without_being_shown(data, arguments, message, tmp_path, capsys):
    path = tmp_path / "in"
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    targets = (FASTEST, f"--output={tmp_path / 'out'}", f"--report={tmp_path / 'report.json'}")
    fails(capsys, tmp_path, message.format(path=path), *BUDGET, f"--input={path}", *targets, *arguments)


def test_refuses_input_that_is_no_file(tmp_path, capsys):
    targets = (f"--output={tmp_path / 'out'}", f"--report={tmp_path / 'report.json'}")
    rule = "input must name at least one readable file, got"
    none = str(tmp_path / "none.tsv")
    fails(capsys, tmp_path, f"{rule} no match for {none!r}", *BUDGET, f"--input={none}", *targets)
    (tmp_path / "folder").mkdir()
    folder = str(tmp_path / "folder")
    message = f"{rule} the directory {folder!r}; give a pattern such as {folder + '/*'!r}"
    fails(capsys, tmp_path, message, *BUDGET, f"--input={folder}", *targets)


def test_refuses_a_prefix_for_which_beam_would_delete_other_results(tsv, tmp_path, capsys):
    other = tmp_path / "out-2024-00000-of-00001.txt"
    other.write_text("other\n")
    message = (
        f"output must not be the beginning of the name of other results, got {str(tmp_path / 'out')!r} beside "
        f"{str(other)!r}; choose another prefix"
    )
    fails(capsys, tmp_path, message, *BUDGET, tsv, f"--output={tmp_path / 'out'}")
    assert other.read_text() == "other\n"


def test_refuses_to_overwrite_its_input_or_a_folder(tmp_path, capsys):
    (tmp_path / "data-00000-of-00001.txt").write_text(table_text("\t")(PAIRS), encoding="utf-8")
    source = str(tmp_path / "data-00000-of-00001.txt")
    rule = "must not overwrite an input file, got {!r} for both; choose another name"
    message = "output " + rule.format(source)
    fails(capsys, tmp_path, message, *BUDGET, f"--input={source}", f"--output={tmp_path / 'data'}")
    (tmp_path / "link").symlink_to(source)
    message = "report " + rule.format(source)
    targets = (f"--output={tmp_path / 'out'}", f"--report={source}")
    fails(capsys, tmp_path, message, *BUDGET, f"--input={tmp_path / 'link'}", *targets)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "precious").touch()
    message = f"report must name a file, got the directory {str(tmp_path / 'folder')!r}"
    targets = (f"--output={tmp_path / 'out'}", f"--report={tmp_path / 'folder'}")
    fails(capsys, tmp_path, message, *BUDGET, f"--input={source}", *targets)


@pytest.mark.parametrize("workers", [(), ("--direct_num_workers=2", "--direct_running_mode=multi_threading")])
def test_a_run_that_fails_in_the_middle_leaves_nothing(workers, tmp_path, capsys):
    (tmp_path / "in").mkdir()
    for part in range(4):
        end = f"{SECRET}\n" if part == 3 else ""
        text = table_text("\t")(PAIRS) + end
        (tmp_path / "in" / f"part-{part}.tsv").write_text(text, encoding="utf-8")
    for name in ("out-00000-of-00002.txt", "out-00001-of-00002.txt", "report.json"):
        (tmp_path / name).write_text("of an earlier run")
    targets = (f"--output={tmp_path / 'out'}", f"--report={tmp_path / 'report.json'}", "--num_shards=5")
    assert call(*BUDGET, FASTEST, f"--input={tmp_path / 'in' / '*.tsv'}", *targets, *workers) == 2
    assert files_in(tmp_path) == ["in", *(f"in/part-{part}.tsv" for part in range(4))]
    out, error = capsys.readouterr()
    assert error.splitlines()[-1] == (
        f"error: line {len(PAIRS) + 1} of {tmp_path / 'in' / 'part-3.tsv'} has 1 field, but the first line of "
        "the file has 2; every line must have as many"
    )
    assert out == ""
    assert SECRET not in error


def command(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pipelines.partition_selection", *BUDGET, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_as_a_command_it_takes_relative_paths_and_prints_only_the_summary(tmp_path):
    FORMATS["tsv"](tmp_path, PAIRS)
    (tmp_path / "out-00000-of-00002.txt").write_text("of an earlier run")
    done = command(tmp_path, "--input=in.tsv", "--output=out", "--report=report.json")
    assert done.returncode == 0
    report = json.loads((tmp_path / "report.json").read_text())
    assert done.stdout == (
        f"released   {report['released_items']} items\n"
        "guarantee  epsilon=2, delta=0.01, add or remove one user\n"
        "algorithm  pooled_gaussian (tight), at most 8 items of a user\n"
        "result     ./out-00000-of-00001.txt\n"
        "report     report.json\n"
    )
    assert all(PROGRESS.fullmatch(line) for line in done.stderr.splitlines())
    assert files_in(tmp_path) == ["in.tsv", "out-00000-of-00001.txt", "report.json"]
    assert len(lines_of(tmp_path / "out")) == report["released_items"] > 5


def test_as_a_command_bad_input_is_exit_code_2_and_one_line(tmp_path):
    (tmp_path / "in.tsv").write_text(f"{FIRST}{SECRET}\n")
    done = command(tmp_path, FASTEST, "--input=in.tsv", "--output=out", "--report=report.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert [line for line in done.stderr.splitlines() if not PROGRESS.fullmatch(line)] == [
        "error: line 2 of in.tsv has 1 field, but the first line of the file has 2; every line must have as many"
    ]
    assert files_in(tmp_path) == ["in.tsv"]


@pytest.mark.slow
def test_as_a_command_with_two_processes_it_releases_the_same(tmp_path, expected):
    FORMATS["tsv"](tmp_path, PAIRS)
    workers = ("--direct_num_workers=2", "--direct_running_mode=multi_processing")
    done = command(tmp_path, FASTEST, "--input=in.tsv", "--output=out", "--seed=1", *workers)
    assert done.returncode == 0, done.stderr
    assert sorted(lines_of(tmp_path / "out")) == expected
    assert done.stdout.splitlines()[0].startswith("guarantee ")
    assert len(done.stdout.splitlines()) == 3
    assert SECRET not in done.stderr
