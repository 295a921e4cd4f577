"""What the pages of pipelines show: the state, flows, charts, and dead letters by reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ottla.charts import Line, line_chart
from ottla.console.views.records import Row
from ottla.consuming.values import ConsumerRecord
from ottla.spark.pipelines.replay import Waiting
from ottla.spark.pipelines.status import FlowStatus, Status
from ottla.spark.pipelines.stored_run import StoredBatch, StoredFlow, StoredRun
from ottla.types import Millis

STALLED_MS: Millis = 60_000
"""A flow with unread records that finishes no batch for so long is stalled, or ten batches if they take longer."""
FRESH_MS: Millis = 15_000
"""The rate of an older batch is shown as 0."""
RUNNING, STALLED, FAILED, STOPPED, NEW, CRASHED = "running", "stalled", "failed", "stopped", "never ran", "crashed"
MARKS = {RUNNING: "good", STALLED: "bad", FAILED: "bad", CRASHED: "bad", STOPPED: "idle", NEW: "idle"}


@dataclass(frozen=True, slots=True)
class FlowRow:
    """A sink, or the dead letters of a source."""

    name: str
    status: FlowStatus
    stored: StoredFlow | None
    last: StoredBatch | None
    rate: float | None
    lag: int | None
    is_stalled: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """A pipeline for a page."""

    state: str
    detail: str
    flows: tuple[FlowRow, ...]

    @property
    def mark(self) -> str:
        return MARKS[self.state]

    @property
    def rate(self) -> float | None:
        known = [one.rate for one in self.flows if one.rate is not None]
        return sum(known) if known else None

    @property
    def lag(self) -> int | None:
        known = [one.lag for one in self.flows if one.lag is not None]
        return max(known) if known else None

    @property
    def last_batch(self) -> Millis | None:
        known = [one.status.checkpoint.finished_at for one in self.flows if one.status.checkpoint is not None]
        return max((at for at in known if at is not None), default=None)


def shown(status: Status, run: StoredRun | None, *, now: Millis) -> Shown:
    """Put the status and the stored progress together."""
    stored = {one.name: one for one in run.flows} if run is not None else {}
    is_running = status.running is not None
    flows = tuple(_row(one, stored.get(one.name), is_running, now) for one in status.flows)
    if is_running:
        stalled = [one.name for one in flows if one.is_stalled]
        if stalled:
            return Shown(STALLED, f"{', '.join(stalled)}: records wait, but no batch ends", flows)
        return Shown(RUNNING, str(status.running), flows)
    if status.exceeded:
        return Shown(FAILED, "a limit was exceeded, so the next run will not start", flows)
    if run is not None and run.ending == "failed":
        return Shown(FAILED, run.cause or "", flows)
    if run is not None and run.ending is None and run.flows:
        return Shown(CRASHED, "the last run ended without a word; the next one goes on where it stopped", flows)
    if all(one.checkpoint is None for one in status.flows):
        return Shown(NEW, "", flows)
    words = {"done": "all records were processed", "limit_exceeded": "a limit was exceeded"}
    return Shown(STOPPED, words.get(run.ending or "", "") if run is not None else "", flows)


def _row(status: FlowStatus, stored: StoredFlow | None, is_running: bool, now: Millis) -> FlowRow:
    last = stored.recent[-1] if stored is not None and stored.recent else None
    lag = status.lag if status.lag is not None else (last.lag if last is not None else None)
    rate = None
    if last is not None:
        is_fresh = is_running and now - last.at - last.seconds * 1000 < FRESH_MS
        rate = last.rows_per_second if is_fresh else 0.0
    return FlowRow(status.name, status, stored, last, rate, lag, is_running and _is_stalled(status, stored, lag, now))


def _is_stalled(status: FlowStatus, stored: StoredFlow | None, lag: int | None, now: Millis) -> bool:
    checkpoint = status.checkpoint
    if not lag or checkpoint is None:
        return False
    since = max(at for at in (checkpoint.finished_at, checkpoint.unfinished_since, 0) if at is not None)
    longest = max((one.seconds for one in stored.recent), default=0.0) if stored is not None else 0.0
    return now - since > max(STALLED_MS, longest * 10_000)


def charts(run: StoredRun | None) -> list[str]:
    """Rows per second and batch times of the last batches."""
    flows = [one for one in run.flows if len(one.recent) >= 2] if run is not None else []
    if not flows:
        return []

    def lines(value: str) -> list[Line]:
        return [Line(one.name, [(batch.at, float(getattr(batch, value))) for batch in one.recent]) for one in flows]

    rates = line_chart(
        title="Rows per second", subtitle="of each micro-batch", lines=lines("rows_per_second"), unit="rows/s"
    )
    times = line_chart(title="Batch times", subtitle="seconds of each micro-batch", lines=lines("seconds"), unit="s")
    return [rates, times]


# ── dead letters ──────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Reason:
    """Dead letters with the same reason."""

    text: str
    """The reason, without the values that differ."""
    count: int
    newest: Waiting
    row: Row
    """The newest as a row, to show the raw record."""
    search: str
    """A part of the error that all of them have, for a replay."""


def waiting_letters(rows: Iterable[Row], topic: str) -> list[tuple[Waiting, Row]]:
    """The rows of a dead letter topic that are dead letters."""
    found = []
    for row in rows:
        record = ConsumerRecord(
            topic, row.partition, row.offset, row.timestamp, key=row.key, value=row.value, headers=row.headers
        )
        one = Waiting.of(record)
        if one is not None:
            found.append((one, row))
    return found


def by_reason(letters: Sequence[tuple[Waiting, Row]]) -> list[Reason]:
    """Dead letters by reason, the most frequent first."""
    groups: dict[str, list[tuple[Waiting, Row]]] = {}
    for one, row in letters:
        groups.setdefault(general(one.error), []).append((one, row))
    found = []
    for text, members in groups.items():
        newest, row = max(members, key=lambda pair: (pair[0].timestamp, pair[0].offset))
        found.append(Reason(text, len(members), newest, row, common_part(text)))
    return sorted(found, key=lambda one: (-one.count, one.text))


_DIFFERS = re.compile(r"'[^']*'|\"[^\"]*\"|\b0x[0-9a-f]+\b|(?<![\w.\-])-?\d[\d.,]*\b")


def general(error: str) -> str:
    """An error without what differs from record to record.

    >>> general("total: 'abc' is not a number (line 7)")
    'total: … is not a number (line …)'
    """
    return _DIFFERS.sub("…", error)


def common_part(text: str) -> str:
    """The longest part of a general error that all of its errors contain.

    >>> common_part("total: … is not a number (line …)")
    'is not a number (line'
    """
    return max((part.strip() for part in text.split("…")), key=len)


def audit_rows(report: Mapping[str, object]) -> list[tuple[str, Mapping[str, object]]]:
    """The sinks of a stored audit with their counts."""
    audits = report.get("audits")
    return [(str(one.get("sink", "")), one) for one in audits] if isinstance(audits, list) else []
