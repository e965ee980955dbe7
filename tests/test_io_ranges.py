import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_dp.errors import InputError
from beam_dp.io import ranges
from beam_dp.io.ranges import ByteRange, byte_ranges, first_line, line_chunks, line_number


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ranges")


def write(path, data):
    path.write_bytes(data)
    return str(path)


def test_ranges_cover_a_file_once():
    assert list(byte_ranges("a", 25, 10)) == [
        ByteRange("a", 0, 10),
        ByteRange("a", 10, 20),
        ByteRange("a", 20, 25),
    ]
    assert list(byte_ranges("a", 20, 10)) == [ByteRange("a", 0, 10), ByteRange("a", 10, 20)]


def test_an_empty_file_has_no_range():
    assert list(byte_ranges("a", 0, 10)) == []


def test_a_compressed_file_is_one_range():
    assert list(byte_ranges("a.gz", 25, 10)) == [ByteRange("a.gz", 0, None)]


@settings(deadline=None, max_examples=200)
@given(
    data=st.text("ab\n\r", max_size=60).map(str.encode),
    range_bytes=st.integers(1, 70),
    chunk_bytes=st.integers(1, 70),
)
def test_every_line_belongs_to_exactly_one_range(folder, data, range_bytes, chunk_bytes):
    path = write(folder / "lines", data)
    ended = data if data.endswith(b"\n") or not data else data + b"\n"
    found = []
    for part in byte_ranges(path, len(data), range_bytes):
        for offset, lines in line_chunks(part, chunk_bytes):
            found.append(lines)
            assert part.start <= offset < part.end
            assert lines == ended[offset : offset + len(lines)]
            assert lines.endswith(b"\n")
    assert b"".join(found) == ended


def test_chunks_are_about_as_long_as_asked(tmp_path):
    path = write(tmp_path / "a", b"123456789\n" * 100)
    assert {len(lines) for _, lines in line_chunks(ByteRange(path, 0, 1000), 55)} == {60, 40}


def test_a_line_longer_than_a_chunk_is_whole(tmp_path):
    path = write(tmp_path / "a", b"x" * 1000 + b"\ny\n")
    assert list(line_chunks(ByteRange(path, 0, 1003), 10)) == [(0, b"x" * 1000 + b"\n"), (1001, b"y\n")]


def test_a_line_too_long_for_pyarrow_is_an_error(tmp_path, monkeypatch):
    path = write(tmp_path / "a", b"x\n" + b"y" * 100)
    monkeypatch.setattr(ranges, "_LONGEST_CHUNK", 50)
    with pytest.raises(InputError) as caught:
        list(line_chunks(ByteRange(path, 0, 102), 2))
    assert str(caught.value) == (
        f"a line of {path} that starts at or after byte 2 is longer than 2 GiB;"
        " lines must end with a line feed"
    )


def test_compressed_lines_have_offsets_in_the_decompressed_file(tmp_path):
    path = write(tmp_path / "a.gz", gzip.compress(b"one\ntwo"))
    assert list(line_chunks(ByteRange(path, 0, None), 1)) == [(0, b"one\n"), (4, b"two\n")]


def test_leaves_out_a_byte_order_mark_at_the_start_only(tmp_path):
    path = write(tmp_path / "a", ranges.BOM + b"a\n" + ranges.BOM + b"b\n")
    assert list(line_chunks(ByteRange(path, 0, 100), 1)) == [(3, b"a\n"), (5, ranges.BOM + b"b\n")]
    assert list(line_chunks(ByteRange(write(tmp_path / "b", ranges.BOM), 0, 3))) == []


def test_the_first_line_is_the_first_that_is_not_blank(tmp_path):
    assert first_line(write(tmp_path / "a", b"\r\n\nab\r\ncd\n")) == (3, b"ab\r\n")
    assert first_line(write(tmp_path / "b", b"ab")) == (0, b"ab\n")
    assert first_line(write(tmp_path / "c", b"\n\r\n")) is None
    assert first_line(write(tmp_path / "d", b"")) is None


@pytest.mark.parametrize("name", ["a", "a.gz"])
def test_counts_lines_from_one(tmp_path, name):
    data = b"ab\n\ncd\n"
    path = write(tmp_path / name, gzip.compress(data) if name.endswith("gz") else data)
    assert [line_number(path, offset) for offset in (0, 2, 3, 4, 6)] == [1, 1, 2, 3, 3]
