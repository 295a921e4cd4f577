"""The values that a producer takes and returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.errors import KafkaError
from ottla.records.buffers import Buffer
from ottla.types import BrokerId, Millis, TopicPartition

NO_OFFSET = -1


class RecordMetadata(NamedTuple):
    """Where a record was written.

    >>> RecordMetadata("orders", 2, 41, 1_700_000_000_000, 3, 120).topic_partition
    TopicPartition(topic='orders', partition=2)
    """

    topic: str
    partition: int
    offset: int
    """-1 with acks=0, and for a record that the broker had already."""
    timestamp: Millis
    """The record's own, or the broker's if the topic uses log append time."""
    serialized_key_size: int
    """-1 without a key."""
    serialized_value_size: int
    """-1 without a value."""

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def has_offset(self) -> bool:
        return self.offset != NO_OFFSET


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record as given to `send`: interceptors see it and may replace it (`dataclasses.replace`)."""

    topic: str
    value: Any = None
    key: Any = None
    partition: int | None = None
    timestamp: Millis | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class EncodedBatch(NamedTuple):
    """Encoded records for one partition.

    `payload` is what follows the header, uncompressed, with offset deltas from 0 and timestamps counted from
    `base_timestamp`. A `framed` payload is a bytearray with room for the header in front; it is not copied and belongs
    to the producer from now on.
    """

    topic_partition: TopicPartition
    payload: Buffer
    records: int
    base_timestamp: Millis
    max_timestamp: Millis
    framed: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """What the sender knows of the cluster: the leader of each partition. Each change creates a new object."""

    leaders: Mapping[TopicPartition, BrokerId] = field(default_factory=dict)
    led: Mapping[str, Mapping[int, BrokerId]] = field(default_factory=dict)
    """The same by topic and partition."""


class PartitionResult(NamedTuple):
    """The result of one partition of a produce request."""

    error: KafkaError | None = None
    base_offset: int = NO_OFFSET
    log_append_time: Millis = -1
    log_start_offset: int = -1
