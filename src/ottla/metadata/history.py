"""The last changes of each partition, for ``ottla cluster explain``.

The history follows from the records, so every broker has it. It is part of the snapshot. Its size has a limit: with
many partitions each one keeps fewer changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.metadata import records as r
from ottla.metadata.values import NO_LEADER, PartitionState
from ottla.types import Millis

KEPT = 20
"""Changes of one partition."""
LEAST_KEPT = 3
#: About how many changes all partitions may have together: some 10 MB.
MAX_CHANGES = 50_000
CHANGES_PER_RECORD = 2_000
CONFIG_PREFIX = "ottla.history."
"""DescribeConfigs of a topic has the changes of a partition under this name and its number, if it is asked for it."""


class Change(NamedTuple):
    """A partition from a time on."""

    at: Millis
    """0 for the state before the first change that is known."""
    reason: str
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...] = ()


class Reign(NamedTuple):
    """A time in which a broker led a partition, or nobody did."""

    leader: int
    leader_epoch: int
    since: Millis
    until: Millis | None
    """None: now."""
    reason: str


class Move(NamedTuple):
    """The leadership of a partition that came to another broker, or back to the same one."""

    at: Millis
    source: int
    target: int
    without: Millis
    """How long nobody led."""
    reason: str


class Absence(NamedTuple):
    """A time in which a replica was not in the ISR."""

    broker_id: int
    since: Millis
    until: Millis | None
    """None: it is still out."""
    reason: str


@dataclass(slots=True)
class History:
    """The last changes of all partitions."""

    _changes: dict[str, dict[int, list[Change]]] = field(default_factory=dict)
    _partitions: int = 0

    def of(self, topic: str, partition: int) -> Sequence[Change]:
        """Return the changes of a partition that are known, the oldest first."""
        return tuple(self._changes.get(topic, {}).get(partition, ()))

    def add(self, record: r.PartitionsChanged, before: Sequence[PartitionState]) -> None:
        """Note the changes of a record. ``before`` are the states of the topic's partitions without them."""
        own = self._changes.setdefault(record.name, {})
        kept = max(LEAST_KEPT, min(KEPT, MAX_CHANGES // max(1, self._partitions)))
        for index, state in record.states.items():
            changes = own.get(index)
            if changes is None:
                changes = own[index] = [_change(0, "", before[index])]
                self._partitions += 1
            changes.append(_change(record.at, record.reason, state))
            del changes[:-kept]

    def restore(self, record: r.HistoryKept) -> None:
        """Take over the changes of a snapshot."""
        own = self._changes.setdefault(record.name, {})
        self._partitions += len(record.changes.keys() - own.keys())
        for index, rows in record.changes.items():
            own[index] = [_read(row) for row in rows]

    def forget(self, topic: str) -> None:
        """Drop the changes of a deleted topic."""
        self._partitions -= len(self._changes.pop(topic, {}))

    def snapshot(self, topic: str) -> Iterator[r.HistoryKept]:
        """Yield the records from which `restore` makes the history of a topic."""
        rows: dict[int, list[tuple[object, ...]]] = {}
        size = 0
        for index, changes in self._changes.get(topic, {}).items():
            if size + len(changes) > CHANGES_PER_RECORD:
                yield r.HistoryKept(topic, rows)
                rows, size = {}, 0
            rows[index] = [tuple(change) for change in changes]
            size += len(changes)
        if rows:
            yield r.HistoryKept(topic, rows)


def reigns(changes: Sequence[Change]) -> list[Reign]:
    """Return who led when, and what ended the time of the leader before.

    >>> changes = [Change(0, "", 1, 0, (1, 2)), Change(50, "broker 1 stopped", 2, 1, (2,))]
    >>> [(each.leader, each.since, each.until) for each in reigns(changes)]
    [(1, 0, 50), (2, 50, None)]
    """
    found: list[Reign] = []
    for change in changes:
        if found and (found[-1].leader, found[-1].leader_epoch) == (change.leader, change.leader_epoch):
            continue
        if found:
            found[-1] = found[-1]._replace(until=change.at)
        found.append(Reign(change.leader, change.leader_epoch, change.at, None, change.reason))
    return found


def moves(changes: Sequence[Change]) -> list[Move]:
    """Return when the leadership moved, and why.

    >>> gone, back = Change(50, "broker 1 stopped", NO_LEADER, 1, ()), Change(90, "broker 2 started", 2, 2, (2,))
    >>> moves([Change(0, "", 1, 0, (1,)), gone, back])
    [Move(at=90, source=1, target=2, without=40, reason='broker 1 stopped')]
    """
    found: list[Move] = []
    led = lost = None
    for reign in reigns(changes):
        if reign.leader == NO_LEADER:
            lost = lost or reign
        else:
            if led is not None and (lost is not None or reign.leader != led.leader):
                left = lost or reign
                found.append(Move(reign.since, led.leader, reign.leader, reign.since - left.since, left.reason))
            led, lost = reign, None
    return found


def absences(changes: Sequence[Change]) -> list[Absence]:
    """Return who left the ISR, why, and when they came back.

    >>> out, back = Change(50, "broker 2 is too slow", 1, 0, (1,)), Change(90, "broker 2 caught up", 1, 0, (1, 2))
    >>> absences([Change(0, "", 1, 0, (1, 2)), out, back])
    [Absence(broker_id=2, since=50, until=90, reason='broker 2 is too slow')]
    """
    found: list[Absence] = []
    before: set[int] = set()
    for change in changes:
        for number, each in enumerate(found):
            if each.until is None and each.broker_id in change.isr:
                found[number] = each._replace(until=change.at)
        found += [Absence(each, change.at, None, change.reason) for each in sorted(before - set(change.isr))]
        before = set(change.isr)
    return found


def to_text(changes: Sequence[Change]) -> str:
    """Return changes as JSON: one list for each."""
    return json.dumps(changes, separators=(",", ":"))


def from_text(text: str) -> list[Change]:
    """Read what `to_text` wrote.

    >>> from_text(to_text([Change(5, "broker 1 stopped", 2, 1, (2,))]))
    [Change(at=5, reason='broker 1 stopped', leader=2, leader_epoch=1, isr=(2,), elr=())]
    """
    return [_read(row) for row in json.loads(text)]


def _read(row: Sequence[Any]) -> Change:
    at, reason, leader, epoch, isr, elr = row
    return Change(at, reason, leader, epoch, tuple(isr), tuple(elr))


def _change(at: Millis, reason: str, state: PartitionState) -> Change:
    return Change(at, reason, state.leader, state.leader_epoch, state.isr, state.elr)
