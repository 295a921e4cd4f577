"""``ottla pipeline run FILE``: all flows of a pipeline on Spark, with progress, until they are done or it is stopped.

Exit codes, for schedulers:

    0    done: with --once, or a trigger that ends, everything that was there is processed
    1    failed: one flow failed, and the others were stopped
    2    wrong usage, or the declaration has problems; Spark was not started
    3    the pipeline runs already with this checkpoint
    130  stopped by Ctrl-C (SIGINT), cleanly
    143  stopped by SIGTERM, cleanly
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.options import not_negative, parse_setting, settings
from ottla.cli.pipeline_common import add_cluster, add_file, declared, telling_problems
from ottla.cli.pipeline_display import LINE_SECONDS, Display, JsonLines, Lines, Silence, Table, summary
from ottla.cli.terminal import note
from ottla.errors import OttlaError
from ottla.spark.pipelines.compile import compile_pipeline
from ottla.spark.pipelines.declaration import ConsoleSink, DeadLetters, DeclarationError, Pipeline
from ottla.spark.pipelines.failures import Failure, cause_of
from ottla.spark.pipelines.metrics import MetricsServer, render, write_file
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.run_lock import AlreadyRunning, local_path, run_lock
from ottla.spark.pipelines.runner import (
    GRACE_SECONDS,
    Ending,
    Runner,
    Stop,
    commit_groups,
    handle_signals,
    listen,
)
from ottla.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS_ALREADY = 3
LOG = "spark.log"
_ENDING = ("available-now", "once")
METRICS_SECONDS = 1.0

EPILOG = """\
Stop it with Ctrl-C or SIGTERM: the running micro-batch is finished (or given up after --stop-timeout, and done again
at the next start), offsets are committed, and the next run goes on from there. A second signal ends it at once, which
loses nothing either.

exit codes:
  0    done: with --once, or a trigger that ends, what was there is processed
  1    failed: a flow failed, the others were stopped; one or two lines on stderr say why, OTTLA_DEBUG=1 shows all
  2    wrong usage, or the declaration has problems; Spark was not started
  3    the pipeline runs already with this checkpoint
  130  stopped by Ctrl-C (SIGINT)
  143  stopped by SIGTERM

examples:
  ottla pipeline run orders.toml                              until it is stopped
  ottla pipeline run orders.toml --once                       what is there now, from cron for instance
  ottla pipeline run orders.toml --master spark://host:7077   on a cluster
  ottla pipeline run orders.toml --json | jq .rows
  ottla pipeline run orders.toml --metrics-port 9464          for Prometheus
"""


class RunError(OttlaError):
    """The pipeline cannot be run here."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = EPILOG
    add_file(parser)
    add_cluster(parser)
    parser.add_argument("--master", metavar="URL", help="the master of a Spark cluster (default: local[*])")
    parser.add_argument(
        "--conf",
        type=parse_setting,
        action="append",
        metavar="NAME=VALUE",
        help="Spark's configuration, such as spark.driver.memory=2g; goes before that of the file",
    )
    parser.add_argument("--once", action="store_true", help="process what is there now, and end")
    parser.add_argument("--json", action="store_true", help="print a JSON object a micro-batch")
    parser.add_argument("-q", "--quiet", action="store_true", help="no progress")
    parser.add_argument(
        "--interval",
        type=not_negative,
        default=LINE_SECONDS,
        metavar="SECONDS",
        help="where stderr is no terminal: at most one line a flow in so many seconds (10)",
    )
    parser.add_argument(
        "--stop-timeout",
        type=not_negative,
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help="how long a stop waits for the running micro-batch (30)",
    )
    parser.add_argument(
        "--metrics-port",
        type=not_negative,
        metavar="PORT",
        help="serve metrics for Prometheus at http://127.0.0.1:PORT/metrics (0: any free port)",
    )
    parser.add_argument(
        "--metrics-file", type=Path, metavar="FILE", help="write them to a file for the textfile collector"
    )
    parser.add_argument("--log", type=Path, metavar="FILE", help=f"Spark's log (default: {LOG} below the checkpoint)")
    parser.set_defaults(run=run)


