"""The library's weights, in memory and through Beam, against the independent oracle."""

import hashlib
import math
import uuid
from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from beam_dp import (
    AddNoiseThreshold,
    Biasing,
    CapDegrees,
    DpSips,
    EncodePairs,
    Mad,
    Mad2R,
    MadWeights,
    RemoveFound,
    RunKey,
    SelectPartitions,
    UniformWeights,
    WeightedGaussian,
    WeightedLaplace,
    in_memory,
)
from beam_dp.core import grid
from beam_dp.core.blocks import ItemBlock, UserBlock
from beam_dp.core.capping import cap_degrees
from beam_dp.core.encoding import build_user_block, split_pairs
from beam_dp.core.removal import item_status, remove_found
from beam_dp.core.weights.mad import MadParameters
from beam_dp.plans import make_plan
from tests.oracle import Lists, Weights, mad, mad2r_second_round, sips_lists, uniform

KEY = RunKey.from_seed(20250101)


def examples(count: int) -> settings:
    """Settings of a property test; compiling on first use rules out deadlines."""
    return settings(max_examples=count, deadline=None, suppress_health_check=[HealthCheck.too_slow])


texts = st.text(st.characters(codec="utf-8"), max_size=3)


@st.composite
def pair_lists(draw):
    """Few users with few items each, some held by nearly all (so that they exceed tau), with repeats."""
    popular = draw(st.lists(texts, min_size=1, max_size=2, unique=True))
    rare = draw(st.lists(texts, min_size=1, max_size=12, unique=True))
    holdings = draw(
        st.lists(
            st.tuples(
                st.lists(st.sampled_from(popular), max_size=2), st.lists(st.sampled_from(rare), max_size=7)
            ),
            min_size=1,
            max_size=14,
        )
    )
    return [(f"{user}ö", item) for user, parts in enumerate(holdings) for item in parts[0] + parts[1]] or [
        ("0ö", popular[0])
    ]


@st.composite
def mad_parameters(draw):
    return MadParameters(
        adaptive_threshold=draw(st.floats(1.0, 3.0)),
        max_adaptive_degree=draw(st.integers(2, 8)),
        min_bias=draw(st.sampled_from([0.5, 0.6, 3**-0.5, 0.75, 1.0])),
        max_bias=draw(st.sampled_from([1.25, 2.0, 1e9])),
    )


def random_pairs(seed: int, components: int = 12) -> list[tuple[str, str]]:
    """Many small data sets side by side, with users and items of their own: one pipeline computes them all."""
    rng = np.random.default_rng(seed)
    pairs = []
    for part in range(components):
        num_items = rng.integers(1, 25)
        popularity = rng.dirichlet(np.full(num_items, 0.3))
        for user in range(rng.integers(1, 30)):
            for item in rng.choice(num_items, rng.integers(1, 10), p=popularity):
                pairs.append((f"u{part}/{user}", f"ï{part}/{item}"))
    rng.shuffle(pairs)
    return [tuple(map(str, pair)) for pair in pairs]


def one_block(pairs: list[tuple[str, str]]) -> UserBlock:
    table = pa.table({"user": [user for user, _ in pairs], "item": [item for _, item in pairs]})
    parts = [part for _, part in split_pairs(table, run_key=KEY, num_shards=1)]
    return build_user_block(0, parts, run_key=KEY, num_item_shards=1)


def lists_of(*blocks: UserBlock) -> dict[tuple[int, int], list[bytes]]:
    """Each user's items in priority order; users are named (shard, position)."""
    lists = {}
    for block in blocks:
        keys = block.keys.to_bytes()
        for user, (start, stop) in enumerate(zip(block.offsets[:-1], block.offsets[1:], strict=True)):
            lists[block.shard, user] = [keys[item] for item in block.items[start:stop]]
    return lists


def biases_of(*blocks: UserBlock) -> dict[bytes, float]:
    return {
        key: bias
        for block in blocks
        for key, bias in zip(
            block.keys.to_bytes(),
            np.ones(len(block.keys)) if block.bias is None else block.bias,
            strict=True,
        )
    }


