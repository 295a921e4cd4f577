"""Lag in seconds of many groups in many partitions, with few questions.

A round of questions is one timestamp for each partition, which is one request for each broker. `Lags.questions` chooses
the position in each partition whose time is known worst, so that a round helps where it is needed most.

Lag in seconds is the age of the oldest record that the group has not read. A group that has read everything has 0.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from ottla.monitoring.timeline import KNOWN_FOR, Timeline, tolerance_at
from ottla.types import Millis, TopicPartition

Positions: TypeAlias = Mapping[TopicPartition, Sequence[int]]
"""The committed offsets of all groups, by partition."""


class Look(NamedTuple):
    """Read the log from a position to its first record."""

    key: TopicPartition
    position: int
    is_check: bool = False
    """Whether the time is known well enough, if timestamps increase with offsets."""


class Lags:
    """The timelines of all partitions that are read by a group."""

    def __init__(self) -> None:
        self._timelines: dict[TopicPartition, Timeline] = {}
        self.max_timestamp = True
        """Whether the brokers can be asked for the record with the largest timestamp."""

    def advance(self, bounds: Mapping[TopicPartition, tuple[int, int]], positions: Positions, *, now: Millis) -> None:
        """Take the starts and ends of the logs, and forget partitions that nobody reads."""
        for key, (start, end) in bounds.items():
            self._timelines.setdefault(key, Timeline()).advance(start=start, end=end, now=now)
        for key in self._timelines.keys() - positions.keys():
            del self._timelines[key]
        for key, timeline in self._timelines.items():
            timeline.keep(positions[key])

    def questions(self, positions: Positions, *, now: Millis, attempt: int) -> dict[TopicPartition, Millis]:
        """The timestamps to ask ListOffsets for, at most one for each partition."""
        asked = {key: self._question(key, some, now=now, attempt=attempt) for key, some in positions.items()}
        return {key: one for key, one in asked.items() if one is not None}

    def _question(self, key: TopicPartition, positions: Iterable[int], *, now: Millis, attempt: int) -> Millis | None:
        timeline = self._timelines.get(key)
        if timeline is None:
            return None

        def badness(position: int) -> float:
            guess = timeline.estimate(position, now=now)
            return guess.error / tolerance_at(guess.timestamp, now=now) if guess.is_known else float("inf")

        worst = max(positions, key=badness, default=None)
        return (
            None if worst is None else timeline.probe(worst, now=now, attempt=attempt, max_timestamp=self.max_timestamp)
        )

    def answered(self, key: TopicPartition, asked: Millis, offset: int, timestamp: Millis, *, now: Millis) -> None:
        """Take the answer to a question."""
        self._timelines[key].found(asked, offset, timestamp, now=now)

    def looks(self, positions: Positions, *, now: Millis, at_most: int) -> list[Look]:
        """Positions that only the log itself can tell about, those with the most doubt first; then some to check."""
        doubts: list[tuple[Millis, Look]] = []
        checks: list[tuple[Millis, Look]] = []
        for key, some in positions.items():
            timeline = self._timelines.get(key)
            if timeline is None:
                continue
            wanted = {one for one in some if timeline.needs_look(one, now=now)}
            doubts += [(timeline.estimate(one, now=now).doubt, Look(key, one)) for one in wanted]
            unread = [one for one in set(some) - wanted if timeline.estimate(one, now=now).timestamp is not None]
            if unread and (timeline.checked_at < 0 or timeline.checked_at + KNOWN_FOR <= now):
                checks.append((timeline.checked_at, Look(key, max(unread), is_check=True)))
        doubtful = [look for _, look in sorted(doubts, reverse=True)]
        return [*doubtful, *(look for _, look in sorted(checks))][:at_most]

    def looked(self, look: Look, offset: int | None, timestamp: Millis, *, now: Millis) -> None:
        """Take what a look found: the first record, or None if there is none up to the end."""
        timeline = self._timelines[look.key]
        timeline.looked(look.position, offset, timestamp, now=now)
        if look.is_check:
            timeline.checked_at = now

    def seconds(self, key: TopicPartition, position: int, *, now: Millis) -> float | None:
        """Lag in seconds of a group at a position; None if it is unknown so far."""
        timeline = self._timelines.get(key)
        if timeline is None:
            return None
        guess = timeline.estimate(position, now=now)
        if not guess.is_known:
            return None
        return 0.0 if guess.timestamp is None else max(now - guess.timestamp, 0) / 1000

    def error(self, key: TopicPartition, position: int, *, now: Millis) -> float:
        """By how many seconds `seconds` can be wrong."""
        timeline = self._timelines.get(key)
        return 0.0 if timeline is None else timeline.estimate(position, now=now).error / 1000
