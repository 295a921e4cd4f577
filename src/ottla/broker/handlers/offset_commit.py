"""OffsetCommit: v2 to v4 bring a retention time; v6 leader epochs; v7 static members; v9 member epochs; v10 topic
ids."""

from __future__ import annotations

from collections.abc import Iterator

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.messages import CommitRequest, OffsetToCommit
from ottla.metadata import Topic
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.OFFSET_COMMIT
#: Added to the time of the commit it still fits into the 64 bits that the record has for it.
LONGEST_RETENTION = 2**62


async def handle(node: Node, call: Call, request: Struct) -> Message:
    topics = [_known(node, call, topic) for topic in request.topics]
    offsets = tuple(_existing(request, topics))
    failed = 0
    codes: Iterator[int] = iter(())
    try:
        answer = await node.groups.run(request.group_id, lambda group: group.commit, _wish(call, request, offsets))
        codes = iter([each.error_code for each in answer.partitions])
    except errors.KafkaError as error:
        failed = error.code
    unknown = errors.UnknownTopicId.code if call.api_version >= 10 else errors.UnknownTopicOrPartition.code
    return {
        "topics": [
            {
                "name": asked.name,
                "topic_id": asked.topic_id,
                "partitions": [
                    {"partition_index": index, "error_code": code}
                    for index, code in _codes(asked, topic, failed, unknown, codes)
                ],
            }
            for asked, topic in zip(request.topics, topics, strict=True)
        ]
    }


def _codes(
    asked: Struct, topic: Topic | None, failed: int, unknown: int, codes: Iterator[int]
) -> Iterator[tuple[int, int]]:
    """Give each partition its code: the next one of the answer if it exists, for those were asked in this order."""
    for each in asked.partitions:
        index = each.partition_index
        if failed:
            yield index, failed
        elif topic is None:
            yield index, unknown
        elif 0 <= index < topic.partitions:
            yield index, next(codes)
        else:
            yield index, errors.UnknownTopicOrPartition.code


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


def _known(node: Node, call: Call, asked: Struct) -> Topic | None:
    if call.api_version < 10:
        return node.metadata.topics.get(asked.name)
    return node.metadata.topics_by_id.get(asked.topic_id)


def _existing(request: Struct, topics: list[Topic | None]) -> Iterator[OffsetToCommit]:
    for asked, topic in zip(request.topics, topics, strict=True):
        if topic is None:
            continue
        name, topic_id, partitions = topic.name, topic.topic_id, topic.partitions
        for each in asked.partitions:
            index = each.partition_index
            if 0 <= index < partitions:
                offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
                yield OffsetToCommit(name, index, offset, leader_epoch, each.committed_metadata, topic_id)
