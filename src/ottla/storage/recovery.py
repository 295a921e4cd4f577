"""Open the directory of a partition, and recover the log after a crash.

After a clean shutdown nothing is scanned: the end of the last segment is compared with the checkpoint, and the
producers come from the snapshot at that end.

Otherwise the segments from the recovery point on are read with CRC checks. Their indexes, producers and epochs are
rebuilt, and the log is cut at the first invalid batch above the recovery point. Data below the recovery point was
flushed, so nothing after damage there is removed: the damage is reported, and verification.py keeps readers away from
it. The `RecoveryReport` and the broker's log say what was found.
"""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass, field

from ottla.config import TopicConfig
from ottla.records import BatchHeader
from ottla.storage.checkpoints import DamagedCheckpoint, read_epochs
from ottla.storage.directory import Listing, tidy
from ottla.storage.epochs import LeaderEpochCache
from ottla.storage.files import LOG, OFFSET_INDEX, TIME_INDEX, remove_files
from ottla.storage.index import DamagedIndex, IndexBuilder
from ottla.storage.open_files import FileCache
from ottla.storage.producers import ProducerState
from ottla.storage.replay import load_producers, replay_piece, replay_segments
from ottla.storage.scanning import OffsetOrder, Piece, walk
from ottla.storage.segment import Segment
from ottla.storage.snapshots import snapshot_path, write_snapshot
from ottla.storage.verification import Damage, Verification
from ottla.types import Millis, TopicPartition

_LOGGER = logging.getLogger(__name__)
_UNINDEXED_BYTES = 64 * 1024


@dataclass(slots=True)
class RecoveryReport:
    """What was scanned and repaired when a log was opened."""

    topic_partition: TopicPartition
    scanned_segments: int = 0
    scanned_bytes: int = 0
    truncated_bytes: int = 0
    notes: list[str] = field(default_factory=list)
    """One sentence for everything that was cut, removed or rebuilt."""

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)
        _LOGGER.warning("%s: %s", self.topic_partition, sentence)


@dataclass(slots=True)
class LoadedLog:
    """A log as it is on disk."""

    segments: list[Segment]
    producers: ProducerState
    epochs: LeaderEpochCache
    log_start_offset: int
    log_end_offset: int
    recovery_point: int
    report: RecoveryReport


def load_log(
    directory: str,
    topic_partition: TopicPartition,
    config: TopicConfig,
    cache: FileCache,
    *,
    recovery_point: int,
    log_start_offset: int,
    clean: bool,
    now: Millis,
) -> LoadedLog:
    """Open the log in `directory`. `clean` says that the checkpoint is from a clean shutdown."""
    loader = _Loader(directory, topic_partition, config, cache, log_start_offset, now)
    return loader.load(recovery_point, clean)


