"""How many items every algorithm releases, on several corpora and at several epsilons.

    python -m benchmarks.utility [--data FOLDER] [--eps 0.1,1,4] [--seeds 5] [--out docs]

Delta 1e-5, cap 100, default settings of every algorithm in `beam_dp.algorithms.ALGORITHMS`, profile `tight`
unless the row says `paper`. Prints one Markdown table per epsilon and draws two figures into OUT/figures.
FOLDER holds the real data (by default what BEAM_DP_DATA names); a corpus whose file is absent is skipped.
All algorithms run in memory, on the same users' lists and with the same run keys.
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
import json
import math
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt

from beam_dp import RunKey, SelectPartitions
from beam_dp.accounting import calibrate_sigma, gaussian_threshold
from beam_dp.algorithms import ALGORITHMS
from beam_dp.baselines import UserSets, select_greedy_updates, select_policy_gaussian
from beam_dp.in_memory import select_in_memory
from beam_dp.plans import Profile, make_plan
from benchmarks.corpora import SOURCES, Corpus, Encoded, Source, write_pairs

DELTA, CAP = 1e-5, 100
PIPELINE_DP = "PipelineDP"
PIPELINE_DP_EPSILON = 1.0
PIPELINE_DP_MAX_PAIRS = 600_000
"""PipelineDP handles every pair in Python; larger corpora would take longer than all the rest."""

Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True, kw_only=True)
class Row:
    """One line of the tables."""

    name: str
    released: Callable[[Encoded, float, int], Mask]
    """(corpus, epsilon, seed) -> whether each of the block's items is released."""
    parallel: bool = True


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a row released on a corpus at an epsilon, one entry per seed."""

    counts: list[int] = field(default_factory=list)
    by_frequency: list[npt.NDArray[np.int64]] = field(default_factory=list)
    """Released items in each frequency bin, see `frequency_bins`."""

    def mean(self) -> float:
        """Return the mean number of released items."""
        return float(np.mean(self.counts))

    def cell(self) -> str:
        """Return mean and standard deviation of a run, as the tables show them."""
        if len(self.counts) == 1:
            return f"{self.counts[0]:,}"
        digits = 0 if self.mean() >= 10 else 1
        return f"{self.mean():,.{digits}f} +- {np.std(self.counts, ddof=1):.{digits}f}"


@dataclass(frozen=True, kw_only=True)
class Results:
    """All that was measured."""

    corpora: dict[str, str]
    """Name -> its line in the table of corpora."""
    in_data: dict[str, npt.NDArray[np.int64]]
    """Corpus -> items of the data in each frequency bin."""
    rows: list[str]
    sequential: set[str]
    """Those of `rows` that are no parallel algorithms."""
    measured: dict[tuple[str, str, float], Measured]
    """(corpus, row, epsilon) -> what it released."""


def default_algorithm() -> str:
    """Return the name of the algorithm that `SelectPartitions` uses if none is given."""
    default = inspect.signature(SelectPartitions).parameters["algorithm"].default
    return default if isinstance(default, str) else default.name


def rows() -> list[Row]:
    """Return the rows measured in memory; a new algorithm appears here by itself."""
    parallel = [Row(name=name, released=partial(_select, name, "tight")) for name in ALGORITHMS]
    paper = [
        Row(name=f"{name}, paper", released=partial(_select, name, "paper")) for name in ("dp_sips", "mad2r")
    ]
    sequential = [
        Row(name="Policy Gaussian (sequential)", released=_policy_gaussian, parallel=False),
        Row(name="greedy updates (sequential)", released=_greedy_updates, parallel=False),
    ]
    return [*parallel, *paper, *sequential]


def frequency_bins(frequency: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Count items by the number of users that hold them: entry k is 2^k to 2^(k + 1) - 1 users."""
    bins = np.frexp(frequency.astype(np.float64))[1] - 1
    return np.bincount(bins, minlength=1)


