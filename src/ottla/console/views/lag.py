"""Lag over time, computed afterwards: what a group had committed, and how long the logs were then.

The commits are in `__consumer_offsets`, with their times. How long a log was at a time is what ListOffsets answers for
this time, with the timestamp of the record that came next. So the chart does not need anybody to have watched, and
works with any Kafka.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ottla.charts import Line, line_chart
from ottla.groups.log_ends import FirstRecord
from ottla.types import Millis, TopicPartition

Points = Sequence[tuple[Millis, int]]
"""Offsets over time, the oldest first."""
NAMED = 7
"""How many partitions have a line of their own."""


@dataclass(frozen=True, slots=True)
class Lag:
    """The lag of one partition at a time. A value is None if it is unknown."""

    at: Millis
    records: int | None
    seconds: float | None


def sample_times(first: Millis, last: Millis, count: int) -> list[Millis]:
    """Evenly spread times, with both ends.

    >>> sample_times(0, 100, 5)
    [0, 25, 50, 75, 100]
    """
    return [first + (last - first) * n // (count - 1) for n in range(count)]


def earlier_times(first: Millis, last: Millis) -> list[Millis]:
    """Times before the first, further and further away: a group can be much further behind than the chart is long."""
    length = last - first
    return sorted(max(round(first - length * factor), 0) for factor in (1 / 60, 1 / 20, 1 / 6, 1 / 2, 1, 4, 24, 168))


def lag_over_time(times: Sequence[Millis], commits: Points, log: LogTimes) -> list[Lag]:
    """The lag of a partition at each time; what is known of the log may begin earlier than `times`."""
    committed_at = [at for at, _ in commits]
    ends = log.ends
    ends_at = [at for at, _ in ends]
    found = []
    for at in times:
        place = bisect_right(committed_at, at)
        end = ends[bisect_right(ends_at, at) - 1][1] if ends_at and ends_at[0] <= at else None
        if place == 0 or end is None:
            found.append(Lag(at, None, None))
            continue
        position = commits[place - 1][1]
        lag = max(end - position, 0)
        found.append(Lag(at, lag, _seconds(at, position, log) if lag else 0.0))
    return found


def _seconds(at: Millis, position: int, log: LogTimes) -> float | None:
    """The age of the record at a position: from the nearest records whose times are known."""
    place = bisect_right(log.written, (position, math.inf))
    if place == 0:
        return None  # Older than all that is known.
    low, before = log.written[place - 1]
    high, after = log.written[place] if place < len(log.written) else (low, before)
    share = (position - low) / (high - low) if high > low else 0.0
    return max(at - (before + max(after - before, 0) * share), 0) / 1000


@dataclass(frozen=True, slots=True)
class LagHistory:
    """The lag of a group over time, by partition."""

    partitions: Mapping[TopicPartition, Sequence[Lag]]

    @property
    def is_known(self) -> bool:
        return any(one.records is not None for some in self.partitions.values() for one in some)

    def records(self) -> list[tuple[Millis, float]]:
        """The unread records of all partitions together."""
        return self._together("records", sum)

    def seconds(self) -> list[tuple[Millis, float]]:
        """The lag in seconds of the slowest partition."""
        return self._together("seconds", max)

    def _together(self, name: str, join: Callable[[list[float]], float]) -> list[tuple[Millis, float]]:
        found: dict[Millis, list[float]] = {}
        for some in self.partitions.values():
            for one in some:
                value = getattr(one, name)
                if value is not None:
                    found.setdefault(one.at, []).append(value)
        return [(at, join(values)) for at, values in sorted(found.items())]

    def worst(self) -> list[TopicPartition]:
        """The partitions with the largest lag at any time, at most `NAMED`."""
        peaks = {key: max((one.records or 0) for one in some) for key, some in self.partitions.items() if some}
        return sorted(sorted(peaks, key=lambda key: (-peaks[key], key))[:NAMED])


def lag_charts(group: str, history: LagHistory) -> tuple[str, str]:
    """Two charts: unread records, and seconds."""
    named = history.worst()

    def lines(attribute: str, total: list[tuple[Millis, float]], label: str) -> list[Line]:
        each = [
            Line(str(key), [(one.at, value) for one in some if (value := getattr(one, attribute)) is not None])
            for key, some in history.partitions.items()
            if key in named
        ]
        return [Line(label, total), *(each if len(history.partitions) > 1 else [])]

    records = line_chart(
        title="Unread records",
        subtitle=f"group {group}: records that it had not committed",
        lines=lines("records", history.records(), "all partitions"),
        unit="records",
    )
    seconds = line_chart(
        title="Behind, in seconds",
        subtitle=f"group {group}: the age of its oldest unread record",
        lines=lines("seconds", history.seconds(), "slowest partition"),
        unit="seconds",
    )
    return records, seconds


@dataclass(frozen=True, slots=True)
class LogTimes:
    """What is known of a log over time."""

    ends: Points
    """How long it was at a time."""
    written: Sequence[tuple[int, Millis]]
    """Offsets with times, in order: when the record was written, or before when those in front of it were."""


def log_times(times: Sequence[Millis], answers: Mapping[Millis, FirstRecord], end: int) -> LogTimes:
    """What the answers of ListOffsets for these times tell about a log that ends at `end` now.

    >>> log_times([10, 20], {10: FirstRecord(0, 12), 20: FirstRecord(-1, -1)}, end=9)
    LogTimes(ends=[(10, 0), (20, 9)], written=[(0, 10), (0, 12), (9, 20)])
    """
    ends, longest = [], 0
    written: set[tuple[int, Millis]] = set()
    for at in times:
        answer = answers.get(at)
        if answer is None:
            continue
        offset = end if answer.offset < 0 else answer.offset
        # Timestamps need not increase with offsets, but the log only grows.
        longest = max(longest, offset)
        ends.append((at, longest))
        # All records in front of this one are older than the time, and its own time is known.
        written.add((offset, at))
        if answer.offset >= 0 and answer.written >= 0:
            written.add((offset, answer.written))
    return LogTimes(ends, sorted(written))
