"""Running from the command line: phases in order, errors as one line, and loggers as they were."""

from __future__ import annotations

import io
import logging
import re
from typing import Any

import apache_beam as beam
import pytest
from apache_beam.options.pipeline_options import DirectOptions, PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dp import InputError, RunKey, SelectPartitions
from pipelines.outputs import WriteItems
from pipelines.running import (
    _BUNDLES,
    PHASES,
    Parser,
    Progress,
    beam_options,
    exit_code,
    is_local,
    make_pipeline,
    run,
    showing_progress,
)

LOGGER = logging.getLogger(_BUNDLES)
MAD = ["summing weights by item", "rerouting excess weight", "noise and threshold"]
FILLING = [
    phase
    for number in range(1, 11)
    for phase in ([f"pass {number}, users send on"] if number > 1 else []) + [f"pass {number}, items fill"]
]
UNIFORM = ["summing weights by item"]
"""With uniform weights the noise follows in the same stage."""
FOUND = ["removing found items"]


def phases_of(algorithm: str, prefix: str) -> list[str]:
    stream = io.StringIO()
    with showing_progress(stream):
        pipeline = make_pipeline(PipelineOptions([]))
        pairs = pipeline | beam.Create([(f"user{n}", f"item{n % 5}") for n in range(60)])
        select = SelectPartitions(
            epsilon=1.0, delta=1e-2, max_degree=3, algorithm=algorithm, num_shards=2, run_key=RunKey.from_seed(1)
        )  # fmt: skip
        pairs | select | WriteItems(prefix, "text")
        run(pipeline, PipelineOptions([]))
    lines = stream.getvalue().splitlines()
    found = [re.fullmatch(r"\[( *\d+\.\d) s\] (.*)", line) for line in lines]
    seconds = [float(match[1]) for match in found]
    assert seconds == sorted(seconds)
    return [match[2] for match in found]


@pytest.mark.parametrize(
    ("algorithm", "rounds"),
    [
        ("mad2r", [MAD + FOUND, MAD]),
        ("dp_sips", [UNIFORM + FOUND, UNIFORM + FOUND, UNIFORM]),
        ("weighted_laplace", [UNIFORM]),
        ("parallel_greedy", [FILLING]),
    ],
)
def test_shows_the_phases_of_real_stages_in_order(algorithm, rounds, tmp_path):
    in_rounds = [f"round {number}: {phase}" for number, phases in enumerate(rounds, 1) for phase in phases]
    assert phases_of(algorithm, str(tmp_path / "out")) == [
        *("reading the input", "building user blocks"),
        *in_rounds,
        *("writing the result", "done"),
    ]


class Unprintable:
    """What must never be formatted."""

    def __str__(self) -> str:
        raise AssertionError("formatted")

    __repr__ = __str__


def bundle(stage: str) -> logging.LogRecord:
    message = "Running bundle for stage %s\n\tExpected outputs: %s timers: %s"
    return logging.LogRecord(LOGGER.name, logging.DEBUG, "", 0, message, (stage, Unprintable(), {}), None)


def test_progress_prints_a_phase_once_and_never_the_rest_of_the_record():
    stream = io.StringIO()
    seconds = iter([10.0, 11.25, 12.5, 3610.0])
    progress = Progress(stream, clock=lambda: next(seconds))
    progress.emit(bundle("(A/SplitByUser)+(B/FinalizeWrite)"))
    progress.emit(bundle("SplitByUser-again"))
    progress.emit(bundle("unknown"))
    progress.emit(bundle("X-Round12-Weights-ToUsers-GroupByShard-Read"))
    progress.emit(logging.LogRecord("x", logging.DEBUG, "", 0, "SplitByUser %s", (Unprintable(),), None))
    progress.emit(logging.LogRecord("x", logging.DEBUG, "", 0, "Running bundle for stage", None, None))
    progress.emit(bundle("FinalizeWrite"))
    assert stream.getvalue() == (
        "[   1.2 s] reading the input\n"
        "[   2.5 s] round 12: rerouting excess weight\n"
        "[3600.0 s] writing the result\n"
    )


def test_phases_are_texts_of_the_program_with_numbers_of_rounds_and_passes_at_most():
    for pattern, text in PHASES:
        assert text.count("{}") == pattern.groups == pattern.pattern.count(r"(\d+)")
        assert pattern.groups == 0 or r"Round(\d+)" in pattern.pattern


@pytest.mark.parametrize("failing", [False, True])
def test_showing_progress_leaves_the_logger_as_it_was(failing, monkeypatch):
    monkeypatch.setattr(LOGGER, "propagate", True)
    before = (LOGGER.level, LOGGER.propagate, list(LOGGER.handlers))
    stream = io.StringIO()
    try:
        with showing_progress(stream):
            assert not LOGGER.propagate
            if failing:
                raise InputError("bad")
    except InputError:
        pass
    assert (LOGGER.level, LOGGER.propagate, list(LOGGER.handlers)) == before
    assert ("done" in stream.getvalue()) is not failing


