"""What is in the topics and groups of a broker, read directly, for assertions in tests.

It needs no client, so faults and authorization do not get in the way. Everything runs on the broker's event loop.
"""

from __future__ import annotations

import base64
from typing import Any

from ottla.broker.node import Node
from ottla.broker.partition import Partition
from ottla.broker.views import GroupState
from ottla.consuming.batches import Aborted, readable
from ottla.consuming.values import ConsumerRecord
from ottla.errors import GroupIdNotFound, UnknownTopicOrPartition
from ottla.metadata.values import CONSUMER_OFFSETS
from ottla.records import BatchHeader, Record, decode_batch
from ottla.storage.log import Log
from ottla.storage.verification import SegmentUnverified

_CHUNK = 1 << 20


def topics(node: Node) -> list[str]:
    """The names of all topics that are not internal."""
    return sorted(topic.name for topic in node.metadata.topics.values() if not topic.is_internal)


def groups(node: Node) -> list[str]:
    """The ids of all groups."""
    return sorted(group for shard in node.groups.shards.here() for group in shard.coordinator.groups)


def records(node: Node, topic: str, partition: int | None = None, *, committed: bool = False) -> list[ConsumerRecord]:
    """The records of a topic, by partition and offset. `committed` leaves out aborted and open transactions."""
    if topic not in node.metadata.topics:
        raise UnknownTopicOrPartition(f"topic {topic} does not exist")
    if partition is not None and not node.exists(topic, partition):
        raise UnknownTopicOrPartition(f"topic {topic} has no partition {partition}")
    return [
        record
        for each in node.local(topic)
        if partition is None or each.index == partition
        for record in _records(each, committed)
    ]


def _records(partition: Partition, committed: bool) -> list[ConsumerRecord]:
    log = partition.log
    end = log.last_stable_offset(partition.high_watermark) if committed else log.log_end_offset
    offset, found = log.log_start_offset, list[ConsumerRecord]()
    while offset < end:
        data = _read(log, offset, end)
        aborted = [Aborted(one.producer_id, one.first_offset) for one in log.aborted_transactions(offset, end)]
        part = readable(data, aborted if committed else None, check_crcs=False)
        if part.next_offset is None:
            break
        found += [
            _consumed(partition, header, record)
            for position, header in part.batches
            for record in decode_batch(data, position)
            if record.offset >= offset
        ]
        offset = part.next_offset
    return found


def _read(log: Log, offset: int, end: int) -> bytes:
    while True:
        try:
            return log.read(offset, max_bytes=_CHUNK, end_offset=end, min_one_batch=True).read()
        except SegmentUnverified as unverified:
            unverified.segment.verify()


def _consumed(partition: Partition, header: BatchHeader, record: Record) -> ConsumerRecord:
    return ConsumerRecord(
        partition.topic,
        partition.index,
        record.offset,
        header.max_timestamp if header.is_log_append_time else record.timestamp,
        int(header.is_log_append_time),
        key=record.key,
        value=record.value,
        headers=record.headers,
    )


def require_groups(node: Node, group_id: str) -> None:
    """Before the first client looks for a coordinator, no group has one. GroupIdNotFound is what a test expects."""
    if CONSUMER_OFFSETS not in node.metadata.topics:
        raise GroupIdNotFound(f"there is no group {group_id}")


def group(node: Node, group_id: str) -> GroupState:
    """The state of a group. GroupIdNotFound if there is none."""
    require_groups(node, group_id)
    coordinator = node.groups.shards.of(group_id).coordinator
    known = coordinator.groups.get(group_id)
    if known is None:
        raise GroupIdNotFound(f"there is no group {group_id}")
    listed = known.listed()
    offsets = {place: value.offset for place, value in coordinator.offsets.of_group(group_id).items()}
    ends = {(each.topic, each.index): each.high_watermark for each in node.local()}
    lags = {
        place: max(0, ends[place.topic, place.partition] - offset)
        for place, offset in offsets.items()
        if (place.topic, place.partition) in ends
    }
    return GroupState(group_id, listed.state, listed.type, known.member_ids, offsets, lags)


def records_as_json(node: Node, topic: str) -> list[dict[str, Any]]:
    """The records of a topic as JSON values. Bytes that are not UTF-8 are ``{"base64": "..."}``."""
    return [
        {
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp,
            "key": _text(record.key),
            "value": _text(record.value),
            "headers": [[name, _text(value)] for name, value in record.headers],
        }
        for record in records(node, topic)
    ]


def group_as_json(node: Node, group_id: str) -> dict[str, Any]:
    """A group as JSON values."""
    found = group(node, group_id)
    return {
        "group": found.group_id,
        "state": found.state,
        "protocol": found.protocol,
        "members": list(found.members),
        "lag": found.lag,
        "offsets": [
            {"topic": key.topic, "partition": key.partition, "offset": offset, "lag": found.lags.get(key)}
            for key, offset in found.offsets.items()
        ],
    }


def _text(data: bytes | None) -> Any:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode()}
