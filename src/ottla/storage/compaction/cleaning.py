"""Compact segment files: keep only the last record of each key.

A run reads the dirty part of a log into a map from key to last offset. Then it rewrites the segments from the start of
the log without the obsolete records, and merges small neighbours. Records keep their offsets.

- A tombstone (a record without value, and in `__consumer_offsets` without headers) stays for `delete_retention_ms`
  after the first run that kept it. That run writes the end of this time, the delete horizon, into the batch. A
  transaction marker is removed in the same way when no record of its transaction is left.
- The last batch of every active producer stays, without records if necessary: its sequence number is still needed.
- The last batch of the run stays, so that the log does not get shorter.
- Records of aborted transactions are removed at once.

The live log is not changed: results have `.cleaned` names until the broker installs them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

from ottla.records import BatchHeader, KeyEntry, Record, decode_batch, decode_keys, encode_batch, read_header
from ottla.storage.compaction.job import CleanedSegment, CleaningJob, SourceSegment
from ottla.storage.compaction.state import OffsetMap, Transactions
from ottla.storage.files import CLEANED, LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX, file_name, write_all
from ottla.storage.index import IndexBuilder
from ottla.storage.scanning import MAX_RELATIVE_OFFSET, OffsetOrder, Piece, walk
from ottla.storage.transactions import (
    AbortedTransaction,
    read_aborted,
    read_marker,
    replace_aborted,
    transaction_index_path,
)

_WRITE_SIZE = 1024 * 1024
#: The directories of a topic in which the content of a record may be in its headers.
_WITH_HEADERS = "__consumer_offsets-"


class SegmentDamaged(Exception):
    """A segment cannot be compacted because it is damaged."""


def clean(job: CleaningJob, checkpoint: Callable[[int], None]) -> Iterator[CleanedSegment | int]:
    """Compact; yield each finished segment, and finally the offset up to which the log is clean.

    `checkpoint` is called with the number of bytes processed since the last call. It may wait, or raise to stop.
    """
    offset_map = build_map(job, checkpoint)
    transactions = Transactions()
    for group in group_segments(job, offset_map.end_offset):
        yield _SegmentCleaner(job, offset_map, transactions, checkpoint).run(group)
    yield offset_map.end_offset


def build_map(job: CleaningJob, checkpoint: Callable[[int], None]) -> OffsetMap:
    """Map the keys of the dirty segments until the map is full."""
    offset_map = OffsetMap(job.max_keys, job.first_dirty_offset)
    transactions = Transactions()
    dirty = [s for s in job.segments if s.end_offset > job.first_dirty_offset and s.base_offset < job.upper_bound]
    for segment in dirty:
        transactions.add(_aborted(job, segment))
        for piece in _pieces(job, segment, checkpoint):
            for position, header in piece.batches:
                if not _map_batch(offset_map, transactions, piece, position, header, job.first_dirty_offset):
                    return offset_map
                offset_map.end_offset = max(offset_map.end_offset, header.next_offset)
        offset_map.end_offset = max(offset_map.end_offset, segment.end_offset)
    return offset_map


def _map_batch(
    offset_map: OffsetMap,
    transactions: Transactions,
    piece: Piece,
    position: int,
    header: BatchHeader,
    first_dirty_offset: int,
) -> bool:
    at = position - piece.start
    if header.is_control:
        transactions.discards_marker(header, _is_abort(piece, at, header))
        return True
    if transactions.discards_data(header):
        return True
    for offset, _, key, _ in decode_keys(piece.buffer, at):
        if key is not None and offset >= first_dirty_offset and not offset_map.put(key, offset):
            return False
    return True


def _is_abort(piece: Piece, at: int, header: BatchHeader) -> bool | None:
    if not header.record_count:
        return None
    marker = read_marker(piece.buffer, at, header)
    return marker is not None and marker.aborted


def _aborted(job: CleaningJob, segment: SourceSegment) -> list[AbortedTransaction]:
    return read_aborted(transaction_index_path(job.directory, segment.base_offset))


def _pieces(job: CleaningJob, segment: SourceSegment, checkpoint: Callable[[int], None]) -> Iterator[Piece]:
    path = os.path.join(job.directory, file_name(segment.base_offset, LOG))
    with open(path, "rb", buffering=0) as file:
        order = OffsetOrder(segment.base_offset, segment.base_offset, segment.end_offset)
        for piece in walk(file.fileno(), 0, segment.size, order=order):
            checkpoint(piece.end - piece.start)
            yield piece
            if piece.problem is not None:
                raise SegmentDamaged(f"{path} cannot be read at position {piece.end}: {piece.problem}")


def group_segments(job: CleaningJob, end_offset: int) -> list[list[SourceSegment]]:
    """Group neighbours that fit into one segment, one index and the 31 bits of a relative offset."""
    groups: list[list[SourceSegment]] = []
    for segment in (s for s in job.segments if s.base_offset < end_offset):
        group = groups[-1] if groups else []
        if group and _fits(job, group, segment):
            group.append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(job: CleaningJob, group: list[SourceSegment], segment: SourceSegment) -> bool:
    together = [*group, segment]
    return (
        sum(s.size for s in together) <= job.max_segment_size
        and sum(s.index_size for s in together) <= job.max_index_size
        and sum(s.time_index_size for s in together) <= job.max_index_size
        and (not segment.size or segment.end_offset - 1 - group[0].base_offset <= MAX_RELATIVE_OFFSET)
    )


class _SegmentCleaner:
    """Writes one compacted segment from a group of segments."""

    def __init__(
        self,
        job: CleaningJob,
        offset_map: OffsetMap,
        transactions: Transactions,
        checkpoint: Callable[[int], None],
    ) -> None:
        self._job = job
        self._map = offset_map
        self._transactions = transactions
        self._checkpoint = checkpoint
        self._has_headers = os.path.basename(job.directory).startswith(_WITH_HEADERS)
        self._buffer = bytearray()
        self._written = 0
        self._read = self._kept = self._bytes_read = 0

    def run(self, group: list[SourceSegment]) -> CleanedSegment:
        base_offset = group[0].base_offset
        self._builder = IndexBuilder(base_offset, self._job.index_interval)
        self._transactions.aborted_output = []
        path = self._path(base_offset, LOG)
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            for segment in group:
                self._clean(segment)
            self._write_buffer()
            os.fsync(self._fd)
        finally:
            os.close(self._fd)
        self._keep_modification_time(group[-1], path)
        self._write_indexes(base_offset)
        timestamp, offset = self._builder.max_timestamp
        sources = [segment.base_offset for segment in group]
        return CleanedSegment(
            base_offset, sources, self._written, timestamp, offset, self._read, self._kept, self._bytes_read
        )

    def _path(self, base_offset: int, suffix: str) -> str:
        return os.path.join(self._job.directory, file_name(base_offset, suffix + CLEANED))

    def _keep_modification_time(self, last: SourceSegment, path: str) -> None:
        stat = os.stat(os.path.join(self._job.directory, file_name(last.base_offset, LOG)))
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))

    def _write_indexes(self, base_offset: int) -> None:
        offsets, times = self._builder.finish()
        for suffix, data in ((OFFSET_INDEX, offsets), (TIME_INDEX, times)):
            fd = os.open(self._path(base_offset, suffix), os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
            try:
                write_all(fd, data, 0)
                os.fsync(fd)
            finally:
                os.close(fd)
        replace_aborted(self._path(base_offset, TXN_INDEX), self._transactions.aborted_output)

    def _clean(self, segment: SourceSegment) -> None:
        self._transactions.add(_aborted(self._job, segment))
        for piece in _pieces(self._job, segment, self._checkpoint):
            for position, header in piece.batches:
                self._read += header.record_count
                self._bytes_read += header.size
                self._clean_batch(piece, position - piece.start, header)

    def _clean_batch(self, piece: Piece, at: int, header: BatchHeader) -> None:
        """Keep a batch unchanged, with some of its records, without records, or drop it."""
        if header.is_control:
            discard = self._transactions.discards_marker(header, _is_abort(piece, at, header))
            horizon = header.base_timestamp if header.has_delete_horizon else None
            kept_all = not (discard and horizon is not None and horizon <= self._job.now)
            kept, needs_horizon = None, discard and kept_all and horizon is None
            has_records = kept_all and header.record_count > 0
        else:
            discard = self._transactions.discards_data(header)
            kept, needs_horizon = (set[int](), False) if discard else self._choose(piece, at, header)
            has_records = kept is None or bool(kept)
        if has_records:
            self._keep(piece, at, header, kept, needs_horizon)
        elif self._must_stay(header):
            self._emit(_rebuilt_batch(header, []))

    def _choose(self, piece: Piece, at: int, header: BatchHeader) -> tuple[set[int] | None, bool]:
        """The offsets of the records to keep (None: all), and whether the batch needs a delete horizon."""
        if header.base_offset >= self._map.end_offset and header.record_count:
            return None, False
        horizon = header.base_timestamp if header.has_delete_horizon else None
        tombstones_stay = horizon is None or self._job.now < horizon
        kept: set[int] = set()
        has_tombstone = False
        entries = decode_keys(piece.buffer, at)
        with_headers = self._with_headers(piece, at, entries)
        for offset, _, key, has_value in entries:
            has_value = has_value or offset in with_headers
            if self._stays(offset, key) and (has_value or tombstones_stay or offset >= self._map.end_offset):
                kept.add(offset)
                has_tombstone |= not has_value
        everything = len(kept) == header.record_count and header.record_count > 0
        return None if everything else kept, has_tombstone and horizon is None

    def _with_headers(self, piece: Piece, at: int, entries: Sequence[KeyEntry]) -> set[int]:
        """The records of a broker's own topic that are no tombstones although they have no value, only headers."""
        if not self._has_headers or all(has_value for *_, has_value in entries):
            return set()
        return {record.offset for record in decode_batch(piece.buffer, at) if record.headers}

    def _stays(self, offset: int, key: bytes | None) -> bool:
        if offset >= self._map.end_offset:
            return True
        return key is not None and offset >= self._map.get(key)

    def _must_stay(self, header: BatchHeader) -> bool:
        """Whether the header is needed even without records."""
        if header.next_offset == self._job.upper_bound:
            return True
        last_offset = self._job.last_offsets.get(header.producer_id) if header.producer_id >= 0 else None
        if last_offset is None:
            return False
        if last_offset >= 0:
            return header.last_offset == last_offset
        return header.is_control and header.producer_epoch == self._job.producer_epochs[header.producer_id]

    def _keep(self, piece: Piece, at: int, header: BatchHeader, kept: set[int] | None, needs_horizon: bool) -> None:
        if kept is None and not needs_horizon:
            self._kept += header.record_count
            self._emit(piece.buffer[at : at + header.size], header)
            return
        records = decode_batch(piece.buffer, at)
        if kept is not None:
            records = [record for record in records if record.offset in kept]
        self._kept += len(records)
        horizon = self._job.now + self._job.delete_retention_ms if needs_horizon else None
        if horizon is None and header.has_delete_horizon:
            horizon = header.base_timestamp
        self._emit(_rebuilt_batch(header, records, horizon))

    def _emit(self, batch: bytes | memoryview, header: BatchHeader | None = None) -> None:
        if header is None:
            header = read_header(batch)
        self._builder.add(self._written, header)
        self._written += len(batch)
        self._buffer += batch
        if len(self._buffer) >= _WRITE_SIZE:
            self._write_buffer()

    def _write_buffer(self) -> None:
        self._checkpoint(len(self._buffer))
        write_all(self._fd, self._buffer, self._written - len(self._buffer))
        self._buffer.clear()


def _rebuilt_batch(header: BatchHeader, records: list[Record], delete_horizon: int | None = None) -> bytes:
    """The batch with these records. Without records it keeps its offsets, sequence and largest timestamp."""
    return encode_batch(
        records,
        base_offset=header.base_offset,
        last_offset=header.last_offset,
        compression=header.compression,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        leader_epoch=header.partition_leader_epoch,
        transactional=header.is_transactional,
        control=header.is_control,
        log_append_time=header.max_timestamp if header.is_log_append_time else None,
        delete_horizon=delete_horizon,
        max_timestamp=None if records else header.max_timestamp,
    )
