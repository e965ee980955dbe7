"""UniformWeights: the same weight to each of a user's items."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, get_args

import apache_beam as beam
import numpy as np
import numpy.typing as npt

from beam_dp import checks
from beam_dp.core import exchange
from beam_dp.core.blocks import Block, ItemBlock, UserBlock
from beam_dp.core.weights.uniform import Norm, exposure_sums, uniform_sums
from beam_dp.transforms.coder import KeyedBlock
from beam_dp.transforms.grouping import BlocksAndItems, KeyByShard, Meet, with_sums


class UniformWeights(beam.PTransform):
    """User blocks -> item blocks with the sum of uniform weights: one exchange.

    A user with d items gives each 1/sqrt(d) (norm "l2", for Gaussian noise) or 1/d ("l1", for Laplace):
    sensitivity 1 in that norm, adding or removing one user. Cap the degrees first: a threshold is computed
    for a degree cap.

    Args:
        norm: "l1" or "l2".
        max_growth: given, the item blocks also get exposures, which thinned releases need; and an item gets
            at most this many times (>= 1) what it would if nothing had been dropped from the lists.

    Input: user blocks; or a tuple of (user blocks, item blocks of an earlier round), so that the item keys
    need not travel again. Items found earlier keep that mark.
    """

    def __init__(self, norm: Norm = "l2", *, max_growth: float | None = None):
        super().__init__()
        if norm not in get_args(Norm):
            raise ValueError(f"norm must be 'l1' or 'l2', got {norm!r}")
        if max_growth is not None:
            checks.at_least("max_growth", max_growth, 1.0)
        self._norm: Norm = norm
        self._max_growth = max_growth

    def expand(self, pcolls: BlocksAndItems) -> beam.PCollection:
        """One exchange: partial sums to the item shards."""
        users, items = pcolls if isinstance(pcolls, tuple) else (pcolls, None)
        # sums: (item shard, PartialSums)
        sums = users | "SumPerItem" >> beam.ParDo(
            _Sum(self._norm, self._max_growth, introduce=items is None)
        ).with_output_types(KeyedBlock)
        known = () if items is None else (items | "KeyItems" >> KeyByShard(),)
        return (*known, sums) | "ToItems" >> Meet(_SetWeight(), ItemBlock)

    def display_data(self) -> dict[str, Any]:
        """Show the parameters on the job page."""
        growth = {} if self._max_growth is None else {"max_growth": self._max_growth}
        return {"norm": self._norm, **growth}


class _Sum(beam.DoFn):
    def __init__(self, norm: Norm, max_growth: float | None, *, introduce: bool):
        self._norm: Norm = norm
        self._max_growth = max_growth
        self._introduce = introduce

    def process(self, element: UserBlock) -> Iterator[KeyedBlock]:
        if self._max_growth is None:
            sums: tuple[npt.NDArray[np.int64], ...] = (uniform_sums(element, self._norm),)
        else:
            sums = (uniform_sums(element, self._norm, self._max_growth), exposure_sums(element))
        yield from exchange.partial_sums(element, sums, introduce=self._introduce)


class _SetWeight(beam.DoFn):
    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[ItemBlock]:
        shard, group = element
        items, sums = with_sums(group)
        items = items or exchange.introduce_items(shard, sums)
        weight, *exposure = exchange.total_sums(items, sums, len(sums[0].sums))
        yield dataclasses.replace(items, weight=weight, exposure=exposure[0] if exposure else None)
