"""What the transforms say of bad parameters and elements; never the element itself."""

from __future__ import annotations

import math
from typing import Any

import apache_beam as beam
import pyarrow as pa
import pytest

import beam_dp
from beam_dp import InputError, SelectPartitions
from beam_dp.transforms.encode_pairs import _key_array
from tests.conftest import run

BUDGET: dict[str, Any] = {"epsilon": 1.0, "delta": 1e-5, "max_degree": 100}
SECRET = "very-secret-value"


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, True, "1", None])
def test_epsilon_is_checked(value):
    with pytest.raises(ValueError) as error:
        SelectPartitions(**BUDGET | {"epsilon": value})
    assert str(error.value) == (
        f"epsilon must be a finite number > 0, got {value!r}; common values lie between 0.1 and 10"
    )


@pytest.mark.parametrize("value", [0, 1, 2, -1e-5, math.nan, math.inf, True, "1e-5", None])
def test_delta_is_checked(value):
    with pytest.raises(ValueError) as error:
        SelectPartitions(**BUDGET | {"delta": value})
    assert str(error.value) == (
        f"delta must be a number > 0 and < 1, got {value!r}; choose it well below 1 / (number of users)"
    )


@pytest.mark.parametrize("value", [0, -1, 1.5, math.nan, True, "100", None, 1_000_001])
def test_max_degree_is_checked(value):
    with pytest.raises(ValueError) as error:
        SelectPartitions(**BUDGET | {"max_degree": value})
    assert str(error.value) == (
        f"max_degree must be an integer from 1 to 1000000, got {value!r}; "
        "it bounds the items counted of one user, 100 is common"
    )


def test_other_parameters_are_checked():
    cases: list[tuple[dict[str, Any], str]] = [
        ({"num_shards": 0}, "num_shards must be an integer from 1 to 65536, got 0"),
        ({"profile": "loose"}, "profile must be 'tight' or 'paper', got 'loose'"),
        (
            {"algorithm": "best"},
            "algorithm must be one of weighted_gaussian, weighted_laplace, dp_sips, mad, mad2r, pooled_mad, pooled_gaussian, parallel_greedy, got 'best'",
        ),
        (
            {"algorithm": beam_dp.Mad(max_adaptive_degree=101)},
            "max_adaptive_degree must be at most max_degree=100, got 101; "
            "leave it out for the default, 50 or max_degree if that is less",
        ),
        (
            {"delta": 1e-300},
            "delta must be large enough for noise drawn from 128 bits, got 7.759456838021338e-304 a round with "
            "max_degree=100, a chance below 2^-100 an item; raise delta or lower max_degree",
        ),
    ]
    for change, message in cases:
        with pytest.raises(ValueError) as error:
            SelectPartitions(**BUDGET | change)
        assert str(error.value) == message


def message_of(elements: list[Any], element_type: Any = None) -> str:
    with pytest.raises(Exception) as error:
        run(elements, SelectPartitions(**BUDGET, num_shards=2), element_type=element_type)
    assert SECRET not in str(error.value)
    context = error.value.__cause__ or error.value.__context__
    assert SECRET not in str(context)
    return str(error.value).split(" [while running")[0]


@pytest.mark.parametrize("element_type", [None, Any])
@pytest.mark.parametrize(("name", "pair"), [("user", (None, SECRET)), ("item", (SECRET, None))])
def test_none_is_refused(name, pair, element_type):
    wanted = f"{name} must not be None, got at least one; filter such pairs out first"
    assert message_of([pair, ("u", "i")], element_type) == wanted


def test_null_in_a_table_is_refused():
    table = pa.table({"user": [SECRET, None], "item": ["a", SECRET]})
    wanted = "user must not be None (null), got at least one; filter such rows out first"
    assert message_of([table], pa.Table) == wanted


def test_a_table_without_the_columns_is_refused():
    table = pa.table({"user": [SECRET], "product": [SECRET]})
    assert message_of([table], pa.Table) == (
        "a pair table must have the columns user and item, got one without item"
    )


class Undeterministic:
    """A class that has no coder of its own."""

    def __init__(self, value: str):
        self.value = value

    def __repr__(self) -> str:
        return self.value


class UndeterministicCoder(beam.coders.Coder):
    def encode(self, value: Undeterministic) -> bytes:
        return value.value.encode()

    def decode(self, encoded: bytes) -> Undeterministic:
        return Undeterministic(encoded.decode())

    def is_deterministic(self) -> bool:
        return False


beam.coders.registry.register_coder(Undeterministic, UndeterministicCoder)


def test_a_coder_that_is_not_deterministic_is_refused_when_the_pipeline_is_built():
    message = message_of([("u", Undeterministic(SECRET))], tuple[str, Undeterministic])
    assert message == (
        f"item must have a deterministic coder, got type {Undeterministic}; "
        "use str, bytes, int or tuples of these, or register a deterministic coder"
    )


class Opaque(Undeterministic):
    """A class without any coder, whose pickles Beam does not trust."""


def test_untyped_values_without_a_deterministic_encoding_are_refused_while_running():
    message = message_of([("u", Opaque(SECRET)), ("v", Opaque(SECRET))], Any)
    assert message.startswith("item must be of the type its coder ")
    assert message.endswith("correct the type hint or the data")


def test_values_of_another_type_than_declared_are_refused():
    with pytest.raises(InputError) as error:
        _key_array("item", [SECRET, 3], beam.coders.StrUtf8Coder())
    assert error.value.__cause__ is None
    assert error.value.__suppress_context__
    assert str(error.value) == (
        "item must be of the type its coder StrUtf8Coder encodes deterministically, got at least one value "
        "for which it raised ArrowTypeError; correct the type hint or the data"
    )


@pytest.mark.parametrize(
    ("element_type", "message"),
    [
        (
            str,
            "input must be (user, item) tuples or pyarrow tables, got elements of type <class 'str'>; "
            "map them to pairs, with a type hint such as Tuple[str, str]",
        ),
        (
            tuple[str, str, int],
            "input must be (user, item) tuples or pyarrow tables, got elements of type Tuple[<class 'str'>, "
            "<class 'str'>, <class 'int'>]; map them to pairs, with a type hint such as Tuple[str, str]",
        ),
    ],
)
def test_elements_that_are_no_pairs_are_refused(element_type, message):
    assert message_of([(SECRET, SECRET, 1)], element_type) == message


def test_errors_are_input_errors():
    with pytest.raises(InputError):
        run([(None, "i")], SelectPartitions(**BUDGET, num_shards=2))