def without_dropped(lists: Lists, bias: dict[bytes, float]) -> dict:
    return {user: [item for item in items if bias[item] > 0] for user, items in lists.items()}


def column(name: str, *items: ItemBlock) -> dict[bytes, float]:
    """One column of item blocks by item, as numbers."""
    values: dict[bytes, float] = {}
    for block in items:
        array = getattr(block, name)
        numbers = array if array.dtype == np.bool_ else grid.to_float(array)
        assert not values.keys() & set(block.keys.to_bytes()), "an item stands in one item shard only"
        values |= dict(zip(block.keys.to_bytes(), numbers.tolist(), strict=True))
    return values


def found_in(*items: ItemBlock) -> set[bytes]:
    return {key for key, found in column("found", *items).items() if found}


def assert_agrees(weights: dict[bytes, float], expected: Weights) -> None:
    for item, weight in weights.items():
        if item not in expected.weight:
            assert weight == 0.0
        else:
            assert abs(weight - expected.weight[item]) <= expected.tolerance(item)
    assert expected.weight.keys() <= weights.keys()


# --- plain functions ---


@examples(200)
@given(pair_lists(), st.sampled_from(["l1", "l2"]), st.integers(1, 6))
def test_uniform_weights_agree(pairs, norm, cap):
    block = cap_degrees(one_block(pairs), cap)
    items = in_memory.uniform_weights(block, in_memory.introduce(block), norm)
    assert_agrees(column("weight", items), uniform(lists_of(block), norm))


@examples(300)
@given(pair_lists(), mad_parameters(), st.integers(1, 8))
def test_unbiased_mad_weights_agree(pairs, parameters, cap):
    block = cap_degrees(one_block(pairs), cap)
    items = in_memory.mad_weights(block, in_memory.introduce(block), parameters)
    expected = mad(
        lists_of(block),
        parameters.adaptive_threshold,
        parameters.max_adaptive_degree,
        b_min=parameters.min_bias,
        b_max=parameters.max_bias,
    )
    assert_agrees(column("weight", items), expected)


@examples(300)
@given(pair_lists(), mad_parameters(), st.integers(1, 8), st.data())
def test_biased_mad_weights_agree(pairs, parameters, cap, data):
    block = cap_degrees(one_block(pairs), cap)
    # Biases without coincidences: MAD Alg. 4 jumps where a lifted weight meets 1/sqrt(d) exactly.
    rng = np.random.default_rng(data.draw(st.integers(0, 2**64)))
    count = len(block.keys)
    kind = rng.integers(0, 3, count)
    block = replace(block, bias=np.choose(kind, [np.zeros(count), np.ones(count), rng.random(count)]))
    items = in_memory.mad_weights(block, in_memory.introduce(block), parameters)
    biases = biases_of(block)
    expected = mad(
        without_dropped(lists_of(block), biases),
        parameters.adaptive_threshold,
        parameters.max_adaptive_degree,
        biases,
        parameters.min_bias,
        parameters.max_bias,
    )
    assert_agrees(column("weight", items), expected)


@examples(200)
@given(
    pair_lists(),
    st.data(),
    st.floats(1.0, 3.0),
    st.floats(1.0, 4.0),
    st.floats(0.0, 1.0),
    st.floats(0.0, 2.0),
)
def test_mad2r_second_round_agrees(pairs, data, rho_1, rho_2, lower_margin, upper_margin):
    """Statuses, lists and biases given any noisy weights."""
    block = one_block(pairs)
    items = in_memory.introduce(block)
    count = len(items.keys)
    noisy = grid.nearest(np.array(data.draw(st.lists(st.floats(-4, 8), min_size=count, max_size=count))))
    items = replace(items, noisy=noisy, found=noisy >= math.ceil(rho_1 * 2**32))
    biasing = Biasing(next_threshold=rho_2, lower_margin=lower_margin, upper_margin=upper_margin)
    left = remove_found(block, item_status(items, biasing))
    expected = mad2r_second_round(
        lists_of(block),
        column("noisy", items),
        rho_1=rho_1,
        rho_2=rho_2,
        lower_margin=lower_margin,
        upper_margin=upper_margin,
    )
    biases = biases_of(left)
    assert without_dropped(lists_of(left), biases) == expected.lists
    listed = {item for items in expected.lists.values() for item in items}
    for item in listed:
        assert biases[item] == pytest.approx(expected.bias[item], rel=1e-14)
    still_listed = {item for items in lists_of(left).values() for item in items}
    assert still_listed - listed == expected.dropped & {key for _, key in _edges(block)}


