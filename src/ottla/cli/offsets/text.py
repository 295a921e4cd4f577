"""Format records of ``__consumer_offsets`` as text and as JSON. No I/O.

Give a new record type of `ottla.coordinator.records` a kind in `_KINDS`.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any
from uuid import UUID

from ottla.clients.admin.groups import read_assignment, read_subscription
from ottla.clients.admin.offsets_topic import Entry
from ottla.clients.cluster.metadata import format_topic_id
from ottla.coordinator import records as r
from ottla.groups.offsets import format_partitions
from ottla.times import clock_time
from ottla.types import TopicPartition

_KINDS: Mapping[type, tuple[str, str]] = {
    r.LegacyOffsetCommitKey: ("offsets", "legacy_offset_commit"),
    r.OffsetCommitKey: ("offsets", "offset_commit"),
    r.GroupMetadataKey: ("groups", "group_metadata"),
    r.ConsumerGroupMetadataKey: ("groups", "consumer_group_metadata"),
    r.ConsumerGroupPartitionMetadataKey: ("groups", "consumer_group_partition_metadata"),
    r.ConsumerGroupMemberMetadataKey: ("groups", "consumer_group_member_metadata"),
    r.ConsumerGroupTargetAssignmentMetadataKey: ("groups", "consumer_group_target_assignment_metadata"),
    r.ConsumerGroupTargetAssignmentMemberKey: ("groups", "consumer_group_target_assignment_member"),
    r.ConsumerGroupCurrentMemberAssignmentKey: ("groups", "consumer_group_current_member_assignment"),
    r.ConsumerGroupRegularExpressionKey: ("groups", "consumer_group_regular_expression"),
    r.HistoryKey: ("history", "rebalance_history"),
    r.OldHistoryKey: ("history", "rebalance_history"),
    r.UnknownKey: ("other", "unknown"),
}
KINDS = ("offsets", "groups", "history", "other")
"""The values of ``--kind``; "other" means transaction markers and unreadable records."""
_TIMES = ("timestamp", "at", "started_at", "joined_at", "ended_at")


class TopicNames:
    """Topic names by id, for topics that still exist."""

    def __init__(self, names: Mapping[UUID, str]) -> None:
        self._names = names

    def of(self, topic_id: UUID | None) -> str | None:
        return self._names.get(topic_id) if topic_id is not None else None


def kind_of(entry: Entry) -> str:
    return _KINDS[type(entry.record.key)][0] if entry.record is not None else "other"


def _type_of(entry: Entry) -> str:
    if entry.record is not None:
        return _KINDS[type(entry.record.key)][1]
    return "transaction_marker" if entry.problem is None else "unreadable"


# json


def as_json(entry: Entry, names: TopicNames) -> dict[str, Any]:
    """All fields of a record; consumer subscriptions and assignments are decoded, other bytes are base64."""
    head = {"partition": entry.partition, "offset": entry.offset, "timestamp": entry.timestamp, "type": _type_of(entry)}
    body: dict[str, Any] = {}
    if entry.record is not None:
        body = {"key": _plain(entry.record.key, names), "value": _plain(entry.record.value, names)}
    if entry.transaction is not None:
        body["transaction"] = _plain(entry.transaction, names)
    return head | body | ({"problem": entry.problem} if entry.problem is not None else {})


def _plain(value: Any, names: TopicNames) -> Any:
    if _has_fields(value):
        return _object(value, names)
    if isinstance(value, tuple | list):
        return [_plain(one, names) for one in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, UUID):
        return format_topic_id(value)
    return value


def _object(value: Any, names: TopicNames) -> dict[str, Any]:
    found = {name: _plain(getattr(value, name), names) for name in _field_names(value)}
    if isinstance(value, r.TopicPartitions):
        found["topic"] = names.of(value.topic_id)
    if isinstance(value, r.MemberMetadata):
        found["subscribed_topics"] = list(read_subscription(value.subscription))
        found["assigned_partitions"] = [_plain(key, names) for key in read_assignment(value.assignment)]
    return found


# text


def as_text(entry: Entry, names: TopicNames) -> str:
    """One line: partition, offset, time and contents."""
    where = f"{'-' if entry.partition is None else entry.partition}:{entry.offset}"
    return f"{where:<10} {clock_time(entry.timestamp)}  {_contents(entry, names)}{_transaction(entry)}"


def _contents(entry: Entry, names: TopicNames) -> str:
    if entry.record is None:
        if entry.problem is None and entry.transaction is not None:
            return f"transaction_marker {entry.transaction.marker}"
        return f"unreadable: {entry.problem}"
    key, value = entry.record
    if isinstance(key, r.UnknownKey):
        return f"unknown: {key.why}"
    what = " ".join([_type_of(entry), *_pairs(key, names)])
    if entry.problem is not None:
        return f"{what} = unreadable: {entry.problem}"
    return f"{what} = {'deleted' if value is None else ' '.join(_pairs(value, names))}"


def _transaction(entry: Entry) -> str:
    one = entry.transaction
    return "" if one is None else f"  (transaction of producer {one.producer_id}, epoch {one.producer_epoch})"


def _pairs(value: Any, names: TopicNames) -> list[str]:
    return [_pair(value, name, getattr(value, name), names) for name in _field_names(value)]


def _pair(owner: Any, name: str, value: Any, names: TopicNames) -> str:
    if isinstance(owner, r.MemberMetadata) and name == "subscription":
        return f"subscription={','.join(read_subscription(value)) or '-'}"
    if isinstance(owner, r.MemberMetadata) and name == "assignment":
        return f"assignment={format_partitions(read_assignment(value)) or '-'}"
    if name in _TIMES or name.endswith("_timestamp"):
        return f"{name}={clock_time(value).replace(' ', 'T')}"
    return f"{name}={_short(value, names)}"


def _short(value: Any, names: TopicNames) -> str:
    if value is None:
        return "-"
    if isinstance(value, UUID):
        return format_topic_id(value)
    if isinstance(value, r.TopicPartitions):
        topic = names.of(value.topic_id) or _short(value.topic_id, names)
        return format_partitions(TopicPartition(topic, number) for number in value.partitions) or f"{topic}:"
    if _has_fields(value):
        return "{" + " ".join(_pairs(value, names)) + "}"
    if isinstance(value, tuple | list):
        return "[" + ", ".join(_short(one, names) for one in value) + "]"
    if isinstance(value, bytes):
        return f"{len(value)} bytes"
    text = str(value)
    return f'"{text}"' if not text or " " in text else text


def _has_fields(value: object) -> bool:
    return is_dataclass(value) or hasattr(value, "_fields")


def _field_names(value: Any) -> Iterable[str]:
    return [field.name for field in fields(value)] if is_dataclass(value) else value._fields
