"""Which two columns of a file are the users and the items: checking the parameters, finding the columns."""

from __future__ import annotations

from collections.abc import Sequence

from beam_dp.errors import InputError


def check_columns(user_column: str | int, item_column: str | int, *, numbers: bool = True) -> None:
    """Check the two column parameters by themselves, before any file is looked at.

    Args:
        user_column: name, or number counted from 0.
        item_column: name, or number counted from 0.
        numbers: whether the format has column numbers.

    Raises:
        ValueError: a column is neither a name nor a number >= 0, or both are the same.
    """
    rule = "a column name (a str that is not empty)" + (
        " or a column number >= 0 (an int)" if numbers else ""
    )
    for parameter, column in (("user_column", user_column), ("item_column", item_column)):
        is_name = isinstance(column, str) and column != ""
        is_number = numbers and isinstance(column, int) and not isinstance(column, bool) and column >= 0
        if not is_name and not is_number:
            raise ValueError(f"{parameter} must be {rule}, got {column!r}")
    if user_column == item_column:
        raise ValueError(f"item_column must be another column than user_column, got {item_column!r} for both")


def find_column(parameter: str, column: str | int, *, count: int, names: Sequence[str], has: str) -> int:
    """Return the number of a column in one file.

    Args:
        parameter: `user_column` or `item_column`, for messages.
        column: name or number.
        count: how many columns the file has.
        names: their names; unused if `column` is a number.
        has: the file and what columns it has, for messages. Names only if they cannot be data.

    Raises:
        InputError: there is no such column, or the name occurs twice.
    """
    if isinstance(column, int):
        if column < count:
            return column
        raise InputError(f"{parameter} must number a column (from 0) of {has}, got {column}")
    found = [number for number, name in enumerate(names) if name == column]
    if not found:
        raise InputError(f"{parameter} must name a column of {has}, got {column!r}")
    if len(found) > 1:
        raise InputError(
            f"{parameter} must name one column of {has}, got {column!r}, the name of {len(found)} columns;"
            " give the number of the column instead"
        )
    return found[0]


def check_different(
    user: int, item: int, user_column: str | int, item_column: str | int, *, path: str
) -> None:
    """Check that a name and a number do not mean the same column of a file.

    Raises:
        InputError: they do.
    """
    if user == item:
        raise InputError(
            "item_column must be another column than user_column, got"
            f" {item_column!r} and {user_column!r}, the same column of {path}"
        )
