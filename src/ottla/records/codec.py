"""Encode, decode, scan and summarize whole batches.

The kernels loop over records; this module handles headers and compression.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from typing import Any

from ottla.records._kernels import kernels
from ottla.records.buffers import Buffer
from ottla.records.compression import Compression, compress_all, decompress
from ottla.records.errors import CorruptBatch, DecompressionError
from ottla.records.header import (
    BATCH_OVERHEAD,
    COMPRESSION_MASK,
    CONTROL,
    CRC,
    CRC_AT,
    DELETE_HORIZON,
    HEADER,
    LOG_APPEND_TIME,
    LOG_OVERHEAD,
    MAGIC,
    MAX_OFFSET,
    TRANSACTIONAL,
    BatchHeader,
    crc_of,
    cut_problem,
    read_header,
    shape_problem,
)
from ottla.records.values import BatchSummary, KeyEntry, Record, Scan
from ottla.types import NO_TIMESTAMP

_MAX_DELTA = 2**31 - 2  # the record count is an int32 too


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    compression: Compression = Compression.NONE,
    level: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    leader_epoch: int = -1,
    transactional: bool = False,
    control: bool = False,
    log_append_time: int | None = None,
    delete_horizon: int | None = None,
    max_timestamp: int | None = None,
) -> bytes:
    """One batch of `records`, whose offsets must be ascending and may have gaps.

    `base_offset` and `last_offset` default to those of the first and last record; a compacted batch keeps its original
    ones. Without records both are required. `max_timestamp` defaults to the largest timestamp of the records.
    `log_append_time` and `delete_horizon` also set their attribute bits.
    """
    base, last = _offset_range(records, base_offset, last_offset)
    base_timestamp = _base_timestamp(records, delete_horizon, max_timestamp)
    output, latest = kernels.encode_records(records, base, base_timestamp)
    codec = compression if records else Compression.NONE
    if codec is not Compression.NONE:
        output = _compressed(output, codec, level)
    attributes = (
        codec
        | (TRANSACTIONAL if transactional else 0)
        | (CONTROL if control else 0)
        | (LOG_APPEND_TIME if log_append_time is not None else 0)
        | (DELETE_HORIZON if delete_horizon is not None else 0)
    )
    header = BatchHeader(
        base,
        len(output) - LOG_OVERHEAD,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        last - base,
        base_timestamp,
        _max_timestamp(latest, log_append_time, max_timestamp),
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return _seal(output, header)


def encode_pairs(
    pairs: Collection[tuple[bytes | None, bytes | None]],
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytearray:
    """One batch of keys and values with the same timestamp, and offsets from 0: `encode_batch` without objects.

    With a producer id, the batch is transactional.
    """
    if not pairs:
        raise ValueError("a batch needs at least one record")
    return _sealed(kernels.encode_pairs(pairs, timestamp), len(pairs), timestamp, producer_id, producer_epoch)


def encode_commits(
    records: Collection[tuple[Any, Any]],
    key_type: type[Any],
    value_type: type[Any],
    timestamp: int,
    producer_id: int = -1,
    producer_epoch: int = -1,
) -> bytearray | None:
    """Like `encode_pairs` for offset commits; None if there are other records; see `_pure.encode_commits`."""
    output = kernels.encode_commits(records, timestamp, key_type, value_type)
    return None if output is None else _sealed(output, len(records), timestamp, producer_id, producer_epoch)


def _sealed(output: bytearray, count: int, timestamp: int, producer_id: int, producer_epoch: int) -> bytearray:
    attributes = TRANSACTIONAL if producer_id >= 0 else 0
    try:
        HEADER.pack_into(
            output, 0, 0, len(output) - LOG_OVERHEAD, -1, MAGIC, 0, attributes, count - 1,
            timestamp, timestamp, producer_id, producer_epoch, -1, count,
        )  # fmt: skip
    except struct.error as error:
        raise ValueError(f"a value does not fit into the batch header: {error}") from error
    CRC.pack_into(output, CRC_AT, crc_of(output, 0, len(output)))
    return output


def decode_batch(buffer: Buffer, position: int = 0, *, max_size: int | None = None) -> list[Record]:
    """The records of the batch at `position`; CorruptBatch if it is damaged. The CRC is not checked.

    A compressed batch may decompress to `max_size` bytes, by default 128 MiB.
    """
    header, payload = _payload(buffer, position, max_size)
    return kernels.decode_records(payload, header, position)


def decode_keys(buffer: Buffer, position: int = 0, *, max_size: int | None = None) -> list[KeyEntry]:
    """Offset, timestamp, key and "has a value" of every record, for compaction."""
    header, payload = _payload(buffer, position, max_size)
    return kernels.decode_keys(payload, header, position)


def summarize(buffer: Buffer, position: int = 0, *, max_size: int | None = None) -> BatchSummary:
    """Check all records of the batch without creating an object for each."""
    header, payload = _payload(buffer, position, max_size)
    return kernels.summarize(payload, header, position)


def find_timestamp(
    buffer: Buffer, position: int, timestamp: int, *, min_offset: int = 0, max_size: int | None = None
) -> tuple[int, int] | None:
    """Offset and timestamp of the first record from `min_offset` on that is not older than `timestamp`."""
    header, payload = _payload(buffer, position, max_size)
    return kernels.find_timestamp(payload, header, position, timestamp, min_offset)


def scan(buffer: Buffer, position: int, end: int, *, check_crc: bool = True) -> Scan:
    """The valid batches from `position` on, up to the first one that is damaged or incomplete before `end`."""
    return kernels.scan(buffer, position, end, check_crc)


def _payload(buffer: Buffer, position: int, max_size: int | None) -> tuple[BatchHeader, Buffer]:
    """The header, of a possible shape, and the uncompressed bytes of the records."""
    header = read_header(buffer, position)
    problem = shape_problem(header)
    if problem is None and len(buffer) - position < header.size:
        problem = cut_problem(header, len(buffer) - position)
    if problem is not None:
        raise CorruptBatch(position, problem)
    records = memoryview(buffer)[position + BATCH_OVERHEAD : position + header.size]
    if not header.attributes & COMPRESSION_MASK:
        return header, records
    try:
        return header, decompress(header.compression, records, max_size)
    except DecompressionError as error:
        raise CorruptBatch(position, str(error)) from error
    except ValueError:
        raise CorruptBatch(position, f"compression {header.attributes & COMPRESSION_MASK} is unknown") from None


def _offset_range(records: Sequence[Record], base_offset: int | None, last_offset: int | None) -> tuple[int, int]:
    if not records and (base_offset is None or last_offset is None):
        raise ValueError("a batch without records requires base_offset and last_offset")
    base = records[0].offset if base_offset is None else base_offset
    last = records[-1].offset if last_offset is None else last_offset
    if not 0 <= base <= last < MAX_OFFSET or last - base > _MAX_DELTA:
        raise ValueError(f"a batch cannot span the offsets {base} to {last}")
    if records and records[-1].offset > last:
        raise ValueError(f"offset {records[-1].offset} is greater than the last offset {last} of the batch")
    return base, last


def _base_timestamp(records: Sequence[Record], delete_horizon: int | None, max_timestamp: int | None) -> int:
    """The header has one field for base timestamp and delete horizon: with a horizon, timestamps count from it."""
    if delete_horizon is not None:
        timestamp = delete_horizon
    elif records:
        timestamp = records[0].timestamp
    else:
        timestamp = NO_TIMESTAMP if max_timestamp is None else max_timestamp
    if not -(2**63) <= timestamp < 2**63:
        raise ValueError(f"timestamp {timestamp} is out of range")
    return timestamp


def _max_timestamp(latest: int, log_append_time: int | None, max_timestamp: int | None) -> int:
    if log_append_time is not None:
        return log_append_time
    return latest if max_timestamp is None else max_timestamp


def _compressed(output: bytearray, codec: Compression, level: int | None) -> bytearray:
    return compress_all(codec, [memoryview(output)[BATCH_OVERHEAD:]], level, room=BATCH_OVERHEAD)[0]


def _seal(output: bytearray, header: BatchHeader) -> bytes:
    """Write the header before the records, and the CRC."""
    try:
        HEADER.pack_into(output, 0, *header)
    except struct.error as error:
        raise ValueError(f"a value does not fit into the batch header: {error}") from error
    CRC.pack_into(output, CRC_AT, crc_of(output, 0, len(output)))
    return bytes(output)
