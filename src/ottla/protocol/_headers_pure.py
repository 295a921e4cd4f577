"""The header of a request: the pure version of `_headers.pxi`."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from ottla.protocol._compiler import compile_decoder

_START = struct.Struct(">hhih")
#: The tagged fields in the header of a flexible version.
_skip_tags = compile_decoder("tags", [], 0, True)


class RequestHeader(NamedTuple):
    """The header of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    body: int
    """The position of the body."""


def read_header(buffer: Any, flexible_from: Mapping[int, int]) -> RequestHeader:
    """Read the header of a frame; `flexible_from` has the first version of each API whose header has tagged fields."""
    api_key, version, correlation_id, size = _START.unpack_from(buffer)
    position, client_id = _START.size, None
    if size < -1 or position + size > len(buffer):
        raise ValueError(f"a client id of {size} bytes")
    if size >= 0:
        client_id = str(buffer[position : position + size], "utf-8")
        position += size
    first_flexible = flexible_from.get(api_key)
    # An unknown version can only be newer than the last flexible one.
    if first_flexible is not None and version >= first_flexible:
        _, position = _skip_tags(buffer, position, len(buffer))
    return RequestHeader(api_key, version, correlation_id, client_id, position)
