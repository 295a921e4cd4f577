"""``ottla pipeline run FILE``: run all flows of a pipeline on Spark, with progress, until done or stopped."""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.cli.options import add_conf_option, not_negative, settings
from ottla.cli.pipeline.common import add_cluster, add_file, declared, reports_problems
from ottla.cli.pipeline.display import (
    LINE_SECONDS,
    Display,
    JsonLines,
    Lines,
    Silence,
    Table,
    rule_fields,
    summary,
)
from ottla.cli.terminal import note
from ottla.errors import OttlaError
from ottla.spark.pipelines import exit_codes, rule_counts, stored_run
from ottla.spark.pipelines.compile import compile_pipeline
from ottla.spark.pipelines.declaration import ConsoleSink, DeclarationError, Pipeline
from ottla.spark.pipelines.failures import Failure, called, cause_of
from ottla.spark.pipelines.metrics import render, serve, write_file
from ottla.spark.pipelines.monitor import Monitor
from ottla.spark.pipelines.progress import Board, RuleProgress
from ottla.spark.pipelines.rules import limits_of
from ottla.spark.pipelines.run_lock import AlreadyRunning, local_path, run_lock
from ottla.spark.pipelines.runner import (
    GRACE_SECONDS,
    Ending,
    Runner,
    Stop,
    board_of,
    commit_groups,
    handle_signals,
    listen,
)
from ottla.spark.sessions import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "spark.log"
_ENDING = ("available-now", "once")
METRICS_SECONDS = 1.0
STORE_SECONDS = 1.0

EPILOG = """\
Stop it with Ctrl-C or SIGTERM. The current micro-batch is finished (or canceled after --stop-timeout, and repeated by
the next run), and offsets are committed. A second signal stops it at once; nothing is lost.

exit codes:
CODES

examples:
  ottla pipeline run orders.toml                              run until stopped
  ottla pipeline run orders.toml --once                       process all current records, for example from cron
  ottla pipeline run orders.toml --master spark://host:7077   on a cluster
  ottla pipeline run orders.toml --json | jq .rows
  ottla pipeline run orders.toml --metrics-port 9464          with Prometheus metrics
""".replace("CODES", exit_codes.as_text())


class RunError(OttlaError):
    """The pipeline could not be started."""


