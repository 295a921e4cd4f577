"""What users of a consumer see: records, offsets, and the classes that they subclass.

`ConsumerRecord` comes from the kernels of `ottla.records`. Its fields are topic, partition, offset, timestamp,
timestamp_type (0: set by the producer, 1: by the broker), key, value, headers (pairs of name and bytes), leader_epoch,
serialized_key_size and serialized_value_size (-1 for null).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

from ottla.records.consumed import ConsumerRecord
from ottla.suggestions import missing_methods
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
    """The epoch of the last record before the offset: it reveals that the log was truncated."""


class OffsetAndMetadata(_OffsetAndMetadata):
    """What is committed for a partition: the next offset to read, and any text.

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


_EACH = "it is a list of records, which may be empty: write `for record in records:`"
#: What other clients return from a poll has these: one message (confluent-kafka), or a dict (kafka-python, aiokafka).
_ELSEWHERE = {
    "error": f"{_EACH}. Errors are raised",
    **{
        name: f"{_EACH}, and then record.{name}, without parentheses"
        for name in ("topic", "partition", "offset", "key", "value", "headers", "timestamp", "leader_epoch")
    },
    **{name: f"write by_partition().{name}()" for name in ("items", "keys", "values")},
}


@missing_methods(_ELSEWHERE)
class ConsumerRecords(list[ConsumerRecord]):
    """The records of one poll: a list of all of them, in order within each partition.

    >>> found = ConsumerRecords([ConsumerRecord("orders", 0, 7)])
    >>> len(found.records(TopicPartition("orders", 0))), found.partitions()
    (1, {TopicPartition(topic='orders', partition=0)})
    """

    __slots__ = ()

    def partitions(self) -> set[TopicPartition]:
        """The partitions of these records."""
        return {TopicPartition(*pair) for pair in {(record.topic, record.partition) for record in self}}

    def records(self, wanted: TopicPartition | str) -> list[ConsumerRecord]:
        """The records of a partition or of a topic."""
        if isinstance(wanted, str):
            return [record for record in self if record.topic == wanted]
        return [record for record in self if record.partition == wanted.partition and record.topic == wanted.topic]

    def by_partition(self) -> dict[TopicPartition, list[ConsumerRecord]]:
        """All records by partition: what ``poll`` of kafka-python and ``getmany`` of aiokafka return."""
        found: dict[tuple[str, int], list[ConsumerRecord]] = {}
        for record in self:
            found.setdefault((record.topic, record.partition), []).append(record)
        return {TopicPartition(*key): records for key, records in found.items()}

    def count(self, *value: Any) -> int:
        """The number of records (with an argument: how often it occurs, as in any list)."""
        return super().count(*value) if value else len(self)


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadata:
    """The identity of a consumer in its group, which a transactional producer sends with offsets."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class RebalanceListener:
    """Called for what a rebalance revokes and assigns, inside ``poll`` and on its thread. Subclass it and override.

    An eager rebalance revokes everything first; a cooperative one only what moves. ``on_partitions_lost`` is for
    partitions that another member may own already, so nothing can be committed for them; it calls
    ``on_partitions_revoked`` unless it is overridden. With the asyncio consumer, methods may be coroutines.
    """

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> Any:
        """Called before partitions are revoked: the last chance to commit them."""

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> Any:
        """Called with the new partitions after each rebalance: ``seek`` works here."""

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> Any:
        """Called when partitions are lost already."""
        return self.on_partitions_revoked(partitions)


class ConsumerInterceptor:
    """Sees records before the user does, and successful commits. One that raises never breaks the poll."""

    def on_consume(self, records: ConsumerRecords) -> Iterable[ConsumerRecord]:
        """Return the records for the user."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Called when offsets have been committed."""

    def close(self) -> None:
        """Called when the consumer closes."""
