"""Print the contents of a file of a data directory in the format of Kafka's dump tool."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from ottla.errors import OttlaError
from ottla.records import COMPRESSION_MASK, BatchHeader, Compression, CorruptBatch, Record, check_batch, decode_batch
from ottla.storage.checkpoints import (
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    DamagedCheckpoint,
    read_epochs,
    read_offsets,
)
from ottla.storage.files import (
    LEADER_EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    SNAPSHOT,
    TIME_INDEX,
    TXN_INDEX,
    parse_file_name,
)
from ottla.storage.index import OffsetIndex, TimeIndex
from ottla.storage.producers import MAX_SEQUENCE
from ottla.storage.scanning import Piece, walk
from ottla.storage.snapshots import DamagedSnapshot, read_snapshot
from ottla.storage.transactions import read_aborted, read_marker

_OFFSET_CHECKPOINTS = (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS)


def dump(path: str | Path, *, records: bool, deep: bool) -> Iterator[str]:
    """The lines for one file. For a log: every batch, with its records if `deep`, and with their data if `records`."""
    path = Path(path)
    if not path.is_file():
        raise OttlaError(f"there is no file {path}")
    yield f"Dumping {path}"
    parsed = parse_file_name(path.name)
    suffix = parsed[1] if parsed else ""
    if parsed and suffix == LOG:
        yield f"Log starting offset: {parsed[0]}"
        yield from _dump_log(path, records, deep)
    elif parsed and suffix == OFFSET_INDEX:
        for offset, position in _entries(path, OffsetIndex):
            yield f"offset: {parsed[0] + offset} position: {position}"
    elif parsed and suffix == TIME_INDEX:
        for timestamp, offset in _entries(path, TimeIndex):
            yield f"timestamp: {timestamp} offset: {parsed[0] + offset}"
    elif suffix == TXN_INDEX:
        for aborted in read_aborted(str(path)):
            yield (
                f"version: 0 producerId: {aborted.producer_id} firstOffset: {aborted.first_offset} "
                f"lastOffset: {aborted.last_offset} lastStableOffset: {aborted.last_stable_offset}"
            )
    elif suffix == SNAPSHOT:
        yield from _dump_snapshot(path)
    else:
        yield from _dump_checkpoint(path)


def _entries(path: Path, index: type[OffsetIndex | TimeIndex]) -> Iterator[tuple[int, int]]:
    data = path.read_bytes()
    whole = len(data) - len(data) % index.entry.size
    yield from index.entry.iter_unpack(data[:whole])


def _dump_log(path: Path, records: bool, deep: bool) -> Iterator[str]:
    with open(path, "rb", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        position = 0
        for piece in walk(file.fileno(), 0, size, check_crc=False):
            for at, header in piece.batches:
                yield from _dump_batch(piece, at, header, records, deep)
            position = piece.end
            if piece.problem is not None:
                yield f"position: {position} isvalid: false reason: {piece.problem}"
        if position < size:
            yield f"Found {size - position} invalid bytes at the end of {path.name}"


def _dump_batch(piece: Piece, position: int, header: BatchHeader, records: bool, deep: bool) -> Iterator[str]:
    at = position - piece.start
    try:
        check_batch(piece.buffer, at, header)
        problem = None
    except CorruptBatch as error:
        problem = error.reason
    yield _batch_line(position, header, problem is None) + (f" reason: {problem}" if problem else "")
    if (records or deep) and problem is None:
        try:
            for number, record in enumerate(decode_batch(piece.buffer, at)):
                yield _record_line(header, number, record, records) + _marker(piece, at, header)
        except CorruptBatch as error:
            yield f"| cannot read the records: {error.reason}"


def _batch_line(position: int, header: BatchHeader, valid: bool) -> str:
    code = header.attributes & COMPRESSION_MASK
    codec = Compression(code).name.lower() if code <= Compression.ZSTD else code
    horizon = f"OptionalLong[{header.base_timestamp}]" if header.has_delete_horizon else "OptionalLong.empty"
    return (
        f"baseOffset: {header.base_offset} lastOffset: {header.last_offset} count: {header.record_count} "
        f"baseSequence: {header.base_sequence} lastSequence: {header.last_sequence} "
        f"producerId: {header.producer_id} producerEpoch: {header.producer_epoch} "
        f"partitionLeaderEpoch: {header.partition_leader_epoch} "
        f"isTransactional: {_bool(header.is_transactional)} isControl: {_bool(header.is_control)} "
        f"deleteHorizonMs: {horizon} position: {position} {_time_type(header)}: {header.max_timestamp} "
        f"size: {header.size} magic: {header.magic} "
        f"compresscodec: {codec} crc: {header.crc} isvalid: {_bool(valid)}"
    )


def _record_line(header: BatchHeader, number: int, record: Record, data: bool) -> str:
    sequence = (header.base_sequence + number) & MAX_SEQUENCE if header.base_sequence >= 0 else -1
    line = (
        f"| offset: {record.offset} {_time_type(header)}: {record.timestamp} keySize: {_size(record.key)} "
        f"valueSize: {_size(record.value)} sequence: {sequence} "
        f"headerKeys: [{','.join(key for key, _ in record.headers)}]"
    )
    if data and not header.is_control:
        line += f" key: {_text(record.key)}" if record.key is not None else ""
        line += f" payload: {_text(record.value)}" if record.value is not None else ""
    return line


def _marker(piece: Piece, at: int, header: BatchHeader) -> str:
    marker = read_marker(piece.buffer, at, header) if header.is_control else None
    if marker is None:
        return ""
    kind = "ABORT" if marker.aborted else "COMMIT"
    return f" endTxnMarker: {kind} coordinatorEpoch: {marker.coordinator_epoch}"


def _dump_snapshot(path: Path) -> Iterator[str]:
    try:
        entries = read_snapshot(str(path))
    except DamagedSnapshot as error:
        yield str(error)
        return
    for entry in entries:
        first = entry.current_txn_start_offset
        transaction = f"OptionalLong[{first}]" if first >= 0 else "OptionalLong.empty"
        line = (
            f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
            f"coordinatorEpoch: {entry.coordinator_epoch} currentTxnFirstOffset: {transaction} "
            f"lastTimestamp: {entry.last_timestamp}"
        )
        for batch in entry.batches:
            line += (
                f" firstSequence: {batch.first_sequence} lastSequence: {batch.last_sequence} "
                f"lastOffset: {batch.last_offset} offsetDelta: {batch.last_offset - batch.first_offset} "
                f"timestamp: {batch.timestamp}"
            )
        yield line


def _dump_checkpoint(path: Path) -> Iterator[str]:
    try:
        if path.name == LEADER_EPOCH_CHECKPOINT:
            for epoch, offset in read_epochs(str(path.parent)):
                yield f"leaderEpoch: {epoch} startOffset: {offset}"
            return
        if path.name in _OFFSET_CHECKPOINTS:
            for topic_partition, offset in read_offsets(path).items():
                yield f"topic: {topic_partition.topic} partition: {topic_partition.partition} offset: {offset}"
            return
    except DamagedCheckpoint as error:
        yield str(error)
        return
    raise OttlaError(
        f"cannot dump {path.name}: give a .log, .index, .timeindex, .txnindex or .snapshot file, "
        f"a {LEADER_EPOCH_CHECKPOINT} or another checkpoint file"
    )


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _time_type(header: BatchHeader) -> str:
    return "LogAppendTime" if header.is_log_append_time else "CreateTime"


def _size(data: bytes | None) -> int:
    return -1 if data is None else len(data)


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "backslashreplace")
