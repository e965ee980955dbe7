"""Weights: what the proofs need of them, by brute force."""

import math
from collections import defaultdict
from dataclasses import dataclass, replace

import numpy as np
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dp import in_memory
from beam_dp.core import grid
from beam_dp.core.blocks import ItemBlock, UserBlock
from beam_dp.core.keys import Keys
from beam_dp.core.randomness import RunKey
from beam_dp.core.weights.mad import (
    MAX_ADAPTIVE_THRESHOLD,
    MadParameters,
    add_reroute,
    first_sums,
    reroute_sums,
    truncate,
)
from beam_dp.core.weights.uniform import uniform_sums
from beam_dp.core.weights.user_weights import user_weights
from beam_dp.plans import make_plan
from tests.oracle import user_weights as oracle_user_weights

STEP = 2.0**-32
biases = st.one_of(st.just(1.0), st.floats(1e-9, 1.0))
min_biases = st.one_of(st.sampled_from([0.5, 3**-0.5, 1.0]), st.floats(0.5, 1.0))
max_biases = st.one_of(st.sampled_from([1.0, 2.0, 1e9, 1e300]), st.floats(1.0, 4.0))


def block_of(lists: list[list[int]], num_items: int, bias=None) -> UserBlock:
    return UserBlock(
        shard=0,
        offsets=np.cumsum([0, *map(len, lists)]).astype(np.int64),
        items=np.array([item for one in lists for item in one], np.int32),
        keys=Keys.from_bytes([b"%d" % item for item in range(num_items)]),
        slices=np.array([0, num_items]),
        bias=None if bias is None else np.asarray(bias, np.float64),
    )


@dataclass
class Mad:
    """MAD weights of lists of numbers, and what went into them."""

    weight: np.ndarray
    rerouted: np.ndarray
    ratio: np.ndarray


def mad(lists: list[list[int]], num_items: int, parameters: MadParameters, bias=None) -> Mad:
    block = block_of(lists, num_items, bias)
    weight, ratio = truncate(*first_sums(block, parameters), parameters)
    items = ItemBlock(shard=0, keys=block.keys, askers=(), rows=(), weight=weight)
    after = add_reroute(items, reroute_sums(block, ratio, parameters), parameters)
    return Mad(grid.to_float(after.weight), grid.to_float(after.weight - weight), ratio)


# --- one user's biased weights: MAD Algorithm 4 ---


def weights_of(bias: list[float], min_bias: float, max_bias: float) -> np.ndarray:
    weights = np.full(len(bias), np.nan)
    user_weights(np.array(bias), min_bias, max_bias, weights)
    return weights


@settings(max_examples=1000, deadline=None)
@given(st.lists(biases, min_size=1, max_size=40), min_biases, max_biases)
@example([0.5], 0.5, 1.0)
@example([1e-9] * 40, 0.5, 1e300)
@example([1 - 2**-53] * 4, 0.5, 1.0)
@example([0.5, 1.0], 0.5, 1.0)
@example([(1 + i) / 40 for i in range(39)], 0.5, 1.0)
def test_user_weights_satisfy_lemma_b4(bias, min_bias, max_bias):
    weights = weights_of(bias, min_bias, max_bias)
    root = math.sqrt(len(bias))
    tiny = 1e-12
    assert (weights >= min_bias / root * (1 - tiny)).all()
    assert (weights <= max_bias / root * (1 + tiny)).all()
    assert math.fsum(weights**2) <= 1 + tiny


@st.composite
def generic_biases(draw):
    """Biases without coincidences: the algorithm jumps where a lifted weight meets 1/sqrt(d) exactly."""
    rng = np.random.default_rng(draw(st.integers(0, 2**64)))
    bias = rng.uniform(0.0, 1.0, rng.integers(1, 41))
    return np.where(rng.random(len(bias)) < rng.random(), bias, 1.0).tolist()


above_1 = st.one_of(st.sampled_from([2.0, 1e9, 1e300]), st.floats(1.001, 4.0))


@settings(max_examples=1000, deadline=None)
@given(generic_biases(), min_biases, above_1)
@example([0.5], 0.5, 2.0)
@example([1e-9] * 40, 0.5, 1e300)
def test_user_weights_are_those_of_the_oracle(bias, min_bias, max_bias):
    items = list(range(len(bias)))
    expected = oracle_user_weights(items, dict(enumerate(bias)), min_bias, max_bias)
    np.testing.assert_allclose(
        weights_of(bias, min_bias, max_bias), [expected[item] for item in items], rtol=1e-6
    )


