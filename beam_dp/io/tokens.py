"""Making items of documents: the distinct words of each."""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

WORDS = r"\w+(?:['\u2019]\w+)*"
"""Letters, digits and underscores of any script; apostrophes inside a word belong to it."""


def check_token_pattern(token_pattern: str) -> re.Pattern[str]:
    """Compile a pattern for tokens.

    Raises:
        ValueError: it is not a regular expression, or has capturing groups.
    """
    if not isinstance(token_pattern, str):
        raise ValueError(f"token_pattern must be a regular expression (str), got {token_pattern!r}")
    try:
        compiled = re.compile(token_pattern)
    except re.error as error:
        raise ValueError(
            f"token_pattern must be a regular expression of Python's re, got {token_pattern!r}: {error}"
        ) from None
    if compiled.groups:
        raise ValueError(
            f"token_pattern must have no capturing groups, got {token_pattern!r};"
            " write (?:...) instead of (...)"
        )
    return compiled


def tokenize_items(table: pa.Table, *, lowercase: bool = True, token_pattern: str = WORDS) -> pa.Table:
    """Replace documents by their distinct tokens: one row for each row of `table` and token found in it.

    Args:
        table: `user`, of any type, and `item`, the documents as strings; no nulls.
        lowercase: whether to put documents into lower case first.
        token_pattern: regular expression of Python's `re`; every non-empty match is a token. Each distinct
            token is kept once for each document, in the order of first appearance.

    Returns:
        A table of `user`, in the type it had, and `item`, dictionary<int32, string>. A document without
        tokens gives no row.

    Raises:
        ValueError: see `check_token_pattern`.
    """
    find = check_token_pattern(token_pattern).findall
    vocabulary: dict[str, int] = {}
    codes: list[int] = []
    counts = np.zeros(table.num_rows, np.int64)
    for row, document in enumerate(table["item"].to_pylist()):
        # A dict, not a set: the order of a set of strings differs from process to process.
        tokens = dict.fromkeys(find(document.lower() if lowercase else document))
        tokens.pop("", None)
        codes.extend(vocabulary.setdefault(token, len(vocabulary)) for token in tokens)
        counts[row] = len(tokens)
    users = table["user"].take(pa.array(np.repeat(np.arange(table.num_rows), counts)))
    items = pa.DictionaryArray.from_arrays(
        pa.array(codes, pa.int32()), pa.array(list(vocabulary), pa.string())
    )
    return pa.table([users, items], names=["user", "item"])
