"""The two figures of the utility benchmark, readable at 800 pixels' width."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
import numpy.typing as npt
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator
from PIL import Image

if TYPE_CHECKING:
    from benchmarks.utility import Results

REFERENCE = "mad2r, paper"
CHALLENGER = "pooled_gaussian"
"""What is drawn against `REFERENCE` as long as the default is itself a MAD2R."""
FREQUENCY_CORPORA = ("Higgs", "Zipf")
"""The shortest and the longest lists; other corpora take the place of an absent one."""
FREQUENCY_EPSILON = 1.0
WIDTH, DPI = 8.0, 140
PANELS_PER_LINE = 3

# Okabe and Ito's colours, which colour-blind readers can tell apart; the marker tells each row apart as well.
STYLES: Mapping[str, tuple[str, str, str]] = {
    "pooled_gaussian": ("#0072B2", "o", "-"),
    "parallel_greedy": ("#D55E00", "s", "-"),
    "weighted_laplace": ("#E69F00", "^", "-"),
    "mad2r, paper": ("#009E73", "D", "--"),
    "dp_sips, paper": ("#CC79A7", "v", "--"),
    "auto": ("#000000", "o", ""),
}
"""The rows of the first figure: colour, marker, line. `auto` is a ring around the point of what it chose."""
OTHER_STYLE = ("#000000", "P", "-")

_SETTINGS: dict[Any, Any] = {
    "font.size": 9.5,
    "axes.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#e4e4e4",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 5,
}


def draw_by_epsilon(results: Results, path: Path, *, default: str) -> None:
    """Draw the released items against epsilon, one panel per corpus."""
    epsilons = sorted({epsilon for _, _, epsilon in results.measured})
    names = [name for name in [default, *STYLES] if name in results.rows]
    names = list(dict.fromkeys(names))
    with mpl.rc_context(_SETTINGS):
        figure, panels, legend_panel = _panels(len(results.corpora))
        for panel, corpus in zip(panels, results.corpora, strict=True):
            panel.set_title(corpus)
            for name in names:
                # A logarithmic axis has no place for 0; a mean below 1 item is not drawn.
                means = [results.measured[corpus, name, epsilon].mean() for epsilon in epsilons]
                colour, marker, line = STYLES.get(name, OTHER_STYLE)
                panel.plot(
                    epsilons,
                    [mean if mean >= 1 else math.nan for mean in means],
                    color=colour,
                    marker=marker,
                    linestyle=line,
                    fillstyle="full" if line else "none",
                    markersize=5 if line else 11,
                    label=f"{name} (default)" if name == default else name,
                )
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.xaxis.set_major_locator(FixedLocator(epsilons))
            panel.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
            panel.xaxis.set_minor_locator(NullLocator())
            _plain_counts(panel.yaxis, subs=(1, 2, 5))
            panel.set_xlabel("epsilon")
        for panel in panels[::PANELS_PER_LINE]:
            panel.set_ylabel("items released")
        handles, labels = panels[0].get_legend_handles_labels()
        legend_panel.legend(handles, labels, loc="center", frameon=False, fontsize=10, labelspacing=0.9)
        _save(figure, path)


def draw_by_frequency(results: Results, path: Path, *, default: str) -> None:
    """Draw the items in the data, and those released, by the number of users that hold them."""
    shown = CHALLENGER if default.startswith("mad2r") else default
    epsilons = {epsilon for _, _, epsilon in results.measured}
    epsilon = FREQUENCY_EPSILON if FREQUENCY_EPSILON in epsilons else max(epsilons)
    wanted = [name for name in FREQUENCY_CORPORA if name in results.corpora]
    corpora = (wanted + [name for name in results.corpora if name not in wanted])[: len(FREQUENCY_CORPORA)]
    with mpl.rc_context(_SETTINGS):
        figure = Figure(figsize=(WIDTH, 3.9), layout="constrained")
        panels = figure.subplots(1, len(corpora), squeeze=False)[0]
        for panel, corpus in zip(panels, corpora, strict=True):
            in_data = results.in_data[corpus].astype(np.float64)
            edges = 2.0 ** np.arange(len(in_data) + 1)
            panel.stairs(in_data, edges, fill=True, color="#d9d9d9", label="in the data")
            for name in (REFERENCE, shown):
                released = _mean_by_frequency(results.measured[corpus, name, epsilon].by_frequency, in_data)
                colour, _, line = STYLES.get(name, OTHER_STYLE)
                panel.stairs(
                    released,
                    edges,
                    color=colour,
                    linestyle=line or "-",
                    linewidth=2,
                    label=f"released by {name}",
                )
            panel.set_title(f"{corpus}, epsilon {epsilon:g}")
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_ylim(bottom=0.5)
            _plain_counts(panel.xaxis)
            _plain_counts(panel.yaxis)
            panel.set_xlabel("users that hold the item")
        panels[0].set_ylabel("items")
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper center", ncols=3, frameon=False)
        _save(figure, path)


def _mean_by_frequency(
    runs: list[npt.NDArray[np.int64]], in_data: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Average the runs, each as long as `in_data`."""
    return np.mean([np.pad(run, (0, len(in_data) - len(run))) for run in runs], axis=0)


def _panels(count: int) -> tuple[Figure, list[Axes], Axes]:
    """Return a figure of `count` panels and one more for the legend."""
    lines = math.ceil((count + 1) / PANELS_PER_LINE)
    figure = Figure(figsize=(WIDTH, 2.7 * lines), layout="constrained")
    cells = figure.subplots(lines, PANELS_PER_LINE, squeeze=False).ravel()
    for cell in cells[count:]:
        cell.set_axis_off()
    return figure, list(cells[:count]), cells[count]


def _plain_counts(axis: mpl.axis.Axis, subs: tuple[int, ...] = (1,)) -> None:
    """Label a logarithmic axis with 1, 10, 100, 1k, 10k and those multiples of them."""
    axis.set_major_locator(LogLocator(base=10, subs=subs, numticks=12))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(
        FuncFormatter(lambda value, _: f"{value:g}" if value < 1000 else f"{value / 1000:g}k")
    )


def _save(figure: Figure, path: Path) -> None:
    """Write a PNG of few colours, a quarter of the size of matplotlib's own."""
    canvas = FigureCanvasAgg(figure)
    figure.set_dpi(DPI)
    canvas.draw()
    picture = Image.fromarray(np.asarray(canvas.buffer_rgba())).convert("RGB")
    picture.quantize(128).save(path, optimize=True)
