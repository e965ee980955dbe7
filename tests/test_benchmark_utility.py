import gzip
import json
import subprocess
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from beam_dp.algorithms import ALGORITHMS
from benchmarks import corpora, utility
from benchmarks.corpora import SOURCES, Corpus, Source
from benchmarks.synthetic import zipf_sets
from benchmarks.utility import Measured, Results, frequency_bins, measure, released_table

PACKAGES = [
    {"package": "a", "maintainer": "m0", "depends": ["libc6", "dpkg"], "description": "Fast, FAST editor"},
    {"package": "b", "maintainer": "m0", "depends": [], "description": "editor (data)"},
    {"package": "c", "maintainer": "m1", "depends": ["libc6"], "description": "game"},
]


@pytest.fixture
def packages(tmp_path: Path) -> Path:
    path = tmp_path / "debian_packages.jsonl.gz"
    with gzip.open(path, "wt", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps(row)}\n" for row in PACKAGES)
    return path


def pairs(table: pa.Table) -> list[tuple]:
    return list(zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True))


def small_source(name: str = "small") -> Source:
    offsets, items, _ = zipf_sets(num_users=3_000, mean_degree=20.0, num_items=3_000)
    table = pa.table({"user": np.repeat(np.arange(len(offsets) - 1), np.diff(offsets)), "item": items})
    return Source(name=name, unit="made", read=lambda _: table)


@pytest.fixture(scope="module")
def results() -> Results:
    sources = [(small_source(name), Path()) for name in ("Higgs", "other")]
    return measure(sources, epsilons=[0.5, 1.0], seeds=2, progress=lambda text: None)


# --- Corpora ---


def test_dependencies_are_pairs_of_package_and_dependency(packages):
    assert pairs(corpora.read_dependencies(packages)) == [("a", "libc6"), ("a", "dpkg"), ("c", "libc6")]


def test_description_words_belong_to_maintainers_in_lower_case(packages):
    words = pairs(corpora.read_description_words(packages))
    assert set(words) == {("m0", "fast"), ("m0", "editor"), ("m0", "data"), ("m1", "game")}


def test_higgs_keeps_the_first_two_columns(tmp_path):
    source = next(source for source in SOURCES if source.name == "Higgs")
    with gzip.open(tmp_path / source.file, "wt") as lines:
        lines.write("3\t291\n3\t291\n4\t88\n")
    assert pairs(source.read(source.path(tmp_path))) == [(3, 291), (3, 291), (4, 88)]


def test_stdlib_files_hold_their_identifiers(tmp_path, monkeypatch):
    (tmp_path / "one.py").write_text("import os\nvalue = os.sep\n")
    monkeypatch.setattr(corpora.sysconfig, "get_path", lambda name: str(tmp_path))
    assert pairs(corpora.read_stdlib(Path())) == [("one.py", "os"), ("one.py", "sep"), ("one.py", "value")]


def test_absent_files_are_told_from_made_corpora(tmp_path):
    there = {source.name: source.path(tmp_path) is not None for source in SOURCES}
    assert there == {
        "Higgs": False,
        "Debian dependencies": False,
        "Debian words": False,
        "Python identifiers": True,
        "Zipf": True,
    }
    assert SOURCES[0].path(None) is None


def test_frequencies_count_the_distinct_users_of_each_item(packages):
    table = corpora.read_dependencies(packages)
    encoded = Corpus(SOURCES[1], pa.concat_tables([table, table])).encode(0)
    assert dict(zip(encoded.block.keys.to_bytes(), encoded.frequency.tolist(), strict=True)) == {
        b"libc6": 2,
        b"dpkg": 1,
    }


def test_pairs_are_written_one_to_a_line(packages, tmp_path):
    corpora.write_pairs(corpora.read_dependencies(packages), tmp_path / "pairs.tsv")
    assert (tmp_path / "pairs.tsv").read_text() == "a\tlibc6\na\tdpkg\nc\tlibc6\n"


# --- Measuring ---


def test_every_algorithm_is_a_row(results):
    assert set(ALGORITHMS) <= set(results.rows)
    assert {"mad2r, paper", "dp_sips, paper"} | results.sequential <= set(results.rows)
    assert set(results.measured) == {
        (corpus, row, epsilon)
        for corpus in ("Higgs", "other")
        for row in results.rows
        for epsilon in (0.5, 1.0)
    }


def test_default_algorithm_is_a_row():
    assert utility.default_algorithm() in ALGORITHMS


