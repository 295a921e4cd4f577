"""Parse and format records as lines of JSON, lossless.

    {"topic": "orders", "partition": 0, "offset": 7, "timestamp": 1700000000000,
     "key": "alice", "value": "{\\"total\\": 3}", "headers": [{"key": "trace", "value": "abc"}]}

UTF-8 text is a string, null is null, and other bytes are base64 in ``key_base64`` and ``value_base64``. When parsing, a
value that is an object, an array, a number or a boolean becomes compact JSON, headers may also be an object, and
``topic`` and ``offset`` are ignored. So `produce` can read what `consume` prints.
"""

from __future__ import annotations

import base64
import binascii
import json
from typing import Any, NamedTuple

from ottla.errors import OttlaError
from ottla.records import Headers, Record
from ottla.records.consumed import ConsumerRecord
from ottla.suggestions import hint as did_you_mean
from ottla.types import Millis, TopicPartition

_FIELDS = ("key", "key_base64", "value", "value_base64", "headers", "timestamp", "partition")
_IGNORED = ("topic", "offset", "timestamp_type")


class NewRecord(NamedTuple):
    """A record to write; the producer chooses a timestamp or partition that is None."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp: Millis | None = None
    partition: int | None = None


class BadLine(OttlaError):
    """An input line that is not a valid record."""


def format_record(key: TopicPartition, record: Record | ConsumerRecord) -> bytes:
    """Format a record as a line with its newline."""
    fields: dict[str, object] = {
        "topic": key.topic,
        "partition": key.partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        **_text_or_base64("key", record.key),
        **_text_or_base64("value", record.value),
        "headers": [_format_header(name, value) for name, value in record.headers],
    }
    return json.dumps(fields, ensure_ascii=False).encode() + b"\n"


def _format_header(name: str, value: bytes | None) -> dict[str, object]:
    # A header key that is not UTF-8 contains surrogate escapes.
    raw = name.encode("utf-8", "surrogateescape")
    return {**_text_or_base64("key", raw), **_text_or_base64("value", value)}


def _text_or_base64(name: str, data: bytes | None) -> dict[str, object]:
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


def parse_record(line: bytes) -> NewRecord:
    """Parse one line; raises BadLine."""
    fields = _parse_object(line)
    for name in fields:
        if name not in _FIELDS and name not in _IGNORED:
            hint = did_you_mean(name, _FIELDS) or f"; known fields are {', '.join(_FIELDS)}"
            raise BadLine(f"unknown field {name!r}{hint}")
    if "value" not in fields and "value_base64" not in fields:
        raise BadLine("the field 'value' is missing (use null for a tombstone)")
    return NewRecord(
        _bytes_of(fields, "key"),
        _bytes_of(fields, "value"),
        _headers_of(fields.get("headers")),
        _number_of(fields, "timestamp"),
        _number_of(fields, "partition"),
    )


def _parse_object(line: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(line)
    except UnicodeDecodeError as error:
        raise BadLine(f"not UTF-8 at byte {error.start + 1}: use value_base64 for other bytes") from None
    except json.JSONDecodeError as error:
        raise BadLine(f"not valid JSON: {error.msg} at column {error.colno}") from None
    except ValueError as error:  # a number with thousands of digits
        raise BadLine(f"not valid JSON: {error}") from None
    except RecursionError:
        raise BadLine("the JSON is nested too deeply") from None
    if not isinstance(fields, dict):
        raise BadLine('not a JSON object: write {"key": ..., "value": ...}')
    return fields


def _bytes_of(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is None:
        return _plain_bytes(fields.get(name))
    if name in fields:
        raise BadLine(f"the line has both {name!r} and '{name}_base64'")
    if not isinstance(encoded, str):
        raise BadLine(f"'{name}_base64' is not a string")
    try:
        return base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise BadLine(f"'{name}_base64' is not valid base64") from None


def _plain_bytes(value: object) -> bytes | None:
    if value is None:
        return None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise BadLine("a string contains half of a surrogate pair") from None


def _headers_of(value: object) -> Headers:
    if value is None:
        return ()
    if isinstance(value, dict):
        return tuple((name, _plain_bytes(content)) for name, content in value.items())
    if isinstance(value, list):
        return tuple(_header_of(entry) for entry in value)
    raise BadLine('\'headers\' is neither an object nor a list of {"key": ..., "value": ...}')


def _header_of(entry: object) -> tuple[str, bytes | None]:
    if not isinstance(entry, dict):
        raise BadLine('a header is not an object: write {"key": ..., "value": ...}')
    name = _bytes_of(entry, "key")
    if name is None:
        raise BadLine("a header has no 'key'")
    return name.decode("utf-8", "surrogateescape"), _bytes_of(entry, "value")


def _number_of(fields: dict[str, Any], name: str) -> int | None:
    value = fields.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63):
        raise BadLine(f"{name!r} is not a whole number from 0 to 2^63-1")
    return value
