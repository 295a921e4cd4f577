"""Run the flows of a pipeline until they are done, one of them fails, a limit is exceeded, or a stop is requested.

    ending = Runner(flows, board, stop=stop).run()

`tick` is called a few times per second, to show progress. A stop waits up to `grace` seconds for the current
micro-batch, then cancels it; nothing is lost, because Spark repeats it from the checkpoint. At the end, finished
offsets are committed to the groups of the sources.
"""

from __future__ import annotations

import json
import logging
import re
import signal
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from ottla.clients.admin.blocking import Admin
from ottla.config.admin import AdminConfig
from ottla.config.table import rows
from ottla.errors import OttlaError
from ottla.runtime.clock import SystemClock
from ottla.spark.finished import finished_offsets
from ottla.spark.options import Offsets
from ottla.spark.pipelines import exit_codes
from ottla.spark.pipelines.declaration import DeadLetters, Pipeline, Source
from ottla.spark.pipelines.failures import Failure
from ottla.spark.pipelines.limits import Counted, Limit
from ottla.spark.pipelines.progress import ENDED, FAILED, STOPPED, Board, RuleProgress
from ottla.types import Millis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ottla.spark")

TICK_SECONDS = 0.2
GRACE_SECONDS = 30.0
COMMIT_MS = 10_000
LOOK_MS: Millis = 1_000
CLOCK = SystemClock()
NO_JAVA = "Spark's Java process has exited"


class Query(Protocol):
    """The used part of Spark's StreamingQuery."""

    @property
    def runId(self) -> Any: ...  # noqa: N802 (Spark's names)
    @property
    def isActive(self) -> bool: ...  # noqa: N802
    @property
    def status(self) -> Mapping[str, Any]: ...
    @property
    def lastProgress(self) -> Any: ...  # noqa: N802
    @property
    def recentProgress(self) -> Sequence[Any]: ...  # noqa: N802
    def exception(self) -> Any: ...
    def stop(self) -> None: ...


class Runnable(Protocol):
    """The used part of a Flow."""

    @property
    def name(self) -> str: ...
    @property
    def sources(self) -> Sequence[Source]: ...
    @property
    def groups(self) -> Mapping[str, str]: ...
    @property
    def readers(self) -> Mapping[str, Any]: ...
    @property
    def shared(self) -> Sharing | None: ...
    def start(self) -> Any: ...


class Sharing(Protocol):
    """The used part of a SharedRead."""

    counted: Callable[[str, int, Mapping[str, Counted]], None]

    @property
    def culprit(self) -> str | None: ...
    @property
    def error(self) -> BaseException | None: ...
    @property
    def waiting(self) -> Mapping[str, int]: ...
    def close(self, seconds: float) -> None: ...


