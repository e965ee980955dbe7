import json
import tokenize
from pathlib import Path

import pytest

from examples.stdlib_identifiers import Counts, identifiers, source_files, write_pairs


def write(path: Path, source: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path


def test_identifiers_are_names_but_no_keywords(tmp_path):
    path = write(
        tmp_path / "a.py",
        "import os  # comment\ndef f(x: int):\n    return x.y if x else 'text'\nmatch = f\n",
    )
    assert identifiers(path) == {"os", "f", "x", "int", "y", "match"}  # `match` is a name where used as one


def test_reads_the_declared_encoding(tmp_path):
    path = write(tmp_path / "a.py", "# -*- coding: latin-1 -*-\ngr\xf6\xdfe = 1\n".encode("latin-1"))
    assert identifiers(path) == {"gr\xf6\xdfe"}


@pytest.mark.parametrize(
    "source", [b"x = (\n", b"# coding: utf-8\nx = '\xff'\n", b"  x\n y\n", b"# coding: none\n"]
)
def test_skips_files_that_do_not_tokenise(tmp_path, source):
    root = tmp_path / "lib"
    write(root / "good.py", "x = 1\n")
    bad = write(root / "bad.py", source)
    with pytest.raises((SyntaxError, UnicodeError, tokenize.TokenError)):
        identifiers(bad)
    assert write_pairs(tmp_path / "out.tsv", root) == Counts(users=1, items=1, pairs=1, skipped=1)
    assert (tmp_path / "out.tsv").read_text() == "good.py\tx\n"


def test_writes_sorted_distinct_pairs(tmp_path):
    root = tmp_path / "lib"
    write(root / "b.py", "z = y = z\n")
    write(root / "a" / "c.py", "y = 1\n")
    write(root / "empty.py", "")
    write(root / "readme.txt", "x")
    counts = write_pairs(tmp_path / "out.tsv", root)
    assert (tmp_path / "out.tsv").read_text() == "a/c.py\ty\nb.py\ty\nb.py\tz\n"
    assert counts == Counts(users=2, items=2, pairs=3, skipped=0)


def test_leaves_out_installed_packages(tmp_path):
    write(tmp_path / "site-packages" / "other.py", "x = 1\n")
    write(tmp_path / "dist-packages" / "deep" / "other.py", "x = 1\n")
    kept = write(tmp_path / "test" / "support.py", "x = 1\n")
    assert source_files(tmp_path) == [kept]


def test_repeats_itself_on_a_real_package(tmp_path):
    root = Path(json.__file__).parent
    counts = write_pairs(tmp_path / "first.tsv", root)
    assert write_pairs(tmp_path / "second.tsv", root) == counts
    assert (tmp_path / "first.tsv").read_bytes() == (tmp_path / "second.tsv").read_bytes()
    assert "decoder.py\tJSONDecodeError\n" in (tmp_path / "first.tsv").read_text()


@pytest.mark.slow
def test_reads_the_whole_standard_library(tmp_path):
    counts = write_pairs(tmp_path / "out.tsv")
    # Loose bounds: Linux distributions leave out test packages, and versions differ.
    assert counts.users > 500
    assert counts.items > 20_000
    assert counts.pairs > 50_000
    assert counts.skipped < 20
