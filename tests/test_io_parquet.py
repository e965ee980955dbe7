import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.errors import InputError
from beam_dp.io.parquet import check_parquet_columns, read_parquet
from beam_dp.io.ranges import ByteRange, byte_ranges

SECRET = "s3cret"
TEXT = pa.dictionary(pa.int32(), pa.string())


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("parquet")


def write(path, columns, **options):
    pq.write_table(pa.table(columns), path, **options)
    return str(path)


def tables(path, *, range_bytes=1 << 30, user_column="u", item_column="i", **options):
    size = os.path.getsize(path)
    return [
        table
        for part in byte_ranges(path, size, range_bytes)
        for table in read_parquet(part, user_column=user_column, item_column=item_column, **options)
    ]


def read(path, **options):
    return [
        pair
        for table in tables(path, **options)
        for pair in zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    ]


def read_error(path, **options):
    with pytest.raises(InputError) as caught:
        read(path, **options)
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    assert SECRET not in str(caught.value)
    return str(caught.value)


rows_of_lists = st.lists(
    st.tuples(st.text(max_size=3), st.lists(st.text(max_size=3), max_size=3)), max_size=20
)


@settings(deadline=None, max_examples=60)
@given(
    rows=rows_of_lists,
    group_rows=st.integers(1, 8),
    batch_rows=st.integers(1, 30),
    range_bytes=st.integers(20, 3000),
    make_list=st.sampled_from([pa.list_, pa.large_list]),
)
def test_pairs_do_not_depend_on_the_ranges(*, folder, rows, group_rows, batch_rows, range_bytes, make_list):
    columns = {
        "u": pa.array([user for user, _ in rows], pa.string()),
        "i": pa.array([items for _, items in rows], make_list(pa.string())),
    }
    path = write(folder / "lists.parquet", columns, row_group_size=group_rows)
    found = tables(path, range_bytes=range_bytes, batch_rows=batch_rows)
    assert all(table.num_rows > 0 for table in found)
    expected = [(user, item) for user, items in rows for item in items]
    assert read(path, range_bytes=range_bytes, batch_rows=batch_rows) == expected


def test_a_large_file_is_read_by_several_ranges(tmp_path):
    columns = {"u": [f"u{n % 1000}" for n in range(50_000)], "i": [f"i{n}" for n in range(50_000)]}
    path = write(tmp_path / "a.parquet", columns, row_group_size=5_000)
    size = os.path.getsize(path)
    parts = list(byte_ranges(path, size, size // 4 + 1))
    counts = [
        sum(table.num_rows for table in read_parquet(part, user_column="u", item_column="i"))
        for part in parts
    ]
    assert counts == [15_000, 15_000, 10_000, 10_000]


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pa.array(["a", "b"]), TEXT),
        (pa.array(["a", "b"], pa.large_string()), TEXT),
        (pa.array(["a", "b"], pa.string_view()), TEXT),
        (pa.array(["a", "b"]).cast(pa.dictionary(pa.int8(), pa.string())), TEXT),
        (pa.array([b"a", b"\xff"]), pa.dictionary(pa.int32(), pa.binary())),
        (pa.array([1, -2]), pa.int64()),
        (pa.array([1, 2], pa.uint8()), pa.uint8()),
    ],
)
def test_keeps_dictionaries_bytes_and_integers(tmp_path, column, kind):
    path = write(tmp_path / "a.parquet", {"u": column, "other": [[1.5], None], "i": column})
    (table,) = tables(path)
    assert table.schema == pa.schema([("user", kind), ("item", kind)])
    assert table["user"].to_pylist() == table["item"].to_pylist() == column.to_pylist()


def test_lists_of_text_are_dictionary_encoded(tmp_path):
    path = write(tmp_path / "a.parquet", {"u": [1, 2], "i": pa.array([["a", "b"], ["a"]])})
    (table,) = tables(path)
    assert table.schema == pa.schema([("user", pa.int64()), ("item", TEXT)])


def test_long_lists_make_batches_of_fewer_rows(tmp_path):
    path = write(tmp_path / "a.parquet", {"u": list(range(100)), "i": [[1] * 10] * 100})
    assert [table.num_rows for table in tables(path, batch_rows=200)] == [200] * 5


def test_finds_columns_by_number_and_names_with_dots(tmp_path):
    path = write(tmp_path / "a.parquet", {"a.b": ["x"], "a": ["y"]})
    assert read(path, user_column=1, item_column="a.b") == [("y", "x")]


def test_an_empty_file_yields_nothing(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"")
    check_parquet_columns(str(tmp_path / "a.parquet"), user_column="u", item_column="i")
    assert read(str(tmp_path / "a.parquet")) == []
    assert (
        list(read_parquet(ByteRange(str(tmp_path / "a.parquet"), 0, None), user_column=0, item_column=1))
        == []
    )
    path = write(tmp_path / "b.parquet", {"u": pa.nulls(0), "i": pa.nulls(0)})
    check_parquet_columns(path, user_column="u", item_column="i")
    assert read(path) == []


