"""OffsetCommit: v2 to v4 bring a retention time; v6 leader epochs; v7 static members; v9 member epochs; v10 topic
ids."""

from __future__ import annotations

from collections.abc import Iterator

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.messages import CommitRequest, OffsetToCommit
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.OFFSET_COMMIT
#: Added to the time of the commit it still fits into the 64 bits that the record has for it.
LONGEST_RETENTION = 2**62


async def handle(node: Node, call: Call, request: Struct) -> Message:
    names = [_name(node, call, topic) for topic in request.topics]
    offsets = tuple(_existing(node, request, names))
    codes: dict[tuple[str, int], int] = {}
    try:
        answer = await node.groups.run(request.group_id, lambda group: group.commit, _wish(call, request, offsets))
        codes = {(each.topic, each.partition): each.error_code for each in answer.partitions}
        failed = 0
    except errors.KafkaError as error:
        failed = error.code
    topics = [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partitions": [
                {"partition_index": each.partition_index, "error_code": failed or _code(name, call, codes, each)}
                for each in topic.partitions
            ],
        }
        for topic, name in zip(request.topics, names, strict=True)
    ]
    return {"topics": topics}


def _wish(call: Call, request: Struct, offsets: tuple[OffsetToCommit, ...]) -> CommitRequest:
    return CommitRequest(
        group_id=request.group_id,
        member_id=request.member_id,
        generation_id=request.generation_id_or_member_epoch,
        group_instance_id=request.group_instance_id,
        retention_time=min(request.retention_time, LONGEST_RETENTION),
        api_version=call.api_version,
        offsets=offsets,
    )


def _name(node: Node, call: Call, topic: Struct) -> str | None:
    if call.api_version < 10:
        name: str = topic.name
        return name
    known = node.metadata.topics_by_id.get(topic.topic_id)
    return known.name if known is not None else None


def _existing(node: Node, request: Struct, names: list[str | None]) -> Iterator[OffsetToCommit]:
    for topic, name in zip(request.topics, names, strict=True):
        known = node.metadata.topics.get(name) if name is not None else None
        for each in topic.partitions:
            if known is not None and 0 <= each.partition_index < known.partitions:
                yield OffsetToCommit(
                    known.name,
                    each.partition_index,
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata,
                    known.topic_id,
                )


def _code(name: str | None, call: Call, codes: dict[tuple[str, int], int], each: Struct) -> int:
    if name is None:
        return errors.UnknownTopicId.code
    return codes.get((name, each.partition_index), errors.UnknownTopicOrPartition.code)
