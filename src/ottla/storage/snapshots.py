"""Producer snapshots: the producer state of a partition at an offset, in a file named after that offset.

Layout (big endian), version 1, as in Kafka:

    version (2), CRC-32C of everything that follows (4), number of entries (4), and 46 bytes for each producer:
    producer id (8), epoch (2), last sequence (4), last offset (8), offset delta of the last batch (4),
    timestamp (8), coordinator epoch (4), first offset of its open transaction (8) or -1

Every segment has one at its base offset; after a clean shutdown there is one at the end of the log. A snapshot holds
only the last batch of each producer.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable

from ottla.records._crc import crc32c
from ottla.storage.files import SNAPSHOT, file_name, write_atomically
from ottla.storage.producers import MAX_SEQUENCE, BatchRecord, ProducerEntry

_VERSION = 1
_HEAD = struct.Struct(">hIi")
_ENTRY = struct.Struct(">qhiqiqiq")
_CRC_FROM = 6


class DamagedSnapshot(Exception):
    """The file is not a producer snapshot of version 1, or its CRC is wrong."""


def snapshot_path(directory: str, offset: int) -> str:
    return os.path.join(directory, file_name(offset, SNAPSHOT))


def write_snapshot(directory: str, offset: int, entries: Iterable[ProducerEntry]) -> None:
    rows = [_pack(entry) for entry in entries]
    body = struct.pack(">i", len(rows)) + b"".join(rows)
    data = struct.pack(">hI", _VERSION, crc32c(body)) + body
    write_atomically(snapshot_path(directory, offset), data, sync=False)


def read_snapshot(path: str) -> list[ProducerEntry]:
    """The producers in a snapshot; DamagedSnapshot if the file is damaged."""
    with open(path, "rb", buffering=0) as file:
        data = file.read()
    if len(data) < _HEAD.size:
        raise DamagedSnapshot(f"{path} is too short ({len(data)} bytes)")
    version, crc, count = _HEAD.unpack_from(data)
    if version != _VERSION:
        raise DamagedSnapshot(f"{path} has version {version}; only version {_VERSION} is supported")
    if crc != crc32c(data[_CRC_FROM:]) or count < 0 or len(data) < _HEAD.size + count * _ENTRY.size:
        raise DamagedSnapshot(f"the CRC of {path} is wrong")
    return [_unpack(data, _HEAD.size + number * _ENTRY.size) for number in range(count)]


def _pack(entry: ProducerEntry) -> bytes:
    last = entry.batches[-1] if entry.batches else None
    return _ENTRY.pack(
        entry.producer_id,
        entry.producer_epoch,
        last.last_sequence if last else -1,
        last.last_offset if last else -1,
        last.last_offset - last.first_offset if last else 0,
        entry.last_timestamp,
        entry.coordinator_epoch,
        entry.current_txn_start_offset,
    )


def _unpack(data: bytes, position: int) -> ProducerEntry:
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator, txn = _ENTRY.unpack_from(data, position)
    entry = ProducerEntry(producer_id, epoch)
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator
    entry.current_txn_start_offset = txn
    if offset >= 0:
        first_sequence = (sequence - delta) & MAX_SEQUENCE if sequence >= 0 else -1
        entry.batches.append(BatchRecord(first_sequence, sequence, offset - delta, offset, timestamp))
        entry.complete = False
    return entry
