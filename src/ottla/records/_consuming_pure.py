"""Batches as `ConsumerRecord` objects: the pure version of `_consuming.pxi`.

Change both versions together: property tests compare them.
"""

from __future__ import annotations

from typing import Any

from ottla.records import _pure
from ottla.records.buffers import Buffer
from ottla.records.header import BatchHeader
from ottla.records.values import Headers

_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "serialized_key_size",
    "serialized_value_size",
)


class ConsumerRecord:
    """A consumed record; see `ottla.consuming.values`."""

    __slots__ = _FIELDS

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int = -1,
        timestamp_type: int = 0,
        key: Any = None,
        value: Any = None,
        headers: Headers = (),
        leader_epoch: int | None = None,
        serialized_key_size: int = -1,
        serialized_value_size: int = -1,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    def _fields(self) -> tuple[object, ...]:
        return tuple(getattr(self, name) for name in _FIELDS)

    def __reduce__(self) -> tuple[type[ConsumerRecord], tuple[object, ...]]:
        return ConsumerRecord, self._fields()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ConsumerRecord):
            return NotImplemented
        return self._fields() == other._fields()

    def __hash__(self) -> int:
        return hash((self.topic, self.partition, self.offset))

    def __repr__(self) -> str:
        return (
            f"ConsumerRecord(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, headers={self.headers!r})"
        )


def decode_consumed(
    payload: Buffer, header: BatchHeader, position: int, topic: str, partition: int, min_offset: int
) -> list[ConsumerRecord]:
    leader_epoch = header.partition_leader_epoch if header.partition_leader_epoch >= 0 else None
    timestamp_type = int(header.is_log_append_time)
    return [
        ConsumerRecord(
            topic,
            partition,
            record.offset,
            record.timestamp,
            timestamp_type,
            record.key,
            record.value,
            record.headers,
            leader_epoch,
            -1 if record.key is None else len(record.key),
            -1 if record.value is None else len(record.value),
        )
        for record in _pure.decode_records(payload, header, position)
        if record.offset >= min_offset
    ]
