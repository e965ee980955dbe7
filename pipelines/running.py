"""Running a pipeline from the command line: the default runner, progress, and errors as one line."""

from __future__ import annotations

import argparse
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NoReturn, TextIO

import apache_beam as beam
from apache_beam.options.pipeline_options import PipelineOptions, StandardOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_dp.errors import InputError

EXIT_BAD_INPUT = 2

_BUNDLES = "apache_beam.runners.portability.fn_api_runner.fn_runner.run_bundle"
_FAILURES = "apache_beam.runners.common"
_STEP = re.compile(r" \[while running '.*$", re.DOTALL)

PHASES: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"Round(\d+)/RemoveFound/ToUsers/GroupByShard/Read"), "round {}: removing found items"),
    (re.compile(r"Round(\d+)/Weights/RerouteToItems/GroupByShard/Read"), "round {}: noise and threshold"),
    (re.compile(r"Round(\d+)/Weights/ToUsers/GroupByShard/Read"), "round {}: rerouting excess weight"),
    (re.compile(r"Round(\d+)/Weights/ToItems/GroupByShard/Read"), "round {}: summing weights by item"),
    (re.compile(r"Round(\d+)/Weights/Keep(\d+)/GroupByShard/Read"), "round {}: pass {}, items fill"),
    (re.compile(r"Round(\d+)/Weights/Send(\d+)/GroupByShard/Read"), "round {}: pass {}, users send on"),
    (re.compile(r"GroupByUserShard/Read"), "building user blocks"),
    (re.compile(r"SplitByUser"), "reading the input"),
    (re.compile(r"FinalizeWrite"), "writing the result"),
)
"""What the runner's stages do, told by the label under which each begins; the first match counts."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line, as all errors of a command line here."""

    def error(self, message: str) -> NoReturn:
        """Print the line and exit."""
        self.exit(EXIT_BAD_INPUT, f"error: {message}; --help lists the options\n")


def beam_options(arguments: list[str]) -> PipelineOptions:
    """Parse the options that are Beam's.

    Beam drops what it does not know with a log line. Locally everything is known, so that a misspelt option
    is an error here; other runners have options of their own.

    Raises:
        ValueError: for an unknown option in a local run.
    """
    options = PipelineOptions(arguments)
    if is_local(options):
        parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, conflict_handler="resolve")
        for kind in PipelineOptions.__subclasses__():
            kind._add_argparse_args(parser)
        unknown = parser.parse_known_args(arguments)[1]
        if unknown:
            raise ValueError(
                f"options must be this pipeline's or Beam's, got {' '.join(unknown)}; "
                "--help lists this pipeline's"
            )
    return options


def is_local(options: PipelineOptions) -> bool:
    """Tell whether no runner was asked for; then the in-process one is used.

    Beam's own default, DirectRunner, first tries to download another runner.
    """
    return options.view_as(StandardOptions).runner is None


def run(pipeline: beam.Pipeline, options: PipelineOptions) -> None:
    """Run a pipeline to its end; on Dataflow, only start it, as a template's launcher must.

    Raises:
        InputError: for bad data, from the in-process runner; others may wrap it in an error of their own.
        RuntimeError: in place of any other ValueError, whose message may quote data.
    """
    try:
        result = pipeline.run()
        if options.view_as(StandardOptions).runner != "DataflowRunner":
            result.wait_until_finish()
    except InputError:
        raise
    except ValueError as error:
        raise RuntimeError("the pipeline failed") from error


def make_pipeline(options: PipelineOptions) -> beam.Pipeline:
    """Return a pipeline on the runner asked for, or the in-process one."""
    return beam.Pipeline(runner=FnApiRunner() if is_local(options) else None, options=options)


def exit_code(main: Callable[[], None]) -> int:
    """Call `main` and return 0; on bad input print one line and return 2. Other errors pass.

    Bad input is a ValueError while the pipeline is built, or an InputError while it runs; neither contains
    data.
    """
    try:
        with _without_traceback_of_input_errors():
            main()
    except ValueError as error:  # InputError is one
        print(f"error: {_STEP.sub('', str(error))}", file=sys.stderr)
        return EXIT_BAD_INPUT
    except Exception as error:
        found = re.search(r"InputError: (.*?)(?: \[while running|\\n|\n|$)", str(error))
        if found is None:
            raise
        print(f"error: {found.group(1)}", file=sys.stderr)
        return EXIT_BAD_INPUT
    return 0


class Progress(logging.Handler):
    """Prints what a local run is doing and the seconds since it began: names of phases, nothing from data."""

    def __init__(self, stream: TextIO, clock: Callable[[], float] = time.monotonic):
        super().__init__(logging.DEBUG)
        self._stream = stream
        self._clock = clock
        self._start = clock()
        self._phase = ""

    def emit(self, record: logging.LogRecord) -> None:
        """Look at the stage that begins; its data, also in the record, is never formatted."""
        if not str(record.msg).startswith("Running bundle for stage") or not isinstance(record.args, tuple):
            return
        stage = str(record.args[0]).replace("-", "/")
        for pattern, text in PHASES:
            if found := pattern.search(stage):
                self.show(text.format(*found.groups()))
                return

    def show(self, phase: str) -> None:
        """Print a phase once, when it begins."""
        if phase != self._phase:
            self._phase = phase
            print(f"[{self._clock() - self._start:6.1f} s] {phase}", file=self._stream, flush=True)


@contextmanager
def showing_progress(stream: TextIO) -> Iterator[None]:
    """Show the progress of the in-process runner, which tells its stages to a logger only."""
    logger = logging.getLogger(_BUNDLES)
    handler = Progress(stream)
    level, propagate = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    try:
        yield
        handler.show("done")
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate


@contextmanager
def _without_traceback_of_input_errors() -> Iterator[None]:
    """Keep the runner from logging a page of traceback before our one line."""

    def keep(record: logging.LogRecord) -> bool:
        return record.exc_info is None or not isinstance(record.exc_info[1], InputError)

    logger = logging.getLogger(_FAILURES)
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)
