"""The composite and its transforms in pipelines: same output however they are run, any element type, windows."""

from __future__ import annotations

import random
from typing import Any

import apache_beam as beam
import numpy as np
import pyarrow as pa
import pytest
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.transforms import trigger, window

import beam_dp
from beam_dp import DpSips, Mad2R, RunKey, SelectPartitions
from beam_dp.core.encoding import build_user_block, split_pairs
from beam_dp.in_memory import select_in_memory
from beam_dp.plans import make_plan
from tests.conftest import ALGORITHMS_AND_PROFILES, run

KEY = RunKey.from_seed(7)
BUDGET: dict[str, Any] = {"epsilon": 2.0, "delta": 1e-2, "max_degree": 8}


def skewed_pairs(num_users: int = 600, num_items: int = 120, seed: int = 1) -> list[tuple[str, str]]:
    """Users with 1 to 20 items (so the cap of 8 bites), popular items first; some repeats."""
    rng = random.Random(seed)
    ranks = [1 / (rank + 1) for rank in range(num_items)]
    pairs = []
    for user in range(num_users):
        for item in rng.choices(range(num_items), ranks, k=rng.randint(1, 20)):
            pairs.append((f"user {user}", f"item {item} ü"))
    return pairs


def in_memory(pairs: list[tuple[str, str]], algorithm: Any, profile: Any = "tight") -> list[str]:
    users, items = zip(*pairs, strict=True)
    table = pa.table({"user": users, "item": items})
    parts = [part for _, part in split_pairs(table, run_key=KEY, num_shards=1)]
    block = build_user_block(0, parts, run_key=KEY, num_item_shards=1)
    plan = make_plan(**BUDGET, algorithm=algorithm, profile=profile)
    released = select_in_memory(block, plan, KEY)
    return sorted(key.decode() for key in released.keys.take(np.flatnonzero(released.found)).to_bytes())


@pytest.mark.parametrize(("algorithm", "profile"), ALGORITHMS_AND_PROFILES)
def test_releases_the_same_as_in_memory_for_any_number_of_shards_and_under_replay(algorithm, profile):
    pairs = skewed_pairs()
    expected = in_memory(pairs, algorithm, profile)
    assert 5 < len(expected) < 115
    for shards, repeat in [(1, 0), (7, 2), (64, 0)]:
        select = SelectPartitions(
            **BUDGET, algorithm=algorithm, profile=profile, run_key=KEY, num_shards=shards
        )
        runner = FnApiRunner(bundle_repeat=repeat)
        assert sorted(run(pairs, select, runner=runner)) == expected, (shards, repeat)


@pytest.mark.parametrize("mode", ["multi_threading", "multi_processing"])
def test_releases_the_same_with_two_workers(mode, tmp_path):
    pairs = skewed_pairs()
    options = PipelineOptions([f"--direct_running_mode={mode}", "--direct_num_workers=2"])
    with beam.Pipeline(runner=FnApiRunner(), options=options) as pipeline:
        select = SelectPartitions(**BUDGET, algorithm="mad2r", run_key=KEY, num_shards=5)
        items = pipeline | beam.Create(pairs) | select
        items | beam.io.WriteToText(str(tmp_path / "items"))
    lines = [line for path in tmp_path.iterdir() for line in path.read_text().splitlines()]
    assert sorted(lines) == in_memory(pairs, "mad2r")


def test_more_refilling_rounds_and_explicit_splits_agree_with_memory():
    pairs = skewed_pairs()
    for algorithm in (DpSips(rounds=5, ratio=0.5), Mad2R(budget_split=(0.3, 0.7), max_bias=3.0)):
        select = SelectPartitions(**BUDGET, algorithm=algorithm, run_key=KEY, num_shards=3)
        assert sorted(run(pairs, select)) == in_memory(pairs, algorithm)


def test_draws_a_fresh_run_key_each_time_it_is_applied():
    select = SelectPartitions(epsilon=0.1, delta=0.4, max_degree=1, num_shards=1)
    pairs = [(f"{user}", f"{user % 200}") for user in range(600)]

    def both(pcoll: beam.PCollection) -> beam.PCollection:
        first, second = pcoll | "First" >> select, pcoll | "Second" >> select
        return (
            first | "1" >> beam.Map(lambda i: (1, i)),
            second | "2" >> beam.Map(lambda i: (2, i)),
        ) | beam.Flatten()

    out = run(pairs, both)
    first, second = ({item for which, item in out if which == n} for n in (1, 2))
    # Each item is found with probability about 1/2, independently: equal sets have probability < 2^-100.
    assert 20 < len(first) < 180
    assert first != second


@pytest.mark.parametrize(
    ("convert", "element_type", "expected_type"),
    [
        (lambda u, i: (u.encode(), i.encode()), tuple[bytes, bytes], bytes),
        (lambda u, i: (hash_free(u), hash_free(i)), tuple[int, int], int),
        (lambda u, i: (u, (i, 3)), tuple[str, tuple[str, int]], tuple),
        (lambda u, i: (u, i), None, str),
    ],
)
def test_takes_any_type_with_a_deterministic_coder(convert, element_type, expected_type):
    pairs = skewed_pairs()
    converted = [convert(user, item) for user, item in pairs]
    select = SelectPartitions(**BUDGET, algorithm="mad", run_key=KEY, num_shards=3)
    released = run(converted, select, element_type=element_type)
    assert len(released) > 5
    assert all(isinstance(item, expected_type) for item in released)
    assert set(released) <= {item for _, item in converted}
    assert len(set(released)) == len(released)


def hash_free(name: str) -> int:
    return int("".join(c for c in name if c.isdigit()))


