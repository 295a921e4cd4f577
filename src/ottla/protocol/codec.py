"""Encode and decode Kafka's messages, with functions compiled from the schema table for each API and version.

What goes out is a plain dict ``{field: value}``; a field that is left out takes its default, and a field that the
version
does not have is left out by the codec, so that one dict serves every version. What comes in is a :class:`Struct`
with the
fields of *all* versions of the API: one that the version on the wire does not have holds its default. Times are
integer milliseconds, a zero uuid is None, and the type ``records`` comes as a slice of the buffer, never copied.

Everything that arrives is hostile until decoded: lengths are compared with what is left of the buffer before
anything is allocated, and whatever is wrong with the bytes ends in :class:`DecodeError`.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, NamedTuple, TypeAlias

from ottla.protocol import _schemas
from ottla.protocol._compiler import (
    MAX_TAGS,
    Buffer,
    Decoder,
    Encoder,
    Field,
    Struct,
    compile_decoder,
    compile_encoder,
)
from ottla.protocol.apis import ApiKey, api

Message: TypeAlias = dict[str, Any]
Bytes: TypeAlias = bytes | bytearray | memoryview

__all__ = [
    "Buffer",
    "DecodeError",
    "Message",
    "RequestHeader",
    "Struct",
    "decode_data",
    "decode_request_body",
    "decode_request_header",
    "decode_response",
    "encode_data",
    "encode_request",
    "encode_response",
]

#: As many things as a Kafka cluster has partitions at the most. More in one request would only keep the broker busy.
MAX_REQUEST_ITEMS = 200_000
_HEADER = struct.Struct(">hhi")
_INT32 = struct.Struct(">i")


class DecodeError(ValueError):
    """The bytes are not the message that they claim to be."""


class RequestHeader(NamedTuple):
    """The header of a request, and where its body begins in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int


def decode_request_header(frame: Bytes) -> RequestHeader:
    """Read the header of a request frame (without its size)."""
    try:
        api_key, version, correlation_id = _HEADER.unpack_from(frame, 0)
        client_id, position = _legacy_string(frame, 8)
        if _request_is_flexible(api_key, version):
            position = _skip_tags(frame, position)
    except (struct.error, IndexError, ValueError) as error:
        raise DecodeError(f"the request header is broken: {error}") from error
    return RequestHeader(api_key, version, correlation_id, client_id, position)


def _request_is_flexible(api_key: int, version: int) -> bool:
    entry = _schemas.APIS.get(api_key)
    if entry is None:
        return False
    # A version that nobody knows yet can only be newer than the last flexible one.
    return bool(version >= entry[3])


def _legacy_string(buffer: Bytes, position: int) -> tuple[str | None, int]:
    (length,) = struct.unpack_from(">h", buffer, position)
    start = position + 2
    if length == -1:
        return None, start
    if not 0 <= length <= len(buffer) - start:
        raise ValueError(f"a string of {length} bytes does not fit")
    return str(buffer[start : start + length], "utf-8"), start + length


def _skip_tags(buffer: Bytes, position: int) -> int:
    count, position = _uvarint(buffer, position)
    if count > MAX_TAGS:
        raise ValueError(f"{count} tagged fields")
    for _ in range(count):
        _, position = _uvarint(buffer, position)
        size, position = _uvarint(buffer, position)
        position += size
    if position > len(buffer):
        raise ValueError("tagged fields run past the end")
    return position


