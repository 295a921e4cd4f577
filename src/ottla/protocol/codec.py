"""Encode and decode Kafka's messages, with functions made from the schema table for each API and version.

An outgoing message is a plain dict ``{field: value}``. Missing fields take their default, and the codec skips fields
that the version does not have, so that one dict serves every version. An incoming message is a :class:`Struct` with the
fields of *all* versions of the API; fields that the version does not have hold their default. Times are integer
milliseconds, a zero UUID is None, and a field of type ``records`` is a slice of the buffer, not a copy.

Incoming bytes are not trusted: lengths are compared with the rest of the buffer before anything is allocated, and
invalid bytes raise :class:`DecodeError`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ottla.protocol import _schemas
from ottla.protocol._fields import Buffer, Decoder, Encoder, Field, Framer, Struct, empty_value, present
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
    "error_response",
]

#: As many items as a large Kafka cluster has partitions. Requests with more would only keep the broker busy.
MAX_REQUEST_ITEMS = 200_000
_REQUEST, _RESPONSE = 4, 5
_BROKEN = (struct.error, IndexError, ValueError, OverflowError)
_FLEXIBLE_FROM = {api_key: entry[3] for api_key, entry in _schemas.APIS.items()}


class DecodeError(ValueError):
    """The bytes are not a valid message."""


# ── headers ───────────────────────────────────────────────────────────────────────────────────────────────────────


_PLAIN_HEAD, _FLEXIBLE_HEAD = struct.Struct(">i"), struct.Struct(">ix")
_REQUEST_HEAD = struct.Struct(">hhih")
#: The tagged fields in the header of a flexible version.
_skip_tags = kernels.compile_decoder("tags", [], 0, True)


def decode_request_header(frame: Bytes) -> RequestHeader:
    """Read the header of a request frame (without its size)."""
    try:
        return read_header(frame, _FLEXIBLE_FROM)
    except _BROKEN as error:
        raise DecodeError(f"invalid request header: {error}") from error


def _response_header_is_flexible(api_key: int, version: int) -> bool:
    # A client that does not know our versions must be able to read ApiVersions, so its header never changes.
    return bool(version >= _FLEXIBLE_FROM[api_key]) and api_key != ApiKey.API_VERSIONS


# ── messages ──────────────────────────────────────────────────────────────────────────────────────────────────────


def decode_request_body(api_key: int, version: int, frame: Bytes, position: int) -> Struct:
    """Decode the body of a request whose header ended at ``position``."""
    # An item takes at least one byte: only a longer request can have too many.
    limit = MAX_REQUEST_ITEMS if len(frame) > MAX_REQUEST_ITEMS else None
    return _decode(_decoder(api_key, version, _REQUEST, limit), frame, position)


def decode_response(api_key: int, version: int, payload: Bytes) -> Struct:
    """Decode a response frame (without its size), header included, of a request of this API and version."""
    position = 4
    if _response_header_is_flexible(api_key, version):
        try:
            _, position = _skip_tags(payload, position, len(payload))
        except _BROKEN as error:
            raise DecodeError(f"invalid response header: {error}") from error
    return _decode(_decoder(api_key, version, _RESPONSE), payload, position)


def decode_data(name: str, version: int, data: Bytes, position: int = 0) -> Struct:
    """Decode a message that is not a request or response, such as ``consumer_protocol_subscription``."""
    return _decode(_data_decoder(name, version), data, position)


def _decode(decode: Decoder, buffer: Bytes, position: int) -> Struct:
    try:
        # Bytes after the message are ignored, as in Kafka: librdkafka leaves some after Metadata.
        return decode(buffer, position, len(buffer))[0]
    except _BROKEN as error:
        raise DecodeError(f"invalid message: {error}") from error


def encode_request(api_key: int, version: int, correlation_id: int, client_id: str | None, message: Message) -> Buffer:
    """Return a whole request frame, size included."""
    frame = _framer(api_key, version, _REQUEST)
    name = b"" if client_id is None else client_id.encode()
    head = _REQUEST_HEAD.pack(api_key, version, correlation_id, -1 if client_id is None else len(name)) + name
    return frame(head + b"\0" if version >= _FLEXIBLE_FROM[api_key] else head, message)


def encode_response(api_key: int, version: int, correlation_id: int, message: Message) -> Buffer:
    """Return a whole response frame, size included.

    Values of type ``records`` may be any object with a ``length``. They are not copied into the buffer: ``splices``
    lists them as (position, value), and the connection sends them directly.
    """
    head, frame = _response_framer(api_key, version)
    return frame(head(correlation_id), message)


def error_response(api_key: int, version: int, code: int, text: str) -> Message:
    """Return a response with an error for the whole request. Everything else in it is empty.

    >>> error_response(ApiKey.LEAVE_GROUP, 4, 30, "no permission")
    {'error_code': 30, 'members': ()}
    """
    _, fields, _, _ = _schema(api_key, version, _RESPONSE)
    told = {"error_code": code, "error_message": text}
    return {
        field.name: told.get(field.name, empty_value(field))
        for field in present(fields, version)
        if field.default is ... or field.name in told
    }


def encode_data(name: str, version: int, message: Message) -> bytes:
    """Encode a message that is not a request or response."""
    out = Buffer()
    _data_encoder(name, version)(out, message)
    return bytes(out)


# ── the functions of a version, made on first use ────────────────────────────────────────────────────────────────


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
        raise DecodeError(f"{known.name} has versions {known.first} to {known.last}, not {version}")
    name = f"{known.name}_{'request' if part == _REQUEST else 'response'}"
    fields = [Field(*field) for field in _schemas.APIS[api_key][part]]
    return name, fields, version, version >= known.flexible_from


def _data_schema(name: str, version: int) -> tuple[str, list[Field], int, bool]:
    _, _, flexible_from, fields = _schemas.DATA[name]
    return name, [Field(*field) for field in fields], version, version >= flexible_from
