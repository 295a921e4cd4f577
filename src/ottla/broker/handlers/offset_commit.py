"""OffsetCommit: v2 to v4 have a retention time; v6 adds leader epochs; v7 static members; v9 member epochs; v10 ids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any

from ottla import errors
from ottla.broker.authorization import refusal
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
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.OFFSET_COMMIT
#: The expiry (commit time plus retention) must fit into 64 bits.
LONGEST_RETENTION = 2**62
READ = need("offset_commit", Operation.READ, ResourceType.TOPIC)
#: Creates a named tuple in half the time of a call to its class.
_new: Any = tuple.__new__


def handle(node: Node, call: Call, request: Struct) -> Message | Later:
    offsets: list[Offset] = []
    codes: list[int] = []
    for entry in request.topics:
        topic = _topic(node, call, entry)
        name = entry.name if topic is None else topic.name
        if node.authorizer is not None and name and (error := refusal(node, call, READ, name)) is not None:
            codes += [error.code] * len(entry.partitions)
            continue
        if topic is None:
            code = errors.UnknownTopicId.code if call.api_version >= 10 else errors.UnknownTopicOrPartition.code
            codes += [code] * len(entry.partitions)
            continue
        topic_id, count = topic.topic_id, topic.partitions
        for each in entry.partitions:
            index = each.partition_index
            if 0 <= index < count:
                offset, leader_epoch = each.committed_offset, each.committed_leader_epoch
                offsets.append((name, index, offset, leader_epoch, each.committed_metadata, topic_id))
                codes.append(0)
            else:
                codes.append(errors.UnknownTopicOrPartition.code)
    if not offsets:
        return _message(request, codes, CommitResponse(()))
    commit_request = _commit_request(call, request, tuple(offsets))
    return node.groups.ask(request.group_id, Coordinator.commit, commit_request, partial(_message, request, codes))


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each partition with the same error."""
    return _with_codes(request, repeat(error.code))


def quick(node: Node, version: int, correlation_id: int, frame: memoryview, body: int) -> Buffer | None:
    """Accept an ordinary commit, which is written together with others, and return the frame of its response.

    The response is provisional until the write at the end of the turn. None means that `handle` must take it.
    """
    topics = node.metadata.topics if version < FIRST_WITH_IDS else node.metadata.topics_by_id
    commit = read_commit(frame, body, version, correlation_id, topics, node.config.offset_metadata_max_bytes)
    if commit is None:
        return None
    values, response = commit
    try:
        is_taken = node.groups.commit(_new(CommitRequest, values), partial(_fail, version, correlation_id, response))
    except errors.KafkaError as error:
        _fail(version, correlation_id, response, error)
        return response
    return response if is_taken else None


def _fail(version: int, correlation_id: int, response: Buffer, error: Exception) -> None:
    """Put an error into the frame of a provisional response."""
    decoded = codec.decode_response(API, version, memoryview(response)[4:])
    message = _with_codes(decoded, repeat(group_error(error).code))
    response[:] = codec.encode_response(API, version, correlation_id, message)


def _message(request: Struct, codes: Sequence[int], response: CommitResponse | errors.KafkaError) -> Message:
    """Make the response message. ``codes`` has an error for each partition that does not exist, 0 for the others."""
    merged: Iterator[int]
    if isinstance(response, errors.KafkaError):
        merged = (code or response.code for code in codes)
    else:
        # The coordinator has a code for each existing partition, in the order of the request.
        merged = committed = iter(response.error_codes)
        if any(codes):
            merged = (code or next(committed) for code in codes)
    return _with_codes(request, merged)


def _with_codes(request: Struct, codes: Iterator[int]) -> Message:
    topics: list[Message] = []
    for topic in request.topics:
        partitions = [
            {"partition_index": each.partition_index, "error_code": code}
            for each, code in zip(topic.partitions, codes, strict=False)
        ]
        topics.append({"name": topic.name, "topic_id": topic.topic_id, "partitions": partitions})
    return {"topics": topics}


def _commit_request(call: Call, request: Struct, offsets: tuple[Offset, ...]) -> CommitRequest:
    return CommitRequest(
        request.group_id,
        request.member_id,
        request.generation_id_or_member_epoch,
        request.group_instance_id,
        min(request.retention_time, LONGEST_RETENTION),
        call.api_version,
        offsets,
    )


def _topic(node: Node, call: Call, entry: Struct) -> Topic | None:
    if call.api_version < 10:
        return node.metadata.topics.get(entry.name)
    return node.metadata.topics_by_id.get(entry.topic_id)
