"""Public example data: which identifiers occur in which file of Python's standard library.

    python -m examples.stdlib_identifiers OUTPUT.tsv

Every source file of the running Python's standard library plays a user, and its identifiers play the user's
items; the output has one `user<TAB>item` line per distinct pair, sorted, so one Python always gives the same
file. Identifiers are the NAME tokens of `tokenize` that are not keywords. The data is public, which is why
printing exact counts is fine here; a pipeline over data about people must never do so.

`site-packages` and `dist-packages` are left out, because they hold what else happens to be installed. The
test packages stay in: they are source files like the others, and half of the users.
"""

import argparse
import keyword
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_NOT_STANDARD = {"site-packages", "dist-packages"}


class Counts(NamedTuple):
    """Size of the data written."""

    users: int
    items: int
    pairs: int
    skipped: int
    """Files that do not tokenise: some test data is broken on purpose or written for Python 2."""


def identifiers(path: Path) -> set[str]:
    """The distinct identifiers of a source file; raises what `tokenize` raises."""
    with path.open("rb") as source:
        return {
            token.string
            for token in tokenize.tokenize(source.readline)
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string)
        }


def source_files(root: Path) -> list[Path]:
    """The source files below a library folder, in the order of their relative names."""
    relative = (path.relative_to(root) for path in root.rglob("*.py"))
    kept = (path for path in relative if _NOT_STANDARD.isdisjoint(path.parts))
    return [root / path for path in sorted(kept, key=Path.as_posix)]


def user_item_pairs(root: Path, skipped: list[Path]) -> Iterator[tuple[str, str]]:
    """Yields (relative file name, identifier), sorted; appends to `skipped` what does not tokenise."""
    for path in source_files(root):
        try:
            found = identifiers(path)
        except (SyntaxError, UnicodeError, tokenize.TokenError):
            skipped.append(path)
            continue
        user = path.relative_to(root).as_posix()
        yield from ((user, name) for name in sorted(found))


def write_pairs(output: Path, root: Path | None = None) -> Counts:
    """Writes the pairs of `root`, by default of the running Python's standard library."""
    users: set[str] = set()
    items: set[str] = set()
    pairs = 0
    skipped: list[Path] = []
    with output.open("w", encoding="utf-8", newline="\n") as lines:
        for user, item in user_item_pairs(root or Path(sysconfig.get_path("stdlib")), skipped):
            lines.write(f"{user}\t{item}\n")
            users.add(user)
            items.add(item)
            pairs += 1
    return Counts(len(users), len(items), pairs, len(skipped))


def main() -> None:
    """Writes the file named on the command line and prints its size."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("output", type=Path, help="where to write the user<TAB>item lines")
    counts = write_pairs(parser.parse_args().output)
    print(f"{counts.users} users, {counts.items} items, {counts.pairs} pairs; skipped {counts.skipped} files")


if __name__ == "__main__":
    main()
