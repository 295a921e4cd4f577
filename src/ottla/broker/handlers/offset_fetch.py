"""OffsetFetch: up to v7 of one group, from v8 of many; v2 asks for everything by null; v7 can insist on stable
offsets; v9 brings member epochs; v10 topic ids."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import FetchedPartition, FetchRequest, TopicToFetch
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.OFFSET_FETCH


async def handle(node: Node, call: Call, request: Struct) -> Message:
    if call.api_version < 8:
        return await _old(node, call, request)
    return {"groups": [await _group(node, call, request, asked) for asked in request.groups]}


async def _old(node: Node, call: Call, request: Struct) -> Message:
    answer = await _group(node, call, request, request)
    del answer["group_id"]
    for topic in answer["topics"]:
        del topic["topic_id"]
    if call.api_version == 1 and answer["error_code"]:
        # v1 has no code for the whole: each partition has it.
        answer["topics"] = [
            {"name": topic.name, "partitions": [_failed(p, answer["error_code"]) for p in topic.partition_indexes]}
            for topic in request.topics
        ]
    return answer


async def _group(node: Node, call: Call, request: Struct, asked: Struct) -> Message:
    topics: list[TopicToFetch] | None = None
    unknown: list[Message] = []
    if asked.topics is not None:
        topics = []
        for topic in asked.topics:
            name = _name(node, call, topic)
            if name is None:
                unknown.append(_unknown_id(topic))
            else:
                topics.append(TopicToFetch(name, tuple(topic.partition_indexes), getattr(topic, "topic_id", None)))
    wish = FetchRequest(
        group_id=asked.group_id,
        topics=None if topics is None else tuple(topics),
        member_id=getattr(asked, "member_id", None),
        member_epoch=getattr(asked, "member_epoch", -1),
        require_stable=request.require_stable,
    )
    try:
        answer = await node.groups.run(asked.group_id, Coordinator.fetch, wish)
    except errors.KafkaError as error:
        return {"group_id": asked.group_id, "error_code": error.code, "topics": []}
    return {"group_id": asked.group_id, "error_code": 0, "topics": _topics(node, topics, answer.partitions) + unknown}


def _name(node: Node, call: Call, topic: Struct) -> str | None:
    if call.api_version < 10:
        name: str = topic.name
        return name
    known = node.metadata.topics_by_id.get(topic.topic_id)
    return known.name if known is not None else None


def _topics(node: Node, asked: Sequence[TopicToFetch] | None, partitions: Sequence[FetchedPartition]) -> list[Message]:
    by_topic: Iterable[tuple[str, Iterable[FetchedPartition]]]
    if asked is None:
        # They come as they were committed, topics in between each other; clients take a topic's entry for all of it.
        found: dict[str, list[FetchedPartition]] = {}
        for each in partitions:
            found.setdefault(each.topic, []).append(each)
        by_topic = found.items()
    else:
        told = iter(partitions)
        by_topic = ((topic.topic, islice(told, len(topic.partitions))) for topic in asked)
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


def _unknown_id(topic: Struct) -> Message:
    code = errors.UnknownTopicId.code
    return {"topic_id": topic.topic_id, "partitions": [_failed(index, code) for index in topic.partition_indexes]}


def _failed(index: int, code: int) -> dict[str, Any]:
    return {"partition_index": index, "committed_offset": -1, "metadata": "", "error_code": code}
