import gzip
from collections import Counter

import apache_beam as beam
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dp.io import ReadDelimitedPairs, ReadDocuments, ReadJsonLinesPairs, ReadParquetPairs, Tokenize

PAIRS = [(f"u{n % 7}", f"i{n}") for n in range(60)]


def as_lines(table):
    return [
        f"{user}|{item}"
        for user, item in zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    ]


def run(folder, *transforms):
    """Return the counted pairs and the number of tables of a pipeline of these transforms."""
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        tables = pipeline
        for number, transform in enumerate(transforms):
            tables = tables | f"Step {number}" >> transform
        assert tables.element_type is pa.Table
        _ = (
            tables
            | "One line a table" >> beam.Map(lambda table: " ".join(as_lines(table)))
            | "Write" >> beam.io.WriteToText(str(folder / "found"), num_shards=1)
        )
    tables = (folder / "found-00000-of-00001").read_text().splitlines()
    return Counter(tuple(pair.split("|")) for line in tables for pair in line.split()), len(tables)


def test_reads_delimited_files_in_ranges(tmp_path):
    for number in range(2):
        lines = [f"{user}\t{item}\n" for user, item in PAIRS[number::2]]
        (tmp_path / f"pairs-{number}.tsv").write_text("".join(["user\titem\n", *lines]))
    transform = ReadDelimitedPairs(
        str(tmp_path / "pairs-*.tsv"), delimiter="\t", user_column="user", item_column="item", range_bytes=50
    )
    found, tables = run(tmp_path, transform)
    assert found == Counter(PAIRS)
    assert tables > 4


def test_reads_compressed_files(tmp_path):
    text = "".join(f"{item},{user}\n" for user, item in PAIRS)
    (tmp_path / "pairs.csv.gz").write_bytes(gzip.compress(text.encode()))
    transform = ReadDelimitedPairs(
        str(tmp_path / "pairs.csv.gz"), delimiter=",", user_column=1, item_column=0, range_bytes=50
    )
    assert run(tmp_path, transform) == (Counter(PAIRS), 1)


def test_reads_parquet_files_in_ranges(tmp_path):
    table = pa.table({"u": [user for user, _ in PAIRS], "i": [item for _, item in PAIRS]})
    pq.write_table(table, tmp_path / "pairs.parquet", row_group_size=10)
    transform = ReadParquetPairs(
        str(tmp_path / "pairs.parquet"), user_column="u", item_column="i", range_bytes=500
    )
    assert run(tmp_path, transform) == (Counter(PAIRS), 6)


def test_reads_json_lines_in_ranges(tmp_path):
    lines = [f'{{"u": "{user}", "i": ["{item}"]}}\n' for user, item in PAIRS]
    (tmp_path / "pairs.jsonl").write_text("".join(lines))
    transform = ReadJsonLinesPairs(
        str(tmp_path / "pairs.jsonl"), user_column="u", item_column="i", range_bytes=500
    )
    found, tables = run(tmp_path, transform)
    assert found == Counter(PAIRS)
    assert tables == 4


def test_reads_the_words_of_documents(tmp_path):
    (tmp_path / "posts.txt").write_text("One two one\nthree\n")
    path = str(tmp_path / "posts.txt")
    found, tables = run(tmp_path, ReadDocuments(path, range_bytes=4), Tokenize())
    assert found == Counter([(f"{path}:0", "one"), (f"{path}:0", "two"), (f"{path}:12", "three")])
    assert tables == 2
    found, _ = run(tmp_path, ReadDocuments(path, user_per="file"), Tokenize(lowercase=False))
    assert found == Counter((path, word) for word in ["One", "two", "one", "three"])


def test_bad_data_fail_the_pipeline_without_being_shown(tmp_path):
    (tmp_path / "pairs.tsv").write_text("a\tb\ns3cret\n")
    path = str(tmp_path / "pairs.tsv")
    with pytest.raises(Exception) as caught, beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | ReadDelimitedPairs(path, delimiter="\t")
    assert f"line 2 of {path} has 1 field, but the first line of the file has 2" in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_no_file_fails_the_pipeline(tmp_path):
    pattern = str(tmp_path / "none-*")
    with pytest.raises(Exception) as caught, beam.Pipeline(runner=FnApiRunner()) as pipeline:
        _ = pipeline | ReadDocuments(pattern)
    assert f"file_pattern must name at least one readable file, got no match for {pattern!r}" in str(
        caught.value
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: ReadDocuments(""),
            "file_pattern must be a file name or pattern (a str), got ''",
        ),
        (
            lambda: ReadDelimitedPairs("x", delimiter=",", range_bytes=0),
            "range_bytes must be an integer >= 1, got 0",
        ),
        (
            lambda: ReadDelimitedPairs("x", delimiter=",", user_column=1),
            "item_column must be another column than user_column, got 1 for both",
        ),
        (
            lambda: ReadParquetPairs("x", user_column="u", item_column="u"),
            "item_column must be another column than user_column, got 'u' for both",
        ),
        (
            lambda: ReadJsonLinesPairs("x", user_column="u", item_column=1),
            "item_column must be a column name (a str that is not empty), got 1",
        ),
        (lambda: ReadDocuments("x", user_per="word"), "user_per must be 'line' or 'file', got 'word'"),
        (
            lambda: Tokenize(token_pattern="("),
            "token_pattern must be a regular expression of Python's re, got '(':"
            " missing ), unterminated subpattern at position 0",
        ),
    ],
)
def test_refuses_parameters(make, message):
    with pytest.raises(ValueError) as caught:
        make()
    assert str(caught.value) == message