@pytest.mark.parametrize("range_bytes", [100, 1 << 30])
@pytest.mark.parametrize("batch_rows", [2, 100])
def test_names_the_row_with_a_null(tmp_path, range_bytes, batch_rows):
    good = ["a", SECRET, "b", "c", "d", "e", "f"]
    bad = [*good[:5], None, "f"]
    sizes = {"range_bytes": range_bytes, "batch_rows": batch_rows}
    path = write(tmp_path / "a.parquet", {"u": good, "i": bad}, row_group_size=3)
    assert read_error(path, **sizes) == f"row 5 (from 0) of {path} has a null as the item; remove the row"
    path = write(tmp_path / "b.parquet", {"u": bad, "i": good}, row_group_size=3)
    assert read_error(path, **sizes) == f"row 5 (from 0) of {path} has a null as the user; remove the row"
    lists = [[word, "x"] for word in good]
    lists[5] = None
    path = write(tmp_path / "c.parquet", {"u": good, "i": lists}, row_group_size=3)
    assert read_error(path, **sizes) == f"row 5 (from 0) of {path} has a null as the item; remove the row"
    lists[5] = ["x", None]
    path = write(tmp_path / "d.parquet", {"u": good, "i": lists}, row_group_size=3)
    assert read_error(path, **sizes) == (
        f"row 5 (from 0) of {path} has a null in its list of items; remove it"
    )


def not_utf8(values):
    array = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(array), array.buffers())


@pytest.mark.parametrize("nested", [False, True])
def test_names_the_row_that_is_not_utf8(tmp_path, nested):
    wrong = not_utf8([b"a", b"b", SECRET.encode() + b"\xff"])
    item = pa.ListArray.from_arrays([0, 1, 2, 3], wrong) if nested else wrong
    good = ["a", "b", "c"]
    path = write(tmp_path / "a.parquet", {"u": good, "i": item}, row_group_size=2)
    assert read_error(path) == (
        f"row 2 (from 0) of {path} or a later one has item text that is not valid UTF-8;"
        " convert it, or store the column as bytes"
    )


def test_a_column_missing_in_a_later_file_is_an_error(tmp_path):
    first = write(tmp_path / "a.parquet", {"u": ["a"], "i": ["b"]})
    second = write(tmp_path / "b.parquet", {"u": ["a"], "x": ["b"]})
    assert read(first) == [("a", "b")]
    assert read_error(second) == (
        f"item_column must name a column of {second}, which has the columns 'u', 'x', got 'i'"
    )


@pytest.mark.parametrize(
    "damage", [lambda data: data[:-100], lambda data: data[:4] + b"s3cret" * 50 + data[304:]]
)
def test_a_damaged_file_is_an_error(tmp_path, damage):
    path = write(tmp_path / "a.parquet", {"u": ["a"] * 100, "i": [str(n) for n in range(100)]})
    Path(path).write_bytes(damage(Path(path).read_bytes()))
    message = read_error(path)
    assert message in {
        f"{path} cannot be read as Parquet ({kind}); check that it is a whole Parquet file"
        for kind in ("OSError", "ArrowInvalid")
    }


def test_checks_the_columns_of_a_file(tmp_path):
    path = write(tmp_path / "a.parquet", {"u": ["a"], "i": [["b"]], "x": [1.5], "y": [[1.5]]})

    def problem(user_column, item_column):
        with pytest.raises(InputError) as caught:
            check_parquet_columns(path, user_column=user_column, item_column=item_column)
        return str(caught.value).replace(path, "FILE")

    check_parquet_columns(path, user_column="u", item_column=1)
    has = "FILE, which has the columns 'u', 'i', 'x', 'y'"
    assert problem("uid", "i") == f"user_column must name a column of {has}, got 'uid'"
    assert problem("u", 4) == f"item_column must number a column (from 0) of {has}, got 4"
    assert problem("u", 0) == (
        "item_column must be another column than user_column, got 0 and 'u', the same column of FILE"
    )
    assert problem("x", "i") == (
        "user_column must be a column of strings, bytes or integers, got 'x' of type double in FILE"
    )
    assert problem("i", "u").startswith(
        "user_column must be a column of strings, bytes or integers, got 'i' of type"
    )
    assert problem("u", "y") == (
        "item_column must be a column of strings, bytes or integers, or of lists of these,"
        " got 'y' of type list<element: double> in FILE"
    )


def test_refuses_a_name_that_occurs_twice(tmp_path):
    table = pa.table([["a"], ["b"], ["c"]], names=["u", "i", "i"])
    pq.write_table(table, tmp_path / "a.parquet")
    path = str(tmp_path / "a.parquet")
    assert read_error(path, item_column=2) == (
        f"item_column must be a column whose name occurs once in {path}, got 'i'"
    )
