"""MadWeights: MaxAdaptiveDegree weights in two exchanges."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator

import apache_beam as beam

from beam_dp import checks
from beam_dp.core import exchange
from beam_dp.core.blocks import Block, ItemBlock, UserBlock
from beam_dp.core.weights.mad import (
    MAX_ADAPTIVE_THRESHOLD,
    MadParameters,
    add_reroute,
    first_sums,
    reroute_sums,
    truncate,
)
from beam_dp.transforms.coder import KeyedBlock
from beam_dp.transforms.grouping import BlocksAndItems, KeyByShard, Meet, with_answers, with_sums


class MadWeights(beam.PTransform):
    """User blocks -> item blocks with MAD weights (MAD Alg. 2).

    l2 sensitivity 1 under adding or removing one user (MAD Lemma B.6); with t items that nobody else holds,
    none of them weighs more than max_bias/sqrt(t) (Lemma B.3). Cap the degrees first.

    Input: user blocks, whose biases `RemoveFound` may have set; or a tuple of (user blocks, item blocks of
    an earlier round), so that the item keys need not travel again.

    Args:
        adaptive_threshold: tau, from 1 to 2^26; items weighing more give the excess back. Usually the
            threshold of the noise plus two standard deviations.
        max_adaptive_degree: d_max >= 2; users with more items send plain weights.
        min_bias: b_min in [0.5, 1].
        max_bias: b_max >= 1.

    Raises:
        ValueError: at construction, naming the parameter out of range.
    """

    def __init__(
        self,
        *,
        adaptive_threshold: float,
        max_adaptive_degree: int = 50,
        min_bias: float = 1.0,
        max_bias: float = 1.0,
    ):
        super().__init__()
        self._parameters = MadParameters(
            adaptive_threshold=checks.between(
                "adaptive_threshold", adaptive_threshold, 1.0, MAX_ADAPTIVE_THRESHOLD
            ),
            max_adaptive_degree=checks.integer(
                "max_adaptive_degree", max_adaptive_degree, low=2, high=checks.MAX_DEGREE_LIMIT
            ),
            min_bias=checks.between("min_bias", min_bias, 0.5, 1.0),
            max_bias=checks.at_least("max_bias", max_bias, 1.0),
        )

    def expand(self, pcolls: BlocksAndItems) -> beam.PCollection:
        """Two exchanges: sums and excess ratios, then rerouted sums."""
        users, items = pcolls if isinstance(pcolls, tuple) else (pcolls, None)
        parameters = self._parameters
        # sums: (item shard, PartialSums of base and init)
        sums = users | "SumPerItem" >> beam.ParDo(
            _FirstSums(parameters, introduce=items is None)
        ).with_output_types(KeyedBlock)
        known = () if items is None else (items | "KeyItems" >> KeyByShard(),)
        # merged: item blocks still without rerouted weight; answers: (user shard, excess ratios)
        truncated = (*known, sums) | "ToItems" >> Meet(_Truncate(parameters), ItemBlock, answering=True)
        # rerouted: (item shard, PartialSums)
        rerouted = (
            users | "KeyUsers" >> KeyByShard(),
            truncated.answers,
        ) | "ToUsers" >> Meet(_Reroute(parameters), KeyedBlock)
        return (
            truncated.merged | "KeyTruncated" >> KeyByShard(),
            rerouted,
        ) | "RerouteToItems" >> Meet(_AddReroute(parameters), ItemBlock)

    def display_data(self) -> dict[str, float]:
        """Show the parameters on the job page."""
        return dataclasses.asdict(self._parameters)


class _FirstSums(beam.DoFn):
    def __init__(self, parameters: MadParameters, *, introduce: bool):
        self._parameters = parameters
        self._introduce = introduce

    def process(self, element: UserBlock) -> Iterator[KeyedBlock]:
        yield from exchange.partial_sums(
            element, first_sums(element, self._parameters), introduce=self._introduce
        )


class _Reroute(beam.DoFn):
    def __init__(self, parameters: MadParameters):
        self._parameters = parameters

    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[KeyedBlock]:
        block, answers = with_answers(element[1])
        ratio = exchange.gather_answers(block, answers)
        sums = reroute_sums(block, ratio, self._parameters)
        yield from exchange.partial_sums(block, (sums,), introduce=False)


class _Truncate(beam.DoFn):
    def __init__(self, parameters: MadParameters):
        self._parameters = parameters

    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[ItemBlock | beam.pvalue.TaggedOutput]:
        shard, group = element
        items, sums = with_sums(group)
        items = items or exchange.introduce_items(shard, sums)
        base, init = exchange.total_sums(items, sums, 2)
        weight, ratio = truncate(base, init, self._parameters)
        yield dataclasses.replace(items, weight=weight)
        for answer in exchange.answers(items, ratio):
            yield beam.pvalue.TaggedOutput("answers", answer)


class _AddReroute(beam.DoFn):
    def __init__(self, parameters: MadParameters):
        self._parameters = parameters

    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[ItemBlock]:
        items, sums = with_sums(element[1])
        if items is None:
            raise ValueError("rerouted sums met no item block; was the same run's data changed meanwhile?")
        (reroute,) = exchange.total_sums(items, sums, 1)
        yield add_reroute(items, reroute, self._parameters)
