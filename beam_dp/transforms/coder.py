"""The coder of all blocks, registered on import."""

from __future__ import annotations

import apache_beam as beam

from beam_dp.core import blocks


class BlockCoder(beam.coders.Coder):
    """Ships a block as its arrays' bytes, each copied once; see `beam_dp.core.blocks.encode`.

    It is not deterministic on purpose: a block must never be a key.
    """

    def encode(self, value: blocks.Block) -> bytes:
        """Serialise a block."""
        return blocks.encode(value)

    def decode(self, encoded: bytes) -> blocks.Block:
        """Restore a block."""
        return blocks.decode(encoded)

    def estimate_size(self, value: blocks.Block) -> int:
        """Return the size without copying the arrays, which Beam's own way, encoding, would."""
        return blocks.encoded_size(value)

    def is_deterministic(self) -> bool:
        """Tell Beam not to group by blocks."""
        return False

    def to_type_hint(self) -> type:
        """Return the common base of all blocks."""
        return blocks.Block


for _kind in (
    blocks.Block,
    blocks.Pairs,
    blocks.UserBlock,
    blocks.PartialSums,
    blocks.Answers,
    blocks.ItemBlock,
):
    beam.coders.registry.register_coder(_kind, BlockCoder)

KeyedBlock = tuple[int, blocks.Block]
"""What every exchange groups: (shard, a block or message for it)."""