def configure(parser: argparse.ArgumentParser) -> None:
    parser.epilog = EPILOG
    add_file(parser)
    add_cluster(parser)
    parser.add_argument("--master", metavar="URL", help="the Spark master (default: local[*])")
    add_conf_option(parser)
    parser.add_argument("--once", action="store_true", help="process all current records, and exit")
    parser.add_argument(
        "--accept-limits",
        action="store_true",
        help="run although an earlier run has exceeded a limit; the counts start at zero",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object per micro-batch")
    parser.add_argument("-q", "--quiet", action="store_true", help="show no progress")
    parser.add_argument(
        "--interval",
        type=not_negative,
        default=LINE_SECONDS,
        metavar="SECONDS",
        help="if stderr is not a terminal: seconds between two lines of a flow (default: 10)",
    )
    parser.add_argument(
        "--stop-timeout",
        type=not_negative,
        default=GRACE_SECONDS,
        metavar="SECONDS",
        help="how long to wait for the current micro-batch when stopping (default: 30)",
    )
    parser.add_argument(
        "--metrics-port",
        type=not_negative,
        metavar="PORT",
        help="serve Prometheus metrics at http://127.0.0.1:PORT/metrics (0: any free port)",
    )
    parser.add_argument(
        "--metrics-file",
        type=Path,
        metavar="FILE",
        help="write Prometheus metrics to a file, for the textfile collector",
    )
    parser.add_argument(
        "--log", type=Path, metavar="FILE", help=f"Spark's log file (default: {LOG} in the checkpoint directory)"
    )
    parser.set_defaults(run=run)


@reports_problems
def run(args: Namespace) -> int:
    pipeline = declared(args)
    try:
        with run_lock(pipeline.path(pipeline.checkpoint)):
            over = [] if args.accept_limits else rule_counts.exceeded(pipeline)
            if over:
                return _refuse(args, pipeline, over)
            return _Run(args, pipeline).run()
    except AlreadyRunning as error:
        advice = "stop it first, or, if that is another pipeline, set another checkpoint in one of them"
        print(f"ottla: error: {error}: {advice}", file=sys.stderr)
        return exit_codes.RUNS_ALREADY


def _refuse(args: Namespace, pipeline: Pipeline, over: Sequence[RuleProgress]) -> int:
    """Do not run after an exceeded limit until the user has decided; otherwise a retry would hide it."""
    code = exit_codes.LIMIT_EXCEEDED
    if args.json:
        rules = [rule_fields(one) for one in over]
        JsonLines().tell("limit_exceeded", pipeline=pipeline.name, exit_code=code, rules=rules, refused=True)
    _print_limits(args, over, "an earlier run exceeded a limit")
    print(
        "ottla: the pipeline was not started. Change the limit, the rule, the steps or the schema, or accept what "
        "happened with --accept-limits",
        file=sys.stderr,
    )
    return code


def _print_limits(args: Namespace, over: Sequence[RuleProgress], what: str) -> None:
    for one in over:
        print(f"ottla: error: {what}: {rule_counts.sentence(one, str(args.file))}", file=sys.stderr)


class _Run:
    def __init__(self, args: Namespace, pipeline: Pipeline) -> None:
        self._args = args
        self._pipeline = pipeline
        self._stop = Stop()
        self._log = args.log or _log_path(pipeline)
        self._board = Board(pipeline.name, [])
        self._display = self._chosen_display()
        self._next_metrics = self._next_store = 0.0
        self._started_at = time.time_ns() // 1_000_000
        self._saved: list[RuleProgress] | None = None
        self._is_remote = local_path(pipeline.path(pipeline.checkpoint)) is None
        self._spark: SparkSession | None = None
        self._monitor: Monitor

    def run(self) -> int:
        with ExitStack() as stack:
            leave = partial(_leave, _terminal(stack))
            stack.callback(handle_signals(self._stop, at_once=leave))
            _keep_python_quiet(self._log, stack)
            self._monitor = stack.enter_context(Monitor(self._pipeline))
            try:
                note("starting Spark ...")
                spark = self._session(stack)
                # Spark has replaced our handlers. Ours stay until Spark has ended, and then the first ones come back.
                handle_signals(self._stop, at_once=leave)
                self._spark = spark if self._is_remote else None
                over = self._exceeded_before(spark)
                if over:
                    return _refuse(self._args, self._pipeline, over)
                ending = self._run(spark, self._flows(spark), stack)
            except Exception as error:
                self._monitor.failed(error)
                raise
            self._monitor.ended(self._board, ending)
            self._display.close(self._board)
        self._report(ending)
        return ending.code

    def _run(self, spark: SparkSession, flows: Sequence[Any], stack: ExitStack) -> Ending:
        self._board = board_of(self._pipeline, flows, limits=limits_of(self._pipeline))
        listener = listen(spark, self._board)
        stack.callback(_quietly, spark.streams.removeListener, listener)
        self._serve_metrics(stack)
        ends = self._args.once or self._pipeline.trigger in _ENDING
        self._monitor.started(flows, self._board, ends=ends, spark_version=spark.version)
        runner = Runner(flows, self._board, stop=self._stop, ends=ends, grace=self._args.stop_timeout, tick=self._tick)
        ending = runner.run()
        if ending.failure is None:
            commit_groups(self._pipeline, flows, runner.queries)
        self._tick()
        self._save_counts(at_end=True)
        self._store(ending)
        return ending

    def _exceeded_before(self, spark: SparkSession) -> Sequence[RuleProgress]:
        """The limits that an earlier run has exceeded, if only Spark can read the checkpoint."""
        is_asked = self._is_remote and not self._args.accept_limits
        return rule_counts.exceeded(self._pipeline, spark) if is_asked else []

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
            raise RunError(f"could not start Spark: {cause_of(error)}. Spark's log is {self._log}") from None
        stack.callback(_quietly, spark.stop)
        return spark

    def _flows(self, spark: SparkSession) -> list[Any]:
        try:
            return list(compile_pipeline(self._pipeline, spark, trigger="available-now" if self._args.once else None))
        except (OttlaError, DeclarationError):
            raise
        except Exception as error:
            _debug(str(error))
            raise RunError(f"Spark rejected the pipeline: {cause_of(error)}") from None

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
            server = stack.enter_context(serve(lambda: render(self._board), self._args.metrics_port))
            print(f"metrics at http://127.0.0.1:{server.port}/metrics", file=sys.stderr, flush=True)

    # ── During and after ──────────────────────────────────────────────────────────────────────────────────────────

    def _tick(self) -> None:
        self._display.show(self._board)
        self._monitor.tick(self._board)
        self._save_counts()
        if time.monotonic() >= self._next_store:
            self._next_store = time.monotonic() + STORE_SECONDS
            self._store()
        if self._args.metrics_file is not None and time.monotonic() >= self._next_metrics:
            self._next_metrics = time.monotonic() + METRICS_SECONDS
            write_file(self._args.metrics_file, render(self._board))

    def _store(self, ending: Ending | None = None) -> None:
        """Store the progress for the console; the run goes on without it."""
        try:
            stored_run.save(
                self._pipeline,
                self._board,
                started_at=self._started_at,
                now=time.time_ns() // 1_000_000,
                ending=None if ending is None else ending.word,
                cause=None if ending is None or ending.failure is None else ending.failure.cause,
            )
        except OttlaError as error:
            logging.getLogger("ottla.spark").warning("could not store the progress: %s", error)

    def _save_counts(self, *, at_end: bool = False) -> None:
        """Save changed counts. The first save also forgets the limits that an earlier run exceeded.

        A checkpoint that is not local is slower to write, and only a later run reads its counts.
        """
        rules = self._board.rules()
        if rules == self._saved or (self._is_remote and not at_end):
            return
        try:
            rule_counts.save(self._pipeline, self._board, self._spark)
        except Exception as error:
            if not self._is_remote or isinstance(error, OttlaError):
                raise
            # Java has exited, perhaps; its end is reported elsewhere.
            logging.getLogger("ottla.spark").warning("could not save the counts of rules: %s", error)
        self._saved = rules

    def _report(self, ending: Ending) -> None:
        if isinstance(self._display, JsonLines):
            failure = ending.failure
            fields = (
                {} if failure is None else {"flow": failure.flow, "cause": failure.cause, "reading": failure.reading}
            )
            rules = [rule_fields(one) for one in self._board.rules()]
            self._display.tell(ending.word, pipeline=self._pipeline.name, exit_code=ending.code, rules=rules, **fields)
        elif not self._args.quiet:
            print(summary(self._board))
        for name in ending.given_up:
            note(f"{called(name)}: the current batch was canceled; the next run repeats it")
        for name, count in ending.late.items():
            note(f"sink {name} is late: {count} of its batches wait in the checkpoint for the next run")
        if ending.failure is not None:
            self._print_failure(ending.failure)
        if ending.exceeded:
            sys.stdout.flush()
            _print_limits(self._args, ending.exceeded, "limit exceeded")

    def _print_failure(self, failure: Failure) -> None:
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
    """Default Spark settings; the file and --conf override them."""
    found = {"spark.sql.streaming.stopTimeout": "20s", "spark.sql.streaming.numRecentProgressUpdates": "100"}
    if master.startswith("local"):
        # Spark's default of 200 state partitions is too high for one machine; a command needs no web UI.
        found |= {"spark.sql.shuffle.partitions": str(max(os.cpu_count() or 2, 2)), "spark.ui.enabled": "false"}
    return found


@contextmanager
def _noise_to(log: Path, *, standard_output: bool) -> Iterator[None]:
    """Redirect the output of Java and the Python workers to a file; they inherit these descriptors."""
    sys.stdout.flush()
    sys.stderr.flush()
    numbers = (1, 2) if standard_output else (2,)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        if log.exists():
            log.replace(log.with_name(f"{log.name}.1"))
        file = log.open("ab")
    except OSError as error:
        raise RunError(f"cannot write Spark's log to {log}: {error.strerror}") from None
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
    """Send warnings of this process to the log instead of the terminal."""
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
    """Run a cleanup step, which fails if Java has already exited."""
    try:
        function(*arguments)
    except Exception as error:
        logging.getLogger("ottla.spark").info("cleanup failed: %s", error)


def _terminal(stack: ExitStack) -> int:
    """A copy of stderr, which is redirected while Spark starts."""
    found = os.dup(2)
    stack.callback(os.close, found)
    return found


def _leave(terminal: int, number: int) -> None:
    """Exit at once; Java exits when it notices."""
    os.write(terminal, b"ottla: stopped at once; the next run repeats what was not finished\n")
    os._exit(exit_codes.stopped_by(number))


def _debug(text: str) -> None:
    if os.environ.get("OTTLA_DEBUG"):
        print(text, file=sys.stderr)
