"""The last step of both baselines: noisy weights against a threshold."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from beam_dp import checks


class Selection(NamedTuple):
    """What a baseline selects."""

    released: NDArray[np.bool_]
    """Per item id: whether it is released."""
    weights: NDArray[np.float64]
    """Per item id: the weight before noise. Not private; for studying the algorithm only."""


def release_above(
    weights: NDArray[np.float64], noise: NDArray[np.float64], threshold: float
) -> NDArray[np.bool_]:
    """Items whose noisy weight reaches the threshold; an item without weight is never released."""
    released: NDArray[np.bool_] = (weights > 0) & (weights + noise >= threshold)
    return released


def adaptive_threshold(threshold: float, beta: float, scale: float) -> float:
    """`tau = threshold + beta * scale`, the weight at which users stop giving to an item (MAD paper, 5.2).

    The bounds on what items get that only one user holds need tau >= 1: below that, greedy updates would give
    to several of them.
    """
    check_positive("threshold", threshold)
    checks.at_least("beta", beta, 0)
    tau = threshold + beta * scale
    if tau < 1:
        raise ValueError(
            f"threshold + beta * noise scale must be >= 1, got {tau:g}; raise the threshold, "
            "which one user alone (weight 1) should not reach"
        )
    return tau


def check_positive(name: str, value: float) -> None:
    """Raises unless `value` is a finite number above 0."""
    if checks.number(name, value) <= 0:
        raise ValueError(f"{name} must be a finite number > 0, got {value!r}; take it from the calibration")
