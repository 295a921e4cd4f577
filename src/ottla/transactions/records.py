"""The records of ``__transaction_state``, in Kafka's format.

    key   = 0 (int16), transactional id (string)
    value = version (int16), fields of that version

Versions 0 and 1 are read. Version 1, with tagged optional fields, is written. A value of None is a tombstone: the id
has expired. As in Kafka, a key or value with an unknown version is skipped. An invalid one raises CorruptRecord.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from typing import Any

from ottla.errors import OttlaError
from ottla.protocol._fields import Buffer, Decoder, Encoder, Field
from ottla.protocol._kernels import kernels
from ottla.transactions.transaction import Transaction
from ottla.transactions.transitions import BY_NUMBER, NUMBERS, State
from ottla.types import TopicPartition

KEY_TYPE = 0
WRITTEN_VERSION = 1
LONGEST_ID = 2**15 - 1
_INT16 = struct.Struct(">h")
_LAST = 1


def _field(name: str, type_: str, *, array: bool = False, nullable: bool = False, first: int = 0,
           tag: int | None = None, default: Any = ..., children: tuple[Any, ...] | None = None) -> Field:  # fmt: skip
    return Field(name, first, _LAST, type_, array, nullable, tag, default, children)


_KEY = (_field("transactional_id", "string"),)
_VALUE = (
    _field("producer_id", "int64"),
    _field("previous_producer_id", "int64", first=1, tag=0, default=-1),
    _field("next_producer_id", "int64", first=1, tag=1, default=-1),
    _field("producer_epoch", "int16"),
    _field("timeout", "int32"),
    _field("state", "int8"),
    _field(
        "partitions",
        "struct",
        array=True,
        nullable=True,
        children=(_field("topic", "string"), _field("partition_ids", "int32", array=True)),
    ),
    _field("updated_at", "int64"),
    _field("started_at", "int64"),
    _field("version", "int16", first=1, tag=2, default=0),
)


class CorruptRecord(OttlaError):
    """The bytes are not a valid record."""


@dataclass(frozen=True, slots=True)
class TransactionRecord:
    """The new state of a transactional id. None if it has expired."""

    transactional_id: str
    value: Transaction | None


def encode_key(transactional_id: str) -> bytes:
    """Return the bytes of a key.

    >>> encode_key("pay").hex(" ")
    '00 00 00 03 70 61 79'
    """
    out = Buffer(_INT16.pack(KEY_TYPE))
    _key_codec()[0](out, {"transactional_id": transactional_id})
    return bytes(out)


def encode(record: TransactionRecord) -> tuple[bytes, bytes | None]:
    """Return the key and value of a record as bytes."""
    key, value = encode_key(record.transactional_id), record.value
    if value is None:
        return key, None
    out = Buffer(_INT16.pack(WRITTEN_VERSION))
    _value_codec(WRITTEN_VERSION)[0](out, _message(value))
    return key, bytes(out)


def _message(value: Transaction) -> dict[str, Any]:
    partitions = groupby(sorted(value.partitions), key=lambda each: each.topic)
    return {
        "producer_id": value.producer_id,
        "previous_producer_id": value.previous_producer_id,
        "next_producer_id": value.next_producer_id,
        "producer_epoch": value.producer_epoch,
        "timeout": value.timeout,
        "state": NUMBERS[value.state],
        "partitions": None
        if value.state is State.EMPTY
        else [{"topic": topic, "partition_ids": [each.partition for each in group]} for topic, group in partitions],
        "updated_at": value.updated_at,
        "started_at": value.started_at,
        "version": value.version,
    }


def decode(key: bytes | memoryview, value: bytes | memoryview | None) -> TransactionRecord | None:
    """Return the record of these bytes. None if its version is unknown."""
    if _version_of(key) != KEY_TYPE:
        return None
    transactional_id: str = _decoded(_key_codec()[1], key).transactional_id
    if value is None:
        return TransactionRecord(transactional_id, None)
    version = _version_of(value)
    if not 0 <= version <= _LAST:
        return None
    return TransactionRecord(
        transactional_id, _transaction(transactional_id, _decoded(_value_codec(version)[1], value))
    )


def _transaction(transactional_id: str, read: Any) -> Transaction:
    if read.state not in BY_NUMBER:
        raise CorruptRecord(f"{read.state} is not a state of a transaction")
    return Transaction(
        transactional_id=transactional_id,
        producer_id=read.producer_id,
        producer_epoch=read.producer_epoch,
        previous_producer_id=read.previous_producer_id,
        next_producer_id=read.next_producer_id,
        timeout=read.timeout,
        state=BY_NUMBER[read.state],
        partitions=frozenset(
            TopicPartition(topic.topic, index) for topic in read.partitions or () for index in topic.partition_ids
        ),
        started_at=read.started_at,
        updated_at=read.updated_at,
        version=read.version,
    )


def _version_of(buffer: bytes | memoryview) -> int:
    if len(buffer) < _INT16.size:
        raise CorruptRecord(f"{len(buffer)} bytes are too short for a version")
    return int(_INT16.unpack_from(buffer)[0])


def _decoded(decoder: Decoder, buffer: bytes | memoryview) -> Any:
    try:
        return decoder(buffer, _INT16.size, len(buffer))[0]
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise CorruptRecord(f"the record is truncated or invalid: {error}") from error


@cache
def _key_codec() -> tuple[Encoder, Decoder]:
    fields = list(_KEY)
    return kernels.compile_encoder("TransactionLogKey", fields, 0, False), kernels.compile_decoder(
        "TransactionLogKey", fields, 0, False
    )


@cache
def _value_codec(version: int) -> tuple[Encoder, Decoder]:
    name, fields, flexible = "TransactionLogValue", list(_VALUE), version >= 1
    return kernels.compile_encoder(name, fields, version, flexible), kernels.compile_decoder(
        name, fields, version, flexible
    )
