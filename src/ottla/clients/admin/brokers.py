"""Requests about brokers and replicas: the cluster itself, directories, producers, elections and reassignments."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ottla.clients.admin.values import (
    ClusterDescription,
    LogDir,
    PartitionReassignment,
    ProducerState,
    ReplicaInfo,
)
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import Outcomes, by_topic, read_error
from ottla.clients.cluster.metadata import Node
from ottla.errors import BrokerNotAvailable, ElectionNotNeeded, KafkaError, UnsupportedVersion
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.types import BrokerId, TopicPartition

PREFERRED, UNCLEAN = 0, 1
ELECTION_TYPES = {"preferred": PREFERRED, "unclean": UNCLEAN}
UNKNOWN_SIZE = -1


# ── the cluster ───────────────────────────────────────────────────────────────────────────────────────────────────


async def describe_cluster(cluster: Cluster, *, include_fenced: bool = False) -> ClusterDescription:
    """The brokers; those that are away only if the broker knows version 2 of DescribeCluster."""
    if include_fenced:
        try:
            return _read_cluster(await cluster.request(ApiKey.DESCRIBE_CLUSTER, {"include_fenced_brokers": True}))
        except UnsupportedVersion:
            pass
    await cluster.refresh(())
    metadata = cluster.metadata
    return _cluster_description(metadata.cluster_id, metadata.controller_id, metadata.nodes.values())


def _read_cluster(response: Struct) -> ClusterDescription:
    if response.error_code:
        raise read_error(response.error_code, response.error_message)
    nodes = [Node(one.broker_id, one.host, one.port, one.rack, one.is_fenced) for one in response.brokers]
    return _cluster_description(response.cluster_id, response.controller_id, nodes)


def _cluster_description(cluster_id: str | None, controller_id: BrokerId, nodes: Iterable[Node]) -> ClusterDescription:
    found = {node.id: node for node in sorted(nodes, key=lambda node: node.id)}
    return ClusterDescription(cluster_id, found.get(controller_id), tuple(found.values()))


async def controller_epoch(cluster: Cluster) -> int | None:
    """The epoch of the controller, if the broker tells it."""
    try:
        quorum = await _quorum(cluster)
    except UnsupportedVersion:
        return None
    return None if quorum is None else int(quorum.leader_epoch)


async def active_controller(cluster: Cluster) -> BrokerId | None:
    """The node that is the controller; None if the brokers do not tell.

    Metadata of a Kafka without ZooKeeper names any broker, so the quorum is asked. Older ones have no quorum.
    """
    try:
        quorum = await _quorum(cluster)
    except UnsupportedVersion:
        controller = cluster.metadata.controller_id
        return controller if controller in cluster.metadata.nodes else None
    return None if quorum is None or quorum.leader_id < 0 else int(quorum.leader_id)


async def _quorum(cluster: Cluster) -> Struct | None:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    response = await cluster.request(ApiKey.DESCRIBE_QUORUM, {"topics": topics})
    found = [one for topic in response.topics for one in topic.partitions if not one.error_code]
    return found[0] if found and not response.error_code else None


async def unregister_broker(cluster: Cluster, broker_id: BrokerId) -> None:
    """Forget a broker that will not come back."""
    message = {"broker_id": broker_id}
    response = await cluster.request_controller(ApiKey.UNREGISTER_BROKER, message, errors=_error_code)
    if response.error_code:
        raise read_error(response.error_code, response.error_message)


# ── directories ───────────────────────────────────────────────────────────────────────────────────────────────────


async def describe_log_dirs(
    cluster: Cluster, brokers: Sequence[BrokerId] | None
) -> dict[BrokerId, dict[str, LogDir] | KafkaError]:
    """The directories of brokers (None: of all) and their contents."""
    await cluster.refresh(())
    wanted = sorted(cluster.metadata.nodes) if brokers is None else list(dict.fromkeys(brokers))
    answers = await asyncio.gather(*(_log_dirs_of(cluster, broker) for broker in wanted))
    return dict(zip(wanted, answers, strict=True))


async def _log_dirs_of(cluster: Cluster, broker: BrokerId) -> dict[str, LogDir] | KafkaError:
    node = cluster.metadata.nodes.get(broker)
    if node is None:
        known = ", ".join(map(str, sorted(cluster.metadata.nodes)))
        return BrokerNotAvailable(f"there is no broker {broker}: the cluster has {known}")
    try:
        connection = await cluster.connection(node)
        response = await connection.request(ApiKey.DESCRIBE_LOG_DIRS, {"topics": None})
    except KafkaError as error:
        return error
    if response.error_code:
        return read_error(response.error_code)
    return {answer.log_dir: _read_log_dir(answer) for answer in response.results}


def _read_log_dir(answer: Struct) -> LogDir:
    replicas = {
        TopicPartition(topic.name, one.partition_index): ReplicaInfo(
            one.partition_size, one.offset_lag, one.is_future_key
        )
        for topic in answer.topics
        for one in topic.partitions
    }
    error = read_error(answer.error_code) if answer.error_code else None
    return LogDir(answer.log_dir, error, _size(answer.total_bytes), _size(answer.usable_bytes), replicas)


def _size(size: int) -> int | None:
    return None if size == UNKNOWN_SIZE else size


# ── producers ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def describe_producers(
    connection: Connection, partitions: Mapping[TopicPartition, None]
) -> Outcomes[list[ProducerState]]:
    """The producers of partitions that their leaders remember; for `Cluster.by_leader`."""
    topics = [
        {"name": topic, "partition_indexes": [key.partition for key in keys]}
        for topic, keys in by_topic(partitions).items()
    ]
    response = await connection.request(ApiKey.DESCRIBE_PRODUCERS, {"topics": topics})
    return {
        TopicPartition(topic.name, one.partition_index): (
            read_error(one.error_code, one.error_message)
            if one.error_code
            else [_read_producer(producer) for producer in one.active_producers]
        )
        for topic in response.topics
        for one in topic.partitions
    }


def _read_producer(producer: Struct) -> ProducerState:
    epoch, start = producer.coordinator_epoch, producer.current_txn_start_offset
    return ProducerState(
        producer.producer_id,
        producer.producer_epoch,
        producer.last_sequence,
        producer.last_timestamp,
        None if epoch < 0 else epoch,
        None if start < 0 else start,
    )


# ── elections and reassignments ───────────────────────────────────────────────────────────────────────────────────


async def elect_leaders(
    cluster: Cluster, election_type: int, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, KafkaError | None]:
    """Elect leaders (None: for all partitions that need it). An election that was not needed is a success."""
    wanted = None
    if partitions is not None:
        wanted = [
            {"topic": topic, "partitions": [key.partition for key in keys]}
            for topic, keys in by_topic(partitions).items()
        ]
    message = {
        "election_type": election_type,
        "topic_partitions": wanted,
        "timeout": cluster.request_timeout_ms,
    }
    response = await cluster.request_controller(ApiKey.ELECT_LEADERS, message, errors=_error_code)
    if response.error_code:
        raise read_error(response.error_code)
    return {
        TopicPartition(topic.topic, one.partition_id): (
            read_error(one.error_code, one.error_message) if one.error_code not in (0, ElectionNotNeeded.code) else None
        )
        for topic in response.replica_election_results
        for one in topic.partition_result
    }


def _error_code(response: Struct) -> Iterable[int]:
    return [response.error_code]


async def alter_reassignments(
    cluster: Cluster, wanted: Mapping[TopicPartition, Sequence[BrokerId] | None]
) -> dict[TopicPartition, KafkaError | None]:
    """Move partitions to other brokers (None: stop moving)."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": key.partition, "replicas": None if (to := wanted[key]) is None else list(to)}
                for key in keys
            ],
        }
        for topic, keys in by_topic(wanted).items()
    ]
    message = {"timeout": cluster.request_timeout_ms, "topics": topics}
    response = await cluster.request_controller(ApiKey.ALTER_PARTITION_REASSIGNMENTS, message, errors=_error_code)
    if response.error_code:
        raise read_error(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, one.partition_index): (
            read_error(one.error_code, one.error_message) if one.error_code else None
        )
        for topic in response.responses
        for one in topic.partitions
    }


async def list_reassignments(
    cluster: Cluster, partitions: Sequence[TopicPartition] | None
) -> dict[TopicPartition, PartitionReassignment]:
    """The partitions that are being moved."""
    wanted = None
    if partitions is not None:
        wanted = [
            {"name": topic, "partition_indexes": [key.partition for key in keys]}
            for topic, keys in by_topic(partitions).items()
        ]
    message = {"timeout": cluster.request_timeout_ms, "topics": wanted}
    response = await cluster.request_controller(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, message, errors=_error_code, retry_lost=True
    )
    if response.error_code:
        raise read_error(response.error_code, response.error_message)
    return {
        TopicPartition(topic.name, one.partition_index): PartitionReassignment(
            tuple(one.replicas), tuple(one.adding_replicas), tuple(one.removing_replicas)
        )
        for topic in response.topics
        for one in topic.partitions
    }