def test_counts_are_a_function_of_the_seed(results):
    again = measure([(small_source("again"), Path())], epsilons=[1.0], seeds=2, progress=lambda text: None)
    for row in results.rows:
        counts = results.measured["Higgs", row, 1.0].counts
        assert counts == again.measured["again", row, 1.0].counts
        assert 0 < min(counts) <= max(counts) < 3_000
    assert any(len(set(cell.counts)) == 2 for cell in again.measured.values())


def test_bins_hold_as_many_items_as_are_released(results):
    for (corpus, _, _), cell in results.measured.items():
        in_data = results.in_data[corpus]
        assert [int(bins.sum()) for bins in cell.by_frequency] == cell.counts
        for bins in cell.by_frequency:
            assert (bins <= in_data[: len(bins)]).all()


def test_bins_are_powers_of_two():
    assert frequency_bins(np.array([1, 2, 3, 4, 7, 8])).tolist() == [1, 2, 2, 1]
    assert frequency_bins(np.array([], np.int64)).sum() == 0


def test_pipeline_dp_runs_with_another_python(packages, tmp_path, monkeypatch):
    calls = []

    def run(command, **options):
        calls.append((command[0], Path(command[2]).read_text()))
        return subprocess.CompletedProcess(command, 0, stdout='{"seconds": 1, "released": 7}\n')

    monkeypatch.setattr(utility.subprocess, "run", run)
    corpus = Corpus(SOURCES[1], corpora.read_dependencies(packages))
    assert utility.released_by_pipeline_dp(corpus, "other-python") == 7
    assert calls == [("other-python", "a\tlibc6\na\tdpkg\nc\tlibc6\n")]


# --- Tables ---


def test_table_marks_the_best_parallel_row_and_leaves_out_empty_ones():
    table = released_table(
        Results(
            corpora={"one": "", "two": ""},
            in_data={},
            rows=["slow", "fast", "equal", "order", "never"],
            sequential={"order"},
            measured={
                ("one", "slow", 1.0): Measured(counts=[1000, 1200]),
                ("one", "fast", 1.0): Measured(counts=[1500, 1500]),
                ("one", "equal", 1.0): Measured(counts=[1499, 1501]),
                ("one", "order", 1.0): Measured(counts=[2000, 2000]),
                ("two", "slow", 1.0): Measured(counts=[7]),
            },
        ),
        1.0,
    )
    assert table.splitlines() == [
        "| epsilon 1 | one | two |",
        "|---|---|---|",
        "| slow | 1,100 +- 141 | **7** |",
        "| fast | **1,500 +- 0** | - |",
        "| equal | **1,500 +- 1** | - |",
        "| order | 2,000 +- 0 | - |",
    ]


def test_small_means_show_a_decimal():
    assert Measured(counts=[2, 3]).cell() == "2.5 +- 0.7"
    assert Measured(counts=[2]).cell() == "2"


# --- The command ---


def test_command_prints_tables_and_writes_figures(tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib draws the figures; pip install 'beam-dp[figures]'")
    from PIL import Image

    absent = Source(name="absent", unit="", read=lambda _: pa.table({}), file="absent.gz")
    monkeypatch.setattr(utility, "SOURCES", (small_source(), absent))
    monkeypatch.setattr(utility.importlib.util, "find_spec", lambda name: None)
    utility.main(["--eps", "0.5,1", "--seeds", "1", "--data", str(tmp_path), "--out", str(tmp_path / "docs")])
    printed = capsys.readouterr()
    assert "| small | 3,000 |" in printed.out
    assert "| epsilon 0.5 | small |" in printed.out
    assert "| epsilon 1 | small |" in printed.out
    assert "absent: skipped, absent.gz is not in the folder" in printed.err
    figures = sorted((tmp_path / "docs" / "figures").iterdir())
    assert [path.name for path in figures] == ["utility_by_epsilon.png", "utility_by_frequency.png"]
    for path in figures:
        with Image.open(path) as picture:
            assert picture.width >= 800
            assert len(picture.getcolors()) > 3
        assert path.stat().st_size < 150_000


def test_docs_show_every_figure():
    docs = Path(__file__).parents[1] / "docs"
    text = (docs / "utility.md").read_text(encoding="utf-8")
    for name in ("utility_by_epsilon.png", "utility_by_frequency.png"):
        assert f"(figures/{name})" in text
        assert (docs / "figures" / name).exists()
