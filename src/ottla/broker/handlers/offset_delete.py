"""OffsetDelete: forget committed offsets of topics that the group does not subscribe to."""

from __future__ import annotations

from collections import defaultdict

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.messages import DeleteOffsetsRequest
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.OFFSET_DELETE


async def handle(node: Node, call: Call, request: Struct) -> Message:
    named = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    known = tuple(each for each in named if _exists(node, *each))
    try:
        wish = DeleteOffsetsRequest(group_id=request.group_id, partitions=known)
        answer = await node.groups.run(request.group_id, lambda group: group.delete_offsets, wish)
    except errors.KafkaError as error:
        return {"error_code": error.code, "topics": []}
    codes = {(each.topic, each.partition): each.error_code for each in answer.partitions}
    topics = defaultdict(list)
    for topic, partition in named:
        code = codes.get((topic, partition), errors.UnknownTopicOrPartition.code)
        topics[topic].append({"partition_index": partition, "error_code": code})
    return {"topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]}


def _exists(node: Node, topic: str, partition: int) -> bool:
    known = node.metadata.topics.get(topic)
    return known is not None and 0 <= partition < known.partitions
