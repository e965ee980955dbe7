"""Checks of parameters; every message names the parameter, the rule, the value and the way out."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence

MAX_DEGREE_LIMIT = 1_000_000


def number(name: str, value: object) -> float:
    """Return a finite real number as float; bool, NaN, infinity and everything else is refused."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not math.isfinite(_float(value)):
        raise ValueError(f"{name} must be a finite number, got {value!r}")
    return float(value)


def positive(name: str, value: object) -> float:
    """Check a finite number > 0."""
    if number(name, value) <= 0:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}")
    return number(name, value)


def epsilon(value: object, name: str = "epsilon") -> float:
    """Check a privacy parameter epsilon: finite and > 0."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < _float(value) < math.inf:
        raise ValueError(
            f"{name} must be a finite number > 0, got {value!r}; common values lie between 0.1 and 10"
        )
    return float(value)


def delta(value: object, name: str = "delta") -> float:
    """Check a privacy parameter delta: strictly between 0 and 1."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 < _float(value) < 1:
        raise ValueError(
            f"{name} must be a number > 0 and < 1, got {value!r}; choose it well below 1 / (number of users)"
        )
    return float(value)


def integer(name: str, value: object, *, low: int, high: int | None = None, way_out: str = "") -> int:
    """Check an integer in low..high; bool and floats are refused."""
    rule = f">= {low}" if high is None else f"from {low} to {high}"
    wrong = isinstance(value, bool) or not isinstance(value, numbers.Integral)
    if wrong or int(value) < low or (high is not None and int(value) > high):  # type: ignore[call-overload]
        raise ValueError(
            f"{name} must be an integer {rule}, got {value!r}" + (f"; {way_out}" if way_out else "")
        )
    return int(value)  # type: ignore[call-overload]


def max_degree(value: object, name: str = "max_degree") -> int:
    """Check a degree cap."""
    return integer(
        name,
        value,
        low=1,
        high=MAX_DEGREE_LIMIT,
        way_out="it bounds the items counted of one user, 100 is common",
    )


def between(name: str, value: object, low: float, high: float) -> float:
    """Check a finite number in [low, high]."""
    result = number(name, value)
    if not low <= result <= high:
        raise ValueError(f"{name} must be a number from {low:g} to {high:g}, got {value!r}")
    return result


def at_least(name: str, value: object, low: float) -> float:
    """Check a finite number >= low."""
    result = number(name, value)
    if result < low:
        raise ValueError(f"{name} must be a finite number >= {low:g}, got {value!r}")
    return result


def _float(value: numbers.Real) -> float:
    """Convert to float; what is too large becomes infinite."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def budget_split(
    value: object, *, rounds: int | None = None, name: str = "budget_split"
) -> tuple[float, ...]:
    """Check shares of the budget: positive numbers that sum to 1; one a round."""
    count = "at least one share" if rounds is None else f"{rounds} shares"
    rule = f"{name} must be {count}, each > 0, that sum to 1"
    example = {None: "0.1,0.9", 1: "1", 2: "0.1,0.9", 3: "0.1,0.2,0.7"}.get(rounds, "equal shares")
    if isinstance(value, str | bytes) or not isinstance(value, Sequence):
        raise ValueError(f"{rule}, got {value!r}; give for instance {example}")
    shares = tuple(number(name, share) for share in value)
    wrong_count = len(shares) != rounds if rounds is not None else not shares
    if wrong_count or min(shares) <= 0 or abs(math.fsum(shares) - 1) > 1e-9:
        raise ValueError(f"{rule}, got {value!r}; give for instance {example}")
    total = math.fsum(shares)
    return tuple(share / total for share in shares)
