"""What users of a consumer see: records, offsets, and the classes that they write themselves.

`ConsumerRecord` is made by the kernels of `ottla.records`: topic, partition, offset, timestamp, timestamp_type (0: set
by the producer, 1: by the broker), key, value, headers (pairs of name and bytes), leader_epoch,
serialized_key_size and serialized_value_size (-1 for null).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from ottla.records.consumed import ConsumerRecord
from ottla.types import Millis, TopicPartition, whole

__all__ = [
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerRecords",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "RebalanceListener",
]


class _OffsetAndMetadata(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int | None = None
    """Of the last record before the offset; with it a consumer notices that the log was truncated meanwhile."""


class OffsetAndMetadata(_OffsetAndMetadata):
    """What is committed of a partition: the next offset to read, and a text of one's own.

    >>> OffsetAndMetadata(42).metadata
    ''
    """

    __slots__ = ()

    def __new__(cls, offset: int, metadata: str = "", leader_epoch: int | None = None) -> Self:
        return super().__new__(cls, whole(offset, "an offset", least=0), metadata, leader_epoch)


class OffsetAndTimestamp(NamedTuple):
    """The first record at or after a time."""

    offset: int
    timestamp: Millis
    leader_epoch: int | None = None


class ConsumerRecords(list[ConsumerRecord]):
    """The records of one poll: a list of all of them, in order within each partition.

    >>> found = ConsumerRecords([ConsumerRecord("orders", 0, 7)])
    >>> len(found.records(TopicPartition("orders", 0))), found.partitions()
    (1, {TopicPartition(topic='orders', partition=0)})
    """

    __slots__ = ()

    def partitions(self) -> set[TopicPartition]:
        """The partitions that some record is of."""
        return {TopicPartition(*pair) for pair in {(record.topic, record.partition) for record in self}}

    def records(self, wanted: TopicPartition | str) -> list[ConsumerRecord]:
        """The records of a partition or of a topic."""
        if isinstance(wanted, str):
            return [record for record in self if record.topic == wanted]
        return [record for record in self if record.partition == wanted.partition and record.topic == wanted.topic]

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """All records, by their partitions: what ``poll`` of kafka-python and ``getmany`` of aiokafka return."""
        found: dict[tuple[str, int], list[ConsumerRecord]] = {}
        for record in self:
            found.setdefault((record.topic, record.partition), []).append(record)
        return {TopicPartition(*key): records for key, records in found.items()}

    def count(self, *value: Any) -> int:
        """How many records there are (with a record: how often it is there, as of any list)."""
        return super().count(*value) if value else len(self)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """Who a consumer is in its group: what a transactional producer sends with offsets."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RebalanceListener:
    """Is told what a rebalance takes and gives, inside of ``poll`` and on its thread. Subclass it and override.

    An eager rebalance revokes everything first; a cooperative one only what moves. ``on_partitions_lost`` is for
    partitions that somebody else may have already, so that nothing can be committed for them; it calls
    ``on_partitions_revoked`` unless it is overridden. Methods may be coroutines with the asyncio consumer.
    """

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Any:
        """Called before partitions are given up: the last moment to commit them."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Any:
        """Called with the partitions that are new, after each rebalance: ``seek`` works here."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Any:
        """Called when partitions are gone already."""
        return self.on_partitions_revoked(partitions)


class ConsumerInterceptor:
    """Sees records before the user does, and commits after they succeeded. One that raises never breaks the poll."""

    def on_consume(self, records: ConsumerRecords) -> Iterable[ConsumerRecord]:
        """Return the records that the user shall see."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called when offsets have been committed."""

    def close(self) -> None:
        """Called when the consumer closes."""
