"""When was the record at an offset written? Known from a few answers of ListOffsets, for one partition.

ListOffsets only goes from a timestamp to an offset. So a `Timeline` collects its answers, interpolates between two of
them, and says which timestamp to ask for next if they are too far apart. One answer helps every group that reads the
partition. Answers are not enough in two cases: after compaction there may be no record at the offset, and a
transaction's marker takes an offset too. Then the timeline asks for a look at the log itself. Now and then a look also
checks the estimates: if timestamps do not increase with offsets, as in a mirrored topic, only looks can tell.

    timeline = Timeline()
    timeline.advance(start=0, end=1_000, now=60_000)
    timeline.probe(900, now=60_000)               # the timestamp to ask for
    timeline.found(0, 0, 10_000, now=60_000)      # the first record at or after 0 is at offset 0, of time 10 s
    timeline.estimate(900, now=60_000).timestamp  # 55 s, if records came evenly
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from typing import NamedTuple

from ottla.types import Millis

MAX_TIMESTAMP: Millis = -3
"""Ask for the record with the largest timestamp."""
KNOWN_FOR: Millis = 300_000
"""Answers are asked for again after this time, because compaction may have removed the records."""
LEAST_TOLERANCE: Millis = 250
TOLERANCE = 0.025
KEPT = 64


class Sighting(NamedTuple):
    """An answer: every record before `offset` is older than `after`; the record at `offset` has `timestamp`."""

    offset: int
    after: Millis
    timestamp: Millis | None
    """None at the end of the log: nothing was at or after `after`."""
    seen: Millis


class Estimate(NamedTuple):
    """The time of the first record at or after an offset."""

    timestamp: Millis | None
    """None if it is unknown so far, or if there is no such record."""
    error: Millis
    """It is wrong by at most this, if timestamps increase with offsets."""
    is_known: bool
    doubt: Millis = 0
    """How much later the record can be, if there is no record at the offset itself."""


UNKNOWN = Estimate(None, 0, is_known=False)
NO_RECORD = Estimate(None, 0, is_known=True)


class Timeline:
    """What is known about the timestamps of one partition."""

    def __init__(self) -> None:
        self.start = 0
        self.end = 0
        self._grows = False
        self._sightings: list[Sighting] = []
        self._looked: dict[int, Sighting] = {}
        """By position: the record that a look found, or the end of the log."""
        self._is_unordered = False
        self.checked_at: Millis = -1
        """When a look last told whether timestamps increase with offsets."""

    def advance(self, *, start: int, end: int, now: Millis) -> None:
        """Take the bounds of the log."""
        if end < self.end:  # Truncated, or another topic of this name.
            self._sightings.clear()
            self._looked.clear()
        self._grows = 0 < self.end < end
        self.start, self.end = start, end
        old = now - KNOWN_FOR
        self._sightings = [one for one in self._sightings if one.offset >= start and one.seen > old]
        self._looked = {
            position: one
            for position, one in self._looked.items()
            if one.seen > old and one.offset >= start and (one.timestamp is not None or one.offset == end)
        }

    def found(self, asked: Millis, offset: int, timestamp: Millis, *, now: Millis) -> None:
        """Take an answer; offset -1 says that no record is at or after the timestamp."""
        if asked == MAX_TIMESTAMP:
            if offset >= 0:
                self._add(Sighting(offset, timestamp, timestamp, now))
                asked = timestamp + 1
            else:
                asked = 0
            offset = -1
        at = Sighting(self.end, asked, None, now) if offset < 0 else Sighting(offset, asked, timestamp, now)
        self._add(at)

    def looked(self, position: int, offset: int | None, timestamp: Millis, *, now: Millis) -> None:
        """Take what was seen in the log: the first record at or after a position, or that there is none."""
        guess = self.estimate(position, now=now)
        tolerance = tolerance_at(guess.timestamp, now=now)
        if offset is not None and guess.timestamp is not None:
            wrong = abs(guess.timestamp - timestamp)
            self._is_unordered |= wrong > guess.error + guess.doubt + max(tolerance, tolerance_at(timestamp, now=now))
        none = Sighting(self.end, 0, None, now)
        self._looked[position] = none if offset is None else Sighting(offset, 0, timestamp, now)

    def _add(self, sighting: Sighting) -> None:
        place = bisect_left(self._sightings, sighting.offset, key=lambda one: one.offset)
        if place < len(self._sightings) and self._sightings[place].offset == sighting.offset:
            known = self._sightings[place]
            timestamp = known.timestamp if sighting.timestamp is None else sighting.timestamp
            self._sightings[place] = sighting._replace(after=min(known.after, sighting.after), timestamp=timestamp)
        else:
            insort(self._sightings, sighting)

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def estimate(self, position: int, *, now: Millis) -> Estimate:
        """When the first record at or after a position was written."""
        position = max(position, self.start)
        if position >= self.end:
            return NO_RECORD
        if position in self._looked:
            seen = self._looked[position]
            return NO_RECORD if seen.timestamp is None else Estimate(seen.timestamp, 0, is_known=True)
        low, high = self._around(position, now=now)
        if high.timestamp is not None and (high.offset == position or (low is None and high.after <= 0)):
            # ListOffsets finds markers too. Then the next record is what counts.
            after = self._around(high.offset + 1, now=now)[1].timestamp
            return Estimate(high.timestamp, 0, is_known=True, doubt=max((after or now) - high.timestamp, 0))
        if low is None:
            return NO_RECORD if high.timestamp is None and high.after <= 0 else UNKNOWN
        first = low.timestamp or 0
        last = max(high.after, first)
        share = (position - low.offset) / (high.offset - low.offset)
        value = first + round((last - first) * share)
        doubt = (now if high.timestamp is None else high.timestamp) - last
        return Estimate(value, max(value - first, last - value), is_known=True, doubt=max(doubt, 0))

    def probe(self, position: int, *, now: Millis, attempt: int = 0, max_timestamp: bool = True) -> Millis | None:
        """The timestamp to ask for next; None if the estimate is good enough, or a look must decide.

        Brokers before Kafka 3.0 do not know the record with the largest timestamp.
        """
        guess = self.estimate(position, now=now)
        if not guess.is_known:
            return 0
        tolerance = tolerance_at(guess.timestamp, now=now)
        if guess.timestamp is None or guess.error <= tolerance:
            return None
        low, high = self._around(max(position, self.start), now=now)
        first = (low.timestamp if low is not None else None) or 0
        if high.offset == self.end and high.after == now and max_timestamp and not self._grows:
            return MAX_TIMESTAMP
        middle = first + (high.after - first) // 2
        if attempt % 3 == 2 or high.after - first <= 2:
            asked = middle
        elif guess.timestamp - first > tolerance:
            asked = guess.timestamp - tolerance // 2
        else:
            asked = guess.timestamp + tolerance // 2
        asked = min(max(asked, first + 1), high.after - 1)
        return asked if first < asked < high.after else None

    def needs_look(self, position: int, *, now: Millis) -> bool:
        """Whether only the log itself can tell: the record at the position may be missing, or be a marker."""
        guess = self.estimate(position, now=now)
        if guess.timestamp is None or position in self._looked:
            return False
        if self._is_unordered:
            return True
        return guess.error <= tolerance_at(guess.timestamp, now=now) < guess.doubt

    def keep(self, positions: Iterable[int]) -> None:
        """Forget answers that are not next to one of these positions, if there are many."""
        wanted = set(positions)
        self._looked = {position: one for position, one in self._looked.items() if position in wanted}
        if len(self._sightings) <= KEPT:
            return
        kept: set[int] = {len(self._sightings) - 1}
        for position in wanted:
            place = bisect_left(self._sightings, position, key=lambda one: one.offset)
            kept.update({place - 1, place})
        self._sightings = [one for place, one in enumerate(self._sightings) if place in kept]

    def _around(self, position: int, *, now: Millis) -> tuple[Sighting | None, Sighting]:
        """The nearest answers before the position, and at or after it."""
        place = bisect_left(self._sightings, position, key=lambda one: one.offset)
        # What was the end of the log says nothing about the record that is there now.
        after = (one for one in self._sightings[place:] if one.timestamp is not None or one.offset > position)
        high = next(after, Sighting(self.end, now, None, now))
        before = (one for one in reversed(self._sightings[:place]) if one.timestamp is not None)
        return next(before, None), high


def tolerance_at(timestamp: Millis | None, *, now: Millis) -> Millis:
    """How wrong the time of a record may be: a quarter of a second, or 2.5 % of its age."""
    return max(LEAST_TOLERANCE, int(TOLERANCE * (now - (timestamp or now))))
