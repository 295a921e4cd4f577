"""What the topic pages show: rows of topics and partitions, configs with their documentation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ottla.clients.admin.values import ConfigValue
from ottla.clients.cluster.metadata import NO_LEADER, PartitionInfo, TopicInfo
from ottla.config import TopicConfig
from ottla.config.describe import ConfigSource
from ottla.config.table import rows
from ottla.console.collector import Snapshot
from ottla.types import BrokerId, TopicPartition

SORTS = ("name", "partitions", "rate", "size")
SOURCES = {
    ConfigSource.TOPIC: "this topic",
    ConfigSource.DYNAMIC_BROKER: "the broker, changed while it ran",
    ConfigSource.DYNAMIC_DEFAULT_BROKER: "all brokers, changed while they ran",
    ConfigSource.STATIC_BROKER: "the broker's file",
    ConfigSource.DEFAULT: "default",
}


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic of the list. None is not known (yet)."""

    name: str
    internal: bool
    partitions: int
    replication_factor: int
    offline: int
    under_replicated: int
    rate: float | None
    size: int | None


@dataclass(frozen=True, slots=True)
class PartitionRow:
    """A partition of a topic. None is not known (yet)."""

    number: int
    leader: BrokerId | None
    replicas: tuple[tuple[BrokerId, bool], ...]
    """The brokers that have it, and whether each is in sync."""
    state: str
    """good, under-replicated, offline"""
    start: int | None
    end: int | None
    rate: float | None
    size: int | None

    @property
    def records(self) -> int | None:
        """Offsets between start and end: more than there are records after compaction and transactions."""
        return None if self.start is None or self.end is None else self.end - self.start


@dataclass(frozen=True, slots=True)
class ConfigRow:
    name: str
    value: str | None
    source: str
    is_own: bool
    """Whether it is set for this topic."""
    sensitive: bool
    read_only: bool
    documentation: str | None


def topic_rows(
    snapshot: Snapshot,
    *,
    search: str = "",
    internal: bool = False,
    sort: str = "name",
) -> list[TopicRow]:
    """The topics whose names contain a text."""
    if snapshot.metadata is None:
        return []
    wanted = search.strip().lower()
    found = [
        _topic_row(topic, snapshot, snapshot.sizes)
        for topic in snapshot.metadata.topics.values()
        if wanted in topic.name.lower() and (internal or not topic.internal)
    ]
    keys = {
        "name": lambda row: row.name,
        "partitions": lambda row: (-row.partitions, row.name),
        "rate": lambda row: (-(row.rate or 0.0), row.name),
        "size": lambda row: (-(row.size or 0), row.name),
    }
    return sorted(found, key=keys[sort])


def topic_row(snapshot: Snapshot, name: str) -> TopicRow | None:
    """One topic; None if it is not known yet."""
    topic = None if snapshot.metadata is None else snapshot.metadata.topics.get(name)
    return None if topic is None else _topic_row(topic, snapshot, snapshot.sizes)


def _topic_row(topic: TopicInfo, snapshot: Snapshot, sizes: Mapping[TopicPartition, int] | None) -> TopicRow:
    infos = topic.partitions.values()
    keys = [TopicPartition(topic.name, info.partition) for info in infos]
    return TopicRow(
        topic.name,
        topic.internal,
        len(keys),
        topic.replication_factor,
        sum(info.leader == NO_LEADER for info in infos),
        sum(info.leader != NO_LEADER and len(info.isr) < len(info.replicas) for info in infos),
        _total(keys, snapshot.rates),
        _total(keys, sizes),
    )


def _total(keys: Iterable[TopicPartition], values: Mapping[TopicPartition, float] | None) -> int | None:
    """The sum, or None if nothing is known about any of them."""
    if values is None:
        return None
    found = [values[key] for key in keys if key in values]
    return sum(found) if found else None  # type: ignore[return-value]


def partition_rows(
    topic: TopicInfo,
    *,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    rates: Mapping[TopicPartition, float] | None,
    sizes: Mapping[TopicPartition, int] | None,
) -> list[PartitionRow]:
    """The partitions of a topic in order."""
    return [_partition_row(topic.name, info, bounds, rates or {}, sizes or {}) for info in topic.partitions.values()]


def _partition_row(
    topic: str,
    info: PartitionInfo,
    bounds: Mapping[TopicPartition, tuple[int, int]],
    rates: Mapping[TopicPartition, float],
    sizes: Mapping[TopicPartition, int],
) -> PartitionRow:
    key = TopicPartition(topic, info.partition)
    state = "good" if len(info.isr) == len(info.replicas) else "under-replicated"
    start, end = bounds.get(key, (None, None))
    return PartitionRow(
        info.partition,
        None if info.leader == NO_LEADER else info.leader,
        tuple((broker, broker in info.isr) for broker in info.replicas),
        "offline" if info.leader == NO_LEADER else state,
        start,
        end,
        rates.get(key),
        sizes.get(key),
    )


def config_rows(configs: Mapping[str, ConfigValue], search: str = "") -> list[ConfigRow]:
    """The configs of a topic, those of its own first."""
    known = rows(TopicConfig)
    found = [
        ConfigRow(
            one.name,
            one.value,
            SOURCES.get(one.source, "unknown"),
            one.source is ConfigSource.TOPIC,
            one.sensitive,
            one.read_only,
            one.documentation or (known[one.name].doc if one.name in known else None),
        )
        for one in configs.values()
        if search.strip().lower() in one.name
    ]
    return sorted(found, key=lambda row: (not row.is_own, row.name))


def setting_lines(text: str) -> dict[str, str]:
    """The settings of a text with one name=value per line. Raises ValueError that says what is wrong.

    >>> setting_lines("retention.ms=1000\\n\\ncleanup.policy = compact")
    {'retention.ms': '1000', 'cleanup.policy': 'compact'}
    """
    found: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = (part.strip() for part in line.partition("="))
        if not equals or not name:
            raise ValueError(f"{line!r} is not a setting: write NAME=VALUE, such as retention.ms=60000")
        if name in found:
            raise ValueError(f"{name} is set twice")
        found[name] = value
    return found
