"""Both kernels reject well-formed requests with too many items."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from codec_twins import with_each_twin

from ottla.protocol import codec as codec_in_use
from ottla.protocol._fields import Struct
from ottla.protocol.apis import ApiKey

LIMIT = codec_in_use.MAX_REQUEST_ITEMS


def uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def metadata_request(count: int) -> bytes:
    """A Metadata request of version 9 that names topics, each of three bytes."""
    body = uvarint(count + 1) + b"\x02t\0" * count + b"\1\0\0\0"
    return struct.pack(">hhih", ApiKey.METADATA, 9, 7, -1) + b"\0" + body


def decode(codec: Any, frame: bytes) -> Struct:
    header = codec.decode_request_header(frame)
    body: Struct = codec.decode_request_body(header.api_key, header.api_version, frame, header.body)
    return body


@with_each_twin
def test_a_request_about_as_many_things_as_a_cluster_has(codec: Any) -> None:
    assert len(decode(codec, metadata_request(LIMIT)).topics) == LIMIT


@with_each_twin
def test_a_request_about_more_things_is_refused(codec: Any) -> None:
    with pytest.raises(codec.DecodeError, match="too many items"):
        decode(codec, metadata_request(LIMIT + 1))


@with_each_twin
def test_items_are_counted_over_all_arrays(codec: Any) -> None:
    """Two hundred topics of a thousand partitions each are enough; one more partition is too much."""

    def request(last: int) -> bytes:
        message = {
            "topics": [{"topic": "t", "partitions": [0] * (last if number == 199 else 999)} for number in range(200)]
        }
        return bytes(codec.encode_request(ApiKey.DESCRIBE_LOG_DIRS, 1, 7, None, message))[4:]

    assert len(decode(codec, request(999)).topics) == 200
    with pytest.raises(codec.DecodeError, match="too many items"):
        decode(codec, request(1000))


@with_each_twin
def test_tagged_fields_are_counted_too(codec: Any) -> None:
    tags = uvarint(1000) + b"\x63\0" * 1000
    topics = uvarint(301) + (b"\x02t" + tags) * 300
    frame = struct.pack(">hhih", ApiKey.METADATA, 9, 7, -1) + b"\0" + topics + b"\1\0\0\0"
    with pytest.raises(codec.DecodeError, match="too many items"):
        decode(codec, frame)


@with_each_twin
@pytest.mark.parametrize("count", [1001, 2**28])
def test_a_header_with_very_many_tags_is_refused_at_once(count: int, codec: Any) -> None:
    frame = struct.pack(">hhih", ApiKey.METADATA, 9, 7, -1) + uvarint(count) + b"\x63\0" * 5000
    with pytest.raises(codec.DecodeError, match=f"{count} tagged fields"):
        codec.decode_request_header(frame)


@with_each_twin
def test_responses_are_not_limited(codec: Any) -> None:
    """Responses have no limit on items."""
    broker = {"node_id": 1, "host": "h", "port": 1, "rack": None}
    partition = {"partition_index": 0, "leader_id": 1, "replica_nodes": [1], "isr_nodes": [1]}
    topic = {"name": "t", "partitions": [partition] * (LIMIT // 2)}
    message = {"brokers": [broker], "controller_id": 1, "topics": [topic] * 2}
    frame = codec.encode_response(ApiKey.METADATA, 1, 7, message)
    assert len(codec.decode_response(ApiKey.METADATA, 1, bytes(frame)[4:]).topics) == 2
