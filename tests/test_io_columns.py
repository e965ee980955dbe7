import pytest

from beam_dp.errors import InputError
from beam_dp.io.columns import check_columns, check_different, find_column

HAS = "f.csv, which has 3 columns"


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            (-1, 1),
            "user_column must be a column name (a str that is not empty)"
            " or a column number >= 0 (an int), got -1",
        ),
        (
            (0, True),
            "item_column must be a column name (a str that is not empty)"
            " or a column number >= 0 (an int), got True",
        ),
        (
            (0, ""),
            "item_column must be a column name (a str that is not empty)"
            " or a column number >= 0 (an int), got ''",
        ),
        ((2, 2), "item_column must be another column than user_column, got 2 for both"),
        (("u", "u"), "item_column must be another column than user_column, got 'u' for both"),
    ],
)
def test_refuses_columns(columns, message):
    with pytest.raises(ValueError) as caught:
        check_columns(*columns)
    assert str(caught.value) == message


def test_refuses_numbers_where_there_are_none():
    with pytest.raises(ValueError) as caught:
        check_columns(0, "i", numbers=False)
    assert str(caught.value) == "user_column must be a column name (a str that is not empty), got 0"


def test_finds_names_and_numbers():
    check_columns(0, "i")
    assert find_column("user_column", 2, count=3, names=[], has=HAS) == 2
    assert find_column("user_column", "b", count=3, names=["a", "b", "a"], has=HAS) == 1


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (3, "user_column must number a column (from 0) of f.csv, which has 3 columns, got 3"),
        ("c", "user_column must name a column of f.csv, which has 3 columns, got 'c'"),
        (
            "a",
            "user_column must name one column of f.csv, which has 3 columns, got 'a', the name of 2 columns;"
            " give the number of the column instead",
        ),
    ],
)
def test_a_column_that_is_not_there_is_an_error(column, message):
    with pytest.raises(InputError) as caught:
        find_column("user_column", column, count=3, names=["a", "b", "a"], has=HAS)
    assert str(caught.value) == message


def test_a_name_and_a_number_of_one_column_is_an_error():
    check_different(0, 1, "u", 1, path="f")
    with pytest.raises(InputError) as caught:
        check_different(0, 0, "u", 0, path="f")
    assert str(caught.value) == (
        "item_column must be another column than user_column, got 0 and 'u', the same column of f"
    )
