"""OffsetDelete: delete committed offsets of topics that the group does not subscribe to."""

from __future__ import annotations

from collections.abc import Mapping

from ottla import errors
from ottla.broker.authorization import refusal
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import DeleteOffsetsRequest
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.OFFSET_DELETE
READ = need("offset_delete", Operation.READ, ResourceType.TOPIC)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    refused = {
        topic.name: error.code
        async for topic in with_pauses(request.topics)
        if node.authorizer is not None and (error := refusal(node, call, READ, topic.name)) is not None
    }
    named = [(topic.name, each.partition_index) for topic in request.topics for each in topic.partitions]
    known = tuple(each for each in named if each[0] not in refused and _exists(node, *each))
    try:
        delete_request = DeleteOffsetsRequest(group_id=request.group_id, partitions=known)
        response = await node.groups.run(request.group_id, Coordinator.delete_offsets, delete_request)
    except errors.KafkaError as error:
        return {"error_code": error.code, "topics": []}
    codes = {(each.topic, each.partition): each.error_code for each in response.partitions}
    return {"topics": [_topic(topic, codes, refused) for topic in request.topics]}


def _topic(topic: Struct, codes: Mapping[tuple[str, int], int], refused: Mapping[str, int]) -> Message:
    unknown = refused.get(topic.name, errors.UnknownTopicOrPartition.code)
    partitions = [
        {"partition_index": each.partition_index, "error_code": codes.get((topic.name, each.partition_index), unknown)}
        for each in topic.partitions
    ]
    return {"name": topic.name, "partitions": partitions}


def _exists(node: Node, topic: str, partition: int) -> bool:
    known = node.metadata.topics.get(topic)
    return known is not None and 0 <= partition < known.partitions
