"""One partition: append, read, truncate, delete, flush.

Only the event loop's thread uses a log; what may run in other threads says so. A log knows nothing about groups or
transactions beyond the producer state. The high watermark is not here: it belongs to replication.

When `append` returns, the operating system has the bytes, so they survive a crash of the process. To survive a crash of
the machine, wait for a flush.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ottla.config import TopicConfig
from ottla.errors import KafkaStorageError
from ottla.records import CONTROL, BatchHeader, stamp, stamp_log_append_time
from ottla.storage import following, reading, rolling, trimming
from ottla.storage.contracts import AppendInfo, FlushJob, LogHost
from ottla.storage.files import LEADER_EPOCH_CHECKPOINT
from ottla.storage.open_files import FileCache
from ottla.storage.producers import BatchRecord, Marker, ProducerEntry
from ottla.storage.reading import OffsetAndTimestamp, Places, Slice
from ottla.storage.recovery import LoadedLog, RecoveryReport
from ottla.storage.replay import aborted_entry, recall_batches
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments
from ottla.storage.snapshots import snapshot_path, write_snapshot
from ottla.storage.transactions import AbortedTransaction, read_marker
from ottla.storage.validation import AppendRules, checked_batch, split_batches
from ottla.storage.verification import SegmentUnverified
from ottla.types import Millis, TopicPartition

__all__ = ["AppendInfo", "FlushJob", "Log", "LogHost", "SegmentUnverified", "Slice"]


#: The default of ``flush.messages``: an append is never flushed.
NEVER_FLUSH = 2**63 - 1


class Log:
    """The log of one partition."""

    __slots__ = (
        "__weakref__",
        "_cache",
        "_named",
        "cleaning",
        "closed",
        "dirty_since",
        "epochs",
        "failure",
        "flushes_on_append",
        "host",
        "latest_epoch",
        "log_end_offset",
        "log_start_offset",
        "path",
        "places",
        "producers",
        "recovery_point",
        "report",
        "rules",
        "segments",
        "topic_id",
        "topic_partition",
        "truncations",
    )

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID,
        config: TopicConfig,
        loaded: LoadedLog,
        cache: FileCache,
        host: LogHost,
    ) -> None:
        self.path = directory
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.segments = Segments(loaded.segments)
        self.producers = loaded.producers
        self.epochs = loaded.epochs
        self.latest_epoch = loaded.epochs.latest
        self.log_start_offset = loaded.log_start_offset
        self.log_end_offset = loaded.log_end_offset
        self.recovery_point = loaded.recovery_point
        self.report: RecoveryReport = loaded.report
        self.places = Places()
        self.truncations = 0
        """Counts, so that work in other threads notices a truncation."""
        self.dirty_since: Millis = -1
        """When the oldest unflushed record was appended; -1 if there is none."""
        self.closed = False
        self.failure: KafkaStorageError | None = None
        """Why the log is out of service, if its disk has failed."""
        self.cleaning = False
        """Compaction is running: retention must not remove segments."""
        self.config = config
        self._cache = cache
        self.host = host
        self._named = -1
        """Base offset of the newest segment whose directory entry is on disk."""

    def __repr__(self) -> str:
        return f"Log({self.topic_partition}, {self.log_start_offset}..{self.log_end_offset})"

    @property
    def directory(self) -> Path:
        return Path(self.path)

    @property
    def config(self) -> TopicConfig:
        return self.rules.config

    @config.setter
    def config(self, config: TopicConfig) -> None:
        self.rules = AppendRules(config)
        self.flushes_on_append = self.rules.flush_always or self.rules.flush_messages != NEVER_FLUSH

    @property
    def size(self) -> int:
        return self.segments.size

    @property
    def segment_ms(self) -> Millis:
        """segment.ms of this log, with its jitter."""
        return self.rules.segment_ms

    @property
    def first_unstable_offset(self) -> int | None:
        """The first offset of the oldest open transaction."""
        return self.producers.first_undecided_offset()

    @property
    def unflushed(self) -> bool:
        return self.recovery_point < self.log_end_offset

    def must_flush(self, offset: int) -> bool:
        """Whether the topic's config asks for a flush before the records below an offset are acknowledged."""
        point = self.recovery_point
        if offset <= point:
            return False
        return self.rules.flush_always or self.log_end_offset - point >= self.rules.flush_messages

    # ── append ──────────────────────────────────────────────────────────────────────────────────────────

    def append(
        self,
        records: memoryview,
        *,
        leader_epoch: int,
        now: Millis,
        from_client: bool = True,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Check batches, assign offsets and write them. If this raises a KafkaError, nothing was written."""
        if self.closed:
            raise self._refusal()
        if not from_client:
            return self._append_own(records, leader_epoch, now, transaction_version)
        records, header = checked_batch(records, self.rules, self.topic_partition, now=now)
        if header.producer_id >= 0:
            duplicate = self._duplicate(header)
            if duplicate is not None:
                return self._duplicate_info(duplicate)
            self.producers.check(header, self.log_end_offset)
        return self._append_one(records, header, leader_epoch, now)

    def append_as_follower(self, records: memoryview, *, now: Millis) -> AppendInfo:
        """Append batches of the leader unchanged; see following.py. CorruptMessage if they do not follow this log."""
        if self.closed:
            raise self._refusal()
        base_offset = self.log_end_offset
        following.append_as_follower(self, records, now)
        return AppendInfo(base_offset, self.log_end_offset - 1, -1, self.log_start_offset, False)

    def _refusal(self) -> KafkaStorageError:
        return self.failure or KafkaStorageError(f"{self.topic_partition} is closed")

    def begin_epoch(self, leader_epoch: int, start_offset: int | None = None) -> None:
        """Record that a leader epoch starts, at the end of the log if no offset is given.

        A leader does this before it serves followers, even if nothing is written in its epoch. So each follower with
        records of an epoch in between learns that they are not in the leader's log.
        """
        if leader_epoch > self.latest_epoch:
            with self.reporting("write the leader epochs of"):
                self.epochs.assign(leader_epoch, self.log_end_offset if start_offset is None else start_offset)
            self.latest_epoch = leader_epoch

    def write(self, segment: Segment, records: memoryview) -> int:
        """Write to a segment and return the position. If the disk fails, the owner of the log is told."""
        try:
            return segment.write(records)
        except KafkaStorageError as error:
            self.host.failed(self, error)
            raise

    def _append_one(self, records: memoryview, header: BatchHeader, leader_epoch: int, now: Millis) -> AppendInfo:
        """Assign offsets to one checked batch and write it."""
        rules, base_offset = self.rules, self.log_end_offset
        if records.readonly:
            records = memoryview(bytearray(records))
        time = now if rules.log_append_time else header.max_timestamp
        segment = rolling.segment_for(self, len(records), time, base_offset + header.last_offset_delta, now)
        stamp(records, 0, base_offset=base_offset, leader_epoch=leader_epoch)
        if rules.log_append_time:
            stamp_log_append_time(records, 0, now)
        position = self.write(segment, records)
        self._note(segment, header, None, base_offset, time, position)
        return self._written(base_offset, leader_epoch, now)

    def _append_own(self, records: memoryview, leader_epoch: int, now: Millis, transaction_version: int) -> AppendInfo:
        """An append by the broker: batches and transaction markers, without sequence checks."""
        batches = split_batches(records, self.topic_partition)
        header = batches[0][1]
        if len(batches) == 1 and header.producer_id < 0 and not header.attributes & CONTROL:
            return self._append_one(records, header, leader_epoch, now)  # Nearly everything that coordinators write.
        markers: list[Marker | None] = []
        for position, header in batches:
            marker = read_marker(records, position, header) if header.attributes & CONTROL else None
            if marker is not None and header.producer_id >= 0:
                self.producers.check_marker(header, marker, self.log_end_offset, version=transaction_version)
            elif header.producer_id >= 0:
                self.producers.check_own(header, self.log_end_offset)
            markers.append(marker)
        base_offset = offset = self.log_end_offset
        if records.readonly:
            records = memoryview(bytearray(records))
        by_broker = self.rules.log_append_time
        for position, header in batches:
            stamp(records, position, base_offset=offset, leader_epoch=leader_epoch)
            if by_broker:
                stamp_log_append_time(records, position, now)
            offset += header.last_offset_delta + 1
        newest = now if by_broker else max(header.max_timestamp for _, header in batches)
        segment = rolling.segment_for(self, len(records), newest, offset - 1, now)
        start, offset = self.write(segment, records), base_offset
        for (position, header), marker in zip(batches, markers, strict=True):
            time = now if by_broker else header.max_timestamp
            self._note(segment, header, marker, offset, time, start + position)
            offset += header.last_offset_delta + 1
        return self._written(base_offset, leader_epoch, now)

    def _duplicate(self, header: BatchHeader) -> BatchRecord | None:
        entry = self.producers.entries.get(header.producer_id)
        if entry is None:
            return None
        found = entry.duplicate_of(header)
        if found is None and not entry.complete and header.base_sequence <= entry.last_sequence:
            recall_batches(entry, self.segments)
            found = entry.duplicate_of(header)
        return found

    def _duplicate_info(self, batch: BatchRecord) -> AppendInfo:
        time = batch.timestamp if self.rules.log_append_time else -1
        return AppendInfo(batch.first_offset, batch.last_offset, time, self.log_start_offset, True)

    def _note(
        self, segment: Segment, header: BatchHeader, marker: Marker | None, offset: int, time: Millis, position: int
    ) -> None:
        """Add a written batch to the indexes and the producer state."""
        last_offset = offset + header.last_offset_delta
        segment.note(header, last_offset, time, position, self.rules.index_interval)
        if header.producer_id >= 0:
            self._note_producer(header, marker, offset, last_offset, time)
        self.log_end_offset = last_offset + 1

    def _written(self, base_offset: int, leader_epoch: int, now: Millis) -> AppendInfo:
        """Finish an append that started at `base_offset`."""
        end_offset = self.log_end_offset
        if leader_epoch > self.latest_epoch:
            self.begin_epoch(leader_epoch, base_offset)
        if self.dirty_since < 0:
            self.dirty_since = now
        time = now if self.rules.log_append_time else -1
        return AppendInfo(base_offset, end_offset - 1, time, self.log_start_offset, False)

    def _note_producer(
        self, header: BatchHeader, marker: Marker | None, offset: int, last_offset: int, timestamp: Millis
    ) -> None:
        if not header.attributes & CONTROL:
            self.producers.update(header, offset, last_offset, timestamp)
        elif marker is not None:
            completed = self.producers.complete(header, marker, offset)
            if completed is not None and completed.aborted:
                with self.reporting("write the transaction index of"):
                    self.segments.active.add_aborted(aborted_entry(completed, self.producers))

    def roll(self, *, now: Millis) -> Segment:
        """Start a new segment at the end of the log, unless the active one is empty."""
        return rolling.roll(self, now)

    def create_segment(self, base_offset: int, *, now: Millis) -> Segment:
        """An empty segment with its files."""
        return Segment.create(self.path, base_offset, self._cache, created=now)

    def new_segment(self, base_offset: int, size: int) -> Segment:
        """A segment made of existing files, for `replace_segments`."""
        return Segment(self.path, base_offset, self._cache, created=0, size=size)

    # ── read ────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, offset: int, *, max_bytes: int, end_offset: int, min_one_batch: bool) -> Slice:
        """The place of the batches from `offset` on; see reading.py. May raise SegmentUnverified."""
        return reading.read(self, offset, max_bytes, end_offset, min_one_batch)

    def offset_for_timestamp(self, timestamp: Millis, *, end_offset: int) -> OffsetAndTimestamp | None:
        """The first record below `end_offset` that is not older than `timestamp`."""
        return reading.offset_for_timestamp(self, timestamp, end_offset)

    def max_timestamp_offset(self) -> OffsetAndTimestamp | None:
        """The first record with the newest timestamp."""
        return reading.max_timestamp_offset(self)

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """The largest epoch that is not newer than `epoch`, and its end offset; (-1, -1) if unknown. See epochs.py."""
        return self.epochs.end_offset_for_epoch(epoch, self.log_end_offset)

    def last_stable_offset(self, high_watermark: int) -> int:
        """The offset below which no transaction is open: the end of what read_committed consumers get."""
        unstable = self.producers.first_unstable_offset(high_watermark)
        if unstable is None:
            return high_watermark
        # The first records of an open transaction may have been deleted.
        return min(max(unstable, self.log_start_offset), high_watermark)

    def aborted_transactions(self, start_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The aborted transactions with records between the offsets, for a read_committed fetch."""
        found: list[AbortedTransaction] = []
        for number in range(self.segments.number_for(start_offset), len(self.segments)):
            for aborted in self.segments[number].aborted_transactions():
                if aborted.last_offset >= start_offset and aborted.first_offset < end_offset:
                    found.append(aborted)
                if aborted.last_stable_offset >= end_offset:
                    return found
        return found

    def active_producers(self) -> list[ProducerEntry]:
        return list(self.producers)

    # ── delete and truncate ─────────────────────────────────────────────────────────────────────────────

    def delete_records(self, before_offset: int) -> int:
        """Move the log start offset to `before_offset` and return it. Retention removes the files later."""
        return trimming.delete_records(self, before_offset)

    def remove_segments(self, count: int, *, now: Millis) -> None:
        """Remove the first `count` segments; a log always keeps one."""
        trimming.remove_segments(self, count, now)

    def replace_segments(self, old: Sequence[Segment], new: Sequence[Segment], *, now: Millis) -> None:
        """Replace segments of the log; the files of the old ones are removed later."""
        trimming.replace_segments(self, old, new, now)

    def advance(self, *, start_offset: int, high_watermark: int) -> None:
        """The leader's log start offset and the high watermark have moved. Retention removes files later."""
        self.producers.commit(high_watermark)
        trimming.advance_start(self, min(start_offset, self.log_end_offset))

    def truncate_to(self, offset: int, *, now: Millis) -> None:
        """Cut the log so that it ends at `offset`, and forget the epochs from there on."""
        with self.reporting("truncate"):
            trimming.truncate_to(self, offset, now)

    def truncate_fully_and_start_at(self, offset: int, *, now: Millis) -> None:
        """Remove everything; the log is empty and continues at `offset`."""
        with self.reporting("truncate"):
            trimming.truncate_fully_and_start_at(self, offset, now)

    def begin_truncation(self) -> None:
        """Forget what does not hold after a truncation."""
        self.truncations += 1
        self.places.forget()
        self._named = -1

    @contextmanager
    def reporting(self, what: str) -> Iterator[None]:
        """Make an error of the disk a KafkaStorageError, and tell the owner of the log."""
        try:
            yield
        except OSError as error:
            failure = KafkaStorageError(f"cannot {what} {self.path}: {error.strerror}")
            self.host.failed(self, failure)
            raise failure from error

    # ── flush and close ─────────────────────────────────────────────────────────────────────────────────

    def begin_flush(self, *, complete_only: bool = False) -> FlushJob:
        """Prepare a flush of the whole log, or only of its inactive segments.

        Run the job in any thread, then call `complete_flush`.
        """
        active = self.segments.active
        files, paths = [], []
        for number in range(self.segments.number_for(self.recovery_point), len(self.segments) - 1):
            segment = self.segments[number]
            files.append(segment.open())
            paths += [*segment.paths[1:], snapshot_path(self.path, segment.base_offset)]
        if not complete_only:
            files.append(active.open())
            paths += active.new_aborted_paths()
        if active.base_offset != self._named:
            paths.append(snapshot_path(self.path, active.base_offset))
            paths.append(os.path.join(self.path, LEADER_EPOCH_CHECKPOINT))
            paths.append(self.path)
            self._named = active.base_offset
        end = active.base_offset if complete_only else self.log_end_offset
        return FlushJob(files, paths, end, self.truncations)

    def complete_flush(self, job: FlushJob) -> None:
        if job.truncations != self.truncations:
            return  # Other records may be at its offsets now.
        self.recovery_point = max(self.recovery_point, min(job.offset, self.log_end_offset))
        if not self.unflushed:
            self.dirty_since = -1

    def flush(self) -> None:
        """Force everything to disk and wait."""
        job = self.begin_flush()
        job.run()
        self.complete_flush(job)

    def close(self, clean: bool = True) -> None:
        """Close the files. A clean close writes what the next start needs, but does not force it to disk."""
        if self.closed:
            return
        self.closed = True
        if clean:
            self.segments.active.write_indexes()
            write_snapshot(self.path, self.log_end_offset, self.producers)
        for segment in self.segments:
            segment.close_file()
        self.places.forget()
