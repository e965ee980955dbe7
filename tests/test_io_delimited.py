import csv
import gzip
import io
import os

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.errors import InputError
from beam_dp.io.delimited import DelimitedFormat, check_delimited_columns, read_delimited
from beam_dp.io.ranges import BOM, ByteRange, byte_ranges

TSV = DelimitedFormat(delimiter="\t")
CSV = DelimitedFormat(delimiter=",")
SECRET = "s3cret"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("delimited")


def write(path, data):
    path.write_bytes(data)
    return str(path)


def read(path, layout, *, range_bytes=1 << 20, chunk_bytes=1 << 20):
    size = os.path.getsize(path)
    pairs = []
    for part in byte_ranges(path, size, range_bytes):
        for table in read_delimited(part, layout, chunk_bytes=chunk_bytes):
            assert table.num_rows > 0
            pairs += zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    return pairs


def read_error(path, layout=TSV, **sizes):
    with pytest.raises(InputError) as caught:
        read(path, layout, **sizes)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert SECRET not in str(caught.value)
    return str(caught.value)


texts = st.text(st.sampled_from(list("ab 01é\ufeff'")), max_size=4)
ends = st.sampled_from(["\n", "\r\n"])
sizes = st.integers(1, 200)


@settings(deadline=None, max_examples=150)
@given(
    rows=st.lists(st.none() | st.tuples(texts, texts, texts), max_size=12),
    end=ends,
    last_end=st.booleans(),
    header=st.booleans(),
    mark=st.booleans(),
    range_bytes=sizes,
    chunk_bytes=sizes,
)
def test_tsv_pairs_do_not_depend_on_the_ranges(
    *, folder, rows, end, last_end, header, mark, range_bytes, chunk_bytes
):
    lines = ["user\tother\titem"] * header + ["\t".join(row) if row else "" for row in rows]
    text = end.join(lines) + end * last_end
    # Without a mark before it, a mark that starts the data would be taken for one.
    marked = mark or text.startswith("\ufeff")
    path = write(folder / "pairs.tsv", BOM * marked + text.encode())
    columns = {"user_column": "user", "item_column": "item"} if header else {"item_column": 2}
    layout = DelimitedFormat(delimiter="\t", **columns)
    expected = [(row[0], row[2]) for row in rows if row]
    assert read(path, layout, range_bytes=range_bytes, chunk_bytes=chunk_bytes) == expected


@settings(deadline=None, max_examples=150)
@given(
    rows=st.lists(st.tuples(*[st.text('a," ', max_size=4)] * 2), max_size=12),
    end=ends,
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    header=st.booleans(),
    range_bytes=sizes,
    chunk_bytes=sizes,
)
def test_csv_pairs_do_not_depend_on_the_ranges(
    *, folder, rows, end, quoting, header, range_bytes, chunk_bytes
):
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator=end, quoting=quoting)
    writer.writerows([("h,1", 'h"2')] * header + rows)
    path = write(folder / "pairs.csv", text.getvalue().encode())
    layout = DelimitedFormat(delimiter=",", header=header)
    assert read(path, layout, range_bytes=range_bytes, chunk_bytes=chunk_bytes) == rows


@settings(deadline=None, max_examples=400)
@given(data=st.text('a,"\n\r', max_size=14).map(str.encode), chunk_bytes=st.integers(1, 15))
def test_odd_quotes_and_returns_give_the_same_for_any_chunks(folder, data, chunk_bytes):
    path = write(folder / "odd.csv", data)

    def outcome(chunk_bytes):
        try:
            return read(path, CSV, chunk_bytes=chunk_bytes)
        except InputError as error:
            return str(error)

    assert outcome(chunk_bytes) == outcome(1 << 20)


def test_tables_are_dictionary_encoded_text(tmp_path):
    path = write(tmp_path / "a.tsv", b"1\t007\n1\t8\n")
    (table,) = read_delimited(ByteRange(path, 0, 100), TSV)
    text = pa.dictionary(pa.int32(), pa.string())
    assert table.schema == pa.schema([("user", text), ("item", text)])
    assert table.to_pydict() == {"user": ["1", "1"], "item": ["007", "8"]}