def measure(
    sources: Iterable[tuple[Source, Path]],
    *,
    epsilons: Sequence[float],
    seeds: int,
    progress: Callable[[str], None],
    pipeline_dp_python: str | None = None,
) -> Results:
    """Run every row on every corpus, epsilon and seed 0..seeds - 1."""
    kinds = rows()
    results = Results(
        corpora={},
        in_data={},
        rows=[row.name for row in kinds],
        sequential={row.name for row in kinds if not row.parallel},
        measured={},
    )
    if pipeline_dp_python is not None and PIPELINE_DP_EPSILON in epsilons:
        results.rows.append(PIPELINE_DP)
    for source, path in sources:
        progress(f"{source.name}: reading")
        corpus = Corpus(source, source.read(path))
        for seed in range(seeds):
            encoded = corpus.encode(seed)
            if seed == 0:
                results.corpora[source.name] = _size_line(source, encoded)
                results.in_data[source.name] = frequency_bins(encoded.frequency)
            for epsilon in epsilons:
                progress(f"{source.name}: seed {seed + 1} of {seeds}, epsilon {epsilon:g}")
                for row in kinds:
                    found = row.released(encoded, epsilon, seed)
                    cell = results.measured.setdefault((source.name, row.name, epsilon), Measured())
                    cell.counts.append(int(found.sum()))
                    cell.by_frequency.append(frequency_bins(encoded.frequency[found]))
        if PIPELINE_DP in results.rows and corpus.table.num_rows <= PIPELINE_DP_MAX_PAIRS:
            progress(f"{source.name}: PipelineDP")
            count = released_by_pipeline_dp(corpus, pipeline_dp_python or sys.executable)
            if count is not None:
                key = (source.name, PIPELINE_DP, PIPELINE_DP_EPSILON)
                results.measured[key] = Measured(counts=[count])
    return results


def released_by_pipeline_dp(corpus: Corpus, python: str) -> int | None:
    """Run PipelineDP once with another Python; None if that has no PipelineDP. Its noise takes no seed."""
    script = Path(__file__).with_name("pipeline_dp_select.py")
    with tempfile.TemporaryDirectory() as folder:
        pairs, output = Path(folder, "pairs.tsv"), Path(folder, "items")
        write_pairs(corpus.table, pairs)
        done = subprocess.run(
            [python, str(script), str(pairs), str(output)], check=True, capture_output=True, text=True
        )
    return json.loads(done.stdout.splitlines()[-1]).get("released")


def corpus_table(results: Results) -> str:
    """Return the table of the corpora's sizes."""
    head = ["| corpus | users | items | pairs | items a user | |", "|---|---|---|---|---|---|"]
    return "\n".join([*head, *results.corpora.values()])


def released_table(results: Results, epsilon: float) -> str:
    """Return the table of one epsilon; the best parallel cell of each corpus is bold."""
    corpora = list(results.corpora)
    best = {}
    for corpus in corpora:
        means = {
            name: results.measured[corpus, name, epsilon].mean()
            for name in results.rows
            if name not in results.sequential and (corpus, name, epsilon) in results.measured
        }
        best[corpus] = {name for name, mean in means.items() if mean == max(means.values())}
    lines = [f"| epsilon {epsilon:g} | {' | '.join(corpora)} |", "|---" * (len(corpora) + 1) + "|"]
    for name in results.rows:
        cells = []
        for corpus in corpora:
            measured = results.measured.get((corpus, name, epsilon))
            text = "-" if measured is None else measured.cell()
            cells.append(f"**{text}**" if name in best[corpus] else text)
        if any(cell != "-" for cell in cells):
            lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _select(name: str, profile: Profile, corpus: Encoded, epsilon: float, seed: int) -> Mask:
    plan = make_plan(epsilon=epsilon, delta=DELTA, max_degree=CAP, algorithm=name, profile=profile)
    items = select_in_memory(corpus.block, plan, RunKey.from_seed(seed))
    if items.found is None:
        raise RuntimeError(f"algorithm {name} released nothing and withheld nothing")
    return items.found[items.rows[0]]