def _edges(block: UserBlock) -> list[tuple]:
    return [(user, item) for user, items in lists_of(block).items() for item in items]


# Low thresholds, so that small data has found, kept, biased and dropped items.
PLANS = [
    make_plan(epsilon=8.0, delta=0.5, max_degree=4, algorithm=algorithm, profile=profile)
    for algorithm, profile in [
        (WeightedGaussian(), "tight"),
        (WeightedLaplace(), "tight"),
        (DpSips(), "tight"),
        (DpSips(ratio=0.5, rounds=4), "paper"),
        (DpSips(budget_split=(0.3, 0.7)), "paper"),
        (Mad(beta=0.0, max_adaptive_degree=4), "tight"),
        (Mad2R(beta=0.0), "paper"),
        (Mad2R(beta=0.5, budget_split=(0.2, 0.8), upper_confidence=1.0, max_bias=1.2), "tight"),
    ]
]


def oracle_noise(
    run_key: RunKey, number: int, item: bytes, sigma: float | None, scale: float | None
) -> float:
    """One item's noise, by hashlib and scipy.stats: the top bit is the sign, the rest a tail in (0, 1/2)."""
    digest = hashlib.blake2b(item, key=run_key.derive("noise", number=number), digest_size=16).digest()
    bits, further = int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")
    tail = float(Fraction((bits % 2**63) * 2**65 + 2 * further + 1, 2**129))
    size = stats.norm.isf(tail, scale=sigma) if scale is None else stats.laplace.isf(tail, scale=scale)
    return float(size if bits >> 63 else -size)


def oracle_select(full: Lists, plan, run_key: RunKey) -> set[bytes] | None:
    """The released items; None if one is too near a threshold to tell on another grid."""
    released: set[bytes] = set()
    lists = {user: items[: plan.max_degree] for user, items in full.items()}
    bias = None
    for number, numbers in enumerate(plan.rounds):
        if numbers.mad is None:
            weights = uniform(lists, "l1" if numbers.sigma is None else "l2")
        else:
            m = numbers.mad
            weights = mad(lists, m.adaptive_threshold, m.max_adaptive_degree, bias, m.min_bias, m.max_bias)
        noisy = {}
        for item, weight in weights.weight.items():
            noisy[item] = weight + oracle_noise(run_key, number, item, numbers.sigma, numbers.laplace_scale)
            if abs(noisy[item] - numbers.threshold) <= weights.tolerance(item) + 1e-8:
                return None
        found = {item for item, value in noisy.items() if value >= numbers.threshold}
        released |= found
        if isinstance(plan.algorithm, Mad2R) and number == 0:
            second = plan.rounds[1].threshold
            margin = plan.algorithm.upper_confidence * numbers.sigma
            if any(abs(value + margin - second) < 1e-4 for value in noisy.values()):
                return None
            following = mad2r_second_round(
                lists,
                noisy,
                rho_1=numbers.threshold,
                rho_2=second,
                lower_margin=plan.algorithm.lower_confidence * numbers.sigma,
                upper_margin=margin,
            )
            lists, bias = following.lists, following.bias
        elif number + 1 < len(plan.rounds):
            lists = sips_lists(full, released, plan.max_degree)
    return released


def plan_name(plan) -> str:
    return f"{plan.algorithm.name}-{plan.profile}-{len(plan.rounds)}"


