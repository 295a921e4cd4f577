"""What the overview shows: brokers, health of partitions, throughput and the groups that are behind."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla.clients.cluster.metadata import NO_LEADER, Metadata, Node
from ottla.console.collector import Key
from ottla.monitoring.watch import Row
from ottla.types import BrokerId, Millis, TopicPartition

NAMED = 20


@dataclass(frozen=True, slots=True)
class BrokerRow:
    node: Node
    is_controller: bool
    leads: int
    replicas: int
    in_sync: int


@dataclass(frozen=True, slots=True)
class Health:
    """The partitions of the cluster, and those with a problem."""

    topics: int
    partitions: int
    offline: tuple[TopicPartition, ...]
    under_replicated: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupLag:
    """A group that has not read everything."""

    group: str
    records: int
    seconds: float | None
    """The age of its oldest unread record; None while it is unknown."""
    stalled: float
    """For how many seconds it has read nothing although there was something."""
    lost: int
    partitions: int
    reads: bool
    """Whether it has read something since somebody watches."""
    is_empty: bool = False
    """Whether it has no members, so that nobody reads."""


def broker_rows(metadata: Metadata, controller: BrokerId | None) -> list[BrokerRow]:
    """The brokers, with their shares of the partitions."""
    leads: dict[int, int] = {}
    replicas: dict[int, int] = {}
    in_sync: dict[int, int] = {}
    for topic in metadata.topics.values():
        for info in topic.partitions.values():
            leads[info.leader] = leads.get(info.leader, 0) + 1
            for broker in info.replicas:
                replicas[broker] = replicas.get(broker, 0) + 1
            for broker in info.isr:
                in_sync[broker] = in_sync.get(broker, 0) + 1
    # Brokers that are away have no address, but partitions still name them.
    away = [Node(broker, "", -1, is_fenced=True) for broker in replicas.keys() - metadata.nodes.keys()]
    nodes = sorted([*metadata.nodes.values(), *away], key=lambda node: node.id)
    return [
        BrokerRow(
            node,
            node.id == controller,
            leads.get(node.id, 0),
            replicas.get(node.id, 0),
            in_sync.get(node.id, 0),
        )
        for node in nodes
    ]


def health(metadata: Metadata) -> Health:
    """Count partitions, and find those without a leader or with replicas that are behind."""
    offline, under, count = [], [], 0
    for topic in metadata.topics.values():
        count += len(topic.partitions)
        for info in topic.partitions.values():
            if info.leader == NO_LEADER:
                offline.append(TopicPartition(topic.name, info.partition))
            elif len(info.isr) < len(info.replicas):
                under.append(TopicPartition(topic.name, info.partition))
    return Health(len(metadata.topics), count, tuple(sorted(offline)), tuple(sorted(under)))


def lagging_groups(
    rows: Mapping[Key, Row], *, now: Millis, since: Mapping[str, Millis], empty: Collection[str] = ()
) -> list[GroupLag]:
    """The groups with unread records, those that are furthest behind first.

    Somebody watches each group `since` a time; `empty` are the groups without members.
    """
    found: dict[str, list[Row]] = {}
    for (group, _), row in rows.items():
        if row.lag or row.lost:
            found.setdefault(group, []).append(row)
    lags = [
        _group_lag(group, some, now=now, since=since[group], is_empty=group in empty) for group, some in found.items()
    ]
    return sorted(lags, key=lambda one: (-(one.seconds or 0.0), -one.records, one.group))


def _group_lag(group: str, rows: list[Row], *, now: Millis, since: Millis, is_empty: bool) -> GroupLag:
    known = [row.seconds for row in rows if row.seconds is not None]
    return GroupLag(
        group,
        sum(row.lag for row in rows),
        max(known) if len(known) == len(rows) else None,
        max(row.stalled_seconds(now=now) for row in rows),
        sum(row.lost for row in rows),
        len(rows),
        any(row.waits_since is None or row.waits_since > since for row in rows),
        is_empty,
    )
