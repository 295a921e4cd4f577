"""The progress of a running pipeline, collected from Spark's events on a `Board`.

board = Board("orders", ["table", "dead-letters.orders"], dead_letters={"dead-letters.orders"})
board.progress(run_id, progress)       # from a Spark listener, in any thread
board.flows()                          # for displays, metrics and summaries
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from ottla.spark.offsets import parse_offsets, ranges_between
from ottla.spark.pipelines.limits import Counted, Limit, Watch
from ottla.spark.pipelines.rules import counts_of
from ottla.types import Millis

REMEMBERED = 1_000
#: The batches of a flow that are kept for charts.
RECENT = 120
#: The name of the metrics that a shared read observes.
SHARED_METRICS = "ottla_shared"
STARTING, RUNNING, ENDED, STOPPED, FAILED = "starting", "running", "ended", "stopped", "failed"


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished micro-batch."""

    number: int
    rows: int
    """Rows read from all sources."""
    written: int | None
    """Rows written, if the sink reports them."""
    seconds: float
    lag: int | None
    """Unread records when the batch was planned; None for sources without offsets."""
    at: Millis
    """The start time."""
    rules: Mapping[str, Counted] = field(default_factory=dict)
    """The rows that each rule has seen."""
    broken: int | None = None
    """Broken records, if a shared read counted them."""
    watermark: Millis | None = None
    """Up to which event time windows are complete; None without a watermark, and before the first records."""

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.seconds if self.seconds > 0 else 0.0

    def of_letters(self) -> Batch:
        """What a batch is for the dead letters of a shared read: they have no rules, which are those of the rows."""
        return self if self.broken is None else replace(self, written=self.broken, rules={})


def batch_of(progress: Mapping[str, Any]) -> Batch:
    """Parse Spark's progress."""
    sources = progress.get("sources") or []
    written = (progress.get("sink") or {}).get("numOutputRows", -1)
    took = (progress.get("durationMs") or {}).get("triggerExecution", progress.get("batchDuration", 0))
    # The total is missing for a batch that only moves the watermark.
    rows = progress.get("numInputRows") or sum(one.get("numInputRows") or 0 for one in sources)
    return Batch(
        number=int(progress["batchId"]),
        rows=int(rows),
        written=None if written is None or written < 0 else int(written),
        seconds=took / 1000,
        lag=_lag(sources),
        at=_millis(str(progress["timestamp"])),
        rules=counts_of(progress.get("observedMetrics")),
        broken=_broken(progress.get("observedMetrics") or {}),
        watermark=_watermark(progress.get("eventTime") or {}),
    )


def _watermark(times: Mapping[str, Any]) -> Millis | None:
    found = times.get("watermark")
    return None if found is None else _millis(str(found)) or None


def _broken(observed: Mapping[str, Any]) -> int | None:
    found = (observed.get(SHARED_METRICS) or {}).get("broken")
    return None if found is None else int(found)


def _lag(sources: Sequence[Mapping[str, Any]]) -> int | None:
    """
    >>> _lag([{"endOffset": {"orders": {"0": 5}}, "latestOffset": '{"orders": {"0": 12, "1": 3}}'}])
    10
    """
    found = [(parse_offsets(one.get("endOffset")), parse_offsets(one.get("latestOffset"))) for one in sources]
    known = [(end, latest) for end, latest in found if end is not None and latest is not None]
    return sum(one.size for end, latest in known for one in ranges_between(end, latest)) if known else None


def _millis(timestamp: str) -> Millis:
    return round(datetime.fromisoformat(timestamp).timestamp() * 1000)


@dataclass(frozen=True, slots=True)
class FlowProgress:
    """The progress of one flow since its start."""

    name: str
    writes_dead_letters: bool = False
    state: str = STARTING
    batches: int = 0
    rows: int = 0
    written: int = 0
    last: Batch | None = None
    """The last batch, with or without rows."""
    alive_at: Millis | None = None
    """When it last finished a batch or had nothing to do."""

    @property
    def dead_letters(self) -> int | None:
        return self.written if self.writes_dead_letters else None

    @property
    def reported_written(self) -> int | None:
        """None if the sink does not report it."""
        return None if self.last is None or self.last.written is None else self.written

    @property
    def lag(self) -> int | None:
        return None if self.last is None else self.last.lag

    def after(self, batch: Batch) -> FlowProgress:
        return replace(
            self,
            state=RUNNING if self.state == STARTING else self.state,
            batches=self.batches + 1,
            rows=self.rows + batch.rows,
            written=self.written + (batch.written or 0),
            last=batch,
        )