@telling_problems
def run(args: Namespace) -> int:
    pipeline = declared(args)
    try:
        with run_lock(pipeline.path(pipeline.checkpoint)):
            return _Run(args, pipeline).run()
    except AlreadyRunning as error:
        print(f"ottla: error: {error}", file=sys.stderr)
        return RUNS_ALREADY


class _Run:
    def __init__(self, args: Namespace, pipeline: Pipeline) -> None:
        self._args = args
        self._pipeline = pipeline
        self._stop = Stop()
        self._log = args.log or _log_path(pipeline)
        self._board = Board(pipeline.name, [])
        self._display = self._chosen_display()
        self._next_metrics = 0.0

    def run(self) -> int:
        with ExitStack() as stack:
            stack.callback(handle_signals(self._stop, at_once=_leave))
            _keep_python_quiet(self._log, stack)
            note("starting Spark ...")
            spark = self._session(stack)
            # Spark has put a handler of its own into the place of ours.
            stack.callback(handle_signals(self._stop, at_once=_leave))
            flows = self._flows(spark)
            self._board = Board(
                self._pipeline.name,
                [flow.name for flow in flows],
                dead_letters={flow.name for flow in flows if isinstance(flow.sink, DeadLetters)},
            )
            listener = listen(spark, self._board)
            stack.callback(_quietly, spark.streams.removeListener, listener)
            self._serve_metrics(stack)
            runner = Runner(
                flows,
                self._board,
                stop=self._stop,
                ends=self._args.once or self._pipeline.trigger in _ENDING,
                grace=self._args.stop_timeout,
                tick=self._tick,
            )
            ending = runner.run()
            if ending.failure is None:
                commit_groups(self._pipeline, flows, runner.queries)
            self._tick()
            self._display.close(self._board)
        self._report(ending)
        return ending.code

    # ── Before ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _session(self, stack: ExitStack) -> SparkSession:
        conf = {**self._pipeline.spark, **settings(self._args.conf)}
        master = self._args.master or conf.pop("spark.master", "local[*]")
        conf.pop("spark.master", None)
        has_console = any(isinstance(sink, ConsoleSink) for sink in self._pipeline.sinks)
        try:
            with _noise_to(self._log, standard_output=not has_console):
                spark = session(
                    self._pipeline.name, master=master, conf={**_defaults(master), **conf}, log_level="warn"
                )
        except ImportError as error:
            raise RunError(str(error)) from None
        except Exception as error:
            if isinstance(error, OttlaError):
                raise
            _debug(str(error))
            raise RunError(f"Spark did not start: {cause_of(error)}. See {self._log}") from None
        stack.callback(_quietly, spark.stop)
        return spark

    def _flows(self, spark: SparkSession) -> list[Any]:
        try:
            return list(compile_pipeline(self._pipeline, spark, trigger="available-now" if self._args.once else None))
        except (OttlaError, DeclarationError):
            raise
        except Exception as error:
            _debug(str(error))
            raise RunError(f"Spark cannot run the pipeline: {cause_of(error)}") from None

    def _chosen_display(self) -> Display:
        if self._args.json:
            return JsonLines()
        if self._args.quiet:
            return Silence()
        has_console = any(isinstance(sink, ConsoleSink) for sink in self._pipeline.sinks)
        if sys.stderr.isatty() and not has_console:
            return Table()
        return Lines(interval=self._args.interval)

    def _serve_metrics(self, stack: ExitStack) -> None:
        if self._args.metrics_file is not None:
            stack.callback(lambda: write_file(self._args.metrics_file, render(self._board)))
        if self._args.metrics_port is not None:
            server = stack.enter_context(MetricsServer(lambda: render(self._board), self._args.metrics_port))
            print(f"metrics at http://127.0.0.1:{server.port}/metrics", file=sys.stderr, flush=True)

    # ── Meanwhile and after ───────────────────────────────────────────────────────────────────────────────────────

    def _tick(self) -> None:
        self._display.show(self._board)
        if self._args.metrics_file is not None and time.monotonic() >= self._next_metrics:
            self._next_metrics = time.monotonic() + METRICS_SECONDS
            write_file(self._args.metrics_file, render(self._board))

    def _report(self, ending: Ending) -> None:
        if isinstance(self._display, JsonLines):
            failure = ending.failure
            fields = (
                {} if failure is None else {"flow": failure.flow, "cause": failure.cause, "reading": failure.reading}
            )
            self._display.tell(ending.word, pipeline=self._pipeline.name, exit_code=ending.code, **fields)
        elif not self._args.quiet:
            print(summary(self._board))
        for name in ending.given_up:
            note(f"flow {name}: its running batch was given up; the next run does it again")
        if ending.failure is not None:
            self._tell(ending.failure)

    def _tell(self, failure: Failure) -> None:
        sys.stdout.flush()
        for line in failure.lines:
            print(f"ottla: error: {line}", file=sys.stderr)
        _debug(failure.details)
        print(f"ottla: Spark's log is {self._log}", file=sys.stderr)


