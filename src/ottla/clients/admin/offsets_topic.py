"""Reads ``__consumer_offsets``: plain fetches of its partitions, decoded record by record.

Coordinators store their state there: committed offsets, groups, and, if the broker is ottla's, why each group
rebalanced. `Entry` is one record; files of the topic are read by the same `entries`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, list_offsets, with_partition
from ottla.clients.cluster.plain_fetch import fetch_plainly
from ottla.consuming.batches import marker_of
from ottla.coordinator import records as r
from ottla.coordinator.coordinator import partition_for
from ottla.coordinator.history import UNDER_WAY
from ottla.coordinator.serde import CorruptRecord, content, decode
from ottla.errors import CorruptMessage, KafkaError
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.monitoring.derived import Derived, GroupView
from ottla.records import BatchHeader, Buffer, CorruptBatch, Record, decode_batch, scan
from ottla.types import Millis, TopicPartition

T = TypeVar("T")
FETCH_BYTES = 8 * 1024 * 1024
AT_ONCE = 1_000
"""How many records are decoded before others may run."""
MOST_COMMITS = 2_000
"""How many commits of a partition a `GroupReader` keeps."""


@dataclass(frozen=True, slots=True)
class Transaction:
    """The producer whose transaction a record belongs to, or ends."""

    producer_id: int
    producer_epoch: int
    marker: str | None = None
    """For the record that ends it: commit or abort."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record of the topic: decoded, or a transaction's end, or with the reason why it cannot be read.

    With a `problem`, at most the key is known.
    """

    partition: int | None
    offset: int
    timestamp: Millis
    record: r.CoordinatorRecord | None
    transaction: Transaction | None = None
    problem: str | None = None

    @property
    def group_id(self) -> str | None:
        """The group of the record; None if unknown."""
        return getattr(self.record.key, "group_id", None) if self.record is not None else None

    @property
    def is_tombstone(self) -> bool:
        """Whether it deletes the value of its key."""
        if self.record is None or self.problem is not None:
            return False
        key = self.record.key
        return key.value is None if isinstance(key, r.UnknownKey) else self.record.is_tombstone


# ── from a running broker ─────────────────────────────────────────────────────────────────────────────────────────


async def partition_count(cluster: Cluster) -> int:
    """How many partitions the topic has; UnknownTopicOrPartition if there has never been a group."""
    return len((await cluster.topic(CONSUMER_OFFSETS)).partitions)


async def partition_of(cluster: Cluster, group: str) -> int:
    """The partition of a group."""
    return partition_for(group, await partition_count(cluster))


async def read_entries(cluster: Cluster, partition: int, first: int = 0) -> AsyncIterator[Entry]:
    """All records of a partition, from its start or from an offset to its present end."""
    key = TopicPartition(CONSUMER_OFFSETS, partition)
    position, end = await _offset(cluster, key, EARLIEST_TIMESTAMP), await _offset(cluster, key, LATEST_TIMESTAMP)
    position = max(position, first)
    while position < end:
        data = _result(
            key,
            (await cluster.by_leader({key: position}, partial(fetch_plainly, cluster, most_bytes=FETCH_BYTES)))[key],
        )
        found = scan(data, 0, len(data))
        if not found.batches:
            raise CorruptMessage(f"partition {key} cannot be read at offset {position}: {found.problem or 'no batch'}")
        for start, header in found.batches:
            for entry in entries(data, start, header, partition=partition):
                if position <= entry.offset < end:
                    yield entry
        position = max(position, found.batches[-1][1].next_offset)


async def _offset(cluster: Cluster, key: TopicPartition, timestamp: Millis) -> int:
    found = await cluster.by_leader({key: timestamp}, partial(list_offsets, cluster))
    return _result(key, found[key]).offset


def _result(key: TopicPartition, outcome: T | KafkaError) -> T:
    if isinstance(outcome, KafkaError):
        raise with_partition(outcome, key)
    return outcome


# ── from bytes ────────────────────────────────────────────────────────────────────────────────────────────────────


def entries(data: Buffer, position: int, header: BatchHeader, *, partition: int | None) -> Iterator[Entry]:
    """The records of one batch."""
    try:
        records = decode_batch(data, position)
    except CorruptBatch as error:
        yield Entry(partition, header.base_offset, header.max_timestamp, None, problem=error.reason)
        return
    for record in records:
        yield _entry(record, header, partition)


def _entry(record: Record, header: BatchHeader, partition: int | None) -> Entry:
    transaction = None
    if header.is_transactional:
        marker = marker_of(record.key) if header.is_control else None
        transaction = Transaction(header.producer_id, header.producer_epoch, marker)
    decoded, problem = None, None
    if not header.is_control:
        decoded, problem = _decode(record)
    return Entry(partition, record.offset, record.timestamp, decoded, transaction, problem)


def _decode(record: Record) -> tuple[r.CoordinatorRecord | None, str | None]:
    if record.key is None:
        return None, "it has no key"
    try:
        return decode(record.key, content(record.value, record.headers)), None
    except CorruptRecord as error:
        return _key_alone(record.key), str(error)


def _key_alone(key: bytes) -> r.CoordinatorRecord | None:
    """The key of a record whose value cannot be read."""
    try:
        return decode(key, None)
    except CorruptRecord:
        return None


# ── the history of a group ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class GroupHistory:
    """What the records of a group say about its rebalances."""

    rebalances: tuple[r.HistoryValue, ...]
    """Those that are over, the oldest first."""
    under_way: r.HistoryValue | None
    generation: int
    """The last generation (or group epoch) in a record; 0 if the group never had one."""
    derived: tuple[Derived, ...] = ()
    """What Kafka's own records show of its rebalances, the oldest first."""


