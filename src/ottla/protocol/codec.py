"""Encode and decode Kafka's messages, with functions made of the schema table for each API and version.

What goes out is a plain dict ``{field: value}``; a field that is left out takes its default, and a field that the
version does not have is left out by the codec, so that one dict serves every version. What comes in is a
:class:`Struct` with the fields of *all* versions of the API: one that the version on the wire does not have holds its
default. Times are integer milliseconds, a zero uuid is None, and the type ``records`` comes as a slice of the buffer,
never copied.

Everything that arrives is hostile until decoded: lengths are compared with what is left of the buffer before
anything is allocated, and whatever is wrong with the bytes ends in :class:`DecodeError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.protocol import _schemas
from ottla.protocol._fields import Buffer, Decoder, Encoder, Field, Framer, Struct
from ottla.protocol._headers_pure import RequestHeader
from ottla.protocol._kernels import KERNELS, kernels
from ottla.protocol.apis import ApiKey, api

if TYPE_CHECKING or KERNELS == "pure":
    from ottla.protocol._headers_pure import read_header
else:
    from ottla.protocol._walker import read_header

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
_REQUEST, _RESPONSE = 4, 5
_BROKEN = (struct.error, IndexError, ValueError, OverflowError)
_FLEXIBLE_FROM = {api_key: entry[3] for api_key, entry in _schemas.APIS.items()}


class DecodeError(ValueError):
    """The bytes are not the message that they claim to be."""


# ── headers ───────────────────────────────────────────────────────────────────────────────────────────────────────


_PLAIN_HEAD, _FLEXIBLE_HEAD = struct.Struct(">i"), struct.Struct(">ix")
_REQUEST_HEAD = struct.Struct(">hhih")
#: What the header of a flexible version has more, and may be anything.
_skip_tags = kernels.compile_decoder("tags", [], 0, True)


def decode_request_header(frame: Bytes) -> RequestHeader:
    """Read the header of a request frame (without its size)."""
    try:
        return read_header(frame, _FLEXIBLE_FROM)
    except _BROKEN as error:
        raise DecodeError(f"the request header is broken: {error}") from error


def _response_header_is_flexible(api_key: int, version: int) -> bool:
    # A client that cannot know our versions yet must be able to read ApiVersions: its header stays as it was.
    return bool(version >= _FLEXIBLE_FROM[api_key]) and api_key != ApiKey.API_VERSIONS


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────


def decode_request_body(api_key: int, version: int, frame: Bytes, position: int) -> Struct:
    """Decode the body of a request whose header ended at ``position``."""
    # An item takes a byte or more: only in a longer request can there be too many.
    limit = MAX_REQUEST_ITEMS if len(frame) > MAX_REQUEST_ITEMS else None
    return _decode(_decoder(api_key, version, _REQUEST, limit), frame, position)


def decode_response(api_key: int, version: int, payload: Bytes) -> Struct:
    """Decode a response frame (without its size), header included, of a request of this API and version."""
    position = 4
    if _response_header_is_flexible(api_key, version):
        try:
            _, position = _skip_tags(payload, position, len(payload))
        except _BROKEN as error:
            raise DecodeError(f"the response header is broken: {error}") from error
    return _decode(_decoder(api_key, version, _RESPONSE), payload, position)


def decode_data(name: str, version: int, data: Bytes, position: int = 0) -> Struct:
    """Decode a message that is not a request or response, such as ``consumer_protocol_subscription``."""
    return _decode(_data_decoder(name, version), data, position)


def _decode(decode: Decoder, buffer: Bytes, position: int) -> Struct:
    try:
        # Bytes after the message are left alone, as Kafka does: librdkafka leaves some after Metadata.
        return decode(buffer, position, len(buffer))[0]
    except _BROKEN as error:
        raise DecodeError(f"the message is broken: {error}") from error


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message) -> Buffer:
    """Return a whole request frame, size included."""
    frame = _framer(api_key, version, _REQUEST)
    name = b"" if client_id is None else client_id.encode()
    head = _REQUEST_HEAD.pack(api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    return frame(head + b"\0" if version >= _FLEXIBLE_FROM[api_key] else head, message)


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> Buffer:
    """Return a whole response frame, size included.

    Values of type ``records`` may be anything with a ``length``: they are left out of the buffer and listed in
    ``splices`` as (position, value), for the connection to send from where they lie.
    """
    head, frame = _response_framer(api_key, version)
    return frame(head(correlation_id), message)


def encode_data(name: str, version: int, message: Message) -> bytes:
    """Encode a message that is not a request or response."""
    out = Buffer()
    _data_encoder(name, version)(out, message)
    return bytes(out)


# ── the functions for a version, made when it is first met ────────────────────────────────────────────────────────


@cache
def _decoder(api_key: int, version: int, part: int, max_items: int | None = None) -> Decoder:
    return kernels.compile_decoder(*_schema(api_key, version, part), max_items)


@cache
def _framer(api_key: int, version: int, part: int) -> Framer:
    return kernels.compile_framer(*_schema(api_key, version, part))


@cache
def _response_framer(api_key: int, version: int) -> tuple[Callable[[int], bytes], Framer]:
    head = _FLEXIBLE_HEAD if _response_header_is_flexible(api_key, version) else _PLAIN_HEAD
    return head.pack, _framer(api_key, version, _RESPONSE)


@cache
def _data_decoder(name: str, version: int) -> Decoder:
    return kernels.compile_decoder(*_data_schema(name, version))


@cache
def _data_encoder(name: str, version: int) -> Encoder:
    return kernels.compile_encoder(*_data_schema(name, version))


def _schema(api_key: int, version: int, part: int) -> tuple[str, list[Field], int, bool]:
    known = api(api_key)
    if not known.first <= version <= known.last:
        raise DecodeError(f"{known.name} has the versions {known.first} to {known.last}, not {version}")
    name = f"{known.name}_{'request' if part == _REQUEST else 'response'}"
    fields = [Field(*field) for field in _schemas.APIS[api_key][part]]
    return name, fields, version, version >= known.flexible_from


def _data_schema(name: str, version: int) -> tuple[str, list[Field], int, bool]:
    _, _, flexible_from, fields = _schemas.DATA[name]
    return name, [Field(*field) for field in fields], version, version >= flexible_from