@pytest.mark.parametrize("plan", PLANS, ids=plan_name)
@examples(100)
@given(pairs=pair_lists(), seed=st.integers(0, 2**32))
def test_select_in_memory_releases_what_the_oracle_releases(plan, pairs, seed):
    run_key = RunKey.from_seed(seed)
    block = one_block(pairs)
    expected = oracle_select(lists_of(block), plan, run_key)
    assume(expected is not None)
    if not plan.refills:
        block = cap_degrees(block, plan.max_degree)
    assert found_in(in_memory.select_in_memory(block, plan, run_key)) == expected


@pytest.mark.parametrize("plan", PLANS, ids=plan_name)
def test_select_in_memory_caps_whole_lists_as_the_algorithm_does(plan):
    """The same as `SelectPartitions` releases, whether the users' lists come capped or whole."""
    for seed in range(1, 8):
        block = one_block(random_pairs(seed))
        expected = oracle_select(lists_of(block), plan, KEY)
        assert expected is not None
        assert found_in(in_memory.select_in_memory(block, plan, KEY)) == expected


# --- through Beam ---

COLLECTED: dict[str, dict[str, list]] = {}


def collect(element, run: str, name: str) -> None:
    """A function of the module, so that it is pickled by reference and meets the real COLLECTED."""
    COLLECTED[run][name].append(element)


class Collect(beam.PTransform):
    """Put elements into COLLECTED[run][name]; FnApiRunner runs in this process."""

    def __init__(self, run: str, name: str):
        super().__init__(f"Collect{name}")
        self._run = run
        self._name = name

    def expand(self, elements):
        return elements | beam.Map(collect, self._run, self._name)


class Run:
    """A pipeline on FnApiRunner whose collected elements can be read after it."""

    def __enter__(self):
        self.name = str(uuid.uuid4())
        COLLECTED[self.name] = defaultdict(list)
        self.pipeline = beam.Pipeline(runner=FnApiRunner())
        return self

    def __exit__(self, kind, *_):
        self.collected = COLLECTED[self.name]
        if kind is None:
            self.pipeline.run().wait_until_finish()
        del COLLECTED[self.name]

    def encode(self, pairs, num_shards, max_degree=None):
        created = self.pipeline | beam.Create(pairs).with_output_types(tuple[str, str])
        return created | EncodePairs(num_shards=num_shards, max_degree=max_degree, run_key=KEY)

    def keep(self, elements, name):
        elements | Collect(self.name, name)

    def __getitem__(self, name):
        assert name in self.collected, "nothing was collected"
        return self.collected[name]


@examples(6)
@given(st.integers(0, 2**32), st.integers(1, 5), st.sampled_from(["l1", "l2"]), st.integers(1, 6))
def test_uniform_weights_through_beam_agree(seed, num_shards, norm, cap):
    with Run() as run:
        users = run.encode(random_pairs(seed), num_shards) | CapDegrees(cap)
        run.keep(users, "users")
        run.keep(users | UniformWeights(norm), "items")
    assert_agrees(column("weight", *run["items"]), uniform(lists_of(*run["users"]), norm))


@examples(8)
@given(st.integers(0, 2**32), st.integers(1, 5), mad_parameters(), st.integers(2, 9))
def test_mad_weights_through_beam_agree(seed, num_shards, parameters, cap):
    m = parameters
    with Run() as run:
        users = run.encode(random_pairs(seed), num_shards) | CapDegrees(cap)
        run.keep(users, "users")
        weights = MadWeights(
            adaptive_threshold=m.adaptive_threshold,
            max_adaptive_degree=m.max_adaptive_degree,
            min_bias=m.min_bias,
            max_bias=m.max_bias,
        )
        run.keep(users | weights, "items")
    expected = mad(
        lists_of(*run["users"]),
        m.adaptive_threshold,
        m.max_adaptive_degree,
        b_min=m.min_bias,
        b_max=m.max_bias,
    )
    assert_agrees(column("weight", *run["items"]), expected)


