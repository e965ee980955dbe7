"""DecodeItems: the exit. Item blocks -> the released items as elements."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import apache_beam as beam
from apache_beam import coders

from beam_dp.core.blocks import ItemBlock
from beam_dp.errors import InputError


class DecodeItems(beam.PTransform):
    """Item blocks after `AddNoiseThreshold` -> the items found, in this or an earlier round.

    Args:
        coder: the Beam coder of the items that were encoded; text by default, which is also what pair
            tables of strings or integers give.
    """

    def __init__(self, coder: coders.Coder | None = None):
        super().__init__()
        self._coder = coder or coders.StrUtf8Coder()

    def expand(self, items: beam.PCollection) -> beam.PCollection:
        """Decode every block's found items."""
        decode = _Decode(self._coder)
        return items | "Decode" >> beam.ParDo(decode).with_output_types(self._coder.to_type_hint())


class _Decode(beam.DoFn):
    def __init__(self, coder: coders.Coder):
        self._coder = coder

    def process(self, element: ItemBlock) -> Iterator[Any]:
        if element.found is None:
            raise ValueError("DecodeItems must come after AddNoiseThreshold, got item blocks without noise")
        for key in element.keys.take(element.found.nonzero()[0]).to_bytes():
            try:
                yield self._coder.decode(key)
            except UnicodeDecodeError:
                raise InputError(
                    "item must be UTF-8 text where it comes from a pair table, got at least one that is not; "
                    "encode such items as text first, for instance in base64"
                ) from None