class Stop:
    """A stop request. It has no lock, so that a signal handler can set it."""

    def __init__(self) -> None:
        self.signal: int | None = None

    def request(self, number: int) -> None:
        self.signal = number


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended."""

    failure: Failure | None = None
    signal: int | None = None
    """The signal that stopped it, if any."""
    given_up: tuple[str, ...] = ()
    """Flows whose current batch was canceled."""
    exceeded: tuple[RuleProgress, ...] = ()
    """Rules and dead letters with an exceeded limit."""
    late: Mapping[str, int] = field(default_factory=dict)
    """Sinks that are behind, with the number of stored batches."""

    @property
    def code(self) -> int:
        """The exit code: see `exit_codes.TABLE`."""
        if self.failure is not None:
            return self.failure.code
        if self.exceeded:
            return exit_codes.LIMIT_EXCEEDED
        return exit_codes.DONE if self.signal is None else exit_codes.stopped_by(self.signal)

    @property
    def word(self) -> str:
        if self.failure is not None:
            return "failed"
        if self.exceeded:
            return "limit_exceeded"
        return "done" if self.signal is None else "stopped"


class Runner:
    def __init__(
        self,
        flows: Sequence[Runnable],
        board: Board,
        *,
        stop: Stop | None = None,
        ends: bool = False,
        grace: float = GRACE_SECONDS,
        tick: Callable[[], None] = lambda: None,
        sleep: Callable[[float], None] = time.sleep,
        now: Callable[[], Millis] = CLOCK.now,
    ) -> None:
        """`ends`: the trigger processes current records only, so flows end by themselves."""
        self._flows = {flow.name: flow for flow in flows}
        self._board = board
        self._stop = stop or Stop()
        self._ends = ends
        self._grace = grace
        self._tick = tick
        self._sleep = sleep
        self._now = now
        self._next_look: Millis = 0
        self.queries: dict[str, Query] = {}

    def run(self) -> Ending:
        """Start all flows, and return when all have ended."""
        try:
            failure = self._start() or self._watch()
            given_up = self._end_all(failure)
        except ConnectionError as error:
            return self._without_java(error)
        except Exception as error:
            if not _is_gateway_error(error):
                raise
            return self._without_java(error)
        if self._ends and failure is None and self._stop.signal is None:
            self._board.judge_run()
        late = {name: count for one in self._shared() for name, count in one.waiting.items()}
        signal = None if failure is not None else self._stop.signal
        return Ending(failure, signal, given_up, tuple(self._board.exceeded), late)

    def _shared(self) -> list[Sharing]:
        return [flow.shared for flow in self._flows.values() if flow.shared is not None]

    def _without_java(self, error: Exception) -> Ending:
        """A signal to the process group stops Java, too; after a stop request this is not a failure."""
        for one in self._board.flows():
            if one.state not in (ENDED, FAILED):
                self._board.ended(one.name, FAILED if self._stop.signal is None else STOPPED)
        if self._stop.signal is not None:
            return Ending(signal=self._stop.signal, given_up=tuple(self._flows))
        return Ending(Failure(next(iter(self._flows), "-"), NO_JAVA, details=str(error)))

    def _start(self) -> Failure | None:
        for name, flow in self._flows.items():
            if self._stop.signal is not None:
                return None
            if flow.shared is not None:
                flow.shared.counted = self._board.counted
            try:
                self.queries[name] = query = flow.start()
            except OttlaError as error:
                return self._failed(name, error)
            except Exception as error:
                if _is_gateway_error(error):
                    raise
                return self._failed(name, error)
            self._board.started(str(query.runId), *flow.readers)
            self._board.alive(str(query.runId), now=self._now())
            self._tick()
        return None

    def _watch(self) -> Failure | None:
        """Wait until all have ended, one has failed, a limit is exceeded, or a stop is requested."""
        active = dict(self.queries)
        while active and self._stop.signal is None and not self._board.exceeded:
            for name, query in list(active.items()):
                shared = self._flows[name].shared
                if shared is not None and shared.error is not None:
                    return self._failed(name, shared.error)
                if query.isActive:
                    self._look(query)
                    continue
                if query.exception() is None and shared is not None and shared.waiting:
                    continue  # a late sink catches up
                failure = self._end_of(name, query)
                if failure is not None:
                    return failure
                del active[name]
            self._tick()
            if self._now() >= self._next_look:
                self._next_look = self._now() + LOOK_MS
            if active:
                self._sleep(TICK_SECONDS)
        return None

    def _look(self, query: Query) -> None:
        """Note that a query waits for its next trigger. While it works, its batches are the signs of life."""
        if self._now() >= self._next_look and not query.status.get("isTriggerActive"):
            self._board.alive(str(query.runId), now=self._now())

    def _end_of(self, name: str, query: Query) -> Failure | None:
        error = query.exception()
        if error is not None:
            return self._failed(name, error)
        if not self._ends and self._stop.signal is None:
            return self._failed(name, "the query was stopped from outside")
        self._ended(name, ENDED)
        return None

    def _failed(self, name: str, error: object) -> Failure:
        self._ended(name, FAILED)
        shared = self._flows[name].shared
        return Failure.of((shared and shared.culprit) or name, error)

    def _ended(self, name: str, state: str) -> None:
        for reader in self._flows[name].readers:
            self._board.ended(reader, state)

    # ── Stopping ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_all(self, failure: Failure | None) -> tuple[str, ...]:
        """Stop each running flow between two batches; returns the flows with a canceled batch.

        Without a failure, late sinks may catch up until the grace period is over.
        """
        left = {name: query for name, query in self.queries.items() if query.isActive}
        current = {name: _batch(query) for name, query in left.items()}
        deadline = time.monotonic() + self._grace
        given_up: list[str] = []
        while left:
            late = time.monotonic() >= deadline
            for name, query in list(left.items()):
                busy = query.isActive and _is_busy(query) and _batch(query) == current[name]
                if busy and not late:
                    continue
                if busy:
                    given_up.append(name)
                self._stop_one(name, query)
                del left[name]
            self._tick()
            if left:
                self._sleep(TICK_SECONDS / 4)
        for one in self._shared():
            one.close(max(deadline - time.monotonic(), 0) if failure is None else 0)
        self._complete()
        return tuple(given_up)

    def _stop_one(self, name: str, query: Query) -> None:
        """Stop a query; if it does not stop in time, it ends with the session."""
        try:
            query.stop()
        except Exception as error:
            if _is_gateway_error(error):
                raise
            log.warning("flow %s did not stop: %s", name, error)
        self._ended(name, STOPPED)

    def _complete(self) -> None:
        """Add the last batches to the board: Spark's events may arrive much later, or never."""
        for query in self.queries.values():
            for progress in query.recentProgress:
                self._board.progress(str(query.runId), json.loads(progress.json))
        self._tick()


