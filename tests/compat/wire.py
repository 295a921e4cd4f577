"""A connection with hand-made requests, for what no client library would send.

Messages are kio's, generated from Kafka's schemas, and batches are built by kafka-python: no code is shared with the
broker. `content` is a dict with kio's field names. Fields that a version does not have are left out, so one content
serves all versions of an API.
"""

from __future__ import annotations

import dataclasses
import io
import socket
import struct
import time
import types
import typing
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Self

from kafka.record.default_records import DefaultRecordBatchBuilder
from kio.index import load_request_schema, load_response_schema
from kio.schema.index import api_key_map, schema_name_map
from kio.serial import entity_reader, entity_writer

API_KEYS = {name: key for key, name in api_key_map.items()}
Content = Mapping[str, Any]
RECENT = int(time.time() * 1000) - 60_000  # in ms; retention would delete older records during the tests


class Disconnected(Exception):
    """The broker closed the connection without a response."""


class Wire:
    def __init__(self, bootstrap_servers: str, timeout: float = 30.0) -> None:
        host, _, port = bootstrap_servers.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def call(self, api: str, version: int, content: Content) -> Any:
        """Send a request and wait for its response."""
        return self.receive(api, version, self.send(api, version, content))

    def send(self, api: str, version: int, content: Content) -> int:
        request_type: Any = load_request_schema(API_KEYS[api], version)
        self._correlation_id += 1
        header_type = request_type.__header_schema__
        header = {
            "request_api_key": API_KEYS[api],
            "request_api_version": version,
            "correlation_id": self._correlation_id,
            "client_id": "wire",
        }
        self.send_bytes(written(build(header_type, header)) + written(build(request_type, content)))
        return self._correlation_id

    def send_bytes(self, payload: bytes) -> None:
        self._socket.sendall(len(payload).to_bytes(4, "big") + payload)

    def receive(self, api: str, version: int, correlation_id: int) -> Any:
        response_type: Any = load_response_schema(API_KEYS[api], version)
        payload = self.receive_bytes()
        header, header_size = entity_reader(response_type.__header_schema__)(payload, 0)
        assert header.correlation_id == correlation_id
        response, size = entity_reader(response_type)(payload, header_size)
        assert header_size + size == len(payload), f"bytes left behind the response of {api} version {version}"
        return response

    def receive_bytes(self) -> bytes:
        return answer_of(self._socket)


def answer_of(connection: socket.socket) -> bytes:
    """Return the next frame from the broker, without its size."""
    (size,) = struct.unpack(">i", _exactly(connection, 4))
    return _exactly(connection, size)


def _exactly(connection: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        try:
            part = connection.recv(count - len(found))
        except ConnectionError as problem:
            raise Disconnected(str(problem)) from problem
        if not part:
            raise Disconnected(f"the broker closed the connection after {len(found)} of {count} bytes")
        found += part
    return found


def versions_known(api: str) -> range:
    """Return the versions of an API in kio."""
    known = schema_name_map[api]
    return range(min(known), max(known) + 1)


def written(entity: Any) -> bytes:
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def build(entity_type: Any, content: Content) -> Any:
    """Create an instance of a kio class from a dict, with the fields of this class."""
    hints = typing.get_type_hints(entity_type)
    values = {}
    for field in dataclasses.fields(entity_type):
        if field.name in content:
            values[field.name] = _value(hints[field.name], content[field.name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = _empty(hints[field.name])
    return entity_type(**values)


def _value(hint: Any, given: Any) -> Any:
    """Convert dicts to nested messages, and numbers to durations."""
    inner = _without_none(hint)
    if typing.get_origin(inner) is tuple and given is not None:
        return tuple(_value(typing.get_args(inner)[0], item) for item in given)
    if dataclasses.is_dataclass(inner) and isinstance(given, Mapping):
        return build(inner, given)
    if isinstance(inner, type) and issubclass(inner, timedelta) and given is not None:
        return timedelta(milliseconds=given)
    return given


def _empty(hint: Any) -> Any:
    if _without_none(hint) is not hint:
        return None
    if typing.get_origin(hint) is tuple:
        return ()
    return _value(hint, {} if dataclasses.is_dataclass(hint) else 0 if issubclass(hint, int | timedelta) else hint())


def _without_none(hint: Any) -> Any:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (hint,) = (part for part in typing.get_args(hint) if part is not type(None))
    return hint


def batch(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamp: int = RECENT,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    compression: int = 0,
) -> bytes:
    """Return the bytes of a record batch."""
    builder = DefaultRecordBatchBuilder(2, compression, 0, producer_id, producer_epoch, base_sequence, 1 << 24)
    for number, value in enumerate(values):
        key = keys[number] if keys is not None else None
        builder.append(number, timestamp + number, key, value, [])
    return bytes(builder.build())
