"""The README's Python runs as printed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def test_has_python_to_run():
    assert len(BLOCKS) >= 1
    assert all(len(block.strip().splitlines()) <= 10 for block in BLOCKS)


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run(block, capsys):
    exec(compile(block, str(README), "exec"), {"__name__": "readme"})
    # Each of the three pages has 100 users: released but for a chance far below 10^-6.
    assert sorted(capsys.readouterr().out.split("\n")) == ["", "page 0", "page 1", "page 2"]


def test_every_linked_file_exists():
    links = re.findall(r"\]\((?!http)([^)#]+)", README.read_text(encoding="utf-8"))
    assert links
    assert [link for link in links if not (README.parent / link).exists()] == []
