"""The whole mechanism on neighbouring data: lower bounds on the delta it needs, against the delta it claims.

Thousands of copies of a small worst case, each with items of its own, run at once: noise is drawn by item, so
one run is thousands of independent trials. For an event S the data show
P'[S] - e^epsilon P[S] <= delta, in both directions; Clopper-Pearson bounds turn the counts into a lower bound on
the delta needed, wrong with probability at most 10^-6.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from beam_dp import DpSips, Mad, Mad2R, PooledGaussian, PooledMad, RunKey, WeightedGaussian, WeightedLaplace
from beam_dp.accounting import gaussian_threshold
from beam_dp.algorithms import Algorithm
from beam_dp.core.encoding import build_user_block, split_pairs
from beam_dp.in_memory import select_in_memory
from beam_dp.plans import Plan, make_plan

COPIES = 30_000
EPSILON, DELTA, CAP = 0.5, 0.2, 10_000
FALSE_ALARM = 1e-6
ALGORITHMS: list[Algorithm] = [
    WeightedGaussian(),
    WeightedLaplace(),
    DpSips(),
    Mad(),
    Mad2R(budget_split=(0.3, 0.7)),
    PooledMad(budget_split=(0.3, 0.7)),
    PooledGaussian(budget_split=(0.3, 0.7)),
]


def times_released(plan: Plan, holders: int, *, heavy: bool, seed: int) -> int:
    """In how many of the copies `holders` users' common item is released.

    With `heavy`, every user also holds one of few items that all copies share, so that MAD reroutes.
    """
    copies = np.repeat(np.arange(COPIES), holders)
    users = np.arange(len(copies)).astype(str)
    items = np.char.add("copy ", copies.astype(str))
    if heavy:
        heavies = np.char.add("heavy ", (np.arange(len(copies)) % 3).astype(str))
        users, items = np.concatenate([users, users]), np.concatenate([items, heavies])
    key = RunKey.from_seed(seed)
    table = pa.table({"user": pa.array(users), "item": pa.array(items)})
    parts = [part for _, part in split_pairs(table, run_key=key, num_shards=1)]
    released = select_in_memory(build_user_block(0, parts, run_key=key, num_item_shards=1), plan, key)
    found = released.keys.take(np.flatnonzero(released.found)).to_bytes()
    return sum(name.startswith(b"copy") for name in found)


def needed_delta(plan: Plan, holders: int, *, heavy: bool = False) -> float:
    """The largest delta that some event and direction shows to be needed, with confidence 1 - 10^-6."""
    with_v = times_released(plan, holders + 1, heavy=heavy, seed=holders)
    without = times_released(plan, holders, heavy=heavy, seed=1000 + holders)
    level = FALSE_ALARM / 8  # four inequalities of two bounds each

    def low(count: int) -> float:
        return float(stats.beta.ppf(level, count, COPIES - count + 1)) if count else 0.0

    def high(count: int) -> float:
        return float(stats.beta.isf(level, count + 1, COPIES - count)) if count < COPIES else 1.0

    e = math.exp(plan.epsilon)
    pairs = [(with_v, without), (without, with_v)]
    events = pairs + [(COPIES - one, COPIES - other) for one, other in pairs]
    return max(low(one) - e * high(other) for one, other in events)


def worst_holders(plan: Plan) -> list[int]:
    """Numbers of holders around the one where the release is the likelihood-ratio event of the last round."""
    last = plan.rounds[-1]
    if last.sigma is None:
        return [int(last.threshold) - 1, int(last.threshold)]
    best = last.threshold - last.pooled_sigma**2 * plan.epsilon - 0.5
    return [max(1, round(best) + shift) for shift in (-1, 0, 1)]


@pytest.mark.parametrize("heavy", [False, True])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_neighbours_need_no_more_delta_than_claimed(algorithm, heavy):
    """No novel item is involved, so the noise's part of delta has to do: half of it (docs/privacy.md).

    For thinned releases the coins' part is added; Laplace noise alone is pure.
    """
    plan = make_plan(epsilon=EPSILON, delta=DELTA, max_degree=CAP, algorithm=algorithm)
    claim = 0.0 if isinstance(algorithm, WeightedLaplace) else DELTA / 2
    if isinstance(algorithm, PooledGaussian):
        claim += sum(numbers.delta for numbers in plan.rounds)
    for holders in worst_holders(plan):
        assert needed_delta(plan, holders, heavy=heavy) <= claim


def test_a_sigma_15_percent_too_small_is_caught():
    """Power: the plan's sigma and its threshold as if sigma were 15% smaller, everything else the same."""
    plan = make_plan(epsilon=EPSILON, delta=DELTA, max_degree=CAP, algorithm=WeightedGaussian())
    (right,) = plan.rounds
    assert right.sigma is not None
    sigma = 0.85 * right.sigma
    threshold = gaussian_threshold(sigma=sigma, delta=right.delta, max_degree=CAP)
    wrong = dataclasses.replace(plan, rounds=(dataclasses.replace(right, sigma=sigma, threshold=threshold),))
    assert max(needed_delta(wrong, holders) for holders in worst_holders(wrong)) > DELTA / 2
