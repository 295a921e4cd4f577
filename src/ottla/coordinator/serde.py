"""Records of ``__consumer_offsets`` to bytes and back.

    key   = type (int16), fields of the key
    value = version (int16), fields of that version

It reads all versions that Kafka 4.2 reads, and writes the version that Kafka 4.2 writes. A corrupt record raises
:class:`CorruptRecord`. A record of an unknown type or version does not, see `UnknownKey`.

The value of a rebalance is in a header of its record, see `content`. Its key is that of an offset.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from operator import attrgetter
from typing import Any, NamedTuple, get_args, get_type_hints

from ottla.coordinator import _record_schemas as schemas
from ottla.coordinator import records as r
from ottla.coordinator.serde_consumer import encode_by_hand
from ottla.errors import OttlaError
from ottla.protocol._fields import Buffer, Decoder, Encoder, Field
from ottla.protocol._kernels import kernels
from ottla.records import Headers, PackedCommits, Record, encode_commits, encode_packed, encode_pairs
from ottla.records import encode_batch as encode_records
from ottla.types import Millis

_INT16 = struct.Struct(">h")


class CorruptRecord(OttlaError):
    """The bytes are not the record that they claim to be."""


class RecordType(NamedTuple):
    """A row of the table: the classes and layouts of a type."""

    number: int
    key: Any
    value: Any
    key_fields: schemas.Fields
    value_fields: schemas.Fields
    last_version: int = 0
    flexible_from: int = 0
    writes: int = 0


_TYPES = (
    RecordType(0, r.LegacyOffsetCommitKey, r.LegacyOffsetCommitValue, schemas.OFFSET_KEY, schemas.LEGACY_OFFSET_VALUE,
               flexible_from=schemas.NEVER),
    RecordType(1, r.OffsetCommitKey, r.OffsetCommitValue, schemas.OFFSET_KEY, schemas.OFFSET_VALUE, 4, 4, 4),
    RecordType(2, r.GroupMetadataKey, r.GroupMetadataValue, schemas.GROUP_KEY, schemas.GROUP_VALUE, 4, 4, 3),
    RecordType(3, r.ConsumerGroupMetadataKey, r.ConsumerGroupMetadataValue, schemas.GROUP_KEY,
               schemas.CONSUMER_GROUP_VALUE),
    RecordType(4, r.ConsumerGroupPartitionMetadataKey, r.ConsumerGroupPartitionMetadataValue, schemas.GROUP_KEY,
               schemas.PARTITION_METADATA_VALUE),
    RecordType(5, r.ConsumerGroupMemberMetadataKey, r.ConsumerGroupMemberMetadataValue, schemas.MEMBER_KEY,
               schemas.CONSUMER_MEMBER_VALUE),
    RecordType(6, r.ConsumerGroupTargetAssignmentMetadataKey, r.ConsumerGroupTargetAssignmentMetadataValue,
               schemas.GROUP_KEY, schemas.TARGET_METADATA_VALUE),
    RecordType(7, r.ConsumerGroupTargetAssignmentMemberKey, r.ConsumerGroupTargetAssignmentMemberValue,
               schemas.MEMBER_KEY, schemas.TARGET_MEMBER_VALUE),
    RecordType(8, r.ConsumerGroupCurrentMemberAssignmentKey, r.ConsumerGroupCurrentMemberAssignmentValue,
               schemas.MEMBER_KEY, schemas.CURRENT_ASSIGNMENT_VALUE),
    RecordType(16, r.ConsumerGroupRegularExpressionKey, r.ConsumerGroupRegularExpressionValue, schemas.REGEX_KEY,
               schemas.REGEX_VALUE),
    RecordType(r.OLD_HISTORY_TYPE, r.OldHistoryKey, r.HistoryValue, schemas.HISTORY_KEY, schemas.HISTORY_VALUE),
)  # fmt: skip
_BY_NUMBER = {row.number: row for row in _TYPES}
_BY_KEY = {row.key: row for row in _TYPES}
_BY_VALUE = {row.value: row for row in _TYPES}


def encode_key(key: r.Key) -> bytes:
    """Return the bytes of a key.

    >>> encode_key(r.GroupMetadataKey("orders")).hex(" ")
    '00 02 00 06 6f 72 64 65 72 73'
    """
    if isinstance(key, r.UnknownKey):
        return key.key
    if isinstance(key, r.HistoryKey):
        key = r.OffsetCommitKey(key.group_id, r.HISTORY_TOPIC, key.slot)
    row = _BY_KEY[type(key)]
    out = Buffer(_INT16.pack(row.number))
    _key_encoder(row.number)(out, _to_dict(row.key)(key))
    return bytes(out)


def encode_value(value: r.Value | None) -> bytes | None:
    """Return the bytes of a value, None for a tombstone."""
    if value is None:
        return None
    row = _BY_VALUE[type(value)]
    version = row.writes
    if isinstance(value, r.OffsetCommitValue) and value.expire_timestamp != -1:
        version = 1  # The only version with this field.
    out = Buffer(_INT16.pack(version))
    _value_encoder(row.number, version)(out, _to_dict(row.value)(value))
    return bytes(out)


def encode(record: r.CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return key and value of a record as bytes."""
    if isinstance(record.key, r.UnknownKey):
        return record.key.key, record.key.value
    return encode_key(record.key), encode_value(record.value)