class _Loader:
    """The steps of opening one log, in the order of `load`."""

    def __init__(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: TopicConfig,
        cache: FileCache,
        log_start_offset: int,
        now: Millis,
    ) -> None:
        self._directory = directory
        self._config = config
        self._cache = cache
        self._now = now
        self._log_start_offset = log_start_offset
        self._report = RecoveryReport(topic_partition)
        self._producers = ProducerState(topic_partition)
        self._epochs = LeaderEpochCache(directory)
        self._segments: list[Segment] = []
        self._rebuild: dict[Segment, str] = {}
        """Segments whose indexes are damaged, and why."""

    def load(self, recovery_point: int, clean: bool) -> LoadedLog:
        listing = tidy(self._directory, self._report.note)
        self._open_segments(listing)
        epochs_known = self._load_epochs()
        end_offset = self._end_of_log(recovery_point, clean)
        if end_offset is None:
            end_offset = self._recover(recovery_point, listing.snapshots)
            flushed = min(recovery_point, end_offset)
        else:
            flushed = end_offset
            load_producers(self._producers, self._directory, listing.snapshots, self._segments, end_offset)
        self._rebuild_indexes()
        if not epochs_known:
            self._learn_epochs()
        return self._finish(listing, end_offset, flushed)

    def _open_segments(self, listing: Listing) -> None:
        for base_offset, files in sorted(listing.segments.items()):
            if LOG not in files:
                self._report.note(f"removed index files at offset {base_offset} that have no log file")
                remove_files(os.path.join(self._directory, name) for name in files.values())
                continue
            self._segments.append(self._open_segment(base_offset, files))
        if not self._segments:
            self._segments.append(self._new_segment(self._log_start_offset))
        for segment, following in zip(self._segments, self._segments[1:], strict=False):
            segment.verification = Verification(segment.size, following.base_offset)

    def _open_segment(self, base_offset: int, files: dict[str, str]) -> Segment:
        sizes = {suffix: os.stat(os.path.join(self._directory, name)).st_size for suffix, name in files.items()}
        segment = Segment(self._directory, base_offset, self._cache, created=self._now, size=sizes[LOG])
        for suffix, index in ((OFFSET_INDEX, segment.offset_index), (TIME_INDEX, segment.time_index)):
            if suffix not in sizes or sizes[suffix] % index.entry.size:
                self._rebuild[segment] = f"{index.path} is missing or incomplete"
                return segment
            index.set_file_size(sizes[suffix])
        try:
            segment.offset_index.check(segment.size)
            segment.time_index.check()
            self._check_coverage(segment)
            segment.max_timestamp, segment.max_timestamp_offset = segment.time_index.load()
        except DamagedIndex as error:
            self._rebuild[segment] = str(error)
        return segment

    @staticmethod
    def _check_coverage(segment: Segment) -> None:
        """Raise DamagedIndex if the index has no entry for a long range at the end: it was cut."""
        last = segment.offset_index.last_position
        if segment.size - last > _UNINDEXED_BYTES:
            piece = next(walk(segment.open().fd, last, segment.size, check_crc=False, window=_UNINDEXED_BYTES))
            if len(piece.batches) > 1:
                raise DamagedIndex(f"{segment.offset_index.path} has no entry after position {last}")
        if segment.size and not segment.time_index.count and segment.first_timestamp >= 0:
            raise DamagedIndex(f"{segment.time_index.path} is empty")

    def _new_segment(self, base_offset: int) -> Segment:
        return Segment.create(self._directory, base_offset, self._cache, created=self._now)

    def _load_epochs(self) -> bool:
        try:
            known = read_epochs(self._directory)
        except DamagedCheckpoint as error:
            self._report.note(f"{error}; read the epochs from the log")
            return False
        self._epochs = LeaderEpochCache(self._directory, known)
        return bool(known) or not any(segment.size for segment in self._segments)

    def _end_of_log(self, recovery_point: int, clean: bool) -> int | None:
        """The log end offset, if the last segment is valid and ends at the recovery point; None if a scan is needed."""
        active = self._segments[-1]
        if active in self._rebuild or active.base_offset > recovery_point:
            return None if active.size or not clean else active.base_offset
        end_offset = active.read_tail()
        if end_offset is None or end_offset != recovery_point:
            if clean:
                self._report.note(
                    f"{active.path} does not end at offset {recovery_point}, as it did at the clean shutdown"
                )
            return None
        if not clean and not os.path.exists(snapshot_path(self._directory, end_offset)):
            return None
        active.verification = Verification(active.size, end_offset)
        return end_offset

    def _recover(self, recovery_point: int, snapshots: list[int]) -> int:
        """Scan all segments that have data above the recovery point; return the log end offset."""
        first = max((n for n, s in enumerate(self._segments) if s.base_offset <= recovery_point), default=0)
        start = self._segments[first].base_offset
        load_producers(self._producers, self._directory, snapshots, self._segments[:first], start)
        self._epochs.forget_from(start)
        next_offset = start
        for number in range(first, len(self._segments)):
            segment = self._segments[number]
            if number > first and not os.path.exists(snapshot_path(self._directory, segment.base_offset)):
                write_snapshot(self._directory, segment.base_offset, self._producers)
            scan = SegmentScan(segment, self._producers, self._epochs, self._config.index_interval_bytes)
            end_offset = self._segments[number + 1].base_offset if number + 1 < len(self._segments) else None
            next_offset = scan.run(max(next_offset, segment.base_offset), end_offset, recovery_point)
            self._report.scanned_segments += 1
            self._report.scanned_bytes += segment.size
            if scan.cut:
                self._report.truncated_bytes += scan.cut
                self._report.note(
                    f"cut {scan.cut} bytes from {segment.path} at position {segment.size}: {scan.problem}; the log now "
                    f"ends at offset {next_offset}"
                )
                self._drop_segments_from(number + 1, "which follows the cut")
                break
        self._epochs.write()
        self._rebuild = {s: why for s, why in self._rebuild.items() if s.base_offset < start}
        return next_offset

    def _drop_segments_from(self, number: int, why: str) -> None:
        for segment in self._segments[number:]:
            self._report.truncated_bytes += segment.size
            self._report.note(f"removed {segment.path} ({segment.size} bytes), {why}")
            segment.remove()
        del self._segments[number:]

    def _rebuild_indexes(self) -> None:
        for segment, why in self._rebuild.items():
            if segment.verification is None:
                segment.verification = Verification(segment.size, segment.base_offset)
            self._report.scanned_segments += 1
            self._report.scanned_bytes += segment.size
            segment.verification.rebuild(segment)
            self._report.note(f"{why}; rebuilt the indexes")

    def _learn_epochs(self) -> None:
        self._epochs.forget_from(0)  # A scan of the last segments has learnt only their epochs.
        for segment in self._segments:
            for piece in walk(segment.open().fd, 0, segment.size, check_crc=False):
                for _, header in piece.batches:
                    self._epochs.learn(header.partition_leader_epoch, header.base_offset)
        self._epochs.write()

    def _finish(self, listing: Listing, end_offset: int, flushed: int) -> LoadedLog:
        start_offset = max(self._log_start_offset, self._segments[0].base_offset)
        if start_offset > end_offset:
            self._report.note(
                f"the log ends at offset {end_offset}, before its start offset {start_offset}; it starts empty there"
            )
            self._drop_segments_from(0, "which is before the log start offset")
            self._segments.append(self._new_segment(start_offset))
            self._producers = ProducerState(self._report.topic_partition)
            end_offset = flushed = start_offset
        bases = {segment.base_offset for segment in self._segments}
        stray = [offset for offset in listing.snapshots if offset not in bases and offset != end_offset]
        remove_files(snapshot_path(self._directory, offset) for offset in stray)
        self._epochs.truncate_from_end(end_offset)
        self._epochs.truncate_from_start(start_offset)
        return LoadedLog(self._segments, self._producers, self._epochs, start_offset, end_offset, flushed, self._report)


