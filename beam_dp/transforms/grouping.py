"""The one way in which blocks and messages meet: grouped by shard number."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

import apache_beam as beam

from beam_dp.core.blocks import Answers, Block, ItemBlock, PartialSums, UserBlock
from beam_dp.transforms.coder import KeyedBlock

Kind = TypeVar("Kind", bound=Block)
BlocksAndItems = beam.PCollection | tuple[beam.PCollection, beam.PCollection]


class Meet(beam.PTransform):
    """Group blocks with the messages for them, and hand each group to a DoFn.

    Input: a tuple of PCollections of (shard, block or message). The DoFn gets (shard, all of them) and emits
    `output_type`; answers to user shards, if any, under the tag `answers`.
    """

    def __init__(self, dofn: beam.DoFn, output_type: Any, *, answering: bool = False):
        super().__init__()
        self._merge = beam.ParDo(dofn).with_output_types(output_type)
        if answering:
            self._merge = (
                beam.ParDo(dofn)
                .with_output_types(output_type, answers=KeyedBlock)
                .with_outputs("answers", main="merged")
            )

    def expand(self, pcolls: tuple[beam.PCollection, ...]) -> beam.PCollection | beam.pvalue.DoOutputsTuple:
        """Flatten, group by shard, run the DoFn."""
        flat = pcolls | "Flatten" >> beam.Flatten() if len(pcolls) > 1 else pcolls[0]
        return flat | "GroupByShard" >> beam.GroupByKey() | "Merge" >> self._merge


class KeyByShard(beam.PTransform):
    """Block -> (its shard, block)."""

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        """Key each block by its shard."""
        return pcoll | "Key" >> beam.Map(lambda block: (block.shard, block)).with_output_types(KeyedBlock)


def of_kind(kind: type[Kind], group: Iterable[Block]) -> list[Kind]:
    """Return the blocks of one kind in a group."""
    return [block for block in group if isinstance(block, kind)]


def with_answers(group: Iterable[Block]) -> tuple[UserBlock, list[Answers]]:
    """Split a group into its user block and the answers for it."""
    group = list(group)
    (block,) = of_kind(UserBlock, group)
    return block, of_kind(Answers, group)


def with_sums(group: Iterable[Block]) -> tuple[ItemBlock | None, list[PartialSums]]:
    """Split a group into its item block, if it has met before, and the partial sums for it."""
    group = list(group)
    known = of_kind(ItemBlock, group)
    return known[0] if known else None, of_kind(PartialSums, group)
