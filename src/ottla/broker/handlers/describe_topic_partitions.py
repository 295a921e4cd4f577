"""DescribeTopicPartitions: topics in pages. The cursor is the start of the next page."""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization import authorized_operations, check, sees
from ottla.broker.handlers.metadata import topic_message
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.errors import KafkaError
from ottla.metadata.machine import check_topic_name
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need

API = ApiKey.DESCRIBE_TOPIC_PARTITIONS
DESCRIBE = need("describe_topic_partitions", Operation.DESCRIBE, ResourceType.TOPIC)
SEE = need("describe_topic_partitions", Operation.DESCRIBE, ResourceType.TOPIC, Denied.HIDDEN)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    asked = {topic.name for topic in request.topics}
    names = sorted(asked or (name for name in node.metadata.topics if sees(node, call, SEE, name)))
    first = 0
    if request.cursor is not None:
        names = [name for name in names if name >= request.cursor.topic_name]
        if names and names[0] == request.cursor.topic_name:
            first = max(0, request.cursor.partition_index)
    room = max(1, min(request.response_partition_limit, node.config.max_request_partition_size_limit))
    topics: list[Message] = []
    async for name in with_pauses(names):
        if room == 0:
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": 0}}
        if not asked and name not in node.metadata.topics:
            continue  # Deleted during a pause.
        topic = _topic(node, call, name)
        partitions: list[Any] = topic["partitions"]
        topic["partitions"] = partitions[first : first + room]
        topics.append(topic)
        if first + room < len(partitions):
            return {"topics": topics, "next_cursor": {"topic_name": name, "partition_index": first + room}}
        room -= len(topic["partitions"])
        first = 0
    return {"topics": topics}


def _topic(node: Node, call: Call, name: str) -> Message:
    try:
        check(node, call, DESCRIBE, name)
        check_topic_name(name)
        states = node.metadata.topic(name).states
        topic = topic_message(node, node.metadata.topic(name))
    except KafkaError as error:
        return {"error_code": error.code, "name": name, "topic_id": None, "partitions": []}
    # The Java client expects lists here, although the schema allows null.
    partitions = [
        each | {"eligible_leader_replicas": state.elr, "last_known_elr": state.last_known_elr}
        for each, state in zip(topic["partitions"], states, strict=True)
    ]
    operations = authorized_operations(node, call, ResourceType.TOPIC, name)
    return topic | {"partitions": partitions, "topic_authorized_operations": operations}