class SegmentScan:
    """Reads a segment from its start with CRC checks, and rebuilds everything that is derived from it."""

    def __init__(
        self, segment: Segment, producers: ProducerState, epochs: LeaderEpochCache, index_interval: int
    ) -> None:
        self.cut = 0
        self.problem: str | None = None
        self._segment = segment
        self._producers = producers
        self._epochs = epochs
        self._builder = IndexBuilder(segment.base_offset, index_interval)
        self._damages: list[Damage] = []

    def run(self, next_offset: int, end_offset: int | None, recovery_point: int) -> int:
        """Cut the segment at the first problem at or above `recovery_point`; return the offset after the segment."""
        segment = self._segment
        segment.forget_aborted()
        fd, position, end = segment.open().fd, 0, segment.size
        order = OffsetOrder(segment.base_offset, next_offset, end_offset)
        while position < end:
            for piece in walk(fd, position, end, order=order):
                self._take(piece)
                position = piece.end
                self.problem = piece.problem
            if self.problem is not None:
                damage = self._flushed_damage(position, order.expected, recovery_point)
                if damage is None:
                    break
                self._damages.append(damage)
                position, self.problem = damage.end, None
        self._install(position)
        return order.expected

    def _take(self, piece: Piece) -> None:
        """Add the batches of a piece to indexes, epochs and producers."""
        batches: list[tuple[int, BatchHeader]] = []
        for position, header in piece.batches:
            self._builder.add(position, header)
            if header.partition_leader_epoch > self._epochs.latest:
                self._epochs.learn(header.partition_leader_epoch, header.base_offset)
            if header.producer_id >= 0:
                batches.append((position, header))
        replay_piece(self._producers, piece._replace(batches=batches), self._segment)

    def _flushed_damage(self, position: int, next_offset: int, recovery_point: int) -> Damage | None:
        """The damage at `position`, if that part was flushed and a valid batch follows."""
        if next_offset >= recovery_point:
            return None
        check = Verification(self._segment.size, recovery_point)
        return check.damage_at(self._segment, position, next_offset, str(self.problem))

    def _install(self, position: int) -> None:
        """Cut the file at `position` and install the rebuilt indexes."""
        segment = self._segment
        if position < segment.size:
            self.cut = segment.size - position
            os.ftruncate(segment.open().fd, position)
            segment.size = position
        offsets, times = self._builder.finish()
        segment.offset_index.replace(offsets)
        segment.time_index.replace(times)
        segment.time_index.load()
        segment.max_timestamp, segment.max_timestamp_offset = self._builder.max_timestamp
        segment.bytes_since_index_entry = self._builder.bytes_since_entry
        segment.verification = Verification.with_damage(self._damages) if self._damages else None


__all__ = ["LoadedLog", "RecoveryReport", "load_log", "replay_segments"]
