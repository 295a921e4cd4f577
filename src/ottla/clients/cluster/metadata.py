"""The metadata of a cluster: nodes, topics, partitions and their leaders. Values only, no I/O."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from uuid import UUID

from ottla.errors import KafkaError, error_class
from ottla.protocol.codec import Struct
from ottla.types import BrokerId, TopicPartition

NO_LEADER: BrokerId = -1


@dataclass(frozen=True, slots=True)
class Node:
    """A broker and the address that it advertises."""

    id: BrokerId
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False
    """The broker is registered, but away or not ready. Only `describe_cluster` lists such brokers."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    partition: int
    leader: BrokerId
    leader_epoch: int
    replicas: tuple[BrokerId, ...]
    isr: tuple[BrokerId, ...]
    offline: tuple[BrokerId, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic, or the broker's error for it."""

    name: str
    topic_id: UUID | None
    internal: bool
    partitions: Mapping[int, PartitionInfo]
    error: KafkaError | None = None

    @property
    def replication_factor(self) -> int:
        return max((len(partition.replicas) for partition in self.partitions.values()), default=0)

    @property
    def topic_partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in sorted(self.partitions)]


@dataclass(frozen=True, slots=True)
class Metadata:
    """A snapshot of the cluster; `with_topics` returns the next one."""

    cluster_id: str | None = None
    controller_id: BrokerId = NO_LEADER
    nodes: Mapping[BrokerId, Node] = field(default_factory=dict)
    topics: Mapping[str, TopicInfo] = field(default_factory=dict)
    version: int = 0
    """Increases with each response."""

    def partition(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        topic = self.topics.get(topic_partition.topic)
        return topic.partitions.get(topic_partition.partition) if topic is not None else None

    def with_topics(self, newer: Metadata) -> Metadata:
        """The newer snapshot, plus the topics that it was not requested for.

        A broker that is behind may send an old leader: the newer leader epoch wins.
        """
        topics = {
            **self.topics,
            **{name: _newest(self.topics.get(name), topic) for name, topic in newer.topics.items()},
        }
        return Metadata(newer.cluster_id, newer.controller_id, newer.nodes, topics, self.version + 1)

    def without_nodes(self) -> Metadata:
        """The snapshot for a client that must use the bootstrap servers again."""
        return replace(self, nodes={}, controller_id=NO_LEADER)


def _newest(known: TopicInfo | None, answered: TopicInfo) -> TopicInfo:
    if known is None or known.topic_id != answered.topic_id or answered.error is not None:
        return answered
    stale = {
        number: known.partitions[number]
        for number, info in answered.partitions.items()
        if number in known.partitions and 0 <= info.leader_epoch < known.partitions[number].leader_epoch
    }
    return replace(answered, partitions={**answered.partitions, **stale}) if stale else answered


def read_metadata(response: Struct) -> Metadata:
    """Convert a Metadata response."""
    nodes = {node.node_id: Node(node.node_id, node.host, node.port, node.rack) for node in response.brokers}
    topics = {topic.name: _read_topic(topic) for topic in response.topics if topic.name is not None}
    return Metadata(response.cluster_id, response.controller_id, nodes, topics)


def _read_topic(topic: Struct) -> TopicInfo:
    error = error_class(topic.error_code)() if topic.error_code else None
    partitions = {partition.partition_index: _read_partition(partition) for partition in topic.partitions}
    partitions = dict(sorted(partitions.items()))
    return TopicInfo(topic.name, topic.topic_id, topic.is_internal, partitions, error)


def _read_partition(partition: Struct) -> PartitionInfo:
    return PartitionInfo(
        partition.partition_index,
        partition.leader_id,
        partition.leader_epoch,
        tuple(partition.replica_nodes),
        tuple(partition.isr_nodes),
        tuple(partition.offline_replicas),
    )


def format_topic_id(topic_id: UUID) -> str:
    """A topic id as Kafka's tools print it.

    >>> format_topic_id(UUID(int=1))
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
