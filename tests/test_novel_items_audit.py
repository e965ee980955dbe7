"""Items that only one user holds: released with probability at most the rounds' deltas.

One run over thousands of users who each hold T items of their own is thousands of trials of the same
event, independent because noise is drawn by item. Users also hold a few shared items, so that MAD has
excess to reroute onto their own ones, and rounds have something to find and to refill.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import pyarrow as pa
import pytest
from scipy import stats

from beam_dp import (
    DpSips,
    Mad,
    Mad2R,
    PooledGaussian,
    PooledMad,
    RunKey,
    WeightedGaussian,
    WeightedLaplace,
)
from beam_dp.algorithms import Algorithm
from beam_dp.core.blocks import UserBlock
from beam_dp.core.encoding import build_user_block, split_pairs
from beam_dp.in_memory import select_in_memory
from beam_dp.plans import Plan, Profile, make_plan

USERS = 10_000
CAP = 20
DELTA = 0.2
FALSE_ALARM = 1e-6
ALGORITHMS: list[Algorithm] = [
    WeightedGaussian(),
    WeightedLaplace(),
    DpSips(),
    DpSips(rounds=5, ratio=0.8),
    Mad(),
    Mad2R(),
    Mad2R(budget_split=(0.4, 0.6), upper_confidence=0.0),
    PooledMad(),
    PooledMad(budget_split=(0.5, 0.5), upper_confidence=0.0),
    PooledGaussian(),
    PooledGaussian(budget_split=(0.5, 0.5), upper_confidence=0.0, max_growth=10.0),
]


def users_with_own_items(own: int, shared: int, key: RunKey) -> UserBlock:
    """Every user holds `own` items that nobody else has, and `shared` of 30 popular ones."""
    rng = np.random.default_rng(own)
    users = np.repeat(np.arange(USERS), own + shared)
    mine = [f"own {user} {n}" for user in range(USERS) for n in range(own)]
    popular = rng.random((USERS, 30)).argsort(axis=1)[:, :shared]
    items = np.empty((USERS, own + shared), dtype=object)
    items[:, :own] = np.array(mine, dtype=object).reshape(USERS, own)
    items[:, own:] = np.char.add("shared ", popular.astype(str))
    table = pa.table({"user": pa.array(users.astype(str)), "item": pa.array(items.ravel().tolist())})
    parts = [part for _, part in split_pairs(table, run_key=key, num_shards=1)]
    return build_user_block(0, parts, run_key=key, num_item_shards=1)


def share_of_users_with_an_own_item_released(users: UserBlock, plan: Plan, key: RunKey) -> float:
    released = select_in_memory(users, plan, key)
    found = [name.decode() for name in released.keys.take(np.flatnonzero(released.found)).to_bytes()]
    return len({name.split()[1] for name in found if name.startswith("own ")}) / USERS


def highest_share(delta: float) -> float:
    """What a chance of `delta` a user exceeds in one of 10^6 audits only."""
    return float(stats.binom.isf(FALSE_ALARM, USERS, delta)) / USERS


@pytest.fixture(scope="module", params=[(1, 0), (1, 3), (CAP, 0), (CAP, 4), (5 * CAP, 5)], ids=str)
def crowd(request) -> tuple[UserBlock, RunKey]:
    key = RunKey.from_seed(sum(request.param))
    return users_with_own_items(*request.param, key), key


@pytest.mark.parametrize("profile", ["tight", "paper"])
@pytest.mark.parametrize("algorithm", ALGORITHMS, ids=repr)
def test_own_items_are_released_with_at_most_the_rounds_deltas(crowd, algorithm, profile: Profile):
    """Power: with 10,000 users and deltas of 0.1, a true share of 0.115 is caught with probability 1/2, of 0.125
    with probability above 0.99; the tests below show wrong rules that are.
    """
    if profile == "paper" and algorithm.name.startswith("pooled"):
        pytest.skip("our own algorithms have no paper to account by")
    users, key = crowd
    plan = make_plan(epsilon=1.0, delta=DELTA, max_degree=CAP, algorithm=algorithm, profile=profile)
    share = share_of_users_with_an_own_item_released(users, plan, key)
    assert share <= highest_share(sum(numbers.delta for numbers in plan.rounds))


def test_the_audit_catches_a_threshold_for_one_novel_item_only():
    """The plausible wrong rule: rho for t = 1 alone, without the maximum over t."""
    key = RunKey.from_seed(1)
    users = users_with_own_items(CAP, 0, key)
    plan = make_plan(epsilon=1.0, delta=DELTA, max_degree=CAP, algorithm="weighted_gaussian")
    for_one = make_plan(epsilon=1.0, delta=DELTA, max_degree=1, algorithm="weighted_gaussian").rounds[0]
    wrong = dataclasses.replace(
        plan, rounds=(dataclasses.replace(plan.rounds[0], threshold=for_one.threshold),)
    )
    share = share_of_users_with_an_own_item_released(users, wrong, key)
    assert share > highest_share(plan.rounds[0].delta)


def test_the_audit_catches_a_cap_that_is_not_applied():
    key = RunKey.from_seed(2)
    users = users_with_own_items(5 * CAP, 0, key)
    plan = make_plan(epsilon=1.0, delta=DELTA, max_degree=CAP, algorithm="weighted_laplace")
    share = share_of_users_with_an_own_item_released(users, dataclasses.replace(plan, max_degree=10**6), key)
    assert share > highest_share(plan.rounds[0].delta)
