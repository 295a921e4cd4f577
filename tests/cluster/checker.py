"""Check what many clients saw of a cluster against what a cluster promises. Pure: a history in, problems out.

A history has what was sent, what was acknowledged at which offset, what was read when and from where, what became of
each transaction, and which offsets groups committed. The rules:

- lost: an acknowledged record is at its offset, if that is known, in the final log and on every replica
- invented: whatever was read was sent, to this partition
- changed: an offset has one value, for all readers, at all times, and on all replicas
- vanished: what a consumer has read once stays
- order: the records of an idempotent producer are in the order in which it sent them
- twice: a record of an idempotent producer is there once
- atomic: a transaction is readable as a whole or not at all, as its producer was told
- skipped: a reader gets every record between its first and its last, in order
- group: the committed offset of a group is the last one that was acknowledged, or one that was tried after it
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

from tests.crash.ledger import UNKNOWN_OFFSET

from ottla.types import TopicPartition

Value = bytes
#: Of each kind of problem this many are told, and how many more there are.
TELL = 5


class Sent(NamedTuple):
    """A record that a producer tried to write. Values are unique."""

    producer: str
    place: TopicPartition
    value: Value
    transaction: str | None = None


class Acked(NamedTuple):
    """A record that the cluster has acknowledged."""

    place: TopicPartition
    offset: int
    """Unknown if the client knows only that the record was written."""
    value: Value


class Read(NamedTuple):
    """A record that a reader got."""

    offset: int
    value: Value


class Outcome(Enum):
    """What the producer of a transaction was told."""

    COMMITTED = "committed"
    ABORTED = "aborted"
    UNKNOWN = "of unknown outcome"


class Commit(NamedTuple):
    """An offset that the only committer of a group tried to commit, in order."""

    offset: int
    acknowledged: bool


@dataclass
class History:
    """Everything that clients saw. Each list is in the order of time."""

    sent: list[Sent] = field(default_factory=list)
    acked: list[Acked] = field(default_factory=list)
    reads: dict[tuple[str, TopicPartition], list[Read]] = field(default_factory=lambda: defaultdict(list))
    """What each consumer of committed records got of each partition, in the order in which it got it."""
    replicas: dict[tuple[int, TopicPartition], list[Read]] = field(default_factory=lambda: defaultdict(list))
    """The final log of each replica, by broker."""
    transactions: dict[str, Outcome] = field(default_factory=dict)
    commits: dict[str, list[Commit]] = field(default_factory=lambda: defaultdict(list))
    """The commits of each group, in order."""
    fetched: list[tuple[str, int, int]] = field(default_factory=list)
    """A group, how many commits had been tried before, and the committed offset that was then fetched."""
    at_least_once: set[str] = field(default_factory=set)
    """Producers without idempotence: they may write a record several times, and later than the next one."""
    transactional: set[str] = field(default_factory=set)
    """Topics with transactions: offsets of markers are not read, and records may be aborted."""

    @property
    def final(self) -> dict[TopicPartition, list[Read]]:
        """The longest replica of each partition."""
        found: dict[TopicPartition, list[Read]] = {}
        for (_, place), log in self.replicas.items():
            if place not in found or len(log) > len(found[place]):
                found[place] = log
        return found


class Problem(NamedTuple):
    """A promise that was not kept."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def check(history: History) -> list[Problem]:
    """Return everything that is wrong, the worst kinds first."""
    found: list[Problem] = []
    for rule in (_lost, _changed, _vanished, _invented, _twice, _order, _atomic, _skipped, _groups):
        found += rule(history)
    return found


def summary(problems: Sequence[Problem]) -> list[str]:
    """Return a few problems of each kind as lines, and how many more there are."""
    lines: list[str] = []
    for kind, count in Counter(each.kind for each in problems).items():
        these = [each for each in problems if each.kind == kind]
        lines += [str(each) for each in these[:TELL]]
        if count > TELL:
            lines.append(f"{kind}: and {count - TELL} more")
    return lines


# ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _lost(history: History) -> Iterator[Problem]:
    logs = {key: dict(log) for key, log in history.replicas.items()}
    values = {key: set(log.values()) for key, log in logs.items()}
    by_place: dict[TopicPartition, list[int]] = defaultdict(list)
    for broker, place in logs:
        by_place[place].append(broker)
    for ack in history.acked:
        if ack.place not in by_place:
            yield Problem("lost", f"{_name(ack.place)} has no replica")
        for broker in by_place[ack.place]:
            if ack.offset == UNKNOWN_OFFSET:
                is_there = ack.value in values[broker, ack.place]
            else:
                is_there = logs[broker, ack.place].get(ack.offset) == ack.value
            if not is_there:
                yield Problem(
                    "lost", f"{_show(ack.value)} at {_name(ack.place)} offset {ack.offset} is not on broker {broker}"
                )


def _changed(history: History) -> Iterator[Problem]:
    first: dict[tuple[TopicPartition, int], tuple[Value, str]] = {}
    for place, offset, value, who in _sightings(history):
        known, by = first.setdefault((place, offset), (value, who))
        if known != value:
            yield Problem(
                "changed", f"{_name(place)} offset {offset} is {_show(known)} for {by} and {_show(value)} for {who}"
            )