class GroupReader:
    """Reads the records of one group, and later only what is new.

    reader = GroupReader(cluster, "billing")
    history = await reader.read()
    reader.commits[TopicPartition("orders", 0)]     # [(when, offset), …]
    """

    def __init__(self, cluster: Cluster, group: str) -> None:
        self._cluster = cluster
        self._group = group
        self._position = 0
        self._slots: dict[r.Key, r.HistoryValue] = {}
        self._generation = 0
        self._view = GroupView()
        self._derived: list[Derived] = []
        self.commits: dict[TopicPartition, list[tuple[Millis, int]]] = {}
        """When the group committed what, as far as compaction has left it. Some of many are left out."""

    async def read(self) -> GroupHistory:
        """What is known of the rebalances of the group, with all that is new."""
        partition = await partition_of(self._cluster, self._group)
        async for entry in read_entries(self._cluster, partition, self._position):
            self._position = max(self._position, entry.offset + 1)
            if entry.record is not None and entry.group_id == self._group:
                self._take(entry, entry.record)
            if entry.offset % AT_ONCE == 0:
                await asyncio.sleep(0)  # There may be millions.
        return self.history

    @property
    def history(self) -> GroupHistory:
        """What is known of the rebalances so far."""
        told = sorted(self._slots.values(), key=lambda one: one.number)
        over = tuple(one for one in told if one.outcome != UNDER_WAY)
        under_way = next((one for one in told if one.outcome == UNDER_WAY), None)
        return GroupHistory(over, under_way, self._generation, tuple(self._derived))

    def _take(self, entry: Entry, record: r.CoordinatorRecord) -> None:
        key, value = record
        if isinstance(key, r.OffsetCommitKey):
            self._commit(TopicPartition(key.topic, key.partition), value, entry.timestamp)
            return
        change = self._view.feed(record, entry.timestamp)
        self._derived += [change] if change is not None else []
        if isinstance(key, r.HistoryKey | r.OldHistoryKey):
            self._slots.pop(key, None)
            if isinstance(value, r.HistoryValue):
                self._slots[key] = value
        elif isinstance(value, r.GroupMetadataValue):
            self._generation = value.generation
        elif isinstance(value, r.ConsumerGroupMetadataValue):
            self._generation = value.epoch

    def _commit(self, key: TopicPartition, value: object, at: Millis) -> None:
        if not isinstance(value, r.OffsetCommitValue):
            self.commits.pop(key, None)
            return
        known = self.commits.setdefault(key, [])
        known.append((at, value.offset))
        if len(known) > MOST_COMMITS:
            del known[1:-1:2]


async def read_history(cluster: Cluster, group: str) -> GroupHistory:
    """Read why a group rebalanced, as far as its broker recorded it."""
    return await GroupReader(cluster, group).read()