def test_a_large_file_is_read_by_several_ranges(tmp_path):
    lines = [b"u%d\ti%d\n" % (n % 1000, n) for n in range(50_000)]
    path = write(tmp_path / "a.tsv", b"".join(lines))
    size = sum(map(len, lines))
    counts = [
        sum(table.num_rows for table in read_delimited(part, TSV, chunk_bytes=1 << 12))
        for part in byte_ranges(path, size, 1 << 17)
    ]
    assert len(counts) == -(-size // (1 << 17)) > 3
    assert min(counts) > 0
    assert sum(counts) == 50_000


def test_empty_fields_and_words_for_nothing_are_kept(tmp_path):
    path = write(tmp_path / "a.csv", b',\nNULL,nan\n"",NA\n')
    assert read(path, CSV) == [("", ""), ("NULL", "nan"), ("", "NA")]


def test_quotes_are_characters_unless_the_delimiter_is_a_comma(tmp_path):
    path = write(tmp_path / "a.tsv", b'"a\tb"\n"c""\td\n')
    assert read(path, TSV) == [('"a', 'b"'), ('"c""', "d")]


@pytest.mark.parametrize("data", [b"", b"\n\r\n", BOM, b"user\titem", b"user\titem\r\n\n"])
@pytest.mark.parametrize("range_bytes", [1, 100])
def test_an_empty_file_yields_nothing(tmp_path, data, range_bytes):
    layout = DelimitedFormat(delimiter="\t", header=True)
    assert read(write(tmp_path / "a.tsv", data), layout, range_bytes=range_bytes) == []


def test_reads_compressed_files(tmp_path):
    path = write(tmp_path / "a.tsv.gz", gzip.compress(b"user\titem\na\tb\nc\td"))
    assert read(path, DelimitedFormat(delimiter="\t", header=True), chunk_bytes=1) == [("a", "b"), ("c", "d")]


def test_finds_names_in_each_file(tmp_path):
    layout = DelimitedFormat(delimiter=",", user_column="u", item_column="i")
    assert read(write(tmp_path / "a.csv", b"u,i\n1,2\n"), layout) == [("1", "2")]
    assert read(write(tmp_path / "b.csv", b'x,"i","u"\n0,2,1\n'), layout) == [("1", "2")]


@pytest.mark.parametrize("range_bytes", [1, 7, 100])
@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_names_the_line_with_another_number_of_fields(tmp_path, range_bytes, name):
    def text(bad):
        data = f"a\tb\n\nc\td\r\n{bad}\ne\tf\n{bad}\n".encode()
        return gzip.compress(data) if name.endswith("gz") else data

    path = write(tmp_path / name, text(SECRET))
    assert read_error(path, range_bytes=range_bytes) == (
        f"line 4 of {path} has 1 field, but the first line of the file has 2; every line must have as many"
    )
    path = write(tmp_path / name, text(f"x\t{SECRET}\ty"))
    assert read_error(path, range_bytes=range_bytes) == (
        f"line 4 of {path} has 3 fields, but the first line of the file has 2; every line must have as many"
    )


@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_names_the_line_that_is_not_utf8(tmp_path, chunk_bytes):
    path = write(tmp_path / "a.tsv", b"h\th\na\tb\n" + SECRET.encode() + b"\xff\tb\n")
    layout = DelimitedFormat(delimiter="\t", header=True)
    assert read_error(path, layout, chunk_bytes=chunk_bytes) == (
        f"line 3 of {path} is not valid UTF-8 in the user or item field; convert the file to UTF-8"
    )


def test_names_the_header_that_is_not_utf8(tmp_path):
    path = write(tmp_path / "a.tsv", b"\n" + SECRET.encode() + b"\xff\titem\na\tb\n")
    layout = DelimitedFormat(delimiter="\t", user_column="user", item_column="item")
    assert read_error(path, layout) == f"line 2 of {path} is not valid UTF-8; convert the file to UTF-8"


QUOTE = (
    "has a double quote that is not closed; line breaks inside quotes are not supported,"
    " and a quote inside quotes is written twice"
)


@pytest.mark.parametrize(
    ("data", "line"),
    [
        (b'a,"s3cret\nb",c\n', 1),
        (b'a,b\nc,"s3cret\nb"\n', 2),
        (b'a,b\nc,"s3cret\n', 2),
        (b'a,b\nc,"s3cret\n\r\n', 2),
        (b'a,b\n"s3cret,c', 2),
        (b'a,b\na"s3cret,"c\n', 2),
    ],
)
@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_names_the_line_with_an_open_quote(tmp_path, data, line, chunk_bytes):
    path = write(tmp_path / "a.csv", data)
    assert read_error(path, CSV, chunk_bytes=chunk_bytes) == f"line {line} of {path} {QUOTE}"


def test_names_the_line_with_a_stray_carriage_return(tmp_path):
    path = write(tmp_path / "a.tsv", b"a\tb\ns3cret\rc\td\n")
    assert read_error(path) == (
        f"line 2 of {path} has a carriage return that is not followed by a line feed;"
        " end lines with LF or CRLF"
    )


def test_checks_the_columns_of_a_file(tmp_path):
    def problem(data, layout):
        path = write(tmp_path / "a.csv", data)
        with pytest.raises(InputError) as caught:
            check_delimited_columns(path, layout)
        return str(caught.value).replace(path, "FILE")

    names = DelimitedFormat(delimiter=",", user_column="u", item_column="i")
    check_delimited_columns(write(tmp_path / "b.csv", b""), names)
    check_delimited_columns(write(tmp_path / "b.csv", b"i,u\n"), names)
    assert problem(b"s3cret,i\n", names) == (
        "user_column must name a column of FILE, which has 2 columns, got 'u'"
    )
    assert problem(b"s3cret\n", CSV) == (
        "item_column must number a column (from 0) of FILE, which has 1 column, got 1"
    )
    mixed = DelimitedFormat(delimiter=",", user_column="u", item_column=0)
    assert problem(b"u,i\n", mixed) == (
        "item_column must be another column than user_column, got 0 and 'u', the same column of FILE"
    )


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"delimiter": "||"},
            "delimiter must be one ASCII character other than a double quote, a line break or NUL, got '||'",
        ),
        (
            {"delimiter": '"'},
            "delimiter must be one ASCII character other than a double quote, a line break or NUL, got '\"'",
        ),
        (
            {"delimiter": None},
            "delimiter must be one ASCII character other than a double quote, a line break or NUL, got None",
        ),
        ({"delimiter": ",", "header": "yes"}, "header must be True, False or None, got 'yes'"),
        (
            {"delimiter": ",", "user_column": "u", "header": False},
            "header must be True or None if a column is given by name, got False; give user_column and"
            " item_column by number to read a file without header line",
        ),
        (
            {"delimiter": ",", "user_column": 1},
            "item_column must be another column than user_column, got 1 for both",
        ),
    ],
)
def test_refuses_formats(parameters, message):
    with pytest.raises(ValueError) as caught:
        DelimitedFormat(**parameters)
    assert str(caught.value) == message
