"""Entries per second and peak memory of MAD from several inputs, beside NumPy in memory and PipelineDP.

    python -m benchmarks.throughput [--pipeline_dp_python PATH]

One run measures everything, each job in a process of its own that handles the data once after a small
warm-up (imports, compiled loops); the median of several turns counts. 50,000 users with about 150
Zipf-distributed items each, 7.6 million distinct pairs; then twice as many users. PipelineDP is measured
where it is installed (the extra `pipeline_dp`), or with the Python of another environment that holds it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.numpy_mad import numpy_mad
from benchmarks.synthetic import pairs, write_parquet, write_tsv, zipf_sets

NUM_USERS = 50_000
WARM_UP_PAIRS = 1_000
NUMPY = "MAD, NumPy in memory, integer keys, textbook (lexsort)"
JOBS: dict[str, str] = {
    "numpy": NUMPY,
    "numpy_tuned": "MAD, NumPy in memory, integer keys, tuned (one-key sort)",
    "parquet": "MAD, pipeline from Parquet, text out",
    "tsv": "MAD, pipeline from TSV, text out",
    "parquet_weighted_gaussian": "weighted Gaussian, pipeline from Parquet",
    "parquet_mad2r": "MAD2R, pipeline from Parquet",
    "parquet_pooled_gaussian": "pooled Gaussian (default, 6 rounds), pipeline from Parquet",
    "parquet_pooled_mad": "pooled MAD (4 rounds), pipeline from Parquet",
}


def main() -> None:
    """Measure all jobs at two sizes and print one table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--job", choices=("make", *JOBS), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--scale", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--scales", default="1,2", help="sizes, in multiples of 7.6 million pairs")
    parser.add_argument("--repeats", type=int, default=3, help="runs of each job; the median counts")
    parser.add_argument("--pipeline_dp_python", default=sys.executable)
    arguments = parser.parse_args()
    if arguments.job == "make":
        print(json.dumps({"pairs": _make_data(arguments.folder, arguments.scale)}))
        return
    if arguments.job:
        print(json.dumps({"seconds": _seconds(_job(arguments.job, arguments.folder))}))
        return
    scales = [int(scale) for scale in arguments.scales.split(",")]
    runs: dict[tuple[str, int], list[dict[str, Any]]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        sizes = {}
        for scale in scales:
            _progress(f"making {scale} x 7.6 million pairs")
            sizes[scale] = _job_child("make", Path(folder, str(scale)), f"--scale={scale}")["pairs"]
        # Sizes and jobs take turns, so that a machine that slows down meanwhile slows all of them.
        for repeat in range(arguments.repeats):
            for job, text in JOBS.items():
                for scale in scales:
                    runs[job, scale].append(_job_child(job, Path(folder, str(scale))))
                    seconds = runs[job, scale][-1]["seconds"]
                    _progress(f"{repeat + 1}/{arguments.repeats}: {scale} x {text}: {seconds:.2f} s")
        other = _pipeline_dp(arguments.pipeline_dp_python, Path(folder, str(scales[0])))
    results = {
        key: sorted(done, key=lambda run: run["seconds"])[len(done) // 2] for key, done in runs.items()
    }
    _print_table(scales, sizes, results, other)


def _make_data(folder: Path, scale: int) -> int:
    folder.mkdir()
    users, items = pairs(zipf_sets(num_users=NUM_USERS * scale))
    np.savez(folder / "pairs.npz", users=users, items=items)
    for name, count in (("all", len(users)), ("few", WARM_UP_PAIRS)):
        write_tsv(folder / f"{name}.tsv", users[:count], items[:count])
        write_parquet(folder / f"{name}.parquet", users[:count], items[:count])
    return len(users)


def _job(name: str, folder: Path) -> Callable[[], object]:
    """Return the work to measure, warmed up."""
    if name.startswith("numpy"):
        with np.load(folder / "pairs.npz") as data:
            users, items = data["users"], data["items"]
        textbook = name == "numpy"
        numpy_mad(users[:WARM_UP_PAIRS], items[:WARM_UP_PAIRS], textbook=textbook)
        return lambda: numpy_mad(users, items, textbook=textbook)
    from pipelines.partition_selection import main as select

    kind, _, algorithm = name.partition("_")

    def run(data: str) -> None:
        arguments = f"--input {folder / data}.{kind} --input_format {kind} --output {folder / name} "
        arguments += f"--epsilon 1 --delta 1e-5 --max_degree 100 --algorithm {algorithm or 'mad'}"
        if select(arguments.split()) != 0:
            raise RuntimeError(f"the job {name} failed")

    run("few")
    return lambda: run("all")


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _job_child(job: str, folder: Path, *more: str) -> dict[str, Any]:
    return _child(
        [sys.executable, "-m", "benchmarks.throughput", "--job", job, "--folder", str(folder), *more]
    )


def _child(command: list[str], environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Run a command that prints JSON last; add the peak memory of its process, imports included."""
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment)
        output = process.stdout.read() if process.stdout else ""
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)  # already waited for
        if process.returncode:
            errors.seek(0)
            raise RuntimeError(f"{' '.join(command)} failed:\n{errors.read()[-2000:]}")
    return {**json.loads(output.splitlines()[-1]), "peak_mb": usage.ru_maxrss / 1024}


def _pipeline_dp(python: str, folder: Path) -> dict[str, Any]:
    _progress("PipelineDP, if installed (about a minute)")
    script = Path(__file__).with_name("pipeline_dp_select.py")
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return _child(
        [python, str(script), str(folder / "all.tsv"), str(folder / "pipeline_dp.txt")], environment
    )


def _print_table(
    scales: list[int], sizes: dict[int, int], results: dict[tuple[str, int], Any], other: dict[str, Any]
) -> None:
    first, last = scales[0], scales[-1]
    yardstick = results["numpy", first]["seconds"]
    more_data = f"{last // first} x data: s"
    print(f"| {sizes[first]:,} pairs | s | pairs/s | x NumPy | peak MB | {more_data} | ratio | peak MB |")
    print("|---|---|---|---|---|---|---|---|")
    for job, text in JOBS.items():
        one, more = results[job, first], results[job, last]
        print(
            f"| {text} | {one['seconds']:.2f} | {sizes[first] / one['seconds']:,.0f} "
            f"| {one['seconds'] / yardstick:.2f} | {one['peak_mb']:,.0f} | {more['seconds']:.2f} "
            f"| {more['seconds'] / one['seconds']:.2f} | {more['peak_mb']:,.0f} |"
        )
    if "skipped" in other:
        print(f"| PipelineDP: {other['skipped']} | | | | | | | |")
    else:
        seconds = other["seconds"]
        print(
            f"| PipelineDP select_partitions, text to text | {seconds:.2f} "
            f"| {sizes[first] / seconds:,.0f} | {seconds / yardstick:.2f} | {other['peak_mb']:,.0f} | | | |"
        )
        print(f"\nFrom TSV, {seconds / results['tsv', first]['seconds']:.1f} times as fast as PipelineDP.")
    print()
    for job in ("parquet", "tsv"):
        one, more = results[job, first]["seconds"], results[job, last]["seconds"]
        if last > first:
            marginal = (more - one) / (sizes[last] - sizes[first])
            print(
                f"{JOBS[job]}: {one - marginal * sizes[first]:.2f} s fixed "
                f"and {marginal * 1e9:.0f} ns a pair."
            )


def _progress(text: str) -> None:
    print(f"[{time.perf_counter() - _START:6.1f} s] {text}", file=sys.stderr, flush=True)


_START = time.perf_counter()

if __name__ == "__main__":
    main()