def encode_batch(records: Sequence[r.CoordinatorRecord], timestamp: Millis) -> bytearray:
    """Return the records of one outcome as a batch. Commits and the records of rebalances have faster encoders."""
    if isinstance(records, PackedCommits):
        return encode_packed(records, timestamp)
    producer_id, producer_epoch = -1, -1
    if isinstance(records, r.TransactionalRecords):
        producer_id, producer_epoch = records.producer_id, records.producer_epoch
    key, value = r.OffsetCommitKey, r.OffsetCommitValue
    batch = encode_commits(records, key, value, timestamp, producer_id, producer_epoch)
    if batch is None:
        if any(isinstance(record.key, r.HistoryKey) for record in records):
            return _encode_with_headers(records, timestamp)
        batch = encode_pairs([encode_quickly(record) for record in records], timestamp, producer_id, producer_epoch)
    return batch


def _encode_with_headers(records: Sequence[r.CoordinatorRecord], timestamp: Millis) -> bytearray:
    """Return a batch with rebalances, which are never part of a transaction."""
    encoded = []
    for offset, record in enumerate(records):
        key, value = encode_quickly(record)
        headers: Headers = ()
        if isinstance(record.key, r.HistoryKey) and value is not None:
            headers, value = ((r.HISTORY_HEADER, value),), None
        encoded.append(Record(offset, timestamp, key, value, headers))
    return bytearray(encode_records(encoded))


def content(value: bytes | None, headers: Iterable[tuple[str, bytes | None]]) -> bytes | None:
    """Return what `decode` needs as the value of a record: that of a rebalance is in a header."""
    if value is None:
        return next((each for name, each in headers if name == r.HISTORY_HEADER), None)
    return value


def encode_quickly(record: r.CoordinatorRecord) -> tuple[bytes, bytes | None]:
    """Return the same bytes as `encode`, with a faster encoder if there is one."""
    return encode_by_hand(record) or encode(record)


def decode(key: bytes | memoryview, value: bytes | memoryview | None) -> r.CoordinatorRecord:
    """Return the record of its key and `content`."""
    number = _version_of(key, "key")
    row = _BY_NUMBER.get(number)
    if row is None:
        return _unknown(number, key, value, f"record type {number} is not known")
    typed = _decode(row.key, _key_decoder(row.number), key, "key")
    if row.key is r.OffsetCommitKey and typed.topic == r.HISTORY_TOPIC:
        row, typed = _BY_NUMBER[r.OLD_HISTORY_TYPE], r.HistoryKey(typed.group_id, typed.partition)
    if value is None:
        return r.CoordinatorRecord(typed, None)
    version = _version_of(value, "value")
    if not 0 <= version <= row.last_version:
        return _unknown(number, key, value, f"version {version} of {row.value.__name__} is not known")
    return r.CoordinatorRecord(typed, _decode(row.value, _value_decoder(row.number, version), value, "value"))


