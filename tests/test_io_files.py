import bz2
import gzip

import pytest
import zstandard

from beam_dp.errors import InputError
from beam_dp.io.files import check_readable, is_compressed, open_text

COMPRESSORS = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor().compress,
}


def write(path, data):
    path.write_bytes(data)
    return str(path)


def error_of(function, *arguments):
    with pytest.raises(InputError) as caught:
        function(*arguments)
    return str(caught.value)


def test_lists_the_matches_in_order_with_their_sizes(tmp_path):
    second, first = write(tmp_path / "b.tsv", b"12345"), write(tmp_path / "a.tsv", b"123")
    write(tmp_path / "c.csv", b"1")
    assert check_readable(str(tmp_path / "*.tsv")) == [(first, 3), (second, 5)]


def test_no_match_is_an_error(tmp_path):
    pattern = str(tmp_path / "none-*")
    assert error_of(check_readable, pattern) == (
        f"input must name at least one readable file, got no match for {pattern!r}"
    )
    assert error_of(check_readable, pattern, "file_pattern").startswith("file_pattern must name at least one")


def test_a_directory_is_an_error(tmp_path):
    assert error_of(check_readable, str(tmp_path)) == (
        f"input must name at least one readable file, got the directory {str(tmp_path)!r};"
        f" give a pattern such as {str(tmp_path) + '/*'!r}"
    )


def test_an_unknown_file_system_is_an_error():
    message = error_of(check_readable, "nosuch://x/y")
    assert message.startswith(
        "input must name at least one readable file, got 'nosuch://x/y', which cannot be listed: "
    )


def test_a_file_that_cannot_be_opened_is_an_error(tmp_path, monkeypatch):
    path = write(tmp_path / "a.tsv", b"x")

    def refuse(*_, **__):
        raise PermissionError(path)

    monkeypatch.setattr("beam_dp.io.files.FileSystems.open", refuse)
    assert error_of(check_readable, path) == (
        f"input must name at least one readable file, got {path!r}, which cannot be opened: PermissionError"
    )


@pytest.mark.parametrize("extension", COMPRESSORS)
def test_decompresses_by_extension_also_several_streams_in_one_file(tmp_path, extension):
    compress = COMPRESSORS[extension]
    path = write(tmp_path / f"a{extension}", compress(b"one\n") + compress(b"two\n"))
    assert is_compressed(path)
    with open_text(path) as file:
        assert file.read(5) + file.readline() + file.read(9) == b"one\ntwo\n"


def test_decompresses_what_only_beam_knows(tmp_path):
    import lzma

    path = write(tmp_path / "a.xz", lzma.compress(b"one\n"))
    with open_text(path) as file:
        assert file.read(9) == b"one\n"


def test_leaves_other_files_alone(tmp_path):
    path = write(tmp_path / "a.tsv", gzip.compress(b"x"))
    assert not is_compressed(path)
    with open_text(path) as file:
        assert file.read(2) == b"\x1f\x8b"


@pytest.mark.parametrize("extension", COMPRESSORS)
def test_a_compressed_file_cut_short_is_an_error(tmp_path, extension):
    path = write(tmp_path / f"a{extension}", COMPRESSORS[extension](bytes(range(256)) * 9)[:-9])

    def read():
        with open_text(path) as file:
            file.read(1 << 20)

    codec = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}[extension]
    assert error_of(read) == f"{path} cannot be decompressed as {codec}: Truncated compressed stream"


def test_a_pattern_without_a_folder_is_found_in_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "a.tsv").write_text("u\ti\n")
    monkeypatch.chdir(tmp_path)
    assert [size for _, size in check_readable("*.tsv")] == [4]
    assert [size for _, size in check_readable("a.tsv")] == [4]
