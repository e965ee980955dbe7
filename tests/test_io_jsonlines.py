import gzip
import json
import os

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.errors import InputError
from beam_dp.io.jsonlines import check_json_lines_columns, read_json_lines
from beam_dp.io.ranges import BOM, ByteRange, byte_ranges

SECRET = "s3cret"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jsonlines")


def write(path, data):
    path.write_bytes(data)
    return str(path)


def read(path, *, range_bytes=1 << 20, chunk_bytes=1 << 20):
    size = os.path.getsize(path)
    pairs = []
    for part in byte_ranges(path, size, range_bytes):
        for table in read_json_lines(part, user_column="u", item_column="i", chunk_bytes=chunk_bytes):
            assert table.num_rows > 0
            pairs += zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    return pairs


scalars = st.text(max_size=4) | st.integers()


@settings(deadline=None, max_examples=150)
@given(
    rows=st.lists(st.none() | st.tuples(scalars, scalars | st.lists(scalars, max_size=3)), max_size=10),
    end=st.sampled_from(["\n", "\r\n"]),
    last_end=st.booleans(),
    ascii_only=st.booleans(),
    mark=st.booleans(),
    range_bytes=st.integers(1, 200),
    chunk_bytes=st.integers(1, 200),
)
def test_pairs_do_not_depend_on_the_ranges(
    *, folder, rows, end, last_end, ascii_only, mark, range_bytes, chunk_bytes
):
    lines = [
        json.dumps({"u": row[0], "x": None, "i": row[1]}, ensure_ascii=ascii_only) if row else ""
        for row in rows
    ]
    path = write(folder / "pairs.jsonl", BOM * mark + (end.join(lines) + end * last_end).encode())
    expected = [
        (str(row[0]), str(item))
        for row in rows
        if row
        for item in (row[1] if isinstance(row[1], list) else [row[1]])
    ]
    assert read(path, range_bytes=range_bytes, chunk_bytes=chunk_bytes) == expected


def test_tables_are_dictionary_encoded_text(tmp_path):
    path = write(tmp_path / "a.jsonl", b'{"u": 1, "i": "x"}\n')
    (table,) = read_json_lines(ByteRange(path, 0, 100), user_column="u", item_column="i")
    text = pa.dictionary(pa.int32(), pa.string())
    assert table.schema == pa.schema([("user", text), ("item", text)])


@pytest.mark.parametrize("data", [b"", b"\n \r\n", BOM, b'{"u": 1, "i": []}'])
def test_an_empty_file_yields_nothing(tmp_path, data):
    path = write(tmp_path / "a.jsonl", data)
    check_json_lines_columns(path, user_column="u", item_column="i")
    assert read(path) == []


NO_ITEM_TYPE = (
    "has null or a value of another type in the field 'i';"
    " item_column must name a field of strings, integers or lists of these"
)
NO_USER_TYPE = (
    "has null or a value of another type in the field 'u';"
    " user_column must name a field of strings or integers"
)
NO_JSON = "is not valid JSON; write one JSON object per line"


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"u": "s3cret", "i": 1', NO_JSON),
        (b"[" * 100_000, NO_JSON),
        (b'{"u": "s3cret", "i": ' + b"9" * 5000 + b"}", NO_JSON),
        (b'["s3cret"]', "is not a JSON object; write one JSON object per line"),
        (b'"s3cret"', "is not a JSON object; write one JSON object per line"),
        (b'{"u": "s3cret\xff", "i": 1}', "is not valid UTF-8; convert the file to UTF-8"),
        (b'{"u": "s3cret"}', "has no field 'i'; item_column must name a field of every line"),
        (b'{"i": "s3cret"}', "has no field 'u'; user_column must name a field of every line"),
        (b'{"u": null, "i": "s3cret"}', NO_USER_TYPE),
        (b'{"u": true, "i": "s3cret"}', NO_USER_TYPE),
        (b'{"u": ["s3cret"], "i": 1}', NO_USER_TYPE),
        (b'{"u": "s3cret", "i": null}', NO_ITEM_TYPE),
        (b'{"u": "s3cret", "i": 1.5}', NO_ITEM_TYPE),
        (b'{"u": "s3cret", "i": {}}', NO_ITEM_TYPE),
        (b'{"u": "s3cret", "i": ["a", null]}', NO_ITEM_TYPE),
        (b'{"u": "s3cret", "i": [["a"]]}', NO_ITEM_TYPE),
        (
            b'{"u": "s3cret\\ud800", "i": 1}',
            "has half of a surrogate pair in the field 'u' (user_column); write whole characters",
        ),
    ],
)
@pytest.mark.parametrize(("name", "sizes"), [("a", (1, 1)), ("a", (9999999, 9999999)), ("a.gz", (1, 1))])
def test_names_the_wrong_line(tmp_path, line, reason, name, sizes):
    data = b'{"u": "a", "i": "b"}\n\n' + line + b'\n{"u": "a", "i": "b"}\nx\n'
    path = write(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)
    with pytest.raises(InputError) as caught:
        read(path, range_bytes=sizes[0] * 20, chunk_bytes=sizes[1])
    assert str(caught.value) == f"line 3 of {path} {reason}"
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_checks_the_fields_of_the_first_line(tmp_path):
    path = write(tmp_path / "a.jsonl", b'\n{"u": 1, "s3cret": 2}\nx')
    check_json_lines_columns(path, user_column="u", item_column="u")
    with pytest.raises(InputError) as caught:
        check_json_lines_columns(path, user_column="u", item_column="i")
    assert (
        str(caught.value) == f"line 2 of {path} has no field 'i'; item_column must name a field of every line"
    )
