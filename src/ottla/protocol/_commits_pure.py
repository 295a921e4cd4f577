"""OffsetCommit read and answered in one go: the twin of `_commits.pxi`, by way of the codec."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from ottla.protocol import codec
from ottla.protocol.apis import ApiKey

FIRST_QUICK = 8
"""Older clients are few: they take the long way."""
FIRST_WITH_IDS = 10
LONGEST = 1 << 16
API = ApiKey.OFFSET_COMMIT

Offset: TypeAlias = tuple[str, int, int, int, str | None, UUID | None]
"""Topic, partition, offset, leader epoch, metadata, id of the topic."""
Commit: TypeAlias = tuple[str, str, int, str | None, int, int, tuple[Offset, ...]]
"""Group, member, generation, instance id, retention time, version, offsets."""


class KnownTopic(Protocol):
    """What has to be known of a topic."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> int: ...


def read_commit(
    buffer: codec.Bytes, position: int, version: int, correlation_id: int, topics: Mapping[Any, KnownTopic]
) -> tuple[Commit, codec.Buffer] | None:
    """Read a request whose body begins at a position, and make the frame of its answer if all of it is taken.

    The topics are known by what the version calls them, a name or an id. None if the request is not like most: of an
    old version, long, broken, or with a topic or partition that does not exist.
    """
    if version < FIRST_QUICK or len(buffer) > LONGEST:
        return None
    try:
        request = codec.decode_request_body(API, version, buffer, position)
    except codec.DecodeError:
        return None
    offsets: list[Offset] = []
    for asked in request.topics:
        topic = topics.get(asked.name if version < FIRST_WITH_IDS else asked.topic_id)
        if topic is None or not all(0 <= each.partition_index < topic.partitions for each in asked.partitions):
            return None
        for each in asked.partitions:
            place = (topic.name, each.partition_index)
            offsets.append(
                (*place, each.committed_offset, each.committed_leader_epoch, each.committed_metadata, topic.topic_id)
            )
    who = (request.group_id, request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    answer = codec.encode_response(API, version, correlation_id, answer_to(request))
    return (*who, request.retention_time, version, tuple(offsets)), answer


def answer_to(request: codec.Struct) -> codec.Message:
    """The answer to a request of which all is taken."""
    return {
        "topics": [
            {
                "name": asked.name,
                "topic_id": asked.topic_id,
                "partitions": [{"partition_index": each.partition_index, "error_code": 0} for each in asked.partitions],
            }
            for asked in request.topics
        ]
    }
