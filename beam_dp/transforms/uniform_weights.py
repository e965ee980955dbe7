"""UniformWeights: the same weight to each of a user's items."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import get_args

import apache_beam as beam

from beam_dp.core import exchange
from beam_dp.core.blocks import Block, ItemBlock, UserBlock
from beam_dp.core.weights.uniform import Norm, uniform_sums
from beam_dp.transforms.coder import KeyedBlock
from beam_dp.transforms.grouping import BlocksAndItems, KeyByShard, Meet, with_sums


class UniformWeights(beam.PTransform):
    """User blocks -> item blocks with the sum of uniform weights: one exchange.

    A user with d items gives each 1/sqrt(d) (norm "l2", for Gaussian noise) or 1/d ("l1", for Laplace):
    sensitivity 1 in that norm, adding or removing one user. Cap the degrees first: a threshold is computed
    for a degree cap.

    Input: user blocks; or a tuple of (user blocks, item blocks of an earlier round), so that the item keys
    need not travel again. Items found earlier keep that mark.
    """

    def __init__(self, norm: Norm = "l2"):
        super().__init__()
        if norm not in get_args(Norm):
            raise ValueError(f"norm must be 'l1' or 'l2', got {norm!r}")
        self._norm: Norm = norm

    def expand(self, pcolls: BlocksAndItems) -> beam.PCollection:
        """One exchange: partial sums to the item shards."""
        users, items = pcolls if isinstance(pcolls, tuple) else (pcolls, None)
        # sums: (item shard, PartialSums)
        sums = users | "SumPerItem" >> beam.ParDo(
            _Sum(self._norm, introduce=items is None)
        ).with_output_types(KeyedBlock)
        known = () if items is None else (items | "KeyItems" >> KeyByShard(),)
        return (*known, sums) | "ToItems" >> Meet(_SetWeight(), ItemBlock)

    def display_data(self) -> dict[str, str]:
        """Show the norm on the job page."""
        return {"norm": self._norm}


class _Sum(beam.DoFn):
    def __init__(self, norm: Norm, *, introduce: bool):
        self._norm: Norm = norm
        self._introduce = introduce

    def process(self, element: UserBlock) -> Iterator[KeyedBlock]:
        yield from exchange.partial_sums(
            element, (uniform_sums(element, self._norm),), introduce=self._introduce
        )


class _SetWeight(beam.DoFn):
    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[ItemBlock]:
        shard, group = element
        items, sums = with_sums(group)
        items = items or exchange.introduce_items(shard, sums)
        (weight,) = exchange.total_sums(items, sums, 1)
        yield dataclasses.replace(items, weight=weight)
