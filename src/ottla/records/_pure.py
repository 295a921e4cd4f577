"""The hot loops in Python: the reference for `_speedups`, and its replacement where that is not built.

The layout of a record in the uncompressed payload of a batch (varints are zigzag, at most 5 bytes, varlongs 10):

    length            varint    bytes that follow this field
    attributes        int8      unused
    timestamp delta   varlong   from the base timestamp of the batch
    offset delta      varint    from the base offset of the batch
    key length        varint    -1: no key
    key
    value length      varint    -1: no value
    value
    header count      varint
    for every header: key length varint, key (UTF-8), value length varint (-1: no value), value

Change both versions together: property tests compare their results and error messages.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, NoReturn

from ottla.records import _problems
from ottla.records.buffers import Buffer
from ottla.records.errors import CorruptBatch
from ottla.records.header import (
    BATCH_OVERHEAD,
    HEADER,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    MIN_LENGTH,
    BatchHeader,
    crc_of,
    crc_problem,
    length_problem,
    magic_problem,
    shape_problem,
)
from ottla.records.values import BatchSummary, Headers, KeyEntry, Record, Scan

_MIN_RECORD = 7
_MIN_HEADER = 2
_INT32_MAX = 2**31 - 1
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


class _Bad(Exception):
    """What is wrong with the current record."""


class _Span(NamedTuple):
    """The positions of the parts of one record in the payload; a length of -1 is a null."""

    offset: int
    timestamp: int
    key: int
    key_length: int
    value: int
    value_length: int
    headers: int
    header_count: int


# In all of these, `payload` is the uncompressed records of the batch at `position`, and the shape of `header` has been
# checked. The payload is not trusted: for any bytes, the only error is CorruptBatch.


def decode_records(payload: Buffer, header: BatchHeader, position: int) -> list[Record]:
    data = bytes(payload)
    return [
        Record(
            span.offset,
            span.timestamp,
            _cut(data, span.key, span.key_length),
            _cut(data, span.value, span.value_length),
            _headers(data, span.headers, span.header_count) if span.header_count else (),
        )
        for span in _walk(data, header, position)
    ]


def decode_keys(payload: Buffer, header: BatchHeader, position: int) -> list[KeyEntry]:
    data = bytes(payload)
    return [
        (span.offset, span.timestamp, _cut(data, span.key, span.key_length), span.value_length >= 0)
        for span in _walk(data, header, position)
    ]


def summarize(payload: Buffer, header: BatchHeader, position: int) -> BatchSummary:
    latest = latest_offset = earliest = -1
    keyless = seen = 0
    for span in _walk(bytes(payload), header, position):
        if not seen or span.timestamp > latest:
            latest, latest_offset = span.timestamp, span.offset
        earliest = span.timestamp if not seen else min(earliest, span.timestamp)
        keyless += span.key_length < 0
        seen += 1
    # Deltas are ascending up to the last one, so as many records as deltas means no gaps.
    return BatchSummary(latest, latest_offset, earliest, keyless, seen == header.last_offset_delta + 1)


def find_timestamp(
    payload: Buffer, header: BatchHeader, position: int, timestamp: int, min_offset: int
) -> tuple[int, int] | None:
    """The offset and timestamp of the first record at or above `min_offset` with at least this timestamp."""
    for span in _walk(bytes(payload), header, position):
        if span.timestamp >= timestamp and span.offset >= min_offset:
            return span.offset, span.timestamp
    return None


def _walk(data: bytes, header: BatchHeader, position: int) -> Iterator[_Span]:
    """Every record of the payload, fully checked; CorruptBatch at the first invalid one."""
    count = header.record_count
    if count * _MIN_RECORD > len(data):
        raise CorruptBatch(position, _problems.too_many(len(data), count))
    fixed = header.max_timestamp if header.is_log_append_time else None
    at, next_delta = 0, 0
    for index in range(count):
        try:
            span, at = _span(data, at, header, next_delta)
        except _Bad as error:
            raise CorruptBatch(position, _problems.of_record(index, count, str(error))) from None
        next_delta = span.offset - header.base_offset + 1
        yield span if fixed is None else span._replace(timestamp=fixed)
    if at != len(data):
        raise CorruptBatch(position, _problems.left_over(len(data) - at, count))


def _span(data: bytes, at: int, header: BatchHeader, least_delta: int) -> tuple[_Span, int]:
    length, at = _varint(data, at, len(data))
    end = at + length
    if length < _MIN_RECORD - 1 or end > len(data):
        raise _Bad(_problems.LENGTH)
    timestamp_delta, at = _varlong(data, at + 1, end)
    offset_delta, at = _varint(data, at, end)
    if not least_delta <= offset_delta <= header.last_offset_delta:
        raise _Bad(_problems.OFFSET_DELTA)
    timestamp = header.base_timestamp + timestamp_delta
    if not _INT64_MIN <= timestamp <= _INT64_MAX:
        raise _Bad(_problems.TIMESTAMP)
    key_length, key = _varint(data, at, end)
    value_length, value = _varint(data, _skip(key, key_length, end, _problems.KEY_LENGTH), end)
    header_count, headers = _varint(data, _skip(value, value_length, end, _problems.VALUE_LENGTH), end)
    if _skip_headers(data, headers, header_count, end) != end:
        raise _Bad(_problems.SIZE)
    offset = header.base_offset + offset_delta
    return _Span(offset, timestamp, key, key_length, value, value_length, headers, header_count), end


def _skip(start: int, length: int, end: int, problem: str) -> int:
    if length < -1 or length > end - start:
        raise _Bad(problem)
    return start + length if length > 0 else start


def _skip_headers(data: bytes, at: int, count: int, end: int) -> int:
    if count < 0 or count * _MIN_HEADER > end - at:
        raise _Bad(_problems.HEADER_COUNT)
    for _ in range(count):
        length, at = _varint(data, at, end)
        if length < 0:
            raise _Bad(_problems.HEADER_KEY_LENGTH)
        at = _skip(at, length, end, _problems.HEADER_KEY_LENGTH)
        length, at = _varint(data, at, end)
        at = _skip(at, length, end, _problems.HEADER_VALUE_LENGTH)
    return at


def _headers(data: bytes, at: int, count: int) -> Headers:
    """The headers of a record that was checked."""
    end = len(data)
    headers = []
    for _ in range(count):
        length, at = _varint(data, at, end)
        key = data[at : at + length].decode("utf-8", "surrogateescape")
        length, at = _varint(data, at + length, end)
        headers.append((key, _cut(data, at, length)))
        at += max(length, 0)
    return tuple(headers)


def _cut(data: bytes, start: int, length: int) -> bytes | None:
    return data[start : start + length] if length >= 0 else None


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at < end and (raw := data[at]) < 0x80:  # nearly all of them
        return (raw >> 1) ^ -(raw & 1), at + 1
    raw, at = _unsigned(data, at, end, 32)
    return (raw >> 1) ^ -(raw & 1), at


def _varlong(data: bytes, at: int, end: int) -> tuple[int, int]:
    raw, at = _unsigned(data, at, end, 64)
    return (raw >> 1) ^ -(raw & 1), at


def _unsigned(data: bytes, at: int, end: int, bits: int) -> tuple[int, int]:
    raw = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            if raw >> bits:
                break
            return raw, at
        shift += 7
        if shift >= bits:
            break
    else:
        raise _Bad(_problems.NUMBER_CUT)
    raise _Bad(_problems.NUMBER_32 if bits == 32 else _problems.NUMBER_64)


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> tuple[bytearray, int]:
    """61 bytes of room for a header, followed by the records; and the largest timestamp (or -1)."""
    output = bytearray(BATCH_OVERHEAD)
    latest, next_delta = -1, 0
    for index, record in enumerate(records):
        delta = record.offset - base_offset
        if not next_delta <= delta <= _INT32_MAX:
            _refuse(index, _problems.offset_refusal(record.offset, base_offset))
        timestamp_delta = record.timestamp - base_timestamp
        if not (_fits(record.timestamp) and _fits(timestamp_delta)):
            _refuse(index, _problems.timestamp_refusal(record.timestamp))
        body = _body(record, timestamp_delta, delta, index)
        if len(body) > _INT32_MAX:
            _refuse(index, _problems.SIZE_REFUSAL)
        _write_varint(output, len(body))
        output += body
        latest = record.timestamp if index == 0 else max(latest, record.timestamp)
        next_delta = delta + 1
    return output, latest


def encode_pairs(pairs: Iterable[tuple[bytes | None, bytes | None]], timestamp: int) -> bytearray:
    """61 bytes of room for a header, followed by a record for each key and value, all with the same timestamp."""
    output = bytearray(BATCH_OVERHEAD)
    if not _fits(timestamp):
        _refuse(0, _problems.timestamp_refusal(timestamp))
    for index, (key, value) in enumerate(pairs):
        body = bytearray(2)
        _write_varint(body, index)
        _write_part(body, key, index, "key")
        _write_part(body, value, index, "value")
        body.append(0)
        if len(body) > _INT32_MAX:
            _refuse(index, _problems.SIZE_REFUSAL)
        _write_varint(output, len(body))
        output += body
    return output


def encode_commits(
    records: Iterable[tuple[Any, Any]], timestamp: int, key_type: type[Any], value_type: type[Any]
) -> bytearray | None:
    """Like `encode_pairs` for offset commits, as tuples of the two types; None if other records are among them.

    A key is (group, topic, partition). A value is (offset, leader epoch, metadata, commit timestamp, expire timestamp,
    topic id or None); this layout has no expire timestamp, so it must be -1. A key is written as type 1, group, topic
    and partition; a value as version 4 with the topic id as tagged field 0.
    """
    pairs: list[tuple[bytes, bytes]] = []
    for key, value in records:
        if type(key) is not key_type or type(value) is not value_type or value[4] != -1:
            return None
        group, topic, partition = key[0].encode(), key[1].encode(), key[2]
        offset, leader_epoch, metadata, commit_timestamp, _, topic_id = value
        metadata = metadata.encode()
        length = bytearray()
        _write_unsigned(length, len(metadata) + 1)
        tags = b"\0" if topic_id is None else b"\1\0\x10" + topic_id.bytes
        try:
            names = struct.pack(f">hh{len(group)}sh{len(topic)}si", 1, len(group), group, len(topic), topic, partition)
            numbers = struct.pack(">hqi", 4, offset, leader_epoch)
            pairs.append((names, b"".join((numbers, length, metadata, struct.pack(">q", commit_timestamp), tags))))
        except struct.error as error:
            raise OverflowError(str(error)) from error
    return encode_pairs(pairs, timestamp)


def make_commits(
    group_id: str,
    offsets: Iterable[tuple[Any, ...]],
    commit_timestamp: int,
    expire_timestamp: int,
    longest: int,
    types: tuple[type[Any], type[Any], type[Any]],
) -> list[Any] | None:
    """The records of a commit, as tuples of the types of keys, values and records; see `encode_commits`.

    An offset is (topic, partition, offset, leader epoch, metadata or None, topic id). The result is None if metadata
    may be longer than `longest` UTF-16 units: a character has at most two.
    """
    key_type, value_type, record_type = types
    records: list[Any] = []
    for topic, partition, offset, leader_epoch, metadata, topic_id in offsets:
        if metadata and 2 * len(metadata) > longest:
            return None
        key = key_type(group_id, topic, partition)
        value = value_type(offset, leader_epoch, metadata or "", commit_timestamp, expire_timestamp, topic_id)
        records.append(record_type(key, value))
    return records


def _fits(value: int) -> bool:
    return _INT64_MIN <= value <= _INT64_MAX


def _body(record: Record, timestamp_delta: int, offset_delta: int, index: int) -> bytearray:
    headers = _header_parts(record.headers, index)
    body = bytearray(1)
    _write_varint(body, timestamp_delta)
    _write_varint(body, offset_delta)
    _write_part(body, record.key, index, "key")
    _write_part(body, record.value, index, "value")
    _write_varint(body, len(headers) // 2)
    for part in headers:
        _write_part(body, part, index, "header value")
    return body


def _header_parts(headers: Headers, index: int) -> list[bytes | None]:
    """Key, value, key, value, … as bytes."""
    parts: list[bytes | None] = []
    for key, value in headers:
        if not isinstance(key, str):
            raise TypeError(_problems.refusal(index, _problems.header_key_refusal(key)))
        parts += (key.encode("utf-8", "surrogateescape"), value)
    return parts


def _refuse(index: int, reason: str) -> NoReturn:
    raise ValueError(_problems.refusal(index, reason))


def _write_part(output: bytearray, part: bytes | None, index: int, name: str) -> None:
    if part is None:
        output.append(1)
    elif isinstance(part, bytes):
        _write_varint(output, len(part))
        output += part
    else:
        raise TypeError(_problems.refusal(index, _problems.type_refusal(name, part)))


def _write_varint(output: bytearray, value: int) -> None:
    _write_unsigned(output, (value << 1) ^ (value >> 63))


def _write_unsigned(output: bytearray, value: int) -> None:
    while value > 0x7F:
        output.append(value & 0x7F | 0x80)
        value >>= 7
    output.append(value)


def scan(buffer: Buffer, position: int, end: int, check_crc: bool) -> Scan:
    if not 0 <= position <= end <= len(buffer):
        raise ValueError(_problems.range_refusal(position, end, len(buffer)))
    batches: list[tuple[int, BatchHeader]] = []
    while position < end:
        header, problem = _scan_one(buffer, position, end, check_crc)
        if header is None:
            return Scan(batches, position, problem, problem is None)
        batches.append((position, header))
        position += header.size
    return Scan(batches, position, None, False)


def _scan_one(buffer: Buffer, position: int, end: int, check_crc: bool) -> tuple[BatchHeader | None, str | None]:
    """The valid batch at `position`, or what is wrong with it; neither if it is only incomplete."""
    there = end - position
    if there < BATCH_OVERHEAD:
        return None, early_problem(buffer, position, there)
    header = BatchHeader._make(HEADER.unpack_from(buffer, position))
    if problem := shape_problem(header):
        return None, problem
    if there < header.size:
        return None, None
    if check_crc and (actual := crc_of(buffer, position, header.size)) != header.crc:
        return None, crc_problem(header.crc, actual)
    return header, None


def early_problem(buffer: Buffer, position: int, there: int) -> str | None:
    """What is wrong with an incomplete header: its length and magic, if they are present."""
    partial = bytes(memoryview(buffer)[position : position + there])
    length = int.from_bytes(partial[8:12], "big", signed=True)
    if there >= LOG_OVERHEAD and length < MIN_LENGTH:
        return length_problem(length)
    if there > MAGIC_AT and (magic := int.from_bytes(partial[MAGIC_AT : MAGIC_AT + 1], signed=True)) != MAGIC:
        return magic_problem(magic)
    return None
