"""Read an OffsetCommit request and make its response in one step: the pure version of `_commits.pxi`.

The offsets become packed records (see `records/_packed_pure.py`), with room for the commit timestamp.
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
"""Older clients are rare and take the slow path."""
FIRST_WITH_IDS = 10
LONGEST = 1 << 16
API = ApiKey.OFFSET_COMMIT
#: In bytes. Longer ones would be copied for every partition.
LONGEST_GROUP = 512

Commit: TypeAlias = tuple[str, str, int, str | None, int, int, bytes]
"""Group, member, generation, instance id, retention time, version, packed offsets."""


class KnownTopic(Protocol):
    """The required attributes of a topic."""

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
    """Read a request whose body starts at `position`, and make the frame of its successful response.

    The keys of `topics` are names or ids, depending on the version. The result is None if the request must take the
    slow path: an old version, a long or invalid request, an unknown topic or partition, or long metadata.
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
    """The response to a request whose commits are all accepted."""
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
