"""OffsetCommit: v2 to v4 bring a retention time; v6 leader epochs; v7 static members; v9 member epochs; v10 topic
ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from ottla import errors
from ottla.broker.groups import group_error
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import CommitRequest, CommitResponse, Offset
from ottla.metadata import Topic
from ottla.net.server.connection import Later
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Buffer, Message, Struct
from ottla.protocol.commits import FIRST_WITH_IDS, read_commit

API = ApiKey.OFFSET_COMMIT
#: Added to the time of the commit it still fits into the 64 bits that the record has for it.
LONGEST_RETENTION = 2**62
#: Makes a tuple of a class in half the time that the class takes.
_new: Any = tuple.__new__


def handle(node: Node, call: Call, request: Struct) -> Message | Later:
    offsets: list[Offset] = []
    codes: list[int] = []
    for asked in request.topics:
        topic = _known(node, call, asked)
        if topic is None:
            code = errors.UnknownTopicId.code if call.api_version >= 10 else errors.UnknownTopicOrPartition.code
            codes += [code] * len(asked.partitions)
            continue
        name, topic_id, count = topic.name, topic.topic_id, topic.partitions
        for each in asked.partitions:
            index = each.partition_index
            if 0 <= index < count:
                offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
                offsets.append((name, index, offset, leader_epoch, each.committed_metadata, topic_id))
                codes.append(0)
            else:
                codes.append(errors.UnknownTopicOrPartition.code)
    if not offsets:
        # Nothing is left that the group could be asked about.
        return _told(request, codes, CommitResponse(()))
    wish = _wish(call, request, tuple(offsets))
    return node.groups.ask(request.group_id, Coordinator.commit, wish, partial(_told, request, codes))


def quick(node: Node, version: int, correlation_id: int, frame: memoryview, body: int) -> Buffer | None:
    """Take an ordinary commit, to be written together with others, and return the frame of its response.

    The response is provisional until the write at the end of the turn. None means: take the ordinary path.
    """
    topics = node.metadata.topics if version < FIRST_WITH_IDS else node.metadata.topics_by_id
    commit = read_commit(frame, body, version, correlation_id, topics, node.config.offset_metadata_max_bytes)
    if commit is None:
        return None
    wish, answer = commit
    try:
        is_taken = node.groups.commit(_new(CommitRequest, wish), partial(_refuse, version, correlation_id, answer))
    except errors.KafkaError as error:
        _refuse(version, correlation_id, answer, error)
        return answer
    return answer if is_taken else None


def _refuse(version: int, correlation_id: int, answer: Buffer, error: Exception) -> None:
    """Put an error into the frame of a provisional response."""
    told = codec.decode_response(API, version, memoryview(answer)[4:])
    message = _answer(told, repeat(group_error(error).code))
    answer[:] = codec.encode_response(API, version, correlation_id, message)


def _told(request: Struct, codes: Sequence[int], answer: CommitResponse | errors.KafkaError) -> Message:
    """The answer to a request; ``codes`` has an error for each of its partitions that does not exist, otherwise 0.

    Those keep their error whatever the group says.
    """
    told: Iterator[int]
    if isinstance(answer, errors.KafkaError):
        told = (code or answer.code for code in codes)
    else:
        # The coordinator answers in the order in which it was asked.
        told = committed = iter(answer.error_codes)
        if any(codes):
            told = (code or next(committed) for code in codes)
    return _answer(request, told)


def _answer(request: Struct, codes: Iterator[int]) -> Message:
    topics: list[Message] = []
    for asked in request.topics:
        partitions = [
            {"partition_index": each.partition_index, "error_code": code}
            for each, code in zip(asked.partitions, codes, strict=False)
        ]
        topics.append({"name": asked.name, "topic_id": asked.topic_id, "partitions": partitions})
    return {"topics": topics}


def _wish(call: Call, request: Struct, offsets: tuple[Offset, ...]) -> CommitRequest:
    return CommitRequest(
        request.group_id,
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        min(request.retention_time, LONGEST_RETENTION),
        call.api_version,
        offsets,
    )


def _known(node: Node, call: Call, asked: Struct) -> Topic | None:
    if call.api_version < 10:
        return node.metadata.topics.get(asked.name)
    return node.metadata.topics_by_id.get(asked.topic_id)
