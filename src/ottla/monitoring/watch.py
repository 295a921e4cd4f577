"""What an exporter knows about all groups: one `Observation` after the other becomes metrics and events.

watch = Watch(Limits(lag_seconds=300))
events = watch.observe(observation, lags)
watch.rows[("billing", TopicPartition("orders", 0))].seconds
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.monitoring.alarms import QUIET, REPEAT, Alarms, Event, Subject
from ottla.monitoring.lag import Lags
from ottla.types import Millis, TopicPartition

LAG, REBALANCE, DEAD_LETTERS, OFFLINE = "lag", "rebalance", "dead_letters", "offline_partitions"
HYSTERESIS = 0.8
"""A lag is over when it is below this share of its limit, so that one at the limit is not told again and again."""
NAMED = 20


@dataclass(frozen=True, slots=True)
class Limits:
    """When a lag is worth an event, and how often events come. None means never."""

    lag_records: int | None = None
    lag_seconds: float | None = None
    quiet_ms: Millis = QUIET
    repeat_ms: Millis = REPEAT


@dataclass(frozen=True, slots=True)
class Observation:
    """What one poll of a cluster has found."""

    now: Millis
    committed: Mapping[str, Mapping[TopicPartition, int]]
    bounds: Mapping[TopicPartition, tuple[int, int]]
    """The start and the end of each log."""
    offline: frozenset[TopicPartition] = frozenset()
    retention: Mapping[str, Millis] = field(default_factory=dict)
    """How long each topic keeps records; topics that keep them forever are left out."""
    dead_letters: Mapping[TopicPartition, int] = field(default_factory=dict)
    """The ends of the logs of topics with dead letters."""


@dataclass(slots=True)
class Row:
    """A partition that a group reads."""

    position: int
    lag: int
    seconds: float | None
    retention_share: float | None
    """How much of the retention time of the oldest unread record is over; from 1 on it may be deleted at any time."""
    lost: int
    """Offsets that were deleted before the group read them, since the watch began."""
    counted: int
    """Lost offsets up to here are counted."""
    waits_since: Millis | None
    """When the group last read on; None if there is nothing to read."""

    def stalled_seconds(self, *, now: Millis) -> float:
        """For how long records have waited while the committed offset stayed the same."""
        return 0.0 if self.waits_since is None else max(now - self.waits_since, 0) / 1000


class Watch:
    """Follows all groups of a cluster."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._alarms = Alarms(quiet=limits.quiet_ms, repeat=limits.repeat_ms)
        self.rows: dict[tuple[str, TopicPartition], Row] = {}
        self.rebalances: Counter[tuple[str, str]] = Counter()
        """By group and cause."""
        self.offline: frozenset[TopicPartition] = frozenset()
        self._dead_letters: dict[TopicPartition, int] = {}

    def observe(self, seen: Observation, lags: Lags) -> list[Event]:
        """Take a poll; returns the events to send."""
        rows: dict[tuple[str, TopicPartition], Row] = {}
        for group, offsets in seen.committed.items():
            for key, position in offsets.items():
                if key in seen.bounds:
                    rows[group, key] = self._row(group, key, position, seen, lags)
        self.rows, self.offline = rows, seen.offline
        events = [*self._lag_events(now=seen.now), *self._offline_events(now=seen.now), *self._dead_letter_events(seen)]
        return [*events, *self._alarms.due(now=seen.now)]

    def rebalanced(
        self, group: str, causes: tuple[str, ...], details: Mapping[str, Any], *, now: Millis
    ) -> list[Event]:
        """Take a rebalance; it counts once for each of its causes."""
        for cause in dict.fromkeys(causes):
            self.rebalances[group, cause] += 1
        return self._alarms.occurred(Subject(REBALANCE, group), {"causes": list(causes), **details}, now=now)

    # ── rows ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _row(self, group: str, key: TopicPartition, position: int, seen: Observation, lags: Lags) -> Row:
        start, end = seen.bounds[key]
        known = self.rows.get((group, key))
        seconds = lags.seconds(key, position, now=seen.now)
        has_read_all = position >= end or seconds == 0.0
        counted = max(position, known.counted if known is not None and position >= known.position else position)
        lost = max(start - counted, 0)
        waits_since = None if has_read_all else seen.now
        if known is not None and known.position == position and not has_read_all:
            waits_since = known.waits_since or seen.now
        retention = seen.retention.get(key.topic)
        share = None if retention is None or seconds is None else seconds * 1000 / retention
        return Row(
            position=position,
            lag=max(end - max(position, start), 0),
            seconds=seconds,
            retention_share=1.0 if lost and share is not None else share,
            lost=(known.lost if known is not None else 0) + lost,
            counted=max(counted, start),
            waits_since=waits_since,
        )

    # ── events ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _lag_events(self, *, now: Millis) -> list[Event]:
        groups: dict[str, list[tuple[TopicPartition, Row]]] = {}
        for (group, key), row in self.rows.items():
            groups.setdefault(group, []).append((key, row))
        events = [event for group, rows in groups.items() for event in self._lag_event(group, rows, now=now)]
        return events + self._alarms.forget(LAG, set(groups), now=now)

    def _lag_event(self, group: str, rows: list[tuple[TopicPartition, Row]], *, now: Millis) -> list[Event]:
        subject = Subject(LAG, group)
        share = HYSTERESIS if self._alarms.is_on(subject) else 1.0
        records = sum(row.lag for _, row in rows)
        key, worst = max(rows, key=lambda one: (one[1].seconds or 0.0, one[1].lag))
        is_on = (self._limits.lag_records is not None and records > self._limits.lag_records * share) or (
            self._limits.lag_seconds is not None and (worst.seconds or 0.0) > self._limits.lag_seconds * share
        )
        details = {
            "group": group,
            "lag_records": records,
            "lag_seconds": worst.seconds,
            "worst": {"topic": key.topic, "partition": key.partition, "committed": worst.position},
            "lost": sum(row.lost for _, row in rows),
        }
        return self._alarms.condition(subject, is_on, details, now=now)

    def _offline_events(self, *, now: Millis) -> list[Event]:
        topics: dict[str, list[int]] = {}
        for key in sorted(self.offline):
            topics.setdefault(key.topic, []).append(key.partition)
        events = []
        for topic, numbers in topics.items():
            details = {"topic": topic, "partitions": numbers[:NAMED], "count": len(numbers)}
            events += self._alarms.condition(Subject(OFFLINE, topic), True, details, now=now)
        return events + self._alarms.forget(OFFLINE, set(topics), now=now)

    def _dead_letter_events(self, seen: Observation) -> list[Event]:
        new: Counter[str] = Counter()
        for key, end in seen.dead_letters.items():
            new[key.topic] += max(end - self._dead_letters.get(key, end), 0)
        self._dead_letters = dict(seen.dead_letters)
        events = []
        for topic, count in new.items():
            if count:
                subject = Subject(DEAD_LETTERS, topic)
                events += self._alarms.occurred(subject, {"topic": topic}, count=count, now=seen.now)
        return events