def check_spent(bias, min_bias, max_bias):
    """MAD Alg. 4, line 6: until the norm is 1, or nothing is left below its normal weight."""
    weights = weights_of(bias, min_bias, max_bias)
    root = math.sqrt(len(bias))
    assert math.fsum(weights**2) >= 1 - 1e-9 or (weights >= (1 - 1e-9) / root).all()


@settings(max_examples=500, deadline=None)
@given(generic_biases(), min_biases, above_1)
def test_user_weights_leave_nothing_unspent_that_may_be_spent(bias, min_bias, max_bias):
    check_spent(bias, min_bias, max_bias)


def test_user_weights_leave_nothing_unspent_if_no_item_may_grow():
    check_spent([1.0, 0.5, 0.90625, 0.9482385441883525], 0.5, 1.0)


@given(st.integers(1, 100), min_biases, max_biases)
def test_unbiased_users_give_all_items_the_same(degree, min_bias, max_bias):
    assert (weights_of([1.0] * degree, min_bias, max_bias) == 1 / math.sqrt(degree)).all()


def test_biased_items_give_way_to_the_others():
    weights = weights_of([0.5, 1.0, 1.0, 1.0], 0.5, 2.0)
    assert weights[0] == 0.25
    assert weights[1:] == pytest.approx([math.sqrt((1 - 1 / 16) / 3)] * 3)


# --- uniform weights ---

sets_of_items = st.lists(
    st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=9), min_size=1, max_size=12
)


@settings(max_examples=200, deadline=None)
@given(sets_of_items, st.sampled_from([("l1", 1), ("l2", 2)]), st.data())
def test_uniform_weights_have_sensitivity_1(lists, norm, data):
    user = data.draw(st.integers(0, len(lists) - 1))
    whole = uniform_sums(block_of(lists, 10), norm[0])
    rest = uniform_sums(block_of(lists[:user] + lists[user + 1 :], 10), norm[0])
    change = grid.to_float(whole - rest)
    degree = len(lists[user])
    assert np.linalg.norm(change, norm[1]) <= 1
    assert set(np.flatnonzero(change)) == set(lists[user])
    assert (change <= degree ** (-1 / norm[1])).all()
    assert (change[lists[user]] >= degree ** (-1 / norm[1]) - STEP).all()


@pytest.mark.parametrize("norm", [("l1", 1), ("l2", 2)], ids=["l1", "l2"])
def test_uniform_weights_of_any_degree_have_norm_at_most_1(norm):
    """Exactly on the grid: in Python integers."""
    for degree in [*range(1, 200), 999, 4096, 99_999, 1_000_000]:
        (weight,) = set(uniform_sums(block_of([list(range(degree))], degree), norm[0]).tolist())
        assert weight > 0
        assert degree * weight ** norm[1] <= 2 ** (32 * norm[1])


# --- MAD: sensitivity by brute force ---


def parameters(draw, max_degrees):
    return MadParameters(
        adaptive_threshold=draw(st.one_of(st.just(1.0), st.floats(1.0, 2.5))),
        max_adaptive_degree=draw(st.sampled_from(max_degrees)),
        min_bias=draw(st.sampled_from([0.5, 3**-0.5, 0.75, 0.9, 1.0, 1.0])),
        max_bias=draw(st.sampled_from([1.0, 1.3, 2.0, 1e9])),
    )


@st.composite
def rerouting_data(draw, max_degrees=(2, 3, 4, 5, 6, 9)):
    """Few popular items, held by nearly all and far above tau, and others that receive what they send back."""
    m = parameters(draw, max_degrees)
    num_items = draw(st.integers(2, 12))
    popular = list(range(draw(st.integers(1, min(4, num_items)))))
    lists = draw(
        st.lists(
            st.lists(
                st.one_of(st.sampled_from(popular), st.integers(0, num_items - 1)),
                unique=True,
                min_size=1,
                max_size=m.max_adaptive_degree + 1,
            ),
            min_size=2,
            max_size=25,
        )
    )
    copies = draw(st.integers(1, 6))
    lists = lists * copies
    of_item = st.one_of(st.just(1.0), st.just(0.0), st.floats(0.05, 1.0))
    bias = draw(st.one_of(st.none(), st.lists(of_item, min_size=num_items, max_size=num_items)))
    return lists, num_items, m, bias


