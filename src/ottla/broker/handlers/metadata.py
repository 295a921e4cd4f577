"""Metadata: brokers, topics and their partitions.

v0 requests all topics with an empty list, later versions with null. v4 can forbid auto-creation; v10 identifies topics
by id; v13 has an error code for the whole response.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.broker.authorization import NOT_ASKED, authorized_operations, check, cluster_operations, sees
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Address, Call, Node
from ottla.broker.quotas import TopicChanges
from ottla.broker.topics import ensure_topic
from ottla.errors import KafkaError, LeaderNotAvailable, ThrottlingQuotaExceeded
from ottla.metadata import PartitionState, Topic
from ottla.metadata.machine import INTERNAL_TOPICS, check_topic_name
from ottla.metadata.values import NO_LEADER
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need
from ottla.types import TopicPartition

API = ApiKey.METADATA
DESCRIBE = need("metadata", Operation.DESCRIBE, ResourceType.TOPIC)
SEE = need("metadata", Operation.DESCRIBE, ResourceType.TOPIC, Denied.HIDDEN)
CREATE = need("metadata", Operation.CREATE, ResourceType.TOPIC)
SEE_OPERATIONS = need("metadata", Operation.DESCRIBE, ResourceType.CLUSTER, Denied.HIDDEN)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if node.cluster is not None:
        # Most clients ask again only after a second if they are told a dead leader, or none.
        await node.cluster.until_led()
    changes = TopicChanges(node, call)
    if request.topics is None or (call.api_version == 0 and not request.topics):
        visible = (topic for topic in node.metadata.topics.values() if sees(node, call, SEE, topic.name))
        topics = [topic_message(node, topic) for topic in visible]
    else:
        topics = [await _topic(node, call, request, entry, changes) async for entry in with_pauses(request.topics)]
    if request.include_topic_authorized_operations:
        for topic in topics:
            if not topic.get("error_code"):
                operations = authorized_operations(node, call, ResourceType.TOPIC, topic["name"])
                topic["topic_authorized_operations"] = operations
    return {
        "brokers": [
            {"node_id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack}
            for each in _brokers(node, call)
        ],
        "cluster_id": node.metadata.cluster_id,
        "controller_id": node.controller_id,
        "topics": topics,
        "throttle_time": changes.pause(),
        "cluster_authorized_operations": (
            cluster_operations(node, call, SEE_OPERATIONS)
            if request.include_cluster_authorized_operations
            else NOT_ASKED
        ),
    }


def _brokers(node: Node, call: Call) -> list[Address]:
    """Return the brokers that are alive, and those that were a moment ago.

    librdkafka gives up a broker that is missing here, and with it the partitions that are just moving from it to their
    new leaders. It then asks for them again after a second.
    """
    if node.cluster is None:
        return node.brokers(call.connection)
    known, has_just_left = node.brokers(call.connection, fenced=True), node.cluster.has_just_left
    return [each for each in known if not each.is_fenced or has_just_left(each.broker_id)]


async def _topic(node: Node, call: Call, request: Struct, entry: Struct, changes: TopicChanges) -> Message:
    try:
        topic = await _find(node, call, request, entry, changes)
    except KafkaError as error:
        # As in Kafka, a name is repeated even if it is empty: clients cannot handle an answer without it. An unknown id
        # has no name, which is null from v12 on.
        unnamed = entry.topic_id is not None or entry.name is None
        name = entry.name if not unnamed else None if call.api_version >= 12 else ""
        return {"error_code": error.code, "name": name, "topic_id": entry.topic_id, "partitions": []}
    return topic_message(node, topic)


async def _find(node: Node, call: Call, request: Struct, entry: Struct, changes: TopicChanges) -> Topic:
    # An id takes precedence: the Java client sends an empty name with it, other clients send null.
    if entry.topic_id is not None or entry.name is None:
        topic = node.topic_by_id(entry.topic_id)
        check(node, call, DESCRIBE, topic.name)
        return topic
    check(node, call, DESCRIBE, entry.name)
    check_topic_name(entry.name)
    may_create = node.config.auto_create_topics_enable and request.allow_auto_topic_creation
    if may_create and entry.name not in INTERNAL_TOPICS:
        if entry.name not in node.metadata.topics:
            check(node, call, CREATE, entry.name)
            try:
                changes.charge(node.config.num_partitions)
            except ThrottlingQuotaExceeded as error:
                raise LeaderNotAvailable(str(error)) from error  # Every client tries again.
        return await ensure_topic(node, entry.name)
    return node.metadata.topic(entry.name)


def topic_message(node: Node, topic: Topic) -> Message:
    """Describe a topic and who leads its partitions."""
    alive = {each.broker_id for each in node.metadata.brokers.values() if not each.is_fenced}
    if node.cluster is not None:
        alive -= node.cluster.gone
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": [_partition(node, topic.name, index, state, alive) for index, state in enumerate(topic.states)],
    }


def _partition(node: Node, name: str, index: int, state: PartitionState, alive: set[int]) -> Message:
    offline: Sequence[int] = ()
    if state.offline or node.offline or not alive.issuperset(state.replicas):
        failed = {*state.offline, node.id} if TopicPartition(name, index) in node.offline else state.offline
        offline = [each for each in state.replicas if each not in alive or each in failed]
    has_leader = state.leader in alive and state.leader not in offline
    return {
        "error_code": 0 if has_leader else LeaderNotAvailable.code,
        "partition_index": index,
        "leader_id": state.leader if has_leader else NO_LEADER,
        "leader_epoch": state.leader_epoch,
        "replica_nodes": state.replicas,
        "isr_nodes": state.isr,
        "offline_replicas": offline,
    }