def test_untyped_elements_work_through_beams_deterministic_fallback():
    pairs = skewed_pairs()
    select = SelectPartitions(**BUDGET, algorithm="mad", run_key=KEY, num_shards=3)
    released = run(pairs, select, element_type=Any)
    assert len(released) > 5
    assert set(released) <= {item for _, item in pairs}


def test_takes_pair_tables_and_gives_text():
    users = pa.array([n % 50 for n in range(500)])
    table = pa.table({"user": users, "item": pa.array([n % 7 for n in range(500)])})
    select = SelectPartitions(**BUDGET, algorithm="weighted_gaussian", run_key=KEY, num_shards=3)
    released = run([table, table], select, element_type=pa.Table)
    assert released
    assert set(released) <= {str(n) for n in range(7)}


def test_no_input_gives_no_output():
    assert run([], SelectPartitions(**BUDGET), element_type=tuple[str, str]) == []


def test_counts_users_not_pairs():
    one_user = [("u", f"item {n}") for n in range(8)] * 1000
    assert run(one_user, SelectPartitions(**BUDGET, run_key=KEY, num_shards=2)) == []


def windowed(pairs: list[tuple[str, str]], windows: int) -> list[tuple[float, tuple[str, str]]]:
    return [(60.0 * n + 1, pair) for n in range(windows) for pair in pairs]


def select_in_windows(select: SelectPartitions, into: Any) -> Any:
    def apply(pcoll: beam.PCollection) -> beam.PCollection:
        return (
            pcoll
            | "Time" >> beam.MapTuple(lambda t, pair: window.TimestampedValue(pair, t))
            | "Untime" >> beam.Map(lambda pair: pair).with_output_types(tuple[str, str])
            | "Window" >> into
            | "Select" >> select
            | "Start" >> beam.Map(lambda item, w=beam.DoFn.WindowParam: (float(w.start), item))
            | "Global" >> beam.WindowInto(window.GlobalWindows())
        )

    return apply


def test_each_fixed_window_gets_a_release_and_noise_of_its_own_that_survive_replay():
    pairs = [(f"{user}", f"{user % 100}") for user in range(300)]
    options: dict[str, Any] = {"epsilon": 0.1, "delta": 0.4, "max_degree": 1, "algorithm": "dp_sips"}
    apply = select_in_windows(
        SelectPartitions(**options, run_key=KEY, num_shards=3), beam.WindowInto(window.FixedWindows(60))
    )
    out = run(windowed(pairs, 3), apply, runner=FnApiRunner(bundle_repeat=2))
    released = [{item for start, item in out if start == 60.0 * n} for n in range(3)]
    # Every window holds the same pairs; sets drawn from independent noise differ but for chance < 2^-50.
    assert all(10 < len(items) < 90 for items in released)
    assert len({frozenset(items) for items in released}) == 3
    assert sorted(out) == sorted(run(windowed(pairs, 3), apply))


def test_a_user_counts_once_in_each_window_and_windows_do_not_mix():
    pairs = [(f"{user}", "popular" if user < 60 else f"own {user}") for user in range(80)]
    early = [(1.0, pair) for pair in pairs]
    late = [(61.0, (user, "late " + item)) for user, item in pairs]
    select = SelectPartitions(**BUDGET, algorithm="weighted_gaussian", run_key=KEY, num_shards=2)
    out = run(early + late, select_in_windows(select, beam.WindowInto(window.FixedWindows(60))))
    assert sorted(out) == [(0.0, "popular"), (60.0, "late popular")]


@pytest.mark.parametrize(
    ("into", "message"),
    [
        (
            beam.WindowInto(window.Sessions(10)),
            "EncodePairs must be used in windows that do not merge, got Sessions; "
            "use FixedWindows, or apply it before the session windows",
        ),
        (
            beam.WindowInto(
                window.FixedWindows(60),
                trigger=trigger.Repeatedly(trigger.AfterCount(1)),
                accumulation_mode=trigger.AccumulationMode.DISCARDING,
            ),
            "EncodePairs must be used with the default trigger and no allowed lateness, got Repeatedly with "
            "allowed lateness 0; every further firing of a window would spend its privacy budget again",
        ),
    ],
)
def test_refuses_windows_that_could_be_released_twice(into, message):
    with pytest.raises(ValueError) as error:
        run(windowed([("u", "i")], 1), select_in_windows(SelectPartitions(**BUDGET), into))
    assert str(error.value) == message


def test_transforms_compose_by_hand_into_dp_sips():
    pairs = skewed_pairs()
    plan = make_plan(**BUDGET, algorithm=DpSips(rounds=2))
    first, second = plan.rounds

    def by_hand(pcoll: beam.PCollection) -> beam.PCollection:
        users = pcoll | beam_dp.EncodePairs(num_shards=3, run_key=KEY)
        noisy = (
            users
            | "Cap1" >> beam_dp.CapDegrees(8)
            | "Weights1" >> beam_dp.UniformWeights()
            | "Noise1" >> beam_dp.AddNoiseThreshold(threshold=first.threshold, sigma=first.sigma, run_key=KEY)
        )
        left = (users, noisy) | beam_dp.RemoveFound()
        return (
            (left | "Cap2" >> beam_dp.CapDegrees(8), noisy)
            | "Weights2" >> beam_dp.UniformWeights()
            | "Noise2"
            >> beam_dp.AddNoiseThreshold(
                threshold=second.threshold, sigma=second.sigma, round_number=1, run_key=KEY
            )
            | beam_dp.DecodeItems()
        )

    assert sorted(run(pairs, by_hand)) == in_memory(pairs, DpSips(rounds=2))
