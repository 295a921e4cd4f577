"""OffsetCommit: v2 to v4 bring a retention time; v6 leader epochs; v7 static members; v9 member epochs; v10 topic
ids."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import CommitRequest, CommitResponse, OffsetToCommit
from ottla.metadata import Topic
from ottla.net.connection import Later
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.OFFSET_COMMIT
#: Added to the time of the commit it still fits into the 64 bits that the record has for it.
LONGEST_RETENTION = 2**62


def handle(node: Node, call: Call, request: Struct) -> Message | Later:
    message: list[Message] = []
    offsets: list[OffsetToCommit] = []
    asked_for: list[Message] = []
    for asked in request.topics:
        topic = _known(node, call, asked)
        partitions = [_answer(call, topic, each.partition_index) for each in asked.partitions]
        message.append({"name": asked.name, "topic_id": asked.topic_id, "partitions": partitions})
        if topic is not None:
            name, topic_id = topic.name, topic.topic_id
            for each, answer in zip(asked.partitions, partitions, strict=True):
                if not answer["error_code"]:
                    offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
                    index, metadata = each.partition_index, each.committed_metadata
                    offsets.append(OffsetToCommit(name, index, offset, leader_epoch, metadata, topic_id))
                    asked_for.append(answer)
    wish = _wish(call, request, tuple(offsets))
    return node.groups.ask(request.group_id, Coordinator.commit, wish, partial(_told, message, asked_for))


def _answer(call: Call, topic: Topic | None, index: int) -> Message:
    """The answer for a partition: already an error where it does not exist."""
    code = 0
    if topic is None:
        code = errors.UnknownTopicId.code if call.api_version >= 10 else errors.UnknownTopicOrPartition.code
    elif not 0 <= index < topic.partitions:
        code = errors.UnknownTopicOrPartition.code
    return {"partition_index": index, "error_code": code}


def _told(message: list[Message], asked_for: Iterable[Message], answer: CommitResponse | errors.KafkaError) -> Message:
    if isinstance(answer, errors.KafkaError):
        for topic in message:
            for partition in topic["partitions"]:
                partition["error_code"] = answer.code
    else:
        # The coordinator answers in the order in which it was asked.
        for partition, committed in zip(asked_for, answer.partitions, strict=True):
            partition["error_code"] = committed.error_code
    return {"topics": message}


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
