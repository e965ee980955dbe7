"""RemoveFound: take released items out of the users' lists before the next round."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import apache_beam as beam

from beam_dp.core import exchange
from beam_dp.core.blocks import Block, ItemBlock, UserBlock
from beam_dp.core.removal import Preparation, item_status, remove_found
from beam_dp.transforms.coder import KeyedBlock
from beam_dp.transforms.grouping import KeyByShard, Meet, with_answers


class RemoveFound(beam.PTransform):
    """(User blocks, item blocks after `AddNoiseThreshold`) -> user blocks without the found items.

    Uses nothing but noisy weights that the proof counts as published, so it costs no privacy. The user
    blocks may be the full ones where the weights were computed from capped ones: then the next in line
    take the places of found items.

    Args:
        preparation: also give up items that can hardly reach the next threshold (`Dropping`), and bias the
            weights of those that surely will (`Biasing`, MAD Alg. 5); None for DP-SIPS. Given-up items keep
            their places in the lists: letting others move up would choose the lists by their noise.
    """

    def __init__(self, preparation: Preparation | None = None):
        super().__init__()
        self._preparation = preparation

    def expand(self, pcolls: tuple[beam.PCollection, beam.PCollection]) -> beam.PCollection:
        """Answer every user shard with its items' status, and rebuild its block."""
        users, items = pcolls
        # statuses: (user shard, Answers)
        statuses = items | "Status" >> beam.ParDo(_Status(self._preparation)).with_output_types(KeyedBlock)
        return (users | "KeyUsers" >> KeyByShard(), statuses) | "ToUsers" >> Meet(_Remove(), UserBlock)


class _Status(beam.DoFn):
    def __init__(self, preparation: Preparation | None):
        self._preparation = preparation

    def process(self, element: ItemBlock) -> Iterator[KeyedBlock]:
        yield from exchange.answers(element, item_status(element, self._preparation))


class _Remove(beam.DoFn):
    def process(self, element: tuple[int, Iterable[Block]]) -> Iterator[UserBlock]:
        block, statuses = with_answers(element[1])
        yield remove_found(block, exchange.gather_answers(block, statuses))
