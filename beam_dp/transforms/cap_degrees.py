"""CapDegrees: bound how many items of each user count."""

from __future__ import annotations

import apache_beam as beam

from beam_dp import checks
from beam_dp.core.blocks import UserBlock
from beam_dp.core.capping import cap_degrees


class CapDegrees(beam.PTransform):
    """User blocks -> user blocks in which each user keeps a random subset of at most `max_degree` items.

    The subset is each user's first items by their persistent priorities; see
    `beam_dp.core.capping.cap_degrees`.
    """

    def __init__(self, max_degree: int):
        super().__init__()
        self._max_degree = checks.max_degree(max_degree)

    def expand(self, users: beam.PCollection) -> beam.PCollection:
        """Cap every block."""
        max_degree = self._max_degree
        return users | "Cap" >> beam.Map(lambda block: cap_degrees(block, max_degree)).with_output_types(
            UserBlock
        )

    def display_data(self) -> dict[str, int]:
        """Show the cap on the job page."""
        return {"max_degree": self._max_degree}