def _uvarint(buffer: Bytes, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise ValueError("a varint is longer than five bytes")


def decode_request_body(api_key: int, version: int, frame: Bytes, position: int) -> Struct:
    """Decode the body of a request whose header ended at ``position``."""
    # An item takes a byte or more: only in a longer request can there be too many.
    limit = MAX_REQUEST_ITEMS if len(frame) > MAX_REQUEST_ITEMS else None
    return _decode(_decoder(api_key, version, 4, limit), frame, position)


def decode_response(api_key: int, version: int, payload: Bytes) -> Struct:
    """Decode a response frame (without its size), header included, of a request of this API and version."""
    position = 4
    if _response_header_is_flexible(api_key, version):
        try:
            position = _skip_tags(payload, position)
        except (IndexError, ValueError) as error:
            raise DecodeError(f"the response header is broken: {error}") from error
    return _decode(_decoder(api_key, version, 5), payload, position)


def decode_data(name: str, version: int, data: Bytes, position: int = 0) -> Struct:
    """Decode a message that is not a request or response, such as ``consumer_protocol_subscription``."""
    _, _, flexible_from, fields = _schemas.DATA[name]
    return _decode(_compiled_decoder(name, version, flexible_from, fields), data, position)


def _decode(decode: Decoder, buffer: Bytes, position: int) -> Struct:
    try:
        # Bytes after the message are left alone, as Kafka does: librdkafka leaves some after Metadata.
        return decode(buffer, position, len(buffer))[0]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise DecodeError(f"the message is broken: {error}") from error


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message) -> Buffer:
    """Return a whole request frame, size included."""
    out = Buffer(b"\0\0\0\0")
    out += _HEADER.pack(api_key, version, correlation_id)
    name = None if client_id is None else client_id.encode()
    out += struct.pack(">h", -1) if name is None else struct.pack(">h", len(name)) + name
    if _request_is_flexible(api_key, version):
        out += b"\0"
    _encoder(api_key, version, 4)(out, message)
    return _with_size(out)


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> Buffer:
    """Return a whole response frame, size included.

    Values of type ``records`` may be anything with a ``length``: they are left out of the buffer and listed in
    ``splices`` as (position, value), for the connection to send from where they lie.
    """
    out = Buffer(b"\0\0\0\0")
    out += _INT32.pack(correlation_id)
    if _response_header_is_flexible(api_key, version):
        out += b"\0"
    _encoder(api_key, version, 5)(out, message)
    return _with_size(out)


def encode_data(name: str, version: int, message: Message) -> bytes:
    """Encode a message that is not a request or response."""
    _, _, flexible_from, fields = _schemas.DATA[name]
    out = Buffer()
    _compiled_encoder(name, version, flexible_from, fields)(out, message)
    return bytes(out)


def _response_header_is_flexible(api_key: int, version: int) -> bool:
    # A client that cannot know our versions yet must be able to read ApiVersions: its header stays as it was.
    return bool(version >= _schemas.APIS[api_key][3]) and api_key != ApiKey.API_VERSIONS


def _with_size(out: Buffer) -> Buffer:
    size = len(out) - 4
    for _, value in out.splices:
        size += value.length
    _INT32.pack_into(out, 0, size)
    return out


@cache
def _decoder(api_key: int, version: int, part: int, max_items: int | None = None) -> Decoder:
    entry = _schemas.APIS[api_key]
    _check_version(api_key, version)
    name = f"{entry[0]}_{'request' if part == 4 else 'response'}"
    return _compiled_decoder(name, version, entry[3], entry[part], max_items)


@cache
def _encoder(api_key: int, version: int, part: int) -> Encoder:
    entry = _schemas.APIS[api_key]
    _check_version(api_key, version)
    return _compiled_encoder(f"{entry[0]}_{'request' if part == 4 else 'response'}", version, entry[3], entry[part])


def _check_version(api_key: int, version: int) -> None:
    known = api(api_key)
    if not known.first <= version <= known.last:
        raise DecodeError(f"{known.name} has the versions {known.first} to {known.last}, not {version}")


@cache
def _compiled_decoder(
    name: str, version: int, flexible_from: int, fields: tuple[Any, ...], max_items: int | None = None
) -> Decoder:
    return compile_decoder(name, [Field(*field) for field in fields], version, version >= flexible_from, max_items)


@cache
def _compiled_encoder(name: str, version: int, flexible_from: int, fields: tuple[Any, ...]) -> Encoder:
    return compile_encoder(name, [Field(*field) for field in fields], version, version >= flexible_from)