def raising(error: BaseException) -> Any:
    def main() -> None:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("epsilon must be > 0"), "epsilon must be > 0"),
        (InputError("line 2 of a.tsv is bad"), "line 2 of a.tsv is bad"),
        (InputError("line 2 is bad [while running 'Read/It']"), "line 2 is bad"),
        (
            RuntimeError("Traceback ...\nbeam_dp.errors.InputError: line 2 is bad [while running 'X']\n..."),
            "line 2 is bad",
        ),
        (RuntimeError("Pipeline failed: InputError: line 2 is bad\nmore"), "line 2 is bad"),
        (RuntimeError(r"Job failed: 'x.InputError: line 2 is bad\n  File ...'"), "line 2 is bad"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(error, line, capsys):
    assert exit_code(raising(error)) == 2
    assert capsys.readouterr() == ("", f"error: {line}\n")


@pytest.mark.parametrize("error", [RuntimeError("broken"), OSError("disk full"), KeyboardInterrupt()])
def test_other_errors_pass(error, capsys):
    with pytest.raises(type(error)) as caught:
        exit_code(raising(error))
    assert caught.value is error
    assert capsys.readouterr() == ("", "")


def test_success_is_exit_code_0(capsys):
    assert exit_code(lambda: None) == 0
    assert capsys.readouterr() == ("", "")


def fail(kind: type[Exception], message: str) -> None:
    def failing(_: int) -> int:
        raise kind(message)

    pipeline = make_pipeline(PipelineOptions([]))
    pipeline | beam.Create([1]) | "Fail" >> beam.Map(failing)
    run(pipeline, PipelineOptions([]))


def test_bad_data_in_a_pipeline_are_logged_without_traceback(capsys, caplog):
    assert exit_code(lambda: fail(InputError, "line 2 is bad")) == 2
    assert capsys.readouterr() == ("", "error: line 2 is bad\n")
    assert caplog.records == []


def test_other_failures_of_a_pipeline_are_logged_and_pass(capsys, caplog):
    with pytest.raises(Exception, match="broken"):
        exit_code(lambda: fail(TypeError, "broken"))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert "error:" not in capsys.readouterr().err


def test_a_value_error_in_a_pipeline_is_not_taken_for_bad_options(capsys):
    # Only our own messages are known to hold no data; this could be a UnicodeDecodeError that quotes some.
    with pytest.raises(RuntimeError, match=r"^the pipeline failed$") as caught:
        exit_code(lambda: fail(ValueError, "quotes the data"))
    assert "quotes the data" in str(caught.value.__cause__)
    assert "error:" not in capsys.readouterr().err


class FakeResult:
    def __init__(self, waits: list[bool]) -> None:
        self._waits = waits

    def wait_until_finish(self) -> None:
        self._waits.append(True)


@pytest.mark.parametrize(
    ("runner", "waits"), [("DataflowRunner", []), ("FlinkRunner", [True]), (None, [True])]
)
def test_waits_for_the_end_but_not_on_dataflow(runner, waits):
    waited: list[bool] = []

    class FakePipeline:
        def run(self) -> FakeResult:
            return FakeResult(waited)

    options = PipelineOptions([] if runner is None else [f"--runner={runner}"])
    run(FakePipeline(), options)  # type: ignore[arg-type]
    assert waited == waits


def test_beam_options_are_parsed():
    options = beam_options(["--direct_num_workers=2", "--direct_running_mode", "multi_threading"])
    assert options.view_as(DirectOptions).direct_num_workers == 2
    assert options.view_as(DirectOptions).direct_running_mode == "multi_threading"


@pytest.mark.parametrize(
    "arguments", [["--epsilo=1"], ["stray"], ["--direct_num_worker=2"], ["--direct_num_workers=2", "-x", "3"]]
)
def test_unknown_options_of_a_local_run_are_errors(arguments):
    unknown = [argument for argument in arguments if argument != "--direct_num_workers=2"]
    with pytest.raises(ValueError) as caught:
        beam_options(arguments)
    assert str(caught.value) == (
        f"options must be this pipeline's or Beam's, got {' '.join(unknown)}; --help lists this pipeline's"
    )


def test_unknown_options_are_left_to_a_runner_that_was_asked_for():
    options = beam_options(["--runner=FlinkRunner", "--option_of_flink=3"])
    assert not is_local(options)


def test_the_default_runner_is_the_one_in_this_process():
    options = PipelineOptions([])
    assert is_local(options)
    assert isinstance(make_pipeline(options).runner, FnApiRunner)


def test_errors_of_options_are_one_line_and_exit_code_2(capsys):
    parser = Parser(prog="x")
    parser.add_argument("--number", type=int, required=True)
    for arguments, problem in (
        ([], "the following arguments are required: --number"),
        (["--number=one"], "argument --number: invalid int value: 'one'"),
    ):
        with pytest.raises(SystemExit) as caught:
            parser.parse_args(arguments)
        assert caught.value.code == 2
        assert capsys.readouterr() == ("", f"error: {problem}; --help lists the options\n")
