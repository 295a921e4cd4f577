"""OffsetFetch: the committed offsets of a group, from v8 of several groups.

v2 requests all topics with null; v7 can require stable offsets; v9 adds member epochs; v10 topic ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from ottla import errors
from ottla.broker.authorization import refusal, sees
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import FetchedPartition, FetchRequest, TopicToFetch
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import Denied, need

API = ApiKey.OFFSET_FETCH
DESCRIBE = need("offset_fetch", Operation.DESCRIBE, ResourceType.GROUP)
DESCRIBE_TOPIC = need("offset_fetch", Operation.DESCRIBE, ResourceType.TOPIC)
SEE_TOPIC = need("offset_fetch", Operation.DESCRIBE, ResourceType.TOPIC, Denied.HIDDEN)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if call.api_version < 8:
        return await _single_group(node, call, request)
    return {"groups": [await _group(node, call, request, group) async for group in with_pauses(request.groups)]}


async def _single_group(node: Node, call: Call, request: Struct) -> Message:
    response = await _group(node, call, request, request)
    del response["group_id"]
    for topic in response["topics"]:
        del topic["topic_id"]
    if call.api_version == 1 and response["error_code"]:
        # v1 has no error code for the whole response.
        response["topics"] = [
            {"name": topic.name, "partitions": [_failed(p, response["error_code"]) for p in topic.partition_indexes]}
            for topic in request.topics
        ]
    return response


async def _group(node: Node, call: Call, request: Struct, group: Struct) -> Message:
    if node.authorizer is not None and (refused := refusal(node, call, DESCRIBE, group.group_id)) is not None:
        return {"group_id": group.group_id, "error_code": refused.code, "topics": []}
    topics: list[TopicToFetch] | None = None
    unknown: list[Message] = []
    if group.topics is not None:
        topics = []
        for topic in group.topics:
            name = _name(node, call, topic)
            if name is None:
                unknown.append(_failed_topic(topic, errors.UnknownTopicId.code))
            elif node.authorizer is not None and (error := refusal(node, call, DESCRIBE_TOPIC, name)) is not None:
                unknown.append(_failed_topic(topic, error.code))
            else:
                topics.append(TopicToFetch(name, tuple(topic.partition_indexes), getattr(topic, "topic_id", None)))
    fetch_request = FetchRequest(
        group_id=group.group_id,
        topics=None if topics is None else tuple(topics),
        member_id=getattr(group, "member_id", None),
        member_epoch=getattr(group, "member_epoch", -1),
        require_stable=request.require_stable,
    )
    try:
        response = await node.groups.run(group.group_id, Coordinator.fetch, fetch_request)
    except errors.KafkaError as error:
        return {"group_id": group.group_id, "error_code": error.code, "topics": []}
    found = response.partitions
    if topics is None:
        found = tuple(each for each in found if sees(node, call, SEE_TOPIC, each.topic))
    return {"group_id": group.group_id, "error_code": 0, "topics": _topics(node, topics, found) + unknown}


def _name(node: Node, call: Call, topic: Struct) -> str | None:
    if call.api_version < 10:
        name: str = topic.name
        return name
    known = node.metadata.topics_by_id.get(topic.topic_id)
    return known.name if known is not None else None


def _topics(node: Node, topics: Sequence[TopicToFetch] | None, partitions: Sequence[FetchedPartition]) -> list[Message]:
    by_topic: Iterable[tuple[str, Iterable[FetchedPartition]]]
    if topics is None:
        # They come in the order of the commits, with topics mixed. Clients expect one entry per topic.
        found: dict[str, list[FetchedPartition]] = {}
        for each in partitions:
            found.setdefault(each.topic, []).append(each)
        by_topic = found.items()
    else:
        fetched = iter(partitions)
        by_topic = ((topic.topic, islice(fetched, len(topic.partitions))) for topic in topics)
    return [_topic(node, name, group) for name, group in by_topic]


def _topic(node: Node, name: str, partitions: Iterable[FetchedPartition]) -> Message:
    known = node.metadata.topics.get(name)
    return {
        "name": name,
        "topic_id": known.topic_id if known is not None else None,
        "partitions": [
            {
                "partition_index": each.partition,
                "committed_offset": each.offset,
                "committed_leader_epoch": each.leader_epoch,
                "metadata": each.metadata,
                "error_code": each.error_code,
            }
            for each in partitions
        ],
    }


def _failed_topic(topic: Struct, code: int) -> Message:
    """Repeat the topic as the client named it, by name or by id, with an error for each partition."""
    named = {"name": getattr(topic, "name", ""), "topic_id": getattr(topic, "topic_id", None)}
    return named | {"partitions": [_failed(index, code) for index in topic.partition_indexes]}


def _failed(index: int, code: int) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}