def _log_path(pipeline: Pipeline) -> Path:
    directory = local_path(pipeline.path(pipeline.checkpoint))
    if directory is None:
        return Path(tempfile.gettempdir()) / f"ottla-{pipeline.name}-{os.getpid()}.log"
    return directory / LOG


def _defaults(master: str) -> Mapping[str, str]:
    """Settings for a pipeline; the file and --conf go before them."""
    found = {"spark.sql.streaming.stopTimeout": "20s", "spark.sql.streaming.numRecentProgressUpdates": "10"}
    if master.startswith("local"):
        # 200 partitions of state, Spark's default, are for clusters; and nobody looks at the UI of a command.
        found |= {"spark.sql.shuffle.partitions": str(max(os.cpu_count() or 2, 2)), "spark.ui.enabled": "false"}
    return found


@contextmanager
def _noise_to(log: Path, *, standard_output: bool) -> Iterator[None]:
    """Let what Java and the Python workers write go to a file: they keep the files that they were started with."""
    sys.stdout.flush()
    sys.stderr.flush()
    numbers = (1, 2) if standard_output else (2,)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        file = log.open("ab")
    except OSError as error:
        raise RunError(f"Spark's log cannot be written to {log}: {error.strerror}") from None
    saved = {number: os.dup(number) for number in numbers}
    try:
        for number in numbers:
            os.dup2(file.fileno(), number)
        yield
    finally:
        file.close()
        for number, copy in saved.items():
            os.dup2(copy, number)
            os.close(copy)


def _keep_python_quiet(log: Path, stack: ExitStack) -> None:
    """Warnings of this process go to the log too, not between the lines of the display."""
    if os.environ.get("OTTLA_DEBUG"):
        return
    logging.getLogger("py4j").setLevel(logging.CRITICAL + 1)
    handler = logging.FileHandler(log, delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    stack.callback(handler.close)
    logging.captureWarnings(True)
    stack.callback(logging.captureWarnings, False)
    for name in ("ottla", "py.warnings"):
        logger = logging.getLogger(name)
        logger.addHandler(handler)
        stack.callback(logger.removeHandler, handler)


def _quietly(function: Any, *arguments: Any) -> None:
    """What is done at the end in any case, and fails where Java is gone."""
    try:
        function(*arguments)
    except Exception as error:
        logging.getLogger("ottla.spark").info("at the end: %s", error)


def _leave(number: int) -> None:
    """Somebody is impatient: Java ends when it sees that we are gone."""
    os._exit(128 + number)


def _debug(text: str) -> None:
    if os.environ.get("OTTLA_DEBUG"):
        print(text, file=sys.stderr)