def check_sensitivity(lists, num_items, m, bias, at_most: int | None = None) -> float:
    """Remove each user (or the last `at_most`) in turn.

    Returns:
        The largest norm of those changes that change the rerouted weight.
    """
    whole = mad(lists, num_items, m, bias)
    largest = 0.0
    last_of_each_kind = list({tuple(one): index for index, one in enumerate(lists)}.values())
    for user in last_of_each_kind[-(at_most or len(lists)) :]:
        others = lists[:user] + lists[user + 1 :]
        rest = mad(others, num_items, m, bias)
        norm = float(np.linalg.norm(whole.weight - rest.weight))
        assert norm <= 1 + 1e-6
        # Proposition B.5, as far as rounding allows: a user only adds to what is rerouted.
        assert (whole.rerouted >= rest.rerouted - STEP).all()
        held = {item for one in others for item in one}
        active = [item for item in lists[user] if bias is None or bias[item] > 0]
        novel = [item for item in active if item not in held]
        if novel:
            assert whole.weight[novel].max() <= m.max_bias / math.sqrt(len(novel)) * (1 + 1e-12)
        if (whole.rerouted > rest.rerouted).any():
            largest = max(largest, norm)
    return largest


@settings(max_examples=300, deadline=None)
@given(rerouting_data())
def test_mad_has_l2_sensitivity_1(data):
    # Removing any user of 97,000 random data sets of this kind, the largest norm of those changes that moved the
    # rerouted weights by more than 0.1 (l1) was 0.989, by more than 1e-3 0.9992; where nothing moves it is 1.
    check_sensitivity(*data)


@settings(max_examples=150, deadline=None)
@given(rerouting_data(max_degrees=(2, 3)))
def test_mad_has_l2_sensitivity_1_with_adaptive_degrees_below_the_papers(data):
    """The paper asks for d_max >= 4 in Lemma B.3; core/weights/mad.py claims that 2 and 3 are fine."""
    check_sensitivity(*data)


@pytest.mark.parametrize("d_max", [2, 3, 4, 9, 16, 50])
@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_mad_has_l2_sensitivity_1_in_the_worst_case_of_the_proof(d_max, share):
    """All users hold the same d_max items (Hoelder is an equality); `share` of them stand above tau."""
    m = MadParameters(adaptive_threshold=1.0, max_adaptive_degree=d_max)
    above = round(share * d_max)
    # Users with `above` common items and the rest spread thinly stay below tau there.
    norms = []
    for users in (d_max - 1, d_max, d_max + 1, 4 * d_max):
        spread = d_max - above
        lists = [
            [*range(above), *(above + (u * spread + k) % (users * spread) for k in range(spread))]
            for u in range(users)
        ]
        norms.append(check_sensitivity(lists, above + max(1, users * spread), m, None, at_most=2))
        norms.append(check_sensitivity([list(range(d_max))] * users, d_max, m, None))
    # Everybody at or above tau: each coordinate changes by 1/sqrt(d) - 1/d + alpha/d, a norm of 1 - 1/(2 d).
    assert max(norms) >= 1 - 1 / (2 * d_max) - 1e-4


def test_sensitivity_is_exceeded_if_rerouting_were_not_discounted(monkeypatch):
    """The brute force has power: 1.3 times the discount of the proof breaks the bound it checks."""
    undiscounted = property(lambda self: 1.3 * (self.min_bias - 0.5 / math.sqrt(self.max_adaptive_degree)))
    monkeypatch.setattr(MadParameters, "discount", undiscounted)
    m = MadParameters(adaptive_threshold=1.0, max_adaptive_degree=9)
    with pytest.raises(AssertionError, match="1e-06"):
        check_sensitivity([list(range(9))] * 30, 9, m, None)


def test_the_condition_of_lemma_b3_holds_from_2_on():
    """b_max >= 2 alpha / sqrt(d_max), its last line, for all b_min; the derivative it bounds, for all t <= d."""
    for d_max in [*range(2, 200), 1000, 10**6]:
        for min_bias in (0.5, 0.75, 1.0):
            m = MadParameters(adaptive_threshold=1.0, max_adaptive_degree=d_max, min_bias=min_bias)
            assert 0 < 2 * m.discount / math.sqrt(d_max) <= 1
    for d_max in range(2, 20):
        alpha = 1 - 0.5 / math.sqrt(d_max)
        for d in range(1, d_max + 1):
            for t in range(1, d + 1):
                assert alpha / d_max * (1 - t / d) + 1 / math.sqrt(d) <= 1 / math.sqrt(t) + 1e-15


