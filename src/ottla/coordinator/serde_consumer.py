"""Fast encoders for the records that a rebalance of a consumer group writes for every member.

The layouts are those of ``_record_schemas``; a test compares them.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from ottla.coordinator import records as r

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_EPOCH = struct.Struct(">hi")
_CURRENT = struct.Struct(">hiib")
_TAGGED_HASH = struct.Struct(">bbbq")
_VERSION = b"\0\0"
_NO_TAGS = b"\0"
_NO_TOPIC = bytes(16)
_SMALL = tuple(b"%c" % size for size in range(1, 128))


def encode_by_hand(record: r.CoordinatorRecord) -> tuple[bytes, bytes | None] | None:
    """Return key and value as bytes, or None if there is no fast encoder for this record."""
    key: Any = record.key
    found = _BY_HAND.get(type(key))
    if found is None:
        return None
    number, encode_value = found
    if record.value is None:
        return _key(number, key), None
    value = encode_value(record.value)
    return None if value is None else (_key(number, key), value)


def _key(number: int, texts: Sequence[str]) -> bytes:
    parts = [_INT16.pack(number)]
    for text in texts:
        data = text.encode()
        parts += (_INT16.pack(len(data)), data)
    return b"".join(parts)


def _size(count: int) -> bytes:
    """Return the length of an array or a string, plus one: 0 is null."""
    if count < 127:
        return _SMALL[count]
    size, low = count + 1, b""
    while size > 0x7F:
        low += b"%c" % (size & 0x7F | 0x80)
        size >>= 7
    return low + b"%c" % size


def _string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    data = text.encode()
    return _size(len(data)) + data


def _assignment(topics: Sequence[r.TopicPartitions]) -> bytes:
    parts = [_size(len(topics))]
    for topic_id, numbers in topics:
        parts += (
            _NO_TOPIC if topic_id is None else topic_id.int.to_bytes(16),
            _size(len(numbers)),
            struct.pack(f">{len(numbers)}i", *numbers),
            _NO_TAGS,
        )
    return b"".join(parts)


def _group(value: r.ConsumerGroupMetadataValue) -> bytes:
    if not value.metadata_hash:
        return _EPOCH.pack(0, value.epoch) + _NO_TAGS
    return _EPOCH.pack(0, value.epoch) + _TAGGED_HASH.pack(1, 0, 8, value.metadata_hash)


def _member(value: r.ConsumerGroupMemberMetadataValue) -> bytes | None:
    if value.classic_member_metadata is not None:
        return None
    names = value.subscribed_topic_names
    parts = [
        _VERSION,
        _string(value.instance_id),
        _string(value.rack_id),
        _string(value.client_id),
        _string(value.client_host),
        _size(len(names)),
        *map(_string, names),
        _string(value.subscribed_topic_regex),
        _INT32.pack(value.rebalance_timeout),
        _string(value.server_assignor),
        b"\1\0\1\0",  # One tagged field: number 0, of one byte, null.
    ]
    return b"".join(parts)


def _target_epoch(value: r.ConsumerGroupTargetAssignmentMetadataValue) -> bytes:
    return _EPOCH.pack(0, value.assignment_epoch) + _NO_TAGS


def _target(value: r.ConsumerGroupTargetAssignmentMemberValue) -> bytes:
    return _VERSION + _assignment(value.topic_partitions) + _NO_TAGS


def _current(value: r.ConsumerGroupCurrentMemberAssignmentValue) -> bytes:
    epoch, previous_epoch, state, assigned, given_up = value
    head = _CURRENT.pack(0, epoch, previous_epoch, state)
    return head + _assignment(assigned) + _assignment(given_up) + _NO_TAGS


_BY_HAND: dict[type[Any], tuple[int, Callable[[Any], bytes | None]]] = {
    r.ConsumerGroupMetadataKey: (3, _group),
    r.ConsumerGroupMemberMetadataKey: (5, _member),
    r.ConsumerGroupTargetAssignmentMetadataKey: (6, _target_epoch),
    r.ConsumerGroupTargetAssignmentMemberKey: (7, _target),
    r.ConsumerGroupCurrentMemberAssignmentKey: (8, _current),
}