def test_mad_through_beam_reroutes_in_these_data():
    """Guards the agreement tests: rerouting is a visible part of the weights they compare."""
    block = one_block(random_pairs(1))
    expected = mad(lists_of(block), 1.0, 8)
    shares = [expected.rerouted[item] / weight for item, weight in expected.weight.items()]
    assert max(shares) > 0.05


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_mad2r_through_beam_agrees(seed):
    sigma, rho_1, rho_2 = 0.4, 3.0, 2.0
    biasing = Biasing(next_threshold=rho_2, lower_margin=0.2, upper_margin=0.4)
    with Run() as run:
        users = run.encode(random_pairs(seed), 3, max_degree=6)
        run.keep(users, "users_1")
        items = (
            users
            | "W1" >> MadWeights(adaptive_threshold=1.5, max_adaptive_degree=5)
            | "N1" >> AddNoiseThreshold(threshold=rho_1, sigma=sigma, run_key=KEY)
        )
        run.keep(items, "items_1")
        users = (users, items) | RemoveFound(biasing)
        run.keep(users, "users_2")
        weights = MadWeights(adaptive_threshold=1.2, max_adaptive_degree=5, min_bias=0.6, max_bias=2.0)
        run.keep((users, items) | "W2" >> weights, "items_2")
    lists = lists_of(*run["users_1"])
    assert_agrees(column("weight", *run["items_1"]), mad(lists, 1.5, 5))
    expected = mad2r_second_round(
        lists,
        column("noisy", *run["items_1"]),
        rho_1=rho_1,
        rho_2=rho_2,
        lower_margin=0.2,
        upper_margin=0.4,
    )
    biases = biases_of(*run["users_2"])
    listed = {item for items in expected.lists.values() for item in items}
    assert without_dropped(lists_of(*run["users_2"]), biases) == expected.lists
    assert {item: biases[item] for item in listed} == pytest.approx(
        {item: expected.bias[item] for item in listed}
    )
    assert_agrees(column("weight", *run["items_2"]), mad(expected.lists, 1.2, 5, expected.bias, 0.6, 2.0))
    # The data has every kind of item: found, dropped, biased and plain.
    assert found_in(*run["items_1"])
    assert expected.dropped
    assert {0 < biases[item] < 1 for item in listed} == {True, False}


@pytest.mark.parametrize("seed", [2, 4])
def test_dp_sips_through_beam_agrees(seed):
    cap = 3
    with Run() as run:
        users, items = run.encode(random_pairs(seed), 3), None
        run.keep(users, "users")
        for number in range(3):
            listed = users | f"C{number}" >> CapDegrees(cap)
            run.keep(listed, f"listed_{number}")
            items = (
                (listed if items is None else (listed, items))
                | f"W{number}" >> UniformWeights("l2")
                | f"N{number}"
                >> AddNoiseThreshold(threshold=3.0, sigma=0.5, round_number=number, run_key=KEY)
            )
            run.keep(items, f"items_{number}")
            users = (users, items) | f"R{number}" >> RemoveFound()
    lists, found = lists_of(*run["users"]), set()
    refilled = 0
    for number in range(3):
        expected = sips_lists(lists, found, cap)
        assert lists_of(*run[f"listed_{number}"]) == expected
        refilled += sum(expected[user] != lists[user][:cap] and len(expected[user]) == cap for user in lists)
        items = run[f"items_{number}"]
        assert_agrees(column("weight", *items), uniform(expected, "l2"))
        noisy = column("noisy", *items)
        found |= {item for item, value in noisy.items() if value >= 3.0}
        assert found_in(*items) == found
    assert refilled > 5  # the data shows the refilling


@pytest.mark.parametrize("plan", PLANS, ids=plan_name)
def test_select_partitions_releases_what_the_oracle_releases(plan):
    pairs = random_pairs(7)
    expected = oracle_select(lists_of(one_block(pairs)), plan, KEY)
    with Run() as run:
        created = run.pipeline | beam.Create(pairs).with_output_types(tuple[str, str])
        select = SelectPartitions(
            epsilon=plan.epsilon,
            delta=plan.delta,
            max_degree=plan.max_degree,
            algorithm=plan.algorithm,
            profile=plan.profile,
            num_shards=3,
            run_key=KEY,
        )
        run.keep(created | select, "released")
    assert sorted(item.encode() for item in run["released"]) == sorted(expected)
    assert 5 < len(expected) < len({item for _, item in pairs}) - 5
