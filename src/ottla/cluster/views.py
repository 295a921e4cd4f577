"""``cluster.topics`` and ``cluster.groups``: read by clients, since the brokers are other processes."""

from __future__ import annotations

import time

from ottla.broker.views import GroupState
from ottla.clients.admin.blocking import Admin
from ottla.clients.consumer.blocking import Consumer
from ottla.consuming.values import ConsumerRecord
from ottla.errors import GroupIdNotFound, OttlaError, UnknownTopicOrPartition
from ottla.types import TopicPartition

CLIENT_ID = "ottla-testing"
#: A cluster may be broken on purpose, and a report about it should not take long.
_PATIENCE_MS = 10_000


def _admin(servers: str) -> Admin:
    return Admin(
        bootstrap_servers=servers,
        client_id=CLIENT_ID,
        default_api_timeout_ms=_PATIENCE_MS,
        request_timeout_ms=_PATIENCE_MS // 2,
    )


def topics(servers: str) -> list[str]:
    """The names of all topics that are not internal."""
    with _admin(servers) as admin:
        return list(admin.list_topics())


def groups(servers: str) -> list[str]:
    """The ids of all groups."""
    with _admin(servers) as admin:
        return sorted(group.group_id for group in admin.list_groups())


def records(servers: str, topic: str, partition: int | None, /, *, committed: bool) -> list[ConsumerRecord]:
    """The records of a topic that are there now."""
    with Consumer(
        bootstrap_servers=servers,
        client_id=CLIENT_ID,
        default_api_timeout_ms=_PATIENCE_MS,
        request_timeout_ms=_PATIENCE_MS,
        allow_auto_create_topics=False,
        auto_offset_reset="earliest",
        isolation_level="read_committed" if committed else "read_uncommitted",
    ) as consumer:
        known = [TopicPartition(topic, each.partition) for each in consumer.partitions_for(topic)]
        wanted = [each for each in known if partition is None or each.partition == partition]
        if not wanted:
            raise UnknownTopicOrPartition(f"topic {topic} has no partition {partition}")
        ends = consumer.end_offsets(wanted)
        consumer.assign(wanted)
        consumer.seek_to_beginning()
        found: list[ConsumerRecord] = []
        deadline = time.monotonic() + _PATIENCE_MS / 1000
        while any(consumer.position(each) < ends[each] for each in wanted):
            records = consumer.poll(0.1)
            found += records
            deadline = time.monotonic() + _PATIENCE_MS / 1000 if records else deadline
            if time.monotonic() > deadline:
                raise OttlaError(f"topic {topic} cannot be read to its end now: are its leaders running?")
    return sorted(
        (record for record in found if record.offset < ends[TopicPartition(topic, record.partition)]),
        key=lambda record: (record.partition, record.offset),
    )


def group(servers: str, group_id: str) -> GroupState:
    """The state of a group. GroupIdNotFound if there is none."""
    with _admin(servers) as admin:
        listed = {each.group_id: each for each in admin.list_groups()}.get(group_id)
        if listed is None:
            raise GroupIdNotFound(f"there is no group {group_id}")
        members = tuple(member.member_id for member in admin.describe_groups(group_id)[group_id].members)
        committed = admin.list_group_offsets(group_id)
        offsets = {key: value.offset for key, value in committed.items()}
        ends = admin.list_offsets(dict.fromkeys(offsets, "latest"), raise_errors=False) if offsets else {}
    lags = {key: max(0, ends[key].offset - offset) for key, offset in offsets.items() if key in ends}
    return GroupState(group_id, listed.state or "", (listed.type or "").capitalize(), members, offsets, lags)
