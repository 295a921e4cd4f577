"""OffsetCommit read and answered in one go: the twin of `_commits.pxi`, by way of the codec.

Its offsets become the records that are written for them, packed as `records/_packed_pure.py` says, with room for the
commit timestamp.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from ottla.protocol import codec
from ottla.protocol._compiler import _write_uvarint
from ottla.protocol.apis import ApiKey

FIRST_QUICK = 8
"""Older clients are few: they take the long way."""
FIRST_WITH_IDS = 10
LONGEST = 1 << 16
API = ApiKey.OFFSET_COMMIT
#: In bytes. Longer ones are not gathered, and would be copied for every partition.
LONGEST_GROUP = 512

Commit: TypeAlias = tuple[str, str, int, str | None, int, int, bytes]
"""Group, member, generation, instance id, retention time, version, packed offsets."""


class KnownTopic(Protocol):
    """What has to be known of a topic."""

    @property
    def name(self) -> str: ...

    @property
    def topic_id(self) -> UUID: ...

    @property
    def partitions(self) -> int: ...


def read_commit(
    buffer: codec.Bytes,
    position: int,
    version: int,
    correlation_id: int,
    topics: Mapping[Any, KnownTopic],
    longest_metadata: int,
) -> tuple[Commit, codec.Buffer] | None:
    """Read a request whose body begins at a position, and make the frame of its answer if all of it is taken.

    The topics are known by what the version calls them, a name or an id. None if the request is not like most: of an
    old version, long, broken, with a topic or partition that does not exist, or with metadata of more bytes than that.
    """
    if version < FIRST_QUICK or len(buffer) > LONGEST:
        return None
    try:
        request = codec.decode_request_body(API, version, buffer, position)
    except codec.DecodeError:
        return None
    group = request.group_id.encode()
    packed: list[bytes] = []
    for asked in request.topics:
        topic = topics.get(asked.name if version < FIRST_WITH_IDS else asked.topic_id)
        if topic is None or len(group) > LONGEST_GROUP:
            return None
        for each in asked.partitions:
            metadata = (each.committed_metadata or "").encode()
            if not 0 <= each.partition_index < topic.partitions or len(metadata) > longest_metadata:
                return None
            packed.append(_packed(group, topic, each, metadata))
    who = (request.group_id, request.member_id, request.generation_id_or_member_epoch, request.group_instance_id)
    answer = codec.encode_response(API, version, correlation_id, answer_to(request))
    return (*who, request.retention_time, version, b"".join(packed)), answer


def _packed(group: bytes, topic: KnownTopic, each: codec.Struct, metadata: bytes) -> bytes:
    name, length = topic.name.encode(), bytearray()
    place = struct.pack(f">hh{len(group)}sh{len(name)}si", 1, len(group), group, len(name), name, each.partition_index)
    numbers = struct.pack(">hqi", 4, each.committed_offset, each.committed_leader_epoch)
    _write_uvarint(length, len(metadata) + 1)
    value = b"".join((numbers, length, metadata, bytes(8), b"\1\0\x10", topic.topic_id.bytes))
    return struct.pack(">ii", len(place), len(value)) + place + value


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
