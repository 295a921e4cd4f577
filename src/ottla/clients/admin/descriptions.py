"""Describe topics: with DescribeTopicPartitions where the broker knows it (Kafka 4), or else with Metadata."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ottla.clients.admin.values import PartitionDescription, TopicDescription
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import read_error
from ottla.clients.cluster.metadata import Metadata, Node, TopicInfo
from ottla.errors import KafkaError, UnknownTopicOrPartition, UnsupportedVersion
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import BrokerId

_PAGE = 2000


async def describe_topics(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicDescription | KafkaError]:
    """Partitions, leaders and replicas of topics."""
    if not names:
        return {}
    try:
        return await _with_elr(cluster, names)
    except UnsupportedVersion:
        answer = await cluster.refresh(names)
        return {name: _from_metadata(answer, name) for name in names}


async def _with_elr(cluster: Cluster, names: Sequence[str]) -> dict[str, TopicDescription | KafkaError]:
    errors: dict[str, KafkaError] = {}
    heads: dict[str, Struct] = {}
    partitions: dict[str, list[Struct]] = {name: [] for name in names}
    cursor: Message | None = None
    while True:
        message = {
            "topics": [{"name": name} for name in sorted(names)],
            "response_partition_limit": _PAGE,
            "cursor": cursor,
        }
        response = await cluster.request(ApiKey.DESCRIBE_TOPIC_PARTITIONS, message)
        for topic in response.topics:
            if topic.error_code:
                errors[topic.name] = read_error(topic.error_code)
            heads[topic.name] = topic
            partitions[topic.name] += topic.partitions
        if response.next_cursor is None:
            break
        following = response.next_cursor
        cursor = {"topic_name": following.topic_name, "partition_index": following.partition_index}
    # The responses have ids of brokers, and no addresses.
    nodes = (await cluster.refresh(())).nodes
    return {name: _described(nodes, name, heads.get(name), partitions[name], errors) for name in names}


def _described(
    nodes: Mapping[BrokerId, Node],
    name: str,
    head: Struct | None,
    partitions: Sequence[Struct],
    errors: Mapping[str, KafkaError],
) -> TopicDescription | KafkaError:
    if head is None or isinstance(errors.get(name), UnknownTopicOrPartition):
        return _missing(name)
    if name in errors:
        return errors[name]
    found = [
        PartitionDescription(
            one.partition_index,
            nodes.get(one.leader_id),
            one.leader_epoch,
            _nodes(nodes, one.replica_nodes),
            _nodes(nodes, one.isr_nodes),
            _nodes(nodes, one.offline_replicas),
            _nodes(nodes, one.eligible_leader_replicas or ()),
            _nodes(nodes, one.last_known_elr or ()),
        )
        for one in partitions
    ]
    ordered = tuple(sorted(found, key=lambda one: one.partition))
    return TopicDescription(name, head.topic_id, head.is_internal, ordered)


def _from_metadata(metadata: Metadata, name: str) -> TopicDescription | KafkaError:
    topic = metadata.topics.get(name)
    if topic is None or isinstance(topic.error, UnknownTopicOrPartition):
        return _missing(name)
    return topic.error or describe_topic(metadata.nodes, topic)


def describe_topic(nodes: Mapping[BrokerId, Node], topic: TopicInfo) -> TopicDescription:
    """A topic of a Metadata response, with its brokers."""
    partitions = tuple(
        PartitionDescription(
            one.partition,
            nodes.get(one.leader),
            one.leader_epoch,
            _nodes(nodes, one.replicas),
            _nodes(nodes, one.isr),
            _nodes(nodes, one.offline),
        )
        for one in topic.partitions.values()
    )
    return TopicDescription(topic.name, topic.topic_id, topic.internal, partitions)


def _nodes(nodes: Mapping[BrokerId, Node], ids: Iterable[BrokerId]) -> tuple[Node, ...]:
    # There is no address of a broker that is away.
    return tuple(nodes.get(one) or Node(one, "", -1) for one in ids)


def _missing(name: str) -> KafkaError:
    return UnknownTopicOrPartition(f"topic {name} does not exist")
