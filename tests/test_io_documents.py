import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.errors import InputError
from beam_dp.io.documents import read_documents
from beam_dp.io.ranges import BOM, ByteRange, byte_ranges


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("documents")


def write(path, data):
    path.write_bytes(data)
    return str(path)


@settings(deadline=None, max_examples=150)
@given(
    text=st.text("aé \r\n", max_size=40),
    mark=st.booleans(),
    range_bytes=st.integers(1, 60),
    chunk_bytes=st.integers(1, 60),
)
def test_documents_do_not_depend_on_the_ranges(folder, text, mark, range_bytes, chunk_bytes):
    data = BOM * mark + text.encode()
    path = write(folder / "posts.txt", data)
    expected, offset = [], 3 * mark
    for line in text.encode().split(b"\n"):
        if line not in (b"", b"\r"):
            expected.append((f"{path}:{offset}", line.removesuffix(b"\r").decode()))
        offset += len(line) + 1
    found = []
    for part in byte_ranges(path, len(data), range_bytes):
        for table in read_documents(part, chunk_bytes=chunk_bytes):
            assert table.num_rows > 0
            found += zip(table["user"].to_pylist(), table["item"].to_pylist(), strict=True)
    assert found == expected


def test_a_file_can_be_one_user(tmp_path):
    path = write(tmp_path / "a.txt", b"one two\n\nthree\n")
    (table,) = read_documents(ByteRange(path, 0, 15), user_per="file")
    assert table.to_pydict() == {"user": [path, path], "item": ["one two", "three"]}
    assert table.schema == pa.schema(
        [("user", pa.dictionary(pa.int32(), pa.string())), ("item", pa.string())]
    )


@pytest.mark.parametrize("chunk_bytes", [1, 1000])
def test_names_the_line_that_is_not_utf8(tmp_path, chunk_bytes):
    path = write(tmp_path / "a.txt", b"one\n\ns3cret\xff\n\xff\n")
    with pytest.raises(InputError) as caught:
        list(read_documents(ByteRange(path, 0, 20), chunk_bytes=chunk_bytes))
    assert str(caught.value) == f"line 3 of {path} is not valid UTF-8; convert the file to UTF-8"
    assert caught.value.__context__ is None
