"""Decode records of ``__consumer_offsets`` to rows of the history. No I/O; runs in Spark's workers.

Every row has a kind, a time and a group; the other columns belong to some kinds and are null for the others. Add a
function to `_ROWS` for a new record type of `ottla.coordinator.records`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from ottla.assignors.embedded import MalformedProtocol, decode_assignment, decode_subscription
from ottla.coordinator import records as r
from ottla.coordinator.history import UNDER_WAY
from ottla.coordinator.serde import CorruptRecord, decode
from ottla.types import Millis

Row = dict[str, Any]
TopicNames = Mapping[UUID, str]

COMMIT, GROUP, MEMBER, REBALANCE, PROBLEM = "commit", "group", "member", "rebalance", "problem"
KINDS = (COMMIT, GROUP, MEMBER, REBALANCE, PROBLEM)
#: Names and Spark types. `deleted` rows have only keys.
COLUMNS = (
    # All rows.
    *(("kind", "string"), ("type", "string"), ("time", "timestamp"), ("group_id", "string"), ("deleted", "boolean")),
    *(("log_partition", "int"), ("log_offset", "bigint")),
    # Commits.
    *(("topic", "string"), ("partition", "int"), ("offset", "bigint"), ("leader_epoch", "int"), ("metadata", "string")),
    *(("committed_at", "timestamp"), ("expires_at", "timestamp"), ("topic_id", "string")),
    # Groups; generation also for members and rebalances.
    *(("generation", "int"), ("protocol_type", "string"), ("protocol", "string"), ("leader", "string")),
    *(("members", "int"), ("state", "string")),
    # Members.
    *(("member_id", "string"), ("instance_id", "string"), ("client_id", "string"), ("client_host", "string")),
    *(("subscribed", "array<string>"), ("subscribed_regex", "string")),
    ("assigned", "array<struct<topic: string, topic_id: string, partitions: array<int>>>"),
    # Rebalances, and unreadable records.
    *(("number", "int"), ("outcome", "string"), ("started_at", "timestamp"), ("ended_at", "timestamp")),
    *(("partitions_moved", "int"), ("partitions_kept", "int"), ("reasons", "array<string>"), ("problem", "string")),
)
_EMPTY: Row = dict.fromkeys(name for name, _ in COLUMNS)
_STATES = {0: "stable", 1: "unrevoked_partitions", 2: "unreleased_partitions", 127: "unknown"}


def rows_of(
    key: bytes | None, value: bytes | None, *, time: Any, partition: int, offset: int, names: TopicNames
) -> Iterator[Row]:
    """The rows of one record: one, or one for the group and one per member; none for unknown types."""
    place = {"time": time, "log_partition": partition, "log_offset": offset}
    try:
        record = decode(key or b"", value)
    except CorruptRecord as error:
        yield {**_EMPTY, **place, "kind": PROBLEM, "problem": str(error)}
        return
    if isinstance(record.key, r.UnknownKey) or type(record.key) not in _ROWS:
        return
    name, make = _ROWS[type(record.key)]
    head = {**_EMPTY, **place, "type": name, "group_id": record.key.group_id, "deleted": record.value is None}
    for row in make(record.key, record.value, names):
        yield {**head, **row}


# ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _commit(key: Any, value: Any, names: TopicNames) -> Iterable[Row]:
    row = {"kind": COMMIT, "topic": key.topic, "partition": key.partition}
    if value is not None:
        row |= {"offset": value.offset, "metadata": value.metadata, "committed_at": _time(value.commit_timestamp)}
    if isinstance(value, r.OffsetCommitValue):
        row |= {
            "leader_epoch": value.leader_epoch if value.leader_epoch >= 0 else None,
            "expires_at": _time(value.expire_timestamp),
            "topic_id": _id(value.topic_id),
        }
    return [row]


# ── groups and members ────────────────────────────────────────────────────────────────────────────────────────────


def _classic_group(key: Any, value: r.GroupMetadataValue | None, names: TopicNames) -> Iterable[Row]:
    if value is None:
        return [{"kind": GROUP}]
    group = {
        "kind": GROUP,
        "generation": value.generation,
        "protocol_type": value.protocol_type,
        "protocol": value.protocol,
        "leader": value.leader,
        "members": len(value.members),
        "state": "stable" if value.members else "empty",
    }
    return [group, *(_classic_member(value, one) for one in value.members)]


def _classic_member(group: r.GroupMetadataValue, member: r.MemberMetadata) -> Row:
    return {
        "kind": MEMBER,
        "generation": group.generation,
        "member_id": member.member_id,
        "instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed": _subscribed(member.subscription),
        "assigned": _assigned(member.assignment),
    }


def _subscribed(data: bytes) -> list[str]:
    try:
        return sorted(decode_subscription(data).topics) if data else []
    except MalformedProtocol:  # not a consumer client
        return []


def _assigned(data: bytes) -> list[Row]:
    try:
        partitions = decode_assignment(data).partitions if data else {}
    except MalformedProtocol:
        return []
    return [
        {"topic": topic, "topic_id": None, "partitions": sorted(numbers)}
        for topic, numbers in sorted(partitions.items())
    ]


def _group_epoch(key: Any, value: r.ConsumerGroupMetadataValue | None, names: TopicNames) -> Iterable[Row]:
    return [{"kind": GROUP, "generation": None if value is None else value.epoch, "protocol_type": "consumer"}]


def _target_epoch(
    key: Any, value: r.ConsumerGroupTargetAssignmentMetadataValue | None, names: TopicNames
) -> Iterable[Row]:
    epoch = None if value is None else value.assignment_epoch
    return [{"kind": GROUP, "generation": epoch, "protocol_type": "consumer"}]


def _member(key: Any, value: r.ConsumerGroupMemberMetadataValue | None, names: TopicNames) -> Iterable[Row]:
    row: Row = {"kind": MEMBER, "member_id": key.member_id}
    if value is not None:
        row |= {
            "instance_id": value.instance_id,
            "client_id": value.client_id,
            "client_host": value.client_host,
            "protocol": value.server_assignor,
            "subscribed": sorted(value.subscribed_topic_names),
            "subscribed_regex": value.subscribed_topic_regex,
        }
    return [row]


def _target_of_member(
    key: Any, value: r.ConsumerGroupTargetAssignmentMemberValue | None, names: TopicNames
) -> Iterable[Row]:
    assigned = None if value is None else _by_id(value.topic_partitions, names)
    return [{"kind": MEMBER, "member_id": key.member_id, "assigned": assigned}]


def _current_of_member(
    key: Any, value: r.ConsumerGroupCurrentMemberAssignmentValue | None, names: TopicNames
) -> Iterable[Row]:
    row: Row = {"kind": MEMBER, "member_id": key.member_id}
    if value is not None:
        row |= {
            "generation": value.member_epoch,
            "state": _STATES.get(value.state, str(value.state)),
            "assigned": _by_id(value.assigned_partitions, names),
        }
    return [row]


def _by_id(topics: Iterable[r.TopicPartitions], names: TopicNames) -> list[Row]:
    return [
        {
            "topic": names.get(one.topic_id) if one.topic_id is not None else None,
            "topic_id": _id(one.topic_id),
            "partitions": sorted(one.partitions),
        }
        for one in topics
    ]


# ── rebalances ────────────────────────────────────────────────────────────────────────────────────────────────────


def _rebalance(key: Any, value: r.HistoryValue | None, names: TopicNames) -> Iterable[Row]:
    if value is None:
        return [{"kind": REBALANCE}]
    if value.outcome == UNDER_WAY:
        return []  # Only finished rebalances are rows.
    return [
        {
            "kind": REBALANCE,
            "number": value.number,
            "generation": value.generation if value.generation >= 0 else None,
            "outcome": value.outcome,
            "protocol": value.protocol,
            "leader": value.leader,
            "members": value.members,
            "started_at": _time(value.started_at),
            "ended_at": _time(value.ended_at),
            "partitions_moved": value.partitions_moved,
            "partitions_kept": value.partitions_kept,
            "reasons": [_reason(one) for one in value.triggers],
        }
    ]


def _reason(trigger: r.Trigger) -> str:
    who = "" if trigger.who is None else f": {trigger.who.group_instance_id or trigger.who.client_id}"
    return f"{trigger.kind}{who}" + (f" ({trigger.reason})" if trigger.reason else "")


_Make = Callable[[Any, Any, TopicNames], Iterable[Row]]
#: The names are those of ``ottla offsets dump``.
_ROWS: Mapping[type, tuple[str, _Make]] = {
    r.LegacyOffsetCommitKey: ("legacy_offset_commit", _commit),
    r.OffsetCommitKey: ("offset_commit", _commit),
    r.GroupMetadataKey: ("group_metadata", _classic_group),
    r.ConsumerGroupMetadataKey: ("consumer_group_metadata", _group_epoch),
    r.ConsumerGroupMemberMetadataKey: ("consumer_group_member_metadata", _member),
    r.ConsumerGroupTargetAssignmentMetadataKey: ("consumer_group_target_assignment_metadata", _target_epoch),
    r.ConsumerGroupTargetAssignmentMemberKey: ("consumer_group_target_assignment_member", _target_of_member),
    r.ConsumerGroupCurrentMemberAssignmentKey: ("consumer_group_current_member_assignment", _current_of_member),
    r.HistoryKey: ("rebalance_history", _rebalance),
    r.OldHistoryKey: ("rebalance_history", _rebalance),
}


def _time(millis: Millis) -> int | None:
    """Arrow's microseconds for Spark timestamps; -1 becomes None."""
    return millis * 1000 if millis >= 0 else None


def _id(topic_id: UUID | None) -> str | None:
    return None if topic_id is None else str(topic_id)
