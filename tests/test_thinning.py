"""Thinned releases and pooled evidence: the bound, the coin, and audits that catch plausible wrong rules."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dp import Dropping, PooledGaussian, PooledMad, RunKey
from beam_dp.accounting import gaussian_threshold, thinned_threshold, thinning_delta, union_threshold
from beam_dp.core import grid
from beam_dp.core.blocks import ItemBlock, UserBlock
from beam_dp.core.capping import cap_degrees
from beam_dp.core.encoding import build_user_block, split_pairs
from beam_dp.core.keys import Keys
from beam_dp.core.noise import Pooling, Thinning, add_noise_and_threshold
from beam_dp.core.removal import item_status, remove_found
from beam_dp.core.weights.uniform import exposure_sums, uniform_sums
from beam_dp.in_memory import introduce, select_in_memory
from beam_dp.plans import make_plan

FALSE_ALARM = 1e-6
KEY = RunKey.from_seed(3)


def block_of(pairs: list[tuple[str, str]], key: RunKey = KEY) -> UserBlock:
    users, items = zip(*pairs, strict=True)
    table = pa.table({"user": list(users), "item": list(items)})
    parts = [part for _, part in split_pairs(table, run_key=key, num_shards=1)]
    return build_user_block(0, parts, run_key=key, num_item_shards=1)


# --- the bound ---


@settings(max_examples=60, deadline=None)
@given(
    st.floats(0.3, 10),
    st.floats(0.3, 10),
    st.integers(1, 300),
    st.floats(1, 5),
    st.floats(1, 10),
)
def test_the_bound_covers_every_list_and_exposure(sigma, rate, cap, growth, high):
    """Against brute force over lengths and a fine grid of exposures: never below, and within 15%."""
    threshold = 1 + high * sigma
    bound = thinning_delta(threshold=threshold, rate=rate, sigma=sigma, max_degree=cap, max_growth=growth)
    exposure = np.linspace(0, (threshold + 12 * sigma) / growth, 2000)[:, None]
    length = np.arange(1, cap + 1)
    x = 1 / np.sqrt(length)
    coins = length * (np.exp(-rate * exposure) - np.exp(-rate * (exposure + x)))
    own = np.minimum(1, growth * x)
    exact = (coins * stats.norm.sf((threshold - growth * exposure - own) / sigma)).max()
    assert exact <= bound
    assert bound <= 1.15 * exact + 1e-300


def test_the_threshold_spends_its_delta_and_no_more():
    for growth in (1.0, 2.0, 4.0):
        threshold, rate = thinned_threshold(sigma=3.9, delta=4.5e-6, max_degree=100, max_growth=growth)
        spent = thinning_delta(threshold=threshold, rate=rate, sigma=3.9, max_degree=100, max_growth=growth)
        assert 4.4e-6 < spent <= 4.5e-6


def test_thinning_lowers_the_threshold_for_long_lists():
    sigma, delta, cap = 3.88414, 5e-6, 100
    thinned, _ = thinned_threshold(sigma=sigma, delta=delta, max_degree=cap, max_growth=1.0)
    assert thinned < gaussian_threshold(sigma=sigma, delta=delta, max_degree=cap) - 1.4
    assert thinned < union_threshold(sigma=sigma, delta=delta, max_degree=cap) - 2.3


def test_the_union_threshold_is_the_specifications():
    assert union_threshold(sigma=2.0, delta=1e-6, max_degree=100) == pytest.approx(
        1 + 2 * stats.norm.isf(1e-8), rel=1e-12
    )


# --- weights and exposures ---


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 12), min_size=1, max_size=10, unique=True), min_size=1, max_size=15),
    st.sets(st.integers(0, 12), max_size=9),
    st.floats(1, 4),
)
def test_weights_never_exceed_growth_times_exposure_and_have_l2_norm_1(lists, dropped, growth):
    pairs = [(f"{user}", f"{item:02}") for user, items in enumerate(lists) for item in items]
    block = block_of(pairs)
    names = [int(name) for name in block.keys.to_bytes()]
    bias = np.array([0.0 if name in dropped else 1.0 for name in names])
    block = dataclasses.replace(block, bias=bias)
    weights, exposure = uniform_sums(block, "l2", growth), exposure_sums(block)
    assert (weights <= growth * exposure).all()
    assert not weights[bias == 0].any()
    assert not exposure[bias == 0].any()
    for user in range(block.num_users):
        one = dataclasses.replace(
            block,
            offsets=np.array([0, block.offsets[user + 1] - block.offsets[user]]),
            items=block.items[block.offsets[user] : block.offsets[user + 1]],
        )
        mine = grid.to_float(uniform_sums(one, "l2", growth))
        listed, active = len(one.items), int((bias[one.items] > 0).sum())
        assert math.fsum(mine**2) <= 1
        if active:
            wanted = min(active**-0.5, growth * listed**-0.5)
            assert mine[one.items][bias[one.items] > 0] == pytest.approx(wanted, abs=2**-31)


# --- the coin and the pooled estimate ---


def items_with(weight: np.ndarray, exposure: np.ndarray | None = None) -> ItemBlock:
    return ItemBlock(
        shard=0,
        keys=Keys.from_bytes([b"%d" % n for n in range(len(weight))]),
        askers=(),
        rows=(),
        weight=grid.round_down(weight),
        exposure=None if exposure is None else grid.round_down(exposure),
    )


@pytest.mark.parametrize("exposure", [0.1, 0.5, 2.0])
def test_items_far_above_the_threshold_pass_with_the_coins_probability(exposure):
    # 100,000 coins: the binomial bounds at 1e-6; a rate 5% off is found with probability > 0.99.
    n, rate = 100_000, 1.3
    items = items_with(np.full(n, 1000.0), np.full(n, exposure))
    result = add_noise_and_threshold(
        items, secret=KEY.derive("noise"), threshold=10.0, sigma=1.0, thinning=Thinning(rate=rate)
    )
    low, high = stats.binom.ppf([FALSE_ALARM / 2, 1 - FALSE_ALARM / 2], n, 1 - math.exp(-rate * exposure))
    assert low <= result.found.sum() <= high


def test_the_coin_is_independent_of_the_noise_and_repeats():
    n = 50_000
    items = items_with(np.full(n, 1.0), np.full(n, 1.0))
    key = KEY.derive("noise")
    noisy = add_noise_and_threshold(items, secret=key, threshold=1.0, sigma=1.0)
    thinned = add_noise_and_threshold(
        items, secret=key, threshold=1.0, sigma=1.0, thinning=Thinning(rate=math.log(2))
    )
    again = add_noise_and_threshold(
        items, secret=key, threshold=1.0, sigma=1.0, thinning=Thinning(rate=math.log(2))
    )
    assert (thinned.found == again.found).all()
    assert (thinned.noisy == noisy.noisy).all()
    # Half of those above the threshold pass, whatever their noise: a t-test of noise at 1e-6.
    above = noisy.found
    passed, failed = noisy.noisy[above & thinned.found], noisy.noisy[above & ~thinned.found]
    assert stats.ttest_ind(passed, failed).pvalue > FALSE_ALARM


def test_the_pooled_estimate_is_the_precision_weighted_mean_of_all_rounds():
    weights = np.array([[3.0, 0.0, 5.0], [4.0, 2.0, 5.5]])
    items = items_with(weights[0])
    sigmas, precision, draws = (4.0, 1.0), 0.0, []
    for index, sigma in enumerate(sigmas):
        items = dataclasses.replace(items, weight=grid.round_down(weights[index]))
        secret = KEY.derive("noise", number=index)
        alone = add_noise_and_threshold(
            dataclasses.replace(items, weight=items.weight + (1 << 32), evidence=None, found=None),
            secret=secret,
            threshold=1e6,
            sigma=sigma,
        )
        draws.append(grid.to_float(alone.noisy) - 1.0)
        items = add_noise_and_threshold(
            items,
            secret=secret,
            threshold=1e6,
            sigma=sigma,
            pooling=Pooling(earlier_precision=precision),
        )
        precision += sigma**-2
    shares = np.array([s**-2 for s in sigmas])
    expected = (shares[:, None] * np.array(draws)).sum(axis=0) / shares.sum()
    assert grid.to_float(items.noisy) == pytest.approx(expected, abs=2**-30)


def test_pooled_estimates_have_the_pooled_standard_deviation():
    # 200,000 items without weight in round 1: KS at 1e-6 (bound 0.006) finds a sigma 3% off with p > 0.99.
    n, sigmas = 200_000, (3.0, 2.0)
    items, precision = items_with(np.zeros(n)), 0.0
    for index, sigma in enumerate(sigmas):
        items = add_noise_and_threshold(
            dataclasses.replace(items, weight=grid.round_down(np.full(n, float(index)))),
            secret=KEY.derive("noise", number=index),
            threshold=1e6,
            sigma=sigma,
            pooling=Pooling(earlier_precision=precision),
        )
        precision += sigma**-2
    mean = (1 / 4) / (1 / 9 + 1 / 4)
    result = stats.kstest(grid.to_float(items.noisy), stats.norm(mean, precision**-0.5).cdf)
    assert result.statistic < stats.kstwo.isf(FALSE_ALARM, n)


# --- audits of wrong rules ---


def lonely_users(users: int, own: int, key: RunKey) -> UserBlock:
    return block_of([(f"{u}", f"{u} {n}") for u in range(users) for n in range(own)], key)


def share_with_an_item(items: ItemBlock, users: int) -> float:
    found = items.keys.take(np.flatnonzero(items.found)).to_bytes()
    return len({name.split()[0] for name in found}) / users


def refilling_run(users: UserBlock, plan, key: RunKey, *, refill_dropped: bool) -> ItemBlock:
    """Pooled rounds by hand; with `refill_dropped` the trap of specification section 4."""
    items = introduce(users)
    first, last = plan.rounds
    for index, numbers in enumerate((first, last)):
        capped = cap_degrees(users, plan.max_degree)
        rows = dict(zip(items.askers, items.rows, strict=True))[0]
        weight = np.zeros(len(items.keys), np.int64)
        weight[rows] = uniform_sums(capped, "l2")
        items = add_noise_and_threshold(
            dataclasses.replace(items, weight=weight),
            secret=key.derive("noise", number=index),
            threshold=numbers.threshold,
            sigma=numbers.sigma,
            pooling=numbers.pooling,
        )
        if index == 0:
            dropping = Dropping(next_threshold=last.threshold, upper_margin=0.5 * first.pooled_sigma)
            status = item_status(items, dropping)[rows]
            if refill_dropped:
                status[status == 0.0] = -1.0  # out of the lists, so that others move up
            users = remove_found(users, status)
    return items


@pytest.mark.parametrize("refill_dropped", [False, True])
def test_the_audit_tells_refilled_dropped_slots_from_kept_ones(refill_dropped):
    """2,000 users with 200 items of their own each, cap 10, delta 0.3 for the last round.

    The right rule stays below the binomial bound at 1e-6; the wrong one, which refills dropped slots with
    pooled evidence, exceeds it: survivors are chosen by their own noise out of a long list.
    """
    users, delta = 2_000, 0.3
    key = RunKey.from_seed(11)
    algorithm = PooledMad(budget_split=(0.5, 0.5), delta_split=(0.001, 0.999))
    plan = make_plan(epsilon=0.2, delta=2 * delta, max_degree=10, algorithm=algorithm)
    items = refilling_run(lonely_users(users, 200, key), plan, key, refill_dropped=refill_dropped)
    bound = stats.binom.isf(FALSE_ALARM, users, delta) / users
    assert (share_with_an_item(items, users) > bound) == refill_dropped


def test_the_audit_catches_thinned_thresholds_without_thinning():
    """The lower threshold with the coin left out: novel items pass too often."""
    users, cap, key = 10_000, 100, RunKey.from_seed(12)
    plan = make_plan(epsilon=1.0, delta=0.2, max_degree=cap, algorithm=PooledGaussian(budget_split=(1.0,)))
    lonely = lonely_users(users, cap, key)
    bound = stats.binom.isf(FALSE_ALARM, users, 0.1) / users
    assert share_with_an_item(select_in_memory(lonely, plan, key), users) <= bound
    wrong = dataclasses.replace(plan, rounds=(dataclasses.replace(plan.rounds[0], thinning=None),))
    assert share_with_an_item(select_in_memory(lonely, wrong, key), users) > bound


@pytest.mark.parametrize(("others", "groups"), [(1, 1200), (3, 600), (10, 300)])
def test_light_items_change_by_at_most_the_rounds_delta(others, groups):
    """Not only novel items: what a user adds to items that few others hold.

    Each of many groups is a user v with `cap` items and, for each item, `others` more users who hold that one
    among `cap` items (the rest their own). Coins and noise are keyed by item, so running the data with and
    without all the v's shows for every group whether v's coins made a difference: an item found with v whose
    coin would have failed without v. That share is bounded by the round's delta.
    """
    cap, key = 9, RunKey.from_seed(13 + others)
    pairs = []
    for group in range(groups):
        for n in range(cap):
            item = f"{group} {n}"
            pairs.append((f"v {group}", item))
            for other in range(others):
                user = f"{group} {n} {other}"
                pairs += [(user, item), *((user, f"{user} own {k}") for k in range(cap - 1))]
    plan = make_plan(epsilon=1.0, delta=0.2, max_degree=cap, algorithm=PooledGaussian(budget_split=(1.0,)))
    (numbers,) = plan.rounds
    with_v = select_in_memory(block_of(pairs, key), plan, key)
    # The same noisy weights, but the coins of the data without v: exposures less v's 1/sqrt(cap).
    assert with_v.exposure is not None
    names = [name.decode().split() for name in with_v.keys.to_bytes()]
    held_by_v = np.array([len(name) == 2 for name in names])
    less = with_v.exposure - np.where(held_by_v, math.ceil(grid.SCALE / math.sqrt(cap)), 0)
    without_coins = add_noise_and_threshold(
        dataclasses.replace(with_v, exposure=less, found=None, noisy=None, evidence=None),
        secret=key.derive("noise"),
        threshold=numbers.threshold,
        sigma=numbers.sigma,
        pooling=numbers.pooling,
        thinning=numbers.thinning,
    )
    assert not (without_coins.found & ~with_v.found).any()
    differing = with_v.found & ~without_coins.found
    share = len({name[0] for name, differs in zip(names, differing, strict=True) if differs}) / groups
    assert share <= stats.binom.isf(FALSE_ALARM, groups, numbers.delta) / groups
