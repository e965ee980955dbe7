r"""Which items of private (user, item) data may be published: the main job, from file to file.

python -m pipelines.partition_selection --input PATH --output PREFIX --epsilon 1 --delta 1e-5 --max_degree 100
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from typing import Any

from apache_beam.io.filesystems import FileSystems
from apache_beam.options.pipeline_options import PipelineOptions

import beam_dp
from beam_dp import io
from beam_dp.algorithms import ALGORITHMS, Algorithm
from pipelines.inputs import add_input_arguments, default_num_shards, read_pairs
from pipelines.outputs import (
    SUFFIXES,
    WriteItems,
    WriteReport,
    check_targets,
    remove_results,
    removing_unfinished,
    results,
)
from pipelines.running import Parser, beam_options, exit_code, is_local, make_pipeline, run, showing_progress


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the pipeline; return the exit code, or exit with it: 0, or 2 for bad options or input."""
    given, beam_arguments = make_parser().parse_known_args(arguments)
    return exit_code(lambda: _run(given, beam_options(beam_arguments)))


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of this pipeline's own options; what it leaves are Beam's."""
    parser = Parser(
        prog="python -m pipelines.partition_selection",
        description="Publish which items exist in private (user, item) data, under (epsilon, delta) "
        "user-level differential privacy. Every Beam option (--runner and so on) works beside these.",
        allow_abbrev=False,
    )
    add_input_arguments(parser)
    group = parser.add_argument_group("partition selection")
    group.add_argument("--output", required=True, help="prefix of the result files PREFIX-*.txt")
    group.add_argument("--output_format", choices=tuple(SUFFIXES), default="text")
    group.add_argument("--epsilon", type=float, required=True, help="privacy parameter > 0")
    group.add_argument("--delta", type=float, required=True, help="in (0, 1), well below 1 / number of users")
    group.add_argument("--max_degree", type=int, required=True, help="how many items of one user count")
    group.add_argument("--algorithm", choices=tuple(ALGORITHMS), default="pooled_gaussian")
    group.add_argument(
        "--profile", choices=("tight", "paper"), default="tight", help="accounting; default tight"
    )
    group.add_argument("--budget_split", help="shares of the rounds, such as 0.1,0.9; they sum to 1")
    group.add_argument(
        "--max_adaptive_degree",
        type=int,
        help="of MAD's algorithms; default 50 or max_degree if less",
    )
    group.add_argument("--report", help="write the guarantee and all parameters to this JSON file")
    group.add_argument(
        "--seed", type=int, help="repeatable test runs only: the output is NOT private, the noise is known"
    )
    return parser


def _run(given: argparse.Namespace, options: PipelineOptions) -> None:
    run_key = None if given.seed is None else beam_dp.RunKey.from_seed(given.seed)
    select = beam_dp.SelectPartitions(
        epsilon=given.epsilon,
        delta=given.delta,
        max_degree=given.max_degree,
        algorithm=chosen_algorithm(given),
        profile=given.profile,
        num_shards=default_num_shards(given),
        run_key=run_key,
    )
    report = {**select.plan.report(), "version": beam_dp.__version__}
    if given.seed is not None:
        report["seeded"] = "NOT PRIVATE: run with a seed, for tests"
        print("warning: --seed is for tests; this output is NOT private", file=sys.stderr)

    pipeline = make_pipeline(options)
    items = pipeline | "ReadPairs" >> read_pairs(given) | "SelectPartitions" >> select
    items | "WriteItems" >> WriteItems(given.output, given.output_format)
    if given.report is not None:
        items | "WriteReport" >> WriteReport(given.report, report)
    inputs = [path for path, _ in io.check_readable(given.input)]
    check_targets(given.output, given.output_format, given.report, inputs)
    remove_results(given.output, given.output_format, given.report)
    with removing_unfinished(given.output, given.report):
        if is_local(options):
            with showing_progress(sys.stderr):
                run(pipeline, options)
        else:
            run(pipeline, options)
    if is_local(options):
        print(_summary(given, report))


def chosen_algorithm(given: argparse.Namespace) -> Algorithm:
    """Return the algorithm with the options that belong to it.

    Raises:
        ValueError: for an option that the algorithm would ignore.
    """
    kind = ALGORITHMS[given.algorithm]
    parameters: dict[str, Any] = {}
    for name in ("budget_split", "max_adaptive_degree"):
        value = getattr(given, name)
        if value is None:
            continue
        if name not in kind.__dataclass_fields__:
            users = [other.name for other in ALGORITHMS.values() if name in other.__dataclass_fields__]
            raise ValueError(
                f"{name} must be given with algorithm {' or '.join(users)} only, got algorithm "
                f"{kind.name}; leave it out or choose one of these"
            )
        parameters[name] = _shares(value) if name == "budget_split" else value
    return kind(**parameters)


def _shares(text: str) -> tuple[float, ...]:
    try:
        return tuple(float(share) for share in text.split(","))
    except ValueError:
        raise ValueError(
            f"budget_split must be numbers separated by commas, got {text!r}; give for instance 0.1,0.9"
        ) from None


def _summary(given: argparse.Namespace, report: dict[str, Any]) -> str:
    """Say what was released, under which guarantee, and where it lies."""
    files = results(given.output, given.output_format)
    lines = [
        f"guarantee  epsilon={given.epsilon:g}, delta={given.delta:g}, add or remove one user",
        f"algorithm  {report['algorithm']} ({report['profile']}), at most {given.max_degree} items of a user",
        f"result     {files[0] if len(files) == 1 else f'{given.output}-* ({len(files)} files)'}",
    ]
    if given.report is not None:
        lines.append(f"report     {given.report}")
        with FileSystems.open(given.report) as file:
            lines.insert(0, f"released   {json.load(file)['released_items']:,} items")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
