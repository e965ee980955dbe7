"""What several test modules need: the data folder, and running a transform on a named runner."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dp.algorithms import ALGORITHMS

ALGORITHMS_AND_PROFILES = [
    (name, profile)
    for name in ALGORITHMS
    for profile in ("tight", "paper")
    # Our own algorithms have no paper to account by.
    if profile == "tight" or not name.startswith(("pooled", "parallel"))
]

_RESULTS: dict[str, list[Any]] = {}


def run(
    source: Iterable[Any],
    transform: Callable[[beam.PCollection], beam.PCollection] | beam.PTransform,
    *,
    runner: FnApiRunner | None = None,
    element_type: Any = None,
) -> list[Any]:
    """Apply a transform to elements and return what comes out (the runner works in this process)."""
    name = uuid.uuid4().hex
    elements = list(source)
    with beam.Pipeline(runner=runner or FnApiRunner()) as pipeline:
        pcoll = pipeline | "Source" >> beam.Create(elements, reshuffle=False)
        if element_type is not None:
            pcoll = pcoll | "Typed" >> beam.Map(lambda element: element).with_output_types(element_type)
        out = pcoll | "Tested" >> transform if isinstance(transform, beam.PTransform) else transform(pcoll)
        collected = out | "Collect" >> beam.combiners.ToList()
        collected | "Keep" >> beam.Map(_keep, name)
    results = _RESULTS.pop(name)
    assert len({repr(sorted(map(repr, result))) for result in results}) == 1, "a replay gave another result"
    return results[0]


def _keep(result: list[Any], name: str) -> None:
    # A function of the module: one defined in `run` would be shipped with a copy of _RESULTS.
    _RESULTS.setdefault(name, []).append(result)


def data_file(name: str) -> Path:
    """Return a real data file, or skip the test by the file's name."""
    folder = Path(os.environ.get("BEAM_DP_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = folder / name
    if not path.exists():
        pytest.skip(f"{name} is not in BEAM_DP_DATA or ../shared/data")
    return path