@dataclass(frozen=True, slots=True)
class RuleProgress:
    """A rule in one flow since its start; the dead letters of a source are a rule with the name of their flow."""

    rule: str
    flow: str
    total: Counted
    last: Counted
    """The last batch with rows."""
    limit: Limit | None = None
    exceeded: Counted | None = None
    """The rows that exceeded the limit."""


class Board:
    """The progress of all sinks, dead letters and rules; thread-safe. Sinks that share a query have its batches."""

    def __init__(
        self,
        pipeline: str,
        flows: Sequence[str],
        *,
        dead_letters: Collection[str] = (),
        limits: Mapping[str, Limit] | None = None,
    ) -> None:
        """`limits` are those of rules and of dead letters: see `rules.limits_of`."""
        self.pipeline = pipeline
        self._limits = limits or {}
        self._watches: dict[tuple[str, str], Watch] = {}
        self._lock = threading.Lock()
        self._flows = {name: FlowProgress(name, name in dead_letters) for name in flows}
        self._names: dict[str, tuple[str, ...]] = {}
        self._early: dict[str, list[Batch]] = {}
        self._counted: dict[tuple[str, int], Mapping[str, Counted]] = {}
        self._news: list[tuple[FlowProgress, Batch]] = []
        self._recent: dict[str, deque[Batch]] = {name: deque(maxlen=RECENT) for name in flows}
        self._seen: deque[tuple[str, int, Millis]] = deque(maxlen=REMEMBERED)

    def started(self, run_id: str, *flows: str) -> None:
        """Set the run id of the query that writes these flows; batches may have been reported before."""
        with self._lock:
            self._names[run_id] = flows
            for flow in flows:
                self._flows[flow] = replace(self._flows[flow], state=RUNNING)
            for batch in self._early.pop(run_id, []):
                self._add(flows, batch)

    def progress(self, run_id: str, progress: Mapping[str, Any]) -> None:
        """Add a finished batch; repeated reports are ignored."""
        batch = batch_of(progress)
        with self._lock:
            seen = (run_id, batch.number, batch.at)
            if seen in self._seen:
                return
            self._seen.append(seen)
            flows = self._names.get(run_id)
            if flows is None:
                self._early.setdefault(run_id, []).append(batch)
            else:
                self._add(flows, batch)

    def alive(self, run_id: str, *, now: Millis) -> None:
        """The query has just finished a batch, or has nothing to do."""
        with self._lock:
            for flow in self._names.get(run_id, ()):
                self._flows[flow] = replace(self._flows[flow], alive_at=now)

    def counted(self, flow: str, batch: int, rules: Mapping[str, Counted]) -> None:
        """Add the counts of rules that are not in Spark's progress, before the progress of their batch."""
        with self._lock:
            self._counted[flow, batch] = rules

    def _add(self, flows: Sequence[str], batch: Batch) -> None:
        for flow in flows:
            more = self._counted.pop((flow, batch.number), {})
            one = batch.of_letters() if self._flows[flow].writes_dead_letters else batch
            one = replace(one, rules={**one.rules, **more})
            self._flows[flow] = self._flows[flow].after(one)
            for rule, counted in self._counts(flow, one).items():
                self._watches.setdefault((rule, flow), Watch(self._limits.get(rule))).add(counted)
            self._news.append((self._flows[flow], one))
            self._recent[flow].append(one)

    def _counts(self, flow: str, batch: Batch) -> Mapping[str, Counted]:
        if self._flows[flow].writes_dead_letters and batch.written is not None:
            return {**batch.rules, flow: Counted(batch.rows, batch.written)}
        return batch.rules

    def rules(self) -> list[RuleProgress]:
        """All rules that have seen rows, in the order of their names and flows."""
        with self._lock:
            return [
                RuleProgress(rule, flow, watch.total, watch.last, watch.limit, watch.exceeded)
                for (rule, flow), watch in sorted(self._watches.items())
            ]

    @property
    def exceeded(self) -> list[RuleProgress]:
        return [one for one in self.rules() if one.exceeded is not None]

    def judge_run(self) -> None:
        """Compare the whole run with the limits, after its end."""
        with self._lock:
            for watch in self._watches.values():
                watch.end()

    def ended(self, flow: str, state: str) -> None:
        with self._lock:
            self._flows[flow] = replace(self._flows[flow], state=state)

    def flows(self) -> list[FlowProgress]:
        with self._lock:
            return list(self._flows.values())

    def recent(self, flow: str) -> list[Batch]:
        """The last batches of a flow, the oldest first."""
        with self._lock:
            return list(self._recent[flow])

    def news(self) -> list[tuple[FlowProgress, Batch]]:
        """The batches since the last call, each with the flow's progress after it."""
        with self._lock:
            news, self._news = self._news, []
        return news

    @property
    def dead_letters(self) -> int:
        return sum(flow.dead_letters or 0 for flow in self.flows())
