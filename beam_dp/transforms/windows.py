"""Windows: each gets a release of its own, with noise of its own, exactly once."""

from __future__ import annotations

from typing import Any

import apache_beam as beam
from apache_beam.transforms import trigger


def check_single_firing(pcoll: beam.PCollection, label: str) -> None:
    """Refuse windowings in which one window could be released more than once, or has no fixed extent.

    Raises:
        ValueError: for a merging window function (sessions), a trigger other than the default, or allowed
            lateness: each firing would publish again and spend the budget again.
    """
    windowing = pcoll.windowing
    if windowing.windowfn.is_merging():
        raise ValueError(
            f"{label} must be used in windows that do not merge, got {type(windowing.windowfn).__name__}; "
            "use FixedWindows, or apply it before the session windows"
        )
    lateness = windowing.allowed_lateness.micros / 1e6
    if not isinstance(windowing.triggerfn, trigger.DefaultTrigger) or lateness:
        raise ValueError(
            f"{label} must be used with the default trigger and no allowed lateness, got "
            f"{type(windowing.triggerfn).__name__} with allowed lateness {lateness:g}; every "
            "further firing of a window would spend its privacy budget again"
        )


def window_coder(pcoll: beam.PCollection) -> Any:
    """Return the coder whose bytes identify a window in keyed randomness; empty for the global window."""
    return pcoll.windowing.windowfn.get_window_coder()
