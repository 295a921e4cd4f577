"""``ottla pipeline test FILE``: run the stored test cases of pipelines on Spark and an embedded broker."""

from __future__ import annotations

import argparse
import logging
import os
import select
import sys
import time
from argparse import Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ottla.cli.options import UsageError, add_json_option, parse_setting, settings
from ottla.cli.pipeline.run import RunError
from ottla.cli.terminal import note, plural, print_json
from ottla.errors import OttlaError
from ottla.spark.pipelines.declaration import DeclarationError
from ottla.spark.pipelines.exit_codes import WRONG
from ottla.spark.pipelines.failures import cause_of
from ottla.testing.pipelines.cases import NoCases, case_files
from ottla.testing.pipelines.running import Bench
from ottla.testing.pipelines.suites import Loaded, Outcome, forget_modules, load_case, run_case

FAILED = 1
LOOK_SECONDS = 0.3
_WATCHED = (".toml", ".py", ".sql", ".ddl", ".txt", ".json", ".jsonl", ".csv", ".avsc")

EPILOG = """\
A case is a file such as orders.tests/late.toml next to orders.toml. It has the records of every micro-batch and the
expected rows of the sinks:

  [[batch]]
  orders = [{id = 1, total = 9.5}, 'not JSON']

  [expected]
  table = [{id = 1, total = 9.5}]
  dead_letters = [{value = "not JSON", reason = "malformed JSON"}]

The pipeline runs unchanged on Spark, with an embedded broker and temporary directories. No other system is used: sinks
for databases, delta, iceberg and the console are not written, their rows are compared.

exit codes: 0 all cases passed; 1 a case failed; 2 wrong usage, or problems in a pipeline or a case

examples:
  ottla pipeline test orders.toml
  ottla pipeline test orders.toml --case late --case broken
  ottla pipeline test pipelines/*.toml                          in CI
  ottla pipeline test orders.toml --watch                       again after each change, without starting Spark again
  ottla pipeline test orders.toml --update                      accept the actual rows
"""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    parser.add_argument("files", metavar="FILE", type=Path, nargs="+", help="a pipeline with tests next to it")
    parser.add_argument("--case", action="append", default=[], metavar="NAME", help="run only this case; repeatable")
    parser.add_argument("--update", action="store_true", help="write the actual rows into the cases as expected rows")
    parser.add_argument("--watch", action="store_true", help="run again when a file changes, or on Enter")
    parser.add_argument(
        "--conf", type=parse_setting, action="append", metavar="NAME=VALUE", help="a Spark setting; repeatable"
    )
    add_json_option(parser)
    parser.set_defaults(run=run)


def run(args: Namespace) -> int:
    if args.watch and args.json:
        raise UsageError("--watch and --json cannot be combined: a watch has no end")
    with _quiet_python(), Bench(conf=settings(args.conf)) as bench:
        return _watch(bench, args) if args.watch else _Suite(bench, args).run()


