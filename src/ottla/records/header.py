"""The header of a record batch, magic 2: layout, attribute bits, checks, and the fields that the broker sets.

Layout (big endian; the CRC is CRC32C of everything from the attributes to the end of the batch):

    offset  size  field
         0     8  base offset                 set by the broker
         8     4  batch length                bytes that follow this field: size - 12
        12     4  partition leader epoch      set by the broker
        16     1  magic                       2
        17     4  crc
        21     2  attributes                  bits 0-2 compression, 3 log append time, 4 transactional,
                                              5 control, 6 has delete horizon
        23     4  last offset delta           compaction may drop records, never this
        27     8  base timestamp              the delete horizon, when attribute bit 6 is set
        35     8  max timestamp               the log append time, when attribute bit 3 is set
        43     8  producer id                 -1: not idempotent
        51     2  producer epoch
        53     4  base sequence
        57     4  record count
        61        records, compressed together as the attributes say

The CRC does not cover the broker's fields, so the broker can set them without reading the batch.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from ottla.records._crc import crc32c
from ottla.records.buffers import Buffer
from ottla.records.compression import Compression
from ottla.records.errors import CorruptBatch

LOG_OVERHEAD = 12
BATCH_OVERHEAD = 61
MAGIC = 2
MAGIC_AT = 16
CRC_AT = 17
CRC_START = 21

HEADER = struct.Struct(">qiibIhiqqqhii")
_BASE_OFFSET = struct.Struct(">q")
_LEADER_EPOCH = struct.Struct(">i")
CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_MAX_TIMESTAMP = struct.Struct(">q")

MIN_LENGTH = BATCH_OVERHEAD - LOG_OVERHEAD
_MAX_SEQUENCE = 2**31 - 1
MAX_OFFSET = 2**63 - 1

COMPRESSION_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40


class BatchHeader(NamedTuple):
    """The 61 bytes before the records of a batch, in wire order."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> Compression:
        """The codec; ValueError for the undefined codes 5 to 7."""
        return Compression(self.attributes & COMPRESSION_MASK)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record, -1 without a sequence. 0 follows 2**31 - 1."""
        if self.base_sequence < 0:
            return -1
        return (self.base_sequence + self.last_offset_delta) & _MAX_SEQUENCE


def read_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    """The unchecked header at `position`; CorruptBatch if fewer than 61 bytes are left."""
    if position < 0 or len(buffer) - position < BATCH_OVERHEAD:
        there = max(0, len(buffer) - max(position, 0))
        raise CorruptBatch(position, f"a batch header needs {BATCH_OVERHEAD} bytes, only {there} are left")
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def shape_problem(header: BatchHeader) -> str | None:
    """What is invalid in this header, or None; the CRC is not checked."""
    if header.batch_length < MIN_LENGTH:
        return length_problem(header.batch_length)
    if header.magic != MAGIC:
        return magic_problem(header.magic)
    if header.last_offset_delta < 0:
        return f"last offset delta {header.last_offset_delta} is negative"
    if not 0 <= header.base_offset <= MAX_OFFSET - header.last_offset_delta - 1:
        return f"base offset {header.base_offset} is out of range"
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        return f"record count {header.record_count} does not fit last offset delta {header.last_offset_delta}"
    return None


def crc_of(buffer: Buffer, position: int, size: int) -> int:
    """The correct CRC32C of a batch of `size` bytes at `position`."""
    return crc32c(memoryview(buffer)[position + CRC_START : position + size])


def length_problem(length: int) -> str:
    return f"batch length {length} is less than the {MIN_LENGTH} of an empty batch"


def magic_problem(magic: int) -> str:
    return f"magic {magic} is not supported, only {MAGIC} is"


def cut_problem(header: BatchHeader, there: int) -> str:
    return f"the batch has {header.size} bytes, only {there} are left"


def crc_problem(expected: int, actual: int) -> str:
    return f"crc is {actual:#010x}, the header says {expected:#010x}"


def check_batch(buffer: Buffer, position: int, header: BatchHeader) -> None:
    """Raise CorruptBatch unless the batch is complete and its header and CRC are valid."""
    problem = shape_problem(header)
    if problem is None and len(buffer) - position < header.size:
        problem = cut_problem(header, len(buffer) - position)
    if problem is None and (actual := crc_of(buffer, position, header.size)) != header.crc:
        problem = crc_problem(header.crc, actual)
    if problem is not None:
        raise CorruptBatch(position, problem)


def stamp(buffer: bytearray | memoryview, position: int, *, base_offset: int, leader_epoch: int) -> None:
    """Set the broker's two fields in place; the CRC does not cover them."""
    _BASE_OFFSET.pack_into(buffer, position, base_offset)
    _LEADER_EPOCH.pack_into(buffer, position + 12, leader_epoch)


def stamp_log_append_time(buffer: bytearray | memoryview, position: int, timestamp: int) -> None:
    """Set the timestamp type LogAppendTime and the timestamp in place, and update the CRC."""
    header = read_header(buffer, position)
    if header.batch_length < MIN_LENGTH:
        raise CorruptBatch(position, length_problem(header.batch_length))
    if len(buffer) - position < header.size:
        raise CorruptBatch(position, cut_problem(header, len(buffer) - position))
    _ATTRIBUTES.pack_into(buffer, position + CRC_START, header.attributes | LOG_APPEND_TIME)
    _MAX_TIMESTAMP.pack_into(buffer, position + 35, timestamp)
    CRC.pack_into(buffer, position + CRC_AT, crc_of(buffer, position, header.size))
