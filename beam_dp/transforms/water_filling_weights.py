"""WaterFillingWeights: l1 weights that run down each user's list, in K passes."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

import apache_beam as beam
import numpy as np

from beam_dp import checks
from beam_dp.core import exchange
from beam_dp.core.blocks import Answers, Block, ItemBlock, UserBlock
from beam_dp.core.randomness import RunKey
from beam_dp.core.weights.water_filling import (
    MAX_PASSES,
    MAX_TARGET,
    Senders,
    WaterFillingParameters,
    answers,
    first_senders,
    gather_answers,
    keep,
    messages,
    sent_sums,
    take_back,
    thin_and_round,
)
from beam_dp.transforms.coder import BlockCoder, KeyedBlock
from beam_dp.transforms.grouping import BlocksAndItems, KeyByShard, Meet, of_kind, with_sums
from beam_dp.transforms.windows import check_single_firing, window_coder

beam.coders.registry.register_coder(Senders, BlockCoder)


class WaterFillingWeights(beam.PTransform):
    """User blocks -> item blocks with thinned water filling weights: `passes` exchanges.

    For Laplace noise of scale 1/epsilon and the threshold of `beam_dp.accounting.water_filling`, and for one
    single round: what is released then is (epsilon, delta)-DP under adding or removing one user, however long
    the lists are (docs/water_filling_proof.md). An item's weight is 0 unless a coin of probability
    min(1, level) says otherwise: without that coin the release would not be private.

    Input: user blocks; or a tuple of (user blocks, item blocks), so that the item keys need not travel again.

    Args:
        passes: K, from 1 to 100; each user's mass reaches the first K items of its list.
        target: tau, from 1 to 2^16, in weight units; usually the threshold plus five scales of the noise.
        round_number: as for `AddNoiseThreshold`.
        run_key: as for `AddNoiseThreshold`: only for tests and for composites that share one key.

    Raises:
        ValueError: at construction, naming the parameter out of range.
    """

    def __init__(self, *, passes: int, target: float, round_number: int = 0, run_key: RunKey | None = None):
        super().__init__()
        self._parameters = WaterFillingParameters(
            passes=checks.integer("passes", passes, low=1, high=MAX_PASSES),
            target=checks.between("target", target, 1.0, MAX_TARGET),
        )
        self._round_number = checks.integer("round_number", round_number, low=0)
        self._run_key = run_key

    def expand(self, pcolls: BlocksAndItems) -> beam.PCollection:
        """Send, keep and return, `passes` times; then throw the coins."""
        users, items = pcolls if isinstance(pcolls, tuple) else (pcolls, None)
        check_single_firing(users, "WaterFillingWeights")
        parameters, passes = self._parameters, self._parameters.passes
        # main: (item shard, PartialSums); senders: (user shard, Senders)
        start = users | "Send1" >> beam.ParDo(_Start(parameters, introduce=items is None)).with_output_types(
            KeyedBlock, senders=KeyedBlock
        ).with_outputs("senders", main="sums")
        sums, senders = start.sums, start.senders
        known = () if items is None else (items | "KeyItems" >> KeyByShard(),)
        for number in range(1, passes + 1):
            # merged: item blocks whose weights are levels; answers: (user shard, fractions to take back)
            kept = (*known, sums) | f"Keep{number}" >> Meet(
                _Keep(parameters, first=number == 1, last=number == passes), ItemBlock, answering=True
            )
            if number < passes:
                known = (kept.merged | f"KeyItems{number}" >> KeyByShard(),)
                # merged: (user shard, Senders); answers, the other way: (item shard, PartialSums)
                sent = (senders, kept.answers) | f"Send{number + 1}" >> Meet(
                    _TakeBack(), KeyedBlock, answering=True
                )
                sums, senders = sent.answers, sent.merged
        finish = _Finish(self._run_key or RunKey.fresh(), self._round_number, window_coder(users), parameters)
        return kept.merged | "ThinAndRound" >> beam.ParDo(finish).with_output_types(ItemBlock)

    def display_data(self) -> dict[str, float]:
        """Show the parameters on the job page; the run key is not one of them."""
        return {**dataclasses.asdict(self._parameters), "round": self._round_number}


class _Start(beam.DoFn):
    def __init__(self, parameters: WaterFillingParameters, *, introduce: bool):
        self._parameters = parameters
        self._introduce = introduce

    def process(self, element: UserBlock) -> Iterator[Any]:
        senders = first_senders(element, self._parameters)
        yield from exchange.partial_sums(element, sent_sums(senders), introduce=self._introduce)
        yield beam.pvalue.TaggedOutput("senders", (senders.shard, senders))


class _Keep(beam.DoFn):
    def __init__(self, parameters: WaterFillingParameters, *, first: bool, last: bool):
        self._parameters = parameters
        self._first = first
        self._last = last

    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[Any]:
        shard, group = element
        items, sums = with_sums(group)
        items = items or exchange.introduce_items(shard, sums)
        level = np.zeros(len(items.keys), np.int64) if self._first else items.weight
        high, low = exchange.total_sums(items, sums, 2)
        level, back = keep(level, high, low, self._parameters)
        yield dataclasses.replace(items, weight=level)
        if not self._last:
            for answer in answers(items, back, sums):
                yield beam.pvalue.TaggedOutput("answers", answer)


class _TakeBack(beam.DoFn):
    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[Any]:
        group = list(element[1])
        (senders,) = of_kind(Senders, group)
        senders = take_back(senders, gather_answers(senders, of_kind(Answers, group)))
        if len(senders.mass):
            yield senders.shard, senders
            for message in messages(senders, sent_sums(senders)):
                yield beam.pvalue.TaggedOutput("answers", message)


class _Finish(beam.DoFn):
    def __init__(self, run_key: RunKey, round_number: int, coder: Any, parameters: WaterFillingParameters):
        self._run_key = run_key
        self._round_number = round_number
        self._window_coder = coder
        self._parameters = parameters

    def process(self, element: ItemBlock, window: Any = beam.DoFn.WindowParam) -> Iterator[ItemBlock]:
        identity = self._window_coder.encode(window)
        secret = self._run_key.derive("water filling", number=self._round_number, window=identity)
        yield thin_and_round(element, secret, self._parameters)