def test_novel_items_get_the_bound_and_no_more():
    """With nothing above tau, t novel items of a user get exactly 1/sqrt(t)."""
    m = MadParameters(adaptive_threshold=1.0, max_adaptive_degree=50)
    for t in (1, 2, 5, 50, 51):
        assert mad([list(range(t))], t, m).weight == pytest.approx([1 / math.sqrt(t)] * t, abs=4 * STEP)


# --- MAD: dropped items, blocks, rounding ---


@settings(max_examples=200, deadline=None)
@given(rerouting_data())
def test_dropped_items_get_nothing_and_do_not_count(data):
    lists, num_items, m, bias = data
    assume(bias is not None)
    left = [[item for item in one if bias[item] > 0] for one in lists]
    kept = mad(lists, num_items, m, bias)
    removed = mad(left, num_items, m, [b or 1.0 for b in bias])
    assert kept.weight.tolist() == removed.weight.tolist()
    assert (kept.weight[np.array(bias) == 0] == 0).all()


@settings(max_examples=200, deadline=None)
@given(rerouting_data(), st.randoms())
def test_weights_do_not_depend_on_the_blocks_users_are_in(data, random):
    lists, num_items, m, bias = data
    whole = block_of(lists, num_items, bias)
    shuffled = random.sample(lists, len(lists))
    cut = random.randrange(len(lists) + 1)
    parts = [block_of(part, num_items, bias) for part in (shuffled[:cut], shuffled[cut:])]
    base, init = first_sums(whole, m)
    assert (base == sum(first_sums(part, m)[0] for part in parts)).all()
    assert (init == sum(first_sums(part, m)[1] for part in parts)).all()
    _, ratio = truncate(base, init, m)
    rerouted = sum(reroute_sums(part, ratio, m) for part in parts)
    assert (reroute_sums(whole, ratio, m) == np.minimum(rerouted, grid.SATURATION)).all()
    for norm in ("l1", "l2"):
        plain = [uniform_sums(block_of(part, num_items), norm) for part in (shuffled[:cut], shuffled[cut:])]
        assert (uniform_sums(block_of(lists, num_items), norm) == sum(plain)).all()


@settings(max_examples=200, deadline=None)
@given(rerouting_data())
def test_items_have_weight_exactly_if_someone_gives_them_any(data):
    lists, num_items, m, bias = data
    held = {item for one in lists for item in one if bias is None or bias[item] > 0}
    assert set(np.flatnonzero(mad(lists, num_items, m, bias).weight)) == held


@settings(max_examples=300, deadline=None)
@given(st.lists(biases, min_size=1, max_size=30), min_biases, max_biases)
def test_one_users_weights_on_the_grid_have_norm_at_most_1(bias, min_bias, max_bias):
    m = MadParameters(adaptive_threshold=1.0, max_adaptive_degree=50, min_bias=min_bias, max_bias=max_bias)
    weight = mad([list(range(len(bias)))], len(bias), m, bias).weight
    assert math.fsum(weight**2) <= 1 + 1e-12


@pytest.mark.parametrize("tau", [1.0, 20.8, 28.56, 1000.0, 2.0**20, MAX_ADAPTIVE_THRESHOLD])
def test_saturated_items_do_not_overflow(tau):
    """Weights at the end of the grid: truncated to tau, and rerouted sums end at 8 tau or more."""
    m = MadParameters(adaptive_threshold=tau, max_adaptive_degree=50)
    full = np.array([grid.SATURATION, 0], np.int64)
    weight, ratio = truncate(full, full, m)
    assert weight.tolist() == [grid.SATURATION, 0]
    assert 0 < 1 - ratio[0] == pytest.approx(tau / 2.0**29, rel=1e-7, abs=2e-16)
    weight, _ = truncate(np.zeros(2, np.int64), full, m)
    assert weight[0] == math.floor(tau * 2**32)
    items = ItemBlock(shard=0, keys=Keys.from_bytes([b"a", b"b"]), askers=(), rows=(), weight=full)
    assert add_reroute(items, full, m).weight.tolist() == [grid.SATURATION, 0]
    empty = replace(items, weight=np.zeros(2, np.int64))
    assert grid.to_float(add_reroute(empty, full, m).weight)[0] >= 8 * tau
    assert m.reroute_scale >= grid.SCALE


