"""Checks: what is accepted, and the whole text of what is said about the rest."""

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_dp import checks

NOT_NUMBERS = [math.nan, math.inf, -math.inf, True, False, np.True_, None, "1", b"1", 1j, Decimal(1), [1.0]]


@pytest.mark.parametrize("value", NOT_NUMBERS, ids=repr)
def test_number_refuses_what_is_no_finite_number(value):
    with pytest.raises(ValueError) as error:
        checks.number("ratio", value)
    assert str(error.value) == f"ratio must be a finite number, got {value!r}"


@pytest.mark.parametrize("value", [2, 2.0, np.float32(2), np.int64(2), Fraction(2)], ids=repr)
def test_number_accepts_every_kind_of_real(value):
    result = checks.number("ratio", value)
    assert (type(result), result) == (float, 2.0)


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, -0.0, -1], ids=repr)
def test_epsilon_refuses_all_but_positive_numbers(value):
    with pytest.raises(ValueError) as error:
        checks.epsilon(value, "total_epsilon")
    assert str(error.value) == (
        f"total_epsilon must be a finite number > 0, got {value!r}; common values lie between 0.1 and 10"
    )


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 0, 1, -1e-9, 1 + 1e-9, Fraction(1, 10**400)], ids=repr)
def test_delta_refuses_all_but_numbers_strictly_between_0_and_1(value):
    with pytest.raises(ValueError) as error:
        checks.delta(value)
    assert str(error.value) == (
        f"delta must be a number > 0 and < 1, got {value!r}; choose it well below 1 / (number of users)"
    )


@given(st.floats(min_value=0, exclude_min=True, allow_infinity=False))
def test_positive_epsilons_pass_unchanged(value):
    assert checks.epsilon(value) == value


@given(st.floats(0, 1, exclude_min=True, exclude_max=True))
def test_deltas_pass_unchanged(value):
    assert checks.delta(value) == value


@pytest.mark.parametrize("value", [*NOT_NUMBERS, 1.0, np.float64(3), 0, 6], ids=repr)
def test_integer_refuses_floats_bools_and_what_is_out_of_range(value):
    with pytest.raises(ValueError) as error:
        checks.integer("rounds", value, low=1, high=5, way_out="three are common")
    assert str(error.value) == f"rounds must be an integer from 1 to 5, got {value!r}; three are common"
    with pytest.raises(ValueError) as error:
        checks.integer("rounds", -1, low=0)
    assert str(error.value) == "rounds must be an integer >= 0, got -1"


@given(st.integers(0, 2**70))
def test_integer_accepts_integers_in_range(value):
    assert checks.integer("seed", value, low=0) == value
    if value < 2**62:
        assert type(checks.integer("seed", np.int64(value), low=0)) is int


@pytest.mark.parametrize("value", [0, 1_000_001, 2.5, True], ids=repr)
def test_max_degree_is_from_1_to_a_million(value):
    with pytest.raises(ValueError) as error:
        checks.max_degree(value, "cap")
    assert str(error.value) == (
        f"cap must be an integer from 1 to 1000000, got {value!r}; it bounds the items counted of one user, "
        "100 is common"
    )
    assert checks.max_degree(1_000_000) == 1_000_000


@pytest.mark.parametrize("value", [0.49, 1.01], ids=repr)
def test_between_names_both_ends(value):
    with pytest.raises(ValueError) as error:
        checks.between("min_bias", value, 0.5, 1.0)
    assert str(error.value) == f"min_bias must be a number from 0.5 to 1, got {value!r}"
    assert (checks.between("b", 0.5, 0.5, 1.0), checks.between("b", 1, 0.5, 1.0)) == (0.5, 1.0)


def test_at_least_names_its_end():
    with pytest.raises(ValueError) as error:
        checks.at_least("max_bias", 0.5, 1.0)
    assert str(error.value) == "max_bias must be a finite number >= 1, got 0.5"
    assert checks.at_least("max_bias", 1, 1.0) == 1.0


@pytest.mark.parametrize(
    "value", [(), (0.5, 0.6), (1.0, 0.0), (1.5, -0.5), "0.1,0.9", 1.0, {0.1, 0.9}, None], ids=repr
)
def test_budget_split_refuses_what_does_not_sum_to_1(value):
    with pytest.raises(ValueError) as error:
        checks.budget_split(value)
    assert str(error.value) == (
        f"budget_split must be at least one share, each > 0, that sum to 1, got {value!r}; "
        "give for instance 0.1,0.9"
    )


@pytest.mark.parametrize("value", [(0.1, math.nan), (True, 0.0), ("0.1", 0.9)], ids=repr)
def test_budget_split_refuses_shares_that_are_no_numbers(value):
    bad = next(share for share in value if isinstance(share, bool | str) or math.isnan(share))
    with pytest.raises(ValueError) as error:
        checks.budget_split(value)
    assert str(error.value) == f"budget_split must be a finite number, got {bad!r}"


@pytest.mark.parametrize("value", [(1.0,), (0.2, 0.3, 0.5)], ids=repr)
def test_budget_split_has_one_share_a_round(value):
    with pytest.raises(ValueError) as error:
        checks.budget_split(value, rounds=2)
    assert str(error.value) == (
        f"budget_split must be 2 shares, each > 0, that sum to 1, got {value!r}; give for instance 0.1,0.9"
    )


@given(st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=10))
def test_budget_split_returns_shares_that_sum_to_1(raw):
    shares = [share / math.fsum(raw) for share in raw]
    result = checks.budget_split(shares, rounds=len(shares))
    assert math.fsum(result) == pytest.approx(1, abs=1e-15)
    assert result == pytest.approx(shares, rel=1e-12)