def _sightings(history: History) -> Iterator[tuple[TopicPartition, int, Value, str]]:
    for ack in history.acked:
        if ack.offset != UNKNOWN_OFFSET:
            yield ack.place, ack.offset, ack.value, "its producer"
    for (reader, place), reads in history.reads.items():
        for read in reads:
            yield place, read.offset, read.value, reader
    for (broker, place), reads in history.replicas.items():
        for read in reads:
            yield place, read.offset, read.value, f"broker {broker}"


def _vanished(history: History) -> Iterator[Problem]:
    final = {place: {read.offset for read in log} for place, log in history.final.items()}
    for (reader, place), reads in history.reads.items():
        for read in reads:
            if read.offset not in final.get(place, ()):
                yield Problem("vanished", f"{reader} read {_show(read.value)} at {_name(place)} offset {read.offset}")


def _invented(history: History) -> Iterator[Problem]:
    sent = {each.value: each.place for each in history.sent}
    for place, offset, value, who in _sightings(history):
        if value not in sent:
            yield Problem("invented", f"{_show(value)} at {_name(place)} offset {offset} ({who}) was never sent")
        elif sent[value] != place:
            yield Problem("invented", f"{_show(value)} is in {_name(place)}, but was sent to {_name(sent[value])}")


def _twice(history: History) -> Iterator[Problem]:
    exempt = {each.value for each in history.sent if each.producer in history.at_least_once}
    for place, log in history.final.items():
        seen: dict[Value, int] = {}
        for offset, value in log:
            if value in seen and value not in exempt:
                yield Problem("twice", f"{_show(value)} is at {_name(place)} offsets {seen[value]} and {offset}")
            seen.setdefault(value, offset)


def _order(history: History) -> Iterator[Problem]:
    numbers = {each.value: (number, each.producer) for number, each in enumerate(history.sent)}
    for place, log in history.final.items():
        last: dict[str, tuple[int, Value]] = {}
        for _, value in _first_times(log):
            if value not in numbers:
                continue
            number, producer = numbers[value]
            if producer in history.at_least_once:
                continue  # After an election librdkafka sends to the new leader before the old one has answered.
            before = last.get(producer)
            if before is not None and before[0] > number:
                yield Problem("order", f"in {_name(place)} {_show(value)} of {producer} comes after {_show(before[1])}")
            last[producer] = number, value


def _first_times(log: Iterable[Read]) -> Iterator[Read]:
    seen: set[Value] = set()
    for read in log:
        if read.value not in seen:
            seen.add(read.value)
            yield read


def _skipped(history: History) -> Iterator[Problem]:
    """A reader must not leave out anything, except markers and aborted records."""
    final = history.final
    for (reader, place), reads in history.reads.items():
        offsets = [read.offset for read in reads]
        if offsets != sorted(set(offsets)):
            step = next(b for a, b in pairwise(offsets) if b <= a)
            yield Problem("skipped", f"{reader} got {_name(place)} offset {step} again or too late")
        elif offsets and place.topic not in history.transactional:
            wanted = [read.offset for read in final.get(place, ()) if offsets[0] <= read.offset <= offsets[-1]]
            missing = sorted(set(wanted) - set(offsets))
            if missing:
                yield Problem("skipped", f"{reader} did not get {_name(place)} offsets {missing[:5]} of {len(missing)}")


# ── transactions and groups ───────────────────────────────────────────────────────────────────────────────────────


def _atomic(history: History) -> Iterator[Problem]:
    """Judge by the readers of topics with transactions. They have read all partitions to the end."""
    parts: dict[str, list[Sent]] = defaultdict(list)
    for each in history.sent:
        if each.transaction is not None:
            parts[each.transaction].append(each)
    read: dict[str, set[Value]] = defaultdict(set)
    for (reader, place), reads in history.reads.items():
        if place.topic in history.transactional:
            read[reader].update(each.value for each in reads)
    for reader, values in read.items():
        for name, records in parts.items():
            there = sum(each.value in values for each in records)
            outcome = history.transactions.get(name, Outcome.UNKNOWN)
            if outcome is Outcome.COMMITTED and there < len(records):
                yield Problem("atomic", f"{reader} has {there} of {len(records)} records of {name}, which is committed")
            elif outcome is Outcome.ABORTED and there:
                yield Problem("atomic", f"{reader} has {there} records of {name}, which is aborted")
            elif outcome is Outcome.UNKNOWN and there not in (0, len(records)):
                yield Problem("atomic", f"{reader} has {there} of {len(records)} records of {name}")


def _groups(history: History) -> Iterator[Problem]:
    for group, tried, offset in history.fetched:
        commits = history.commits[group][:tried]
        allowed = set()
        for commit in reversed(commits):
            allowed.add(commit.offset)
            if commit.acknowledged:
                break
        else:
            allowed.add(-1)
        if offset not in allowed:
            last = next((each.offset for each in reversed(commits) if each.acknowledged), None)
            yield Problem("group", f"{group} has committed offset {offset}, although {last} was acknowledged last")


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


def _show(value: Value) -> str:
    return value[:24].decode("ascii", "replace")