@pytest.mark.parametrize("min_bias", [0.5, 0.51, 3**-0.5, 0.7, 2**-0.5, 0.75, 0.9, 1.0])
def test_the_least_adaptive_degree_gives_no_one_negative_weights(min_bias):
    m = MadParameters(adaptive_threshold=1.0, max_adaptive_degree=50, min_bias=min_bias)
    degree = m.min_adaptive_degree
    assert 1 / degree <= min_bias / math.sqrt(degree) * (1 + 1e-15)
    assert degree == 1 or 1 / (degree - 1) > min_bias / math.sqrt(degree - 1) * (1 - 1e-15)


def test_empty_blocks_and_users_give_nothing():
    m = MadParameters(adaptive_threshold=1.0, max_adaptive_degree=4)
    assert mad([], 3, m).weight.tolist() == [0, 0, 0]
    assert mad([[], [0], []], 3, m).weight.tolist() == [1, 0, 0]
    assert mad([[0, 1]], 2, m, [0.0, 0.0]).weight.tolist() == [0, 0]
    assert uniform_sums(block_of([[], []], 2), "l2").tolist() == [0, 0]


# --- a published figure: MAD paper, Appendix C.2 ---


def appendix_c2(seed: int) -> UserBlock:
    """15,000 users with one common item and two of 1,000 light ones, each light item held by exactly 30 users."""
    rng = np.random.default_rng(seed)
    while True:
        light = rng.permutation(np.repeat(np.arange(1, 1001), 30)).reshape(15_000, 2)
        twice = light[:, 0] == light[:, 1]
        if not twice.any():
            break
        # Give the few users with a repeated item someone else's second one.
        for user in np.flatnonzero(twice):
            other = rng.integers(15_000)
            if light[user, 0] not in light[other] and light[other, 0] != light[user, 1]:
                light[user, 1], light[other, 1] = light[other, 1], light[user, 1]
        if (light[:, 0] != light[:, 1]).all():
            break
    lists = np.column_stack([np.zeros(15_000, np.int64), light])
    return block_of(lists.tolist(), 1001)


def mean_released(algorithm: str, runs: int) -> float:
    plan = make_plan(epsilon=1.0, delta=1e-5, max_degree=3, algorithm=algorithm, profile="paper")
    assert plan.rounds[0].mad is None or plan.rounds[0].mad.max_adaptive_degree == 3
    return float(
        np.mean(
            [
                in_memory.select_in_memory(appendix_c2(run), plan, RunKey.from_seed(1000 + run)).found.sum()
                for run in range(runs)
            ]
        )
    )


def expected_released(light_weight: float) -> tuple[float, float]:
    """Mean and sd of one run: each of 1,000 light items by itself, and the common item surely."""
    p = stats.norm.sf(18.63524 - light_weight, scale=3.88414)
    return 1000 * p + 1, math.sqrt(1000 * p * (1 - p))


def test_mad_releases_what_appendix_c2_says():
    # By hand: r(common) = (5000 - tau)/5000 with tau = 18.635 + 2 * 3.884, so a light item weighs
    # 30 * (1/sqrt(3) + alpha * r/3 / 3) = 19.68, which gives 607; the paper's run found 610. With 10 runs the mean
    # has sd 4.9. Without rerouting it is 368: 49 of those sds away.
    tau = 18.63524 + 2 * 3.88414
    alpha = 1 - 0.5 / math.sqrt(3)
    mean, sd = expected_released(30 * (1 / math.sqrt(3) + alpha * (5000 - tau) / 5000 / 9))
    released = mean_released("mad", 10)
    assert abs(released - mean) < stats.norm.isf(5e-7) * sd / math.sqrt(10)
    assert abs(released - 610) < 2.5 * sd * math.sqrt(
        1 + 1 / 10
    )  # the paper's is one run, ours the mean of ten


def test_basic_releases_what_the_corrected_appendix_c2_says():
    mean, sd = expected_released(30 / math.sqrt(3))
    assert mean - 1 == pytest.approx(367, abs=1)
    released = mean_released("weighted_gaussian", 10)
    assert abs(released - mean) < stats.norm.isf(5e-7) * sd / math.sqrt(10)


def test_appendix_c2_is_what_it_says():
    block = appendix_c2(0)
    holders = defaultdict(set)
    for edge, item in enumerate(block.items.tolist()):
        holders[item].add(edge // 3)
    assert len(holders.pop(0)) == 15_000
    assert {len(users) for users in holders.values()} == {30}
    assert len(holders) == 1000