def _unknown(number: int, key: Any, value: Any, why: str) -> r.CoordinatorRecord:
    kept = None if value is None else bytes(value)
    return r.CoordinatorRecord(r.UnknownKey(number, bytes(key), kept, why), None)


def _version_of(buffer: bytes | memoryview, what: str) -> int:
    if len(buffer) < 2:
        raise CorruptRecord(f"the {what} has {len(buffer)} bytes and cannot hold its version")
    return int(_INT16.unpack_from(buffer)[0])


def _decode(cls: Any, decoder: Decoder, buffer: bytes | memoryview, what: str) -> Any:
    try:
        message, _ = decoder(buffer, 2, len(buffer))
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CorruptRecord(f"the {what} is not a {cls.__name__}: {error}") from error
    return _from_struct(cls)(message)


# ── codecs, compiled when first used ──────────────────────────────────────────────────────────────────────────────


def _fields(rows: schemas.Fields) -> list[Field]:
    return [Field(*row) for row in rows]


@cache
def _key_encoder(number: int) -> Encoder:
    row = _BY_NUMBER[number]
    return kernels.compile_encoder(row.key.__name__, _fields(row.key_fields), 0, False)


@cache
def _key_decoder(number: int) -> Decoder:
    row = _BY_NUMBER[number]
    return kernels.compile_decoder(row.key.__name__, _fields(row.key_fields), 0, False)


@cache
def _value_encoder(number: int, version: int) -> Encoder:
    row = _BY_NUMBER[number]
    return kernels.compile_encoder(row.value.__name__, _fields(row.value_fields), version, version >= row.flexible_from)


@cache
def _value_decoder(number: int, version: int) -> Decoder:
    row = _BY_NUMBER[number]
    return kernels.compile_decoder(row.value.__name__, _fields(row.value_fields), version, version >= row.flexible_from)


# ── dataclasses to the messages of the codecs, and back ───────────────────────────────────────────────────────────


class _Part(NamedTuple):
    name: str
    nested: Any
    many: bool


@cache
def _parts(cls: Any) -> tuple[_Part, ...]:
    hints = get_type_hints(cls)
    names = [field.name for field in fields(cls)] if is_dataclass(cls) else cls._fields
    return tuple(_part(name, hints[name]) for name in names)


def _part(name: str, hint: Any) -> _Part:
    many = getattr(hint, "__origin__", None) is tuple
    nested = next((item for item in (hint, *get_args(hint)) if is_dataclass(item) or hasattr(item, "_fields")), None)
    return _Part(name, nested, many)


@cache
def _to_dict(cls: Any) -> Callable[[Any], dict[str, Any]]:
    parts = _parts(cls)
    names = tuple(part.name for part in parts)
    values = attrgetter(*names) if len(names) > 1 else lambda item: (getattr(item, names[0]),)
    nested = [(part.name, _to_dict(part.nested), part.many) for part in parts if part.nested]
    if not nested:
        return lambda item: dict(zip(names, values(item), strict=True))

    def convert(item: Any) -> dict[str, Any]:
        message = dict(zip(names, values(item), strict=True))
        for name, inner, many in nested:
            message[name] = _each(inner, message[name], many)
        return message

    return convert


@cache
def _from_struct(cls: Any) -> Callable[[Any], Any]:
    parts = _parts(cls)
    if len(parts) > 1 and not any(part.nested or part.many for part in parts):
        values = attrgetter(*(part.name for part in parts))
        return lambda message: cls(*values(message))
    steps = [(part.name, _from_struct(part.nested) if part.nested else None, part.many) for part in parts]

    def convert(message: Any) -> Any:
        return cls(*(_read(getattr(message, name), inner, many) for name, inner, many in steps))

    return convert


def _read(value: Any, inner: Callable[[Any], Any] | None, many: bool) -> Any:
    if inner is not None:
        return _each(inner, value, many)
    return tuple(value) if many else value


def _each(inner: Callable[[Any], Any], value: Any, many: bool) -> Any:
    if many:
        return tuple(inner(item) for item in value)
    return None if value is None else inner(value)