def _policy_gaussian(corpus: Encoded, epsilon: float, seed: int) -> Mask:
    sigma = calibrate_sigma(epsilon, DELTA / 2)
    threshold = gaussian_threshold(sigma=sigma, delta=DELTA / 2, max_degree=CAP)
    sets = _sets(corpus)
    return select_policy_gaussian(*sets, sigma=sigma, threshold=threshold, max_degree=CAP, seed=seed).released


def _greedy_updates(corpus: Encoded, epsilon: float, seed: int) -> Mask:
    threshold = 1 + math.log(1 / (2 * DELTA)) / epsilon
    return select_greedy_updates(
        *_sets(corpus), laplace_scale=1 / epsilon, threshold=threshold, seed=seed
    ).released


def _sets(corpus: Encoded) -> UserSets:
    return UserSets(corpus.block.offsets, corpus.block.items, len(corpus.block.keys))


def _size_line(source: Source, corpus: Encoded) -> str:
    users, items, pairs = corpus.block.num_users, len(corpus.block.keys), len(corpus.block.items)
    return f"| {source.name} | {users:,} | {items:,} | {pairs:,} | {pairs / users:.1f} | {source.unit} |"


def _described(name: str) -> str:
    """Return an algorithm and its default settings, with three digits."""
    return re.sub(r"\d+\.\d+", lambda number: f"{float(number[0]):.3g}", repr(ALGORITHMS[name]()))


def _progress_printer() -> Callable[[str], None]:
    start = time.monotonic()
    return lambda text: print(f"[{time.monotonic() - start:5.0f} s] {text}", file=sys.stderr, flush=True)


def _epsilons(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, help="folder of the real data; default: what BEAM_DP_DATA names")
    parser.add_argument("--eps", type=_epsilons, default=[0.1, 1.0, 4.0], help="epsilons, comma-separated")
    parser.add_argument("--seeds", type=int, default=5, help="runs to average")
    parser.add_argument("--out", type=Path, default=Path("docs"), help="folder that gets figures/*.png")
    parser.add_argument(
        "--pipeline_dp_python", help="a Python that has pipeline_dp; default: this one, if it has it"
    )
    return parser


def main(argv: Sequence[str] | None = None) -> None:
    """Measure, print the tables and draw the figures."""
    from benchmarks.utility_figures import draw_by_epsilon, draw_by_frequency  # before the long work

    arguments = _parser().parse_args(argv)
    progress = _progress_printer()
    folder = arguments.data or (Path(os.environ["BEAM_DP_DATA"]) if "BEAM_DP_DATA" in os.environ else None)
    present = []
    for source in SOURCES:
        path = source.path(folder)
        if path is None:
            progress(f"{source.name}: skipped, {source.file} is not in the folder of --data or BEAM_DP_DATA")
        else:
            present.append((source, path))
    python = arguments.pipeline_dp_python
    if python is None and importlib.util.find_spec("pipeline_dp") is not None:
        python = sys.executable
    results = measure(
        present, epsilons=arguments.eps, seeds=arguments.seeds, progress=progress, pipeline_dp_python=python
    )
    print(corpus_table(results))
    print(f"\nDefault: `{_described(default_algorithm())}`")
    for epsilon in arguments.eps:
        print(f"\n{released_table(results, epsilon)}")
    figures = arguments.out / "figures"
    figures.mkdir(parents=True, exist_ok=True)
    draw_by_epsilon(results, figures / "utility_by_epsilon.png", default=default_algorithm())
    draw_by_frequency(results, figures / "utility_by_frequency.png", default=default_algorithm())
    progress("done")


if __name__ == "__main__":
    main()
