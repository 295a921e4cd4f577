"""Tell others about a run: events to a webhook, a log or a topic, and lineage to an OpenLineage collector.

    with Monitor(pipeline) as monitor:
        monitor.started(flows, board, ends=False, spark_version=spark.version)
        monitor.tick(board)                 # often
        monitor.ended(board, ending)

Nothing that goes wrong here disturbs the run: it is logged. Only a configuration that cannot work is an error, before
the run starts.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

from ottla.config.producer import ProducerConfig
from ottla.config.secrets import resolved_value
from ottla.config.table import rows
from ottla.errors import OttlaError
from ottla.exporter.delivery import DeliveryThread, Places
from ottla.monitoring.alarms import Event
from ottla.spark.pipelines import exit_codes
from ottla.spark.pipelines.declaration import DeclarationError, Pipeline
from ottla.spark.pipelines.lineage.reporting import Reporter, client_of, sender
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.rule_counts import sentence
from ottla.spark.pipelines.runner import CLOCK, Ending, client_config
from ottla.spark.pipelines.watching import PipelineWatch
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.spark.pipelines.compile import Flow

log = logging.getLogger("ottla.spark")
LOOK_MS: Millis = 1_000


class MonitorError(OttlaError):
    """Events cannot be written where the pipeline says."""


class Monitor:
    """What a run tells others; does nothing if the pipeline declares neither events nor lineage."""

    def __init__(self, pipeline: Pipeline, now: Callable[[], Millis] = CLOCK.now) -> None:
        """Raises OttlaError if the places cannot be used."""
        self._pipeline = pipeline
        self._now = now
        self._next_look: Millis = 0
        self._watch = PipelineWatch.of(pipeline)
        self._reporter: Reporter | None = None
        self._send_lineage: Callable[[Any], None] | None = None
        self._thread: DeliveryThread | None = None
        client = client_of(pipeline.lineage) if pipeline.lineage is not None else None
        if pipeline.events is None and client is None:
            return
        places = _places(pipeline)
        try:
            self._thread = DeliveryThread(places, _producer_config(pipeline))
        except OSError as error:
            raise MonitorError(f"cannot write events to {places.log}: {error.strerror}") from None
        if client is not None:
            self._send_lineage = self._thread.outlet("lineage collector", sender(client))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._thread is not None:
            self._thread.__exit__()

    def started(self, flows: Sequence[Flow], board: Board, *, ends: bool, spark_version: str) -> None:
        """The flows are about to start."""
        if self._send_lineage is None:
            return
        try:
            self._reporter = Reporter(self._pipeline, flows, self._send_lineage, ends=ends, spark_version=spark_version)
            self._reporter.started(board)
        except Exception as error:  # lineage is never worth a failure
            log.warning("no lineage for this run: %s", error)

    def tick(self, board: Board) -> None:
        """Look at the run, at most once per second."""
        if self._thread is None or self._now() < self._next_look:
            return
        self._next_look = self._now() + LOOK_MS
        if self._watch is not None:
            self._put(self._watch.observe(board, now=self._now()))
        if self._reporter is not None:
            self._reporter.tick(board)

    def ended(self, board: Board, ending: Ending) -> None:
        """The run has ended."""
        self._next_look = 0
        self.tick(board)
        if self._reporter is not None:
            self._reporter.ended(board, ending)
        if self._watch is not None:
            reason, details = _reason(ending)
            self._put(self._watch.ended(ending.code, ending.word, now=self._now(), reason=reason, **details))

    def failed(self, error: Exception) -> None:
        """The run could not start."""
        if self._watch is not None:
            code = exit_codes.WRONG if isinstance(error, DeclarationError) else exit_codes.FAILED
            self._put(self._watch.ended(code, "failed", now=self._now(), reason=str(error)))

    def _put(self, events: Sequence[Event]) -> None:
        if self._thread is not None:
            for event in events:
                self._thread.put(event)


def _reason(ending: Ending) -> tuple[str | None, dict[str, Any]]:
    if ending.failure is not None:
        return ending.failure.cause, {"flow": ending.failure.flow, "reading": ending.failure.reading or None}
    if ending.exceeded:
        return "; ".join(sentence(one) for one in ending.exceeded), {}
    return (None if ending.signal is None else f"signal {ending.signal}"), {}


def _places(pipeline: Pipeline) -> Places:
    events = pipeline.events
    if events is None:
        return Places()
    log_path = None if events.log is None else pipeline.path(events.log)
    return Places(resolved_value("webhook", events.webhook), log_path, events.topic)


def _producer_config(pipeline: Pipeline) -> dict[str, object]:
    config = client_config(pipeline)
    return {name: value for name, value in config.items() if name in rows(ProducerConfig)}