def _is_busy(query: Query) -> bool:
    """Whether a batch is running; a query that waits for records is not busy."""
    status = query.status
    return bool(status.get("isTriggerActive") and status.get("isDataAvailable"))


def _batch(query: Query) -> int | None:
    progress = query.lastProgress
    return None if progress is None else int(progress["batchId"])


def _is_gateway_error(error: Exception) -> bool:
    """Whether Java is unreachable; checked by class name, to avoid importing py4j."""
    names = {kind.__name__ for kind in type(error).__mro__}
    return bool(names & {"Py4JNetworkError", "ConnectionError", "EOFError"})


# ── Around a run ──────────────────────────────────────────────────────────────────────────────────────────────────────


def board_of(pipeline: Pipeline, flows: Iterable[Runnable], *, limits: Mapping[str, Limit] | None = None) -> Board:
    """A board with all sinks, in the order of the declaration, and the dead letters."""
    readers = {name: sink for flow in flows for name, sink in flow.readers.items()}
    order = [sink.name for sink in pipeline.sinks if sink.name in readers]
    letters = {name for name, sink in readers.items() if isinstance(sink, DeadLetters)}
    return Board(pipeline.name, [*order, *sorted(letters)], dead_letters=letters, limits=limits)


def listen(spark: SparkSession, board: Board, now: Callable[[], Millis] = CLOCK.now) -> Any:
    """Add every batch to the board; returns the listener for `spark.streams.removeListener`."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:  # noqa: N802
            pass

        def onQueryProgress(self, event: Any) -> None:  # noqa: N802
            try:
                board.progress(str(event.progress.runId), json.loads(event.progress.json))
                board.alive(str(event.progress.runId), now=now())
            except Exception as error:  # Spark would print it
                log.warning("could not read the progress from Spark: %s", error)

        def onQueryIdle(self, event: Any) -> None:  # noqa: N802
            board.alive(str(event.runId), now=now())

        def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
            pass

    listener = Listener()
    spark.streams.addListener(listener)
    return listener


def client_config(pipeline: Pipeline, part: Any = None) -> dict[str, object]:
    """The client config for the cluster of the pipeline or of one of its parts."""
    servers = getattr(part, "bootstrap_servers", None) or pipeline.bootstrap_servers
    return {**pipeline.kafka, **getattr(part, "kafka", {}), "bootstrap.servers": servers}


def admin_config(pipeline: Pipeline, part: Any = None) -> dict[str, object]:
    config = client_config(pipeline, part)
    return {name: value for name, value in config.items() if name in rows(AdminConfig)}


def reads(source: Source, topic: str) -> bool:
    """Whether a source reads a topic."""
    if source.pattern is not None:
        return re.fullmatch(source.pattern, topic) is not None
    return topic in source.topics or topic in (source.assign or {})


def commit_groups(pipeline: Pipeline, flows: Iterable[Runnable], queries: Mapping[str, Query]) -> None:
    """Commit the finished offsets of each flow to the groups of its sources; logs a warning on failure.

    The source commits before each batch; this commits the last one.
    """
    for flow in flows:
        query = queries.get(flow.name)
        offsets = finished_offsets(query.lastProgress) if query is not None and flow.groups else {}
        for source in flow.sources:
            group = flow.groups.get(source.name)
            own = {key: offset for key, offset in offsets.items() if reads(source, key.topic)}
            if group is not None and own:
                commit_offsets(pipeline, source, group, own)


def commit_offsets(pipeline: Pipeline, source: Source, group: str, offsets: Offsets) -> None:
    """Commit offsets to a group of a source; logs a warning on failure."""
    try:
        with Admin({**admin_config(pipeline, source), "default.api.timeout.ms": COMMIT_MS}) as admin:
            admin.alter_group_offsets(group, offsets)
    except OttlaError as error:
        log.warning("could not commit offsets to group %s: %s", group, error)


def handle_signals(stop: Stop, *, at_once: Callable[[int], None]) -> Callable[[], None]:
    """Let SIGINT and SIGTERM request a stop, and a second signal call `at_once`. Returns an undo function."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None  # only the main thread may handle signals

    def received(number: int, _frame: object) -> None:
        if stop.signal is not None:
            at_once(number)
        stop.request(number)

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, received) for number in numbers}

    def undo() -> None:
        for number, handler in before.items():
            with suppress(ValueError, TypeError):
                signal.signal(number, handler)

    return undo
