"""Partition selection by PipelineDP (https://pipelinedp.io), text in and text out, to compare with.

    python benchmarks/pipeline_dp_select.py INPUT.tsv OUTPUT

Reads `user<TAB>item` lines and writes the released items, one to a line, into one file OUTPUT. Prints one
line of JSON: `{"seconds": ..., "released": ...}`, or `{"skipped": "<why>"}` without PipelineDP.

PipelineDP needs a newer dill than some installations of Beam allow, so this file imports nothing but
`apache_beam` and `pipeline_dp` and can run with the Python of an environment that holds only these.
"""

import argparse
import json
import time
from pathlib import Path

NOT_INSTALLED = "pipeline-dp is not installed; pip install 'beam-dp[pipeline_dp]'"


def select_with_pipeline_dp(
    input_tsv: Path,
    output: Path,
    *,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    max_partitions: int = 100,
) -> float:
    """Runs PipelineDP's `select_partitions` with Gaussian thresholding; returns the wall-clock seconds.

    It samples at most `max_partitions` items of every user, counts users per item, adds Gaussian noise and
    compares with a threshold: the nearest to the weighted Gaussian, but every item weighs 1 at any degree.
    Building the pipeline is part of the time, imports are not.
    """
    import apache_beam as beam
    import pipeline_dp
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    start = time.perf_counter()
    with beam.Pipeline(runner=FnApiRunner()) as pipeline:
        rows = (
            pipeline
            | "Read" >> beam.io.ReadFromText(str(input_tsv))
            | "Split" >> beam.Map(lambda line: tuple(line.split("\t", 1)))  # (user, item)
        )
        accountant = pipeline_dp.NaiveBudgetAccountant(total_epsilon=epsilon, total_delta=delta)
        engine = pipeline_dp.DPEngine(accountant, pipeline_dp.BeamBackend())
        items = engine.select_partitions(
            rows,
            pipeline_dp.SelectPartitionsParams(
                max_partitions_contributed=max_partitions,
                partition_selection_strategy=pipeline_dp.PartitionSelectionStrategy.GAUSSIAN_THRESHOLDING,
            ),
            pipeline_dp.DataExtractors(
                privacy_id_extractor=lambda row: row[0],
                partition_extractor=lambda row: row[1],
            ),
        )
        accountant.compute_budgets()
        items | "Write" >> beam.io.WriteToText(str(output), shard_name_template="")
    return time.perf_counter() - start


def main() -> None:
    """Runs it on the files named on the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("input", type=Path, help="user<TAB>item lines")
    parser.add_argument("output", type=Path, help="the file to write")
    arguments = parser.parse_args()
    try:
        import pipeline_dp  # noqa: F401
    except ModuleNotFoundError:
        print(json.dumps({"skipped": NOT_INSTALLED}))
        return
    seconds = select_with_pipeline_dp(arguments.input, arguments.output)
    released = len(arguments.output.read_text(encoding="utf-8").splitlines())
    print(json.dumps({"seconds": round(seconds, 2), "released": released}))


if __name__ == "__main__":
    main()
