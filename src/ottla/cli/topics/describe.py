"""``ottla topics describe``: partitions with their replicas and offsets, and configs."""

from __future__ import annotations

import argparse
from argparse import Namespace
from collections.abc import Iterable, Mapping
from typing import Any

from ottla.cli.session import existing_topic
from ottla.cli.terminal import print_json, table
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import ConfigResource, ConfigValue, OffsetSpec, PartitionDescription, TopicDescription
from ottla.clients.cluster.metadata import Node, format_topic_id
from ottla.config import ConfigSource
from ottla.types import Millis, TopicPartition

OFFSETS_TIMEOUT_MS: Millis = 5_000
_COLUMNS = ["PARTITION", "LEADER", "REPLICAS", "ISR", "ELR", "START-OFFSET", "END-OFFSET"]
_SOURCES = {
    ConfigSource.DYNAMIC_BROKER: "set for the broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "set for all brokers",
    ConfigSource.STATIC_BROKER: "from the broker's configuration",
    ConfigSource.DEFAULT: "default",
}


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("topics", nargs="*", metavar="TOPIC", help="default: all topics")
    parser.add_argument("--all-configs", action="store_true", help="include configs with default values")


async def describe(admin: AsyncAdmin, args: Namespace) -> int:
    topics = await described_topics(admin, args.topics)
    configs = await admin.describe_configs([topic.name for topic in topics]) if topics else {}
    described = []
    for topic in topics:
        shown = [
            value for value in configs[ConfigResource.topic(topic.name)].values() if args.all_configs or value.differs
        ]
        described.append(_description(topic, shown, await _offsets(admin, topic)))
    if args.json:
        print_json(described)
    else:
        print("\n\n".join(_as_text(one) for one in described) or "no topics exist yet")
    return 0


async def described_topics(admin: AsyncAdmin, names: Iterable[str]) -> list[TopicDescription]:
    """The topics with these names, which must exist, or all topics, by name."""
    wanted = list(dict.fromkeys(names))
    for name in wanted:
        await existing_topic(admin, name)
    wanted = wanted or sorted((await admin.cluster.refresh(None)).topics)
    return list((await admin.describe_topics(wanted)).values())


async def _offsets(admin: AsyncAdmin, topic: TopicDescription) -> dict[int, tuple[int | None, int | None]]:
    """Start and end offset of each partition; None without a leader."""
    led = [TopicPartition(topic.name, one.partition) for one in topic.partitions if one.leader is not None]
    start = await _list_offsets(admin, led, OffsetSpec.EARLIEST)
    end = await _list_offsets(admin, led, OffsetSpec.LATEST)
    keys = (TopicPartition(topic.name, one.partition) for one in topic.partitions)
    return {key.partition: (start.get(key), end.get(key)) for key in keys}


async def _list_offsets(
    admin: AsyncAdmin, partitions: list[TopicPartition], spec: OffsetSpec
) -> dict[TopicPartition, int]:
    wanted = dict.fromkeys(partitions, spec)
    found = await admin.list_offsets(wanted, timeout_ms=OFFSETS_TIMEOUT_MS, raise_errors=False)
    return {key: value.offset for key, value in found.items()}


def _description(
    topic: TopicDescription, configs: list[ConfigValue], offsets: Mapping[int, tuple[int | None, int | None]]
) -> dict[str, Any]:
    partitions = [
        {
            **partition_json(one),
            "start_offset": offsets[one.partition][0],
            "end_offset": offsets[one.partition][1],
        }
        for one in topic.partitions
    ]
    values = {one.name: {"value": one.value, "source": one.source.name.lower()} for one in configs}
    return {
        "topic": topic.name,
        "topic_id": format_topic_id(topic.topic_id) if topic.topic_id is not None else None,
        "internal": topic.is_internal,
        "replication_factor": max((len(one.replicas) for one in topic.partitions), default=0),
        "configs": values,
        "partitions": partitions,
    }


def partition_json(one: PartitionDescription) -> dict[str, Any]:
    """A partition and its replicas. `elr` is None if the broker does not know eligible leader replicas."""
    return {
        "partition": one.partition,
        "leader": None if one.leader is None else one.leader.id,
        "leader_epoch": one.leader_epoch,
        "replicas": ids(one.replicas),
        "isr": ids(one.isr),
        "elr": None if one.eligible_leader_replicas is None else ids(one.eligible_leader_replicas),
        "last_known_elr": None if one.last_known_elr is None else ids(one.last_known_elr),
        "offline_replicas": ids(one.offline_replicas),
    }


def _as_text(topic: Mapping[str, Any]) -> str:
    configs = [
        f"{name}={one['value']}{_origin(ConfigSource[one['source'].upper()])}" for name, one in topic["configs"].items()
    ]
    facts = [
        ["id", topic["topic_id"] or "-"],
        ["partitions", str(len(topic["partitions"]))],
        ["replication factor", str(topic["replication_factor"])],
        *[["configs" if i == 0 else "", config] for i, config in enumerate(configs or ["all at their defaults"])],
    ]
    rows = [
        [
            one["partition"],
            one["leader"],
            listed(one["replicas"]),
            listed(one["isr"]),
            listed(one["elr"] or ()),
            one["start_offset"],
            one["end_offset"],
        ]
        for one in topic["partitions"]
    ]
    head = f"topic {topic['topic']}{' (internal)' if topic['internal'] else ''}"
    return "\n".join(
        [
            head,
            *[f"  {name:<18}  {value}" for name, value in facts],
            table(_COLUMNS, rows, indent="  "),
        ]
    )


def _origin(source: ConfigSource) -> str:
    return f"  ({_SOURCES[source]})" if source in _SOURCES else ""


def ids(nodes: Iterable[Node]) -> list[int]:
    return [node.id for node in nodes]


def listed(brokers: Iterable[int]) -> str:
    """
    >>> listed([1, 2]), listed([])
    ('1,2', '-')
    """
    return ",".join(map(str, brokers)) or "-"