class _Suite:
    """One run of all chosen cases."""

    def __init__(self, bench: Bench, args: Namespace) -> None:
        self._bench = bench
        self._args = args
        self._problems: list[str] = []
        self._outcomes: list[Outcome] = []

    def run(self) -> int:
        loaded = list(self._loaded())
        if loaded:
            _start(self._bench)
        started = time.monotonic()
        for one in loaded:
            self._run(one)
        if self._args.json:
            print_json(self._as_json())
        elif loaded:
            self._print_sum(time.monotonic() - started)
        if self._problems:
            return WRONG
        return 0 if all(one.passed for one in self._outcomes) else FAILED

    def _loaded(self) -> Iterator[Loaded]:
        """All chosen cases that can run; the problems of the others are reported before Spark starts."""
        for pipeline in self._args.files:
            if not pipeline.is_file():
                self._problem(f"{pipeline}: file not found")
                continue
            try:
                files = case_files(pipeline, self._args.case)
            except NoCases as error:
                self._problem(str(error))
                continue
            for file in files:
                with self._reporting():
                    yield load_case(pipeline, file)

    def _run(self, loaded: Loaded) -> None:
        with self._reporting():
            outcome = run_case(self._bench, loaded, update=self._args.update)
            self._outcomes.append(outcome)
            if not self._args.json:
                word = "updated" if outcome.updated else "passed" if outcome.passed else "FAILED"
                print(f"{word:8}{outcome.file}  {outcome.seconds:.1f} s")
                for line in outcome.lines:
                    print(f"  {line}")
                sys.stdout.flush()

    @contextmanager
    def _reporting(self) -> Iterator[None]:
        try:
            yield
        except DeclarationError as error:
            for problem in error.problems:
                self._problem(str(problem))

    def _problem(self, text: str) -> None:
        """Report a problem once, even if several cases have it."""
        if text not in self._problems:
            self._problems.append(text)
            if not self._args.json:
                print(text, file=sys.stderr)

    def _print_sum(self, seconds: float) -> None:
        passed = sum(one.passed for one in self._outcomes)
        failed = len(self._outcomes) - passed
        parts = [f"{plural(passed, 'case')} passed", f"{failed} failed" if failed else ""]
        parts.append(plural(len(self._problems), "problem") if self._problems else "")
        print(f"{', '.join(filter(None, parts))} in {seconds:.1f} s")

    def _as_json(self) -> dict[str, object]:
        cases = [
            {
                "pipeline": one.pipeline,
                "case": one.case,
                "file": str(one.file),
                "passed": one.passed,
                "updated": one.updated,
                "seconds": round(one.seconds, 3),
                "differences": list(one.lines),
            }
            for one in self._outcomes
        ]
        return {"cases": cases, "problems": self._problems}


def _start(bench: Bench) -> None:
    """Start Spark before the first case is timed."""
    note("starting Spark ...")
    try:
        assert bench.spark is not None
    except ImportError as error:
        raise RunError(str(error)) from None
    except OttlaError:
        raise
    except Exception as error:
        raise RunError(f"could not start Spark: {cause_of(error)}") from None


@contextmanager
def _quiet_python() -> Iterator[None]:
    """Hide warnings about cases that are meant to fail."""
    loggers = [logging.getLogger(name) for name in ("py4j", "ottla")]
    before = [logger.level for logger in loggers]
    try:
        if not os.environ.get("OTTLA_DEBUG"):
            for logger in loggers:
                logger.setLevel(logging.CRITICAL + 1)
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


# ── Watching ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _watch(bench: Bench, args: Namespace) -> int:
    """Run after each change until Ctrl-C; returns the code of the last run."""
    code = 0
    try:
        while True:
            before = _state(args.files)
            for file in args.files:
                forget_modules(file.resolve().parent)
            code = _Suite(bench, args).run()
            print("waiting for a change (Enter: run again, Ctrl-C: quit)", file=sys.stderr, flush=True)
            if args.update:
                before = _state(args.files)
            _wait_for_change(args.files, before)
    except KeyboardInterrupt:
        return code


def _state(files: Sequence[Path]) -> dict[Path, int]:
    """The times of the files of pipelines and cases: everything readable next to them."""
    places = {file.resolve().parent for file in files} | {file.resolve().with_suffix(".tests") for file in files}
    found = [path for place in places if place.is_dir() for path in place.iterdir() if path.suffix in _WATCHED]
    times = {}
    for path in found:
        try:
            times[path] = path.stat().st_mtime_ns
        except FileNotFoundError:  # an editor has just replaced it
            continue
    return times


def _wait_for_change(files: Sequence[Path], before: dict[Path, int]) -> None:
    is_open = True
    while _state(files) == before:
        ready = select.select([sys.stdin] if is_open else [], [], [], LOOK_SECONDS)[0]
        if ready:
            if sys.stdin.readline():
                return
            is_open = False  # no terminal: files only
