"""Committed offsets: how far each group has read. The group has checked whether a member may commit.

An offset is stored under the key of its record. If a group commits the same partitions again and again in packed form,
only its last commit is stored, until it commits something else. Offsets of open transactions wait in ``open`` until the
transaction ends. If a plain and a transactional commit meet, the one whose record is later in the log wins. The
transactional one then waits without a value, because the offset is not stable until its transaction has ended.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias
from uuid import UUID

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.effects import Effects
from ottla.records import PackedCommits, make_commits
from ottla.types import Millis, TopicPartition

NO_PRODUCER = -1
Place: TypeAlias = tuple[str, int]
"""A topic and a partition."""
IsExpired: TypeAlias = Callable[[r.OffsetCommitValue], bool]
Committed: TypeAlias = dict[r.OffsetCommitKey, r.OffsetCommitValue]
Open: TypeAlias = dict[r.OffsetCommitKey, dict[int, r.OffsetCommitValue | None]]
"""The offsets of each producer's transaction, in the order of the log. None if a later commit has won."""
ANY_LENGTH = 2**62


class Offsets:
    """The committed offsets of all groups of a shard."""

    def __init__(self, metadata_max: int) -> None:
        self._metadata_max = metadata_max
        self._committed: dict[str, Committed | PackedCommits] = {}
        self._open: dict[str, Open] = {}
        self._transactions: dict[int, dict[r.OffsetCommitKey, None]] = {}
        """The keys of the offsets in the open transaction of a producer."""

    def _of(self, group_id: str) -> Committed:
        """Return the offsets of a group for reading."""
        found = self._committed.get(group_id)
        return found if isinstance(found, dict) else dict(found or ())

    def _own(self, group_id: str) -> Committed:
        """Return the offsets of a group for writing."""
        found = self._committed[group_id] = self._of(group_id)
        return found

    # ── commit ────────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(
        self,
        group_id: str,
        offsets: Sequence[m.Offset],
        fx: Effects,
        *,
        expires_at: Millis = -1,
    ) -> m.CommitResponse:
        """Write the records of a commit that the group allows."""
        codes = (0,) * len(offsets)
        records = make_commits(group_id, offsets, fx.now, expires_at, self._metadata_max, r.COMMIT_TYPES)
        if records is None:
            codes = tuple(map(self._problem, offsets))
            taken = [offset for offset, code in zip(offsets, codes, strict=True) if not code]
            records = make_commits(group_id, taken, fx.now, expires_at, ANY_LENGTH, r.COMMIT_TYPES)
            assert records is not None
        fx.records += records
        return m.CommitResponse(codes)

    def _problem(self, offset: m.Offset) -> int:
        metadata = offset[4]
        is_long = metadata and _utf16_length(metadata) > self._metadata_max
        return errors.OffsetMetadataTooLarge.code if is_long else 0

    # ── fetch ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def fetch(self, request: m.FetchRequest) -> m.FetchResponse:
        """Return the requested offsets, or -1 where there is none."""
        group_id = request.group_id
        committed = self._of(group_id)
        unstable = self._open.get(group_id, {}) if request.require_stable else {}
        if request.topics is None:
            wanted: Iterable[tuple[Any, UUID | None]] = ((key, None) for key in committed)
        else:  # Plain tuples work as keys.
            wanted = (((group_id, t.topic, number), t.topic_id) for t in request.topics for number in t.partitions)
        return m.FetchResponse(
            group_id=group_id,
            partitions=tuple(_fetched(key, topic_id, committed, unstable) for key, topic_id in wanted),
        )

    def get(self, group_id: str, topic: str, partition: int) -> r.OffsetCommitValue | None:
        """Return one committed offset."""
        return self._of(group_id).get(r.OffsetCommitKey(group_id, topic, partition))

    def of_group(self, group_id: str) -> dict[TopicPartition, r.OffsetCommitValue]:
        """Return all committed offsets of a group."""
        committed = self._of(group_id)
        return {TopicPartition(key.topic, key.partition): value for key, value in committed.items()}

    @property
    def count(self) -> int:
        return sum(len(self._of(group_id)) for group_id in self._committed)

    # ── delete, expire ────────────────────────────────────────────────────────────────────────────────────────────

    def delete(self, group_id: str, places: Iterable[Place], fx: Effects) -> None:
        """Write tombstones for the places that have an offset, committed or in a transaction."""
        committed, pending = self._of(group_id), self._open.get(group_id, {})
        for place in places:
            key = r.OffsetCommitKey(group_id, *place)
            if key in committed or key in pending:
                fx.write(key, None)

    def delete_group(self, group_id: str, fx: Effects) -> None:
        """Write tombstones for all offsets of a group."""
        for key in self._keys(group_id):
            fx.write(key, None)

    def delete_partitions(self, partitions: Iterable[TopicPartition], fx: Effects) -> None:
        """Write tombstones in every group for deleted partitions."""
        gone = dict.fromkeys((partition.topic, partition.partition) for partition in partitions)
        for group_id in dict.fromkeys((*self._committed, *self._open)):
            places: Iterable[Place] = gone
            if len(self._committed.get(group_id, ())) + len(self._open.get(group_id, ())) < len(gone):
                # Most groups never read the topic, and it may have many partitions: do not look up each one.
                places = [key[1:] for key in self._keys(group_id) if key[1:] in gone]
            self.delete(group_id, places, fx)

    def expire(self, group_id: str, is_subscribed: Callable[[str], bool], is_expired: IsExpired, fx: Effects) -> bool:
        """Write tombstones for expired offsets. Return whether the group has no offsets left."""
        committed, pending = self._of(group_id), self._open.get(group_id, {})
        gone = [
            key
            for key, value in committed.items()
            if key not in pending and not is_subscribed(key.topic) and is_expired(value)
        ]
        for key in gone:
            fx.write(key, None)
        return len(gone) == len(committed) and not pending

    def has_any(self, group_id: str) -> bool:
        return group_id in self._committed or group_id in self._open

    def _keys(self, group_id: str) -> Iterator[r.OffsetCommitKey]:
        committed = self._of(group_id)
        yield from committed
        yield from (key for key in self._open.get(group_id, {}) if key not in committed)

    # ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, key: r.OffsetCommitKey, value: r.OffsetCommitValue | None, producer_id: int) -> None:
        """Replay the record of a commit. It may belong to the transaction of a producer."""
        group_id = key.group_id
        if value is None:
            self._forget(key)
        elif producer_id == NO_PRODUCER:
            if group_id in self._open:
                self._overtake(key)
            self._own(group_id)[key] = value
        else:
            waiting = self._open.setdefault(group_id, {}).setdefault(key, {})
            waiting.pop(producer_id, None)
            waiting[producer_id] = value
            self._transactions.setdefault(producer_id, {})[key] = None

    def replay_packed(self, group_id: str, commits: PackedCommits) -> None:
        """Replay a packed commit of one group."""
        if group_id in self._open:
            for key, value in commits:
                self.replay(key, value, NO_PRODUCER)
        elif commits.replaces(self._committed.get(group_id)):
            self._committed[group_id] = commits
        else:
            self._own(group_id).update(commits)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction: its offsets become valid or are dropped."""
        for key in self._transactions.pop(producer_id, ()):
            waiting = self._open[key.group_id][key]
            value = waiting[producer_id]
            if committed and value is not None:
                self._overtake(key, producer_id)
                self._own(key.group_id)[key] = value
            del waiting[producer_id]
            if not waiting:
                _discard(self._open, key)

    def _overtake(self, key: r.OffsetCommitKey, producer_id: int = NO_PRODUCER) -> None:
        """Drop the values that wait and are earlier in the log than this producer's offset, or than a plain commit."""
        for earlier in (waiting := self._open[key.group_id].get(key, {})):
            if earlier == producer_id:
                break
            waiting[earlier] = None

    def _forget(self, key: r.OffsetCommitKey) -> None:
        if key.group_id in self._committed:
            self._own(key.group_id)
        _discard(self._committed, key)
        for producer_id in self._open.get(key.group_id, {}).get(key, ()):
            del self._transactions[producer_id][key]
        _discard(self._open, key)


def _discard(table: dict[str, Any], key: r.OffsetCommitKey) -> None:
    inner = table.get(key.group_id)
    if inner is not None and inner.pop(key, None) is not None and not inner:
        del table[key.group_id]


def _fetched(key: r.OffsetCommitKey, topic_id: UUID | None, committed: Committed, unstable: Open) -> m.FetchedPartition:
    _, topic, partition = key
    if key in unstable:
        return m.FetchedPartition(topic, partition, error_code=errors.UnstableOffsetCommit.code)
    value = committed.get(key)
    if value is None:
        return m.FetchedPartition(topic, partition)
    offset, leader_epoch, metadata, _, _, committed_id = value
    # The topic may have been deleted and created again under the same name.
    if topic_id and committed_id and topic_id != committed_id:
        return m.FetchedPartition(topic, partition)
    return m.FetchedPartition(topic, partition, offset, leader_epoch, metadata)


def _utf16_length(text: str) -> int:
    """Return the length as Java counts it, which is what the limit means."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
