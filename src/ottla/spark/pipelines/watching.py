"""What is worth telling about a running pipeline: it stops, a flow stalls, dead letters rise.

A flow stalls if it works without finishing a batch: a broker or a database does not answer, or a batch is too large. A
flow that waits for records or for its next trigger does not stall.
"""

from __future__ import annotations

from typing import Any

from ottla.monitoring.alarms import HAPPENED, Alarms, Event, Subject
from ottla.monitoring.watch import DEAD_LETTERS
from ottla.spark.pipelines.declaration import Events, Pipeline
from ottla.spark.pipelines.progress import RUNNING, Board, FlowProgress
from ottla.spark.pipelines.times import millis
from ottla.types import Millis

STOPPED, STALLED = "pipeline_stopped", "pipeline_stalled"


class PipelineWatch:
    """Remembers what has been told about one run.

    >>> watch = PipelineWatch("orders", Events(log="events.jsonl"))
    >>> [event.details["reason"] for event in watch.ended(1, "failed", now=0, reason="the disk is full")]
    ['the disk is full']
    """

    def __init__(self, pipeline: str, events: Events) -> None:
        self._pipeline = pipeline
        self._stalled_after = millis(events.stalled)
        self._quiet = millis(events.quiet)
        self._alarms = Alarms(quiet=self._quiet, repeat=millis(events.repeat))
        self._letters: dict[str, int] = {}

    @classmethod
    def of(cls, pipeline: Pipeline) -> PipelineWatch | None:
        """None if the pipeline declares no events."""
        return None if pipeline.events is None else cls(pipeline.name, pipeline.events)

    def observe(self, board: Board, *, now: Millis) -> list[Event]:
        """The events to send now."""
        events: list[Event] = []
        for flow in board.flows():
            events += self._stall(flow, now=now)
            events += self._dead_letters(flow, now=now)
        return [*events, *self._alarms.due(now=now)]

    def ended(self, code: int, word: str, *, now: Millis, reason: str | None = None, **details: Any) -> list[Event]:
        """The events after the run: what was held back, and its end, unless it is done."""
        events = self._alarms.due(now=now + self._quiet)
        if code != 0:
            found = {"pipeline": self._pipeline, "exit_code": code, "ended": word, "reason": reason, **details}
            events.append(Event(Subject(STOPPED, self._pipeline), HAPPENED, now, found))
        return events

    def _stall(self, flow: FlowProgress, *, now: Millis) -> list[Event]:
        silent = now - flow.alive_at if flow.alive_at is not None and flow.state == RUNNING else 0
        details = {
            "pipeline": self._pipeline,
            "flow": flow.name,
            "seconds": silent // 1000,
            "batch": None if flow.last is None else flow.last.number,
            "lag_records": flow.lag,
        }
        subject = Subject(STALLED, f"{self._pipeline}/{flow.name}")
        return self._alarms.condition(subject, silent > self._stalled_after, details, now=now)

    def _dead_letters(self, flow: FlowProgress, *, now: Millis) -> list[Event]:
        total = flow.dead_letters
        new = (total or 0) - self._letters.get(flow.name, 0)
        if total is None or new <= 0:
            return []
        self._letters[flow.name] = total
        source = flow.name.partition(".")[2]
        details = {"pipeline": self._pipeline, "source": source, "total": total}
        subject = Subject(DEAD_LETTERS, f"{self._pipeline}/{source}")
        return self._alarms.occurred(subject, details, count=new, now=now)
