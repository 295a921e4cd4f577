"""Committed offsets: how far each group has read. Whether a member may commit is the group's to say, not checked here.

Offsets of open transactions wait in ``pending`` by producer id until the transaction ends. Where a plain commit and a
transactional one meet, the one whose record is later in the log wins; records are replayed in that order, so a counter
tells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.effects import Effects
from ottla.types import Millis, TopicPartition

NO_PRODUCER = -1
Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""
CheckPartition: TypeAlias = Callable[[str, UUID | None, int], None]
"""Raises if a member may not commit this partition: its topic, the topic's id and the number."""
IsExpired: TypeAlias = Callable[[r.OffsetCommitValue], bool]


class Stored(NamedTuple):
    value: r.OffsetCommitValue
    order: int


class Offsets:
    """The committed offsets of all groups of a shard."""

    def __init__(self, metadata_max: int) -> None:
        self._metadata_max = metadata_max
        self._committed: dict[str, dict[Place, Stored]] = {}
        self._pending: dict[int, dict[tuple[str, Place], Stored]] = {}
        self._open: dict[str, dict[Place, set[int]]] = {}
        self._order = 0

    # ── commit ────────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(
        self,
        group_id: str,
        offsets: Iterable[m.OffsetToCommit],
        fx: Effects,
        *,
        check: CheckPartition | None = None,
        expires_at: Millis = -1,
    ) -> m.CommitResponse:
        """Write the records of a commit that the group has agreed to."""
        answers, records, now = [], fx.records, fx.now
        for topic, partition, offset, leader_epoch, metadata, topic_id in offsets:
            metadata = metadata or ""
            if _utf16_length(metadata) > self._metadata_max:
                answers.append(m.CommittedPartition(topic, partition, errors.OffsetMetadataTooLarge.code))
                continue
            if check is not None:
                check(topic, topic_id, partition)
            key = r.OffsetCommitKey(group_id, topic, partition)
            value = r.OffsetCommitValue(offset, leader_epoch, metadata, now, expires_at, topic_id)
            records.append(r.CoordinatorRecord(key, value))
            answers.append(m.CommittedPartition(topic, partition))
        return m.CommitResponse(tuple(answers))

    # ── fetch ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def fetch(self, request: m.FetchRequest) -> m.FetchResponse:
        """Return the offsets that were asked for, -1 where there is none."""
        committed = self._committed.get(request.group_id, {})
        unstable = self._open.get(request.group_id, {}) if request.require_stable else {}
        if request.topics is None:
            wanted: Iterable[tuple[Place, UUID | None]] = ((place, None) for place in committed)
        else:
            wanted = (((t.topic, number), t.topic_id) for t in request.topics for number in t.partitions)
        return m.FetchResponse(
            group_id=request.group_id,
            partitions=tuple(_fetched(place, topic_id, committed, unstable) for place, topic_id in wanted),
        )

    def get(self, group_id: str, topic: str, partition: int) -> r.OffsetCommitValue | None:
        """Return one committed offset."""
        stored = self._committed.get(group_id, {}).get((topic, partition))
        return stored.value if stored else None

    def of_group(self, group_id: str) -> dict[TopicPartition, r.OffsetCommitValue]:
        """Return all committed offsets of a group."""
        return {TopicPartition(*place): stored.value for place, stored in self._committed.get(group_id, {}).items()}

    @property
    def count(self) -> int:
        return sum(map(len, self._committed.values()))

    # ── delete, expire ────────────────────────────────────────────────────────────────────────────────────────────

    def delete(self, group_id: str, places: Iterable[Place], fx: Effects) -> None:
        """Write tombstones for those of the places that have an offset, committed or pending."""
        committed, pending = self._committed.get(group_id, {}), self._open.get(group_id, {})
        for place in places:
            if place in committed or place in pending:
                fx.write(r.OffsetCommitKey(group_id, *place), None)

    def delete_group(self, group_id: str, fx: Effects) -> None:
        """Write tombstones for everything that the group has committed."""
        self.delete(group_id, list(self._places(group_id)), fx)

    def delete_partitions(self, partitions: Iterable[TopicPartition], fx: Effects) -> None:
        """Write tombstones in every group for partitions that are no more."""
        places = [(partition.topic, partition.partition) for partition in partitions]
        for group_id in dict.fromkeys((*self._committed, *self._open)):
            self.delete(group_id, places, fx)

    def expire(self, group_id: str, is_subscribed: Callable[[str], bool], is_expired: IsExpired, fx: Effects) -> bool:
        """Write tombstones for what has expired; return whether the group has nothing left."""
        pending = self._open.get(group_id, {})
        gone = [
            place
            for place, stored in self._committed.get(group_id, {}).items()
            if place not in pending and not is_subscribed(place[0]) and is_expired(stored.value)
        ]
        self.delete(group_id, gone, fx)
        return len(gone) == len(self._committed.get(group_id, {})) and not pending

    def has_any(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._open

    def _places(self, group_id: str) -> Iterator[Place]:
        committed = self._committed.get(group_id, {})
        yield from committed
        yield from (place for place in self._open.get(group_id, {}) if place not in committed)

    # ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, key: r.OffsetCommitKey, value: r.OffsetCommitValue | None, producer_id: int) -> None:
        """Take a record of a commit, of the transaction of a producer if there is one."""
        place = (key.topic, key.partition)
        self._order += 1
        if value is None:
            self._forget(key.group_id, place)
        elif producer_id == NO_PRODUCER:
            self._committed.setdefault(key.group_id, {})[place] = Stored(value, self._order)
        else:
            self._pending.setdefault(producer_id, {})[key.group_id, place] = Stored(value, self._order)
            self._open.setdefault(key.group_id, {}).setdefault(place, set()).add(producer_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Take the end of a producer's transaction: its offsets count now, or never."""
        for (group_id, place), stored in self._pending.pop(producer_id, {}).items():
            self._close(group_id, place, producer_id)
            present = self._committed.get(group_id, {}).get(place)
            if committed and (present is None or present.order < stored.order):
                self._committed.setdefault(group_id, {})[place] = stored

    def _forget(self, group_id: str, place: Place) -> None:
        _discard(self._committed, group_id, place)
        for producer_id in self._open.get(group_id, {}).get(place, ()):
            self._pending.get(producer_id, {}).pop((group_id, place), None)
        _discard(self._open, group_id, place)

    def _close(self, group_id: str, place: Place, producer_id: int) -> None:
        producers = self._open.get(group_id, {}).get(place, set())
        producers.discard(producer_id)
        if not producers:
            _discard(self._open, group_id, place)


def _discard(table: dict[str, dict[Place, Any]], group: str, place: Place) -> None:
    inner = table.get(group)
    if inner is not None and inner.pop(place, None) is not None and not inner:
        del table[group]


def _fetched(
    place: Place, topic_id: UUID | None, committed: dict[Place, Stored], unstable: dict[Place, set[int]]
) -> m.FetchedPartition:
    if place in unstable:
        return m.FetchedPartition(*place, error_code=errors.UnstableOffsetCommit.code)
    stored = committed.get(place)
    # An offset of a topic that was deleted and made again under the same name says nothing of the new one.
    if stored is None or (topic_id and stored.value.topic_id and topic_id != stored.value.topic_id):
        return m.FetchedPartition(*place)
    value = stored.value
    return m.FetchedPartition(*place, value.offset, value.leader_epoch, value.metadata)


def _utf16_length(text: str) -> int:
    """The length as Java counts it, which is what the limit means."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
