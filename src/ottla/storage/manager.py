"""All logs of a broker: open, create, delete, checkpoint and close them.

Only the event loop's thread uses the manager, as with logs. Periodic work (retention, compaction, rolling, delayed
deletion, checkpoints) is in background.py.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
import os
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from ottla.config import BrokerConfig, TopicConfig, effective_topic_config
from ottla.errors import KafkaStorageError
from ottla.storage import checkpoints
from ottla.storage.background import Background
from ottla.storage.checkpoints import NO_BROKER_EPOCH, DamagedCheckpoint
from ottla.storage.data_dir import DataDir, DataDirUnusable
from ottla.storage.files import DELETE_DIRECTORY, STRAY_DIRECTORY, parse_directory_name, retired_directory_name
from ottla.storage.flusher import Flusher
from ottla.storage.log import Log
from ottla.storage.open_files import FileCache
from ottla.storage.recovery import RecoveryReport, load_log
from ottla.types import Millis, TopicPartition

_LOGGER = logging.getLogger(__name__)
_THREADS = 4
_NO_TOPIC_ID = uuid.UUID(int=0)


class Clock(Protocol):
    """A source of the current time."""

    def now(self) -> Millis:
        """Milliseconds since the epoch."""


@dataclass(slots=True)
class OpenReport:
    """The state in which the data directories were found."""

    clean: bool
    """The last shutdown was clean."""
    broker_epoch: int = NO_BROKER_EPOCH
    """The epoch that the broker had when it was shut down, -1 if the shutdown was not clean."""
    logs: list[RecoveryReport] = field(default_factory=list)
    """The logs that were scanned or repaired."""


class LogManager:
    """The logs of one broker. Call `lock`, then `open`; then `start_background`; at the end `close`."""

    def __init__(
        self,
        data_dirs: Sequence[Path],
        broker_config: BrokerConfig,
        *,
        clock: Clock,
        max_open_files: int | None = None,
    ) -> None:
        self.data_dirs = tuple(Path(path) for path in data_dirs)
        self.broker_config = broker_config
        self.clock = clock
        self.logs: dict[TopicPartition, Log] = {}
        self.high_watermark: Callable[[Log], int] = lambda log: log.log_end_offset
        """The limit of retention and compaction, and what is checkpointed. The broker may set its own function; until
        it knows better, that function returns `checkpointed_high_watermark`."""
        self.broker_epoch = NO_BROKER_EPOCH
        """What a clean shutdown writes down; the broker sets it."""
        self.on_directory_failed: Callable[[Path, Sequence[TopicPartition]], None] | None = None
        """Called when a disk has failed, with the partitions that are offline now. Without it, only the operation that
        failed gets an error, and the next one may succeed."""
        self.failed_dirs: dict[Path, str] = {}
        """The data directories that are out of service, and why."""
        self._offline: dict[TopicPartition, str] = {}
        self.cleaner_offsets: dict[TopicPartition, int] = {}
        self.executor = ThreadPoolExecutor(_THREADS, thread_name_prefix="ottla-storage")
        self.flusher = Flusher(self.executor)
        self.rolled_logs: dict[Log, None] = {}
        self._dirs = [DataDir(path) for path in self.data_dirs]
        self._cache = FileCache(max_open_files)
        self._deletions: list[tuple[Millis, int, list[str]]] = []
        self._start_offsets_changed = False
        self._high_watermarks: dict[TopicPartition, int] = {}
        """As they were checkpointed last."""
        self._background: Background | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    # ── opening ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def working_dirs(self) -> list[Path]:
        """The data directories that have not failed."""
        return [path for path in self.data_dirs if path not in self.failed_dirs]

    @property
    def most_open_files(self) -> int:
        """How many segment files stay open."""
        return self._cache.capacity

    def lock(self) -> None:
        """Create and lock the data directories; DataDirInUse if another broker uses one.

        A directory that cannot be used is out of service. DataDirUnusable if all are.
        """
        for directory in self._dirs:
            try:
                directory.lock(self.broker_config.id)
            except DataDirUnusable as error:
                self._cannot_use(directory.path, error)

    def open(self) -> OpenReport:
        """Open all logs, and recover those that need it. A directory whose files cannot be read is out of service."""
        report = OpenReport(clean=True)
        epochs: set[int] = set()
        for directory in self.working_dirs:
            try:
                epoch, opened = self._open_directory(directory)
            except OSError as error:
                self._cannot_use(directory, DataDirUnusable.because(directory, error))
                continue
            except KafkaStorageError as error:
                self._cannot_use(directory, DataDirUnusable(f"cannot use {directory} as a data directory: {error}"))
                continue
            for log in opened:
                self._adopt(log)
            report.clean &= epoch is not None or not opened
            report.logs += [log.report for log in opened if log.report.notes or log.report.scanned_bytes]
            epochs.add(NO_BROKER_EPOCH if epoch is None else epoch)
        if len(epochs) == 1:
            report.broker_epoch = epochs.pop()
        return report

    def _cannot_use(self, directory: Path, error: DataDirUnusable) -> None:
        self.failed_dirs[directory] = str(error)
        if not self.working_dirs:
            raise DataDirUnusable("; ".join(self.failed_dirs.values())) from error
        _LOGGER.error("%s; its partitions are offline", error)

    def _find_logs(self, directory: Path) -> dict[TopicPartition, str]:
        found: dict[TopicPartition, str] = {}
        for entry in os.scandir(directory):
            if entry.name.endswith(DELETE_DIRECTORY) and entry.is_dir():
                self.delete_later([entry.path], at=self.clock.now())
            elif (topic_partition := parse_directory_name(entry.name)) and entry.is_dir():
                found[topic_partition] = entry.path
        return found

    def _open_directory(self, directory: Path) -> tuple[int | None, list[Log]]:
        """Return the broker epoch of a clean shutdown, None if it was not clean, and the logs."""
        epoch = checkpoints.take_clean_shutdown(directory)
        found = self._find_logs(directory)
        self.cleaner_offsets.update(self._read_checkpoint(directory, checkpoints.CLEANER_OFFSETS))
        self._high_watermarks.update(self._read_checkpoint(directory, checkpoints.HIGH_WATERMARKS))
        return epoch, self._load_all(directory, found, epoch is not None)

    def _load_all(self, directory: Path, found: Mapping[TopicPartition, str], clean: bool) -> list[Log]:
        recovery_points = self._read_checkpoint(directory, checkpoints.RECOVERY_POINTS)
        start_offsets = self._read_checkpoint(directory, checkpoints.LOG_START_OFFSETS)
        config = effective_topic_config(self.broker_config, {})

        def load(item: tuple[TopicPartition, str]) -> Log | OSError | KafkaStorageError:
            point, start = recovery_points.get(item[0], 0), start_offsets.get(item[0], 0)
            try:
                return self._load(item[1], item[0], None, config, point, start, clean)
            except (OSError, KafkaStorageError) as error:
                return error

        # After a clean shutdown there is nothing to wait for, and threads would only slow each other down.
        results = list(map(load, found.items()) if clean else self.executor.map(load, found.items()))
        logs = [result for result in results if isinstance(result, Log)]
        for result in results:
            if not isinstance(result, Log):
                for log in logs:
                    log.close(clean=False)
                raise result
        return logs

    @staticmethod
    def _read_checkpoint(directory: Path, name: str) -> dict[TopicPartition, int]:
        try:
            return checkpoints.read_offsets(directory / name)
        except DamagedCheckpoint as error:
            _LOGGER.warning("%s; ignoring it, so more has to be scanned", error)
            return {}

    def _load(
        self,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: uuid.UUID | None,
        config: TopicConfig,
        recovery_point: int,
        start_offset: int,
        clean: bool,
    ) -> Log:
        loaded = load_log(
            directory,
            topic_partition,
            config,
            self._cache,
            recovery_point=recovery_point,
            log_start_offset=start_offset,
            clean=clean,
            now=self.clock.now(),
        )
        known = topic_id or checkpoints.read_partition_metadata(directory) or _NO_TOPIC_ID
        return Log(directory, topic_partition, known, config, loaded, self._cache, self)

    def _adopt(self, log: Log) -> None:
        present = self.logs.get(log.topic_partition)
        if present is not None:
            raise KafkaStorageError(
                f"{log.topic_partition} is in two data directories, {present.directory} and {log.directory}; move one "
                "of them elsewhere"
            )
        self.logs[log.topic_partition] = log

    # ── logs ────────────────────────────────────────────────────────────────────────────────────────────

    def get(self, topic_partition: TopicPartition) -> Log | None:
        return self.logs.get(topic_partition)

    def checkpointed_high_watermark(self, log: Log) -> int:
        """The high watermark of a log as it was checkpointed last, within the log."""
        known = self._high_watermarks.get(log.topic_partition, 0)
        return min(max(known, log.log_start_offset), log.log_end_offset)

    def create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> Log:
        """Create an empty log in the data directory with the fewest logs, or return the existing log.

        KafkaStorageError if the log is in a directory that has failed.
        """
        present = self.logs.get(topic_partition)
        if present is not None:
            return present
        if topic_partition in self._offline:
            raise KafkaStorageError(f"{topic_partition} is offline: {self._offline[topic_partition]}")
        log = self._create(topic_partition, topic_id, config)
        self._high_watermarks.pop(topic_partition, None)
        self.logs[topic_partition] = log
        return log

    def _create(self, topic_partition: TopicPartition, topic_id: uuid.UUID, config: TopicConfig) -> Log:
        while True:
            parent = self._emptiest()
            directory = str(parent / str(topic_partition))
            try:
                os.makedirs(directory, exist_ok=True)
                checkpoints.write_partition_metadata(directory, topic_id)
                return self._load(directory, topic_partition, topic_id, config, 0, 0, True)
            except OSError as error:
                failure = KafkaStorageError(f"cannot create {directory}: {error.strerror}")
                self._directory_failed(parent, failure)
                if parent not in self.failed_dirs or len(self.failed_dirs) == len(self.data_dirs):
                    raise failure from error

    def miss(self, topic_partition: TopicPartition) -> str:
        """A log should be here, but no working directory has it: it may be in one that has failed. Returns why."""
        problem = self._offline[topic_partition] = "; ".join(self.failed_dirs.values())
        return problem

    def forget_failure(self, topic_partition: TopicPartition) -> None:
        """Let a log be created again that was in a directory that has failed: the old one is not needed any more."""
        self._offline.pop(topic_partition, None)

    def _emptiest(self) -> Path:
        working = self.working_dirs
        if not working:
            raise KafkaStorageError("all data directories have failed")
        if len(working) == 1:
            return working[0]
        counts = dict.fromkeys(working, 0)
        for log in self.logs.values():
            counts[log.directory.parent] += 1
        return min(working, key=counts.__getitem__)

    def delete(self, topic_partition: TopicPartition) -> None:
        """Take a log out of service at once; its files are removed after file.delete.delay.ms."""
        self._offline.pop(topic_partition, None)
        log = self.logs.pop(topic_partition, None)
        if log is None:
            return
        delay = log.config.file_delete_delay_ms
        self._retire(log, retired_directory_name(topic_partition, DELETE_DIRECTORY), self.clock.now() + delay)

    def set_aside(self, topic_partition: TopicPartition) -> None:
        """Take the log of an unknown topic out of service; its files stay under a name that ends in `-stray`."""
        log = self.logs.pop(topic_partition, None)
        if log is not None:
            self._retire(log, retired_directory_name(topic_partition, STRAY_DIRECTORY), None)

    def _retire(self, log: Log, name: str, remove_at: Millis | None) -> None:
        log.close(clean=False)
        self.rolled_logs.pop(log, None)
        self.cleaner_offsets.pop(log.topic_partition, None)
        renamed = log.directory.with_name(name)
        os.rename(log.directory, renamed)
        if remove_at is not None:
            self.delete_later([str(renamed)], at=remove_at)

    @property
    def damaged_bytes(self) -> int:
        """Bytes of log files that are known to be damaged: 0 on healthy disks."""
        checks = (segment.verification for log in self.logs.values() for segment in log.segments)
        return sum(damage.end - damage.start for check in checks if check is not None for damage in check.damages)

    # ── called by logs ──────────────────────────────────────────────────────────────────────────────────

    def rolled(self, log: Log) -> None:
        self.rolled_logs[log] = None
        if self._background is not None:
            self._background.wake()

    def start_moved(self, log: Log) -> None:
        """Write the start offsets soon, so that deleted records do not return after a crash."""
        if not self._start_offsets_changed:
            self._start_offsets_changed = True
            if self._loop is not None:
                self._loop.call_soon(self.write_start_offsets)

    def start_lowered(self, log: Log) -> None:
        self.write_start_offsets(sync=True)

    def truncated(self, log: Log, *, below_recovery_point: bool) -> None:
        """An old recovery point would call records flushed that are written later at the same offsets.

        In the same way, an old high watermark would call them committed, and an old cleaner offset compacted.
        """
        end = log.log_end_offset
        if below_recovery_point:
            self.write_recovery_points(sync=True)
        if self._high_watermarks.get(log.topic_partition, 0) > end:
            self.write_high_watermarks(sync=True)
        if self.cleaner_offsets.get(log.topic_partition, 0) > end:
            self.cleaner_offsets[log.topic_partition] = end
            self.write_cleaner_offsets()

    def failed(self, log: Log, error: KafkaStorageError) -> None:
        self._directory_failed(log.directory.parent, error)

    def _directory_failed(self, directory: Path, error: KafkaStorageError) -> None:
        """Take a data directory out of service, if the broker can live without it."""
        if self.on_directory_failed is None or directory in self.failed_dirs:
            return
        self.failed_dirs[directory] = str(error)
        offline = [log for log in self.logs.values() if log.directory.parent == directory]
        for log in offline:
            log.failure = error
            log.close(clean=False)
            del self.logs[log.topic_partition]
            self.rolled_logs.pop(log, None)
            self._offline[log.topic_partition] = str(error)
        _LOGGER.error("the data directory %s has failed, %d partitions are offline: %s", directory, len(offline), error)
        self.on_directory_failed(directory, [log.topic_partition for log in offline])

    def delete_later(self, paths: Sequence[str], *, at: Millis) -> None:
        if paths:
            heapq.heappush(self._deletions, (at, id(paths), list(paths)))

    def due_deletions(self, *, now: Millis) -> list[str]:
        """Remove and return the files and directories that must be deleted by now."""
        due: list[str] = []
        while self._deletions and self._deletions[0][0] <= now:
            due += heapq.heappop(self._deletions)[2]
        return due

    # ── checkpoints ─────────────────────────────────────────────────────────────────────────────────────

    def write_recovery_points(self, *, sync: bool = False) -> None:
        self._write_checkpoint(checkpoints.RECOVERY_POINTS, lambda log: log.recovery_point, sync)

    def write_start_offsets(self, *, sync: bool = False) -> None:
        self._start_offsets_changed = False
        self._write_checkpoint(checkpoints.LOG_START_OFFSETS, lambda log: log.log_start_offset, sync)

    def write_high_watermarks(self, *, sync: bool = False) -> None:
        known = {log.topic_partition: min(self.high_watermark(log), log.log_end_offset) for log in self.logs.values()}
        if known == self._high_watermarks and not sync:
            return
        self._high_watermarks = known
        self._write_checkpoint(checkpoints.HIGH_WATERMARKS, lambda log: known.get(log.topic_partition), sync)

    def write_cleaner_offsets(self) -> None:
        known = self.cleaner_offsets
        self._write_checkpoint(checkpoints.CLEANER_OFFSETS, lambda log: known.get(log.topic_partition), False)

    def _write_checkpoint(self, name: str, offset: Callable[[Log], int | None], sync: bool) -> None:
        by_directory: dict[Path, dict[TopicPartition, int]] = defaultdict(dict)
        for log in self.logs.values():
            value = offset(log)
            if value is not None:
                by_directory[log.directory.parent][log.topic_partition] = value
        for directory in self.working_dirs:
            self._write_offsets(directory, name, by_directory[directory], sync)

    def _write_offsets(self, directory: Path, name: str, offsets: Mapping[TopicPartition, int], sync: bool) -> None:
        try:
            checkpoints.write_offsets(directory / name, offsets, sync=sync)
        except OSError as error:
            failure = KafkaStorageError(f"cannot write {directory / name}: {error.strerror}")
            self._directory_failed(directory, failure)
            if self.on_directory_failed is None:
                raise

    # ── background and close ────────────────────────────────────────────────────────────────────────────

    def start_background(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._background = Background(self)
        self._background.start(loop)

    async def catch_up(self) -> None:
        """Do the background work that is due now, because a manual clock has moved."""
        if self._background is not None:
            await self._background.turn()

    def fill_disks(self, full: bool) -> None:
        """For tests: let every append fail, or succeed again."""
        self._cache.is_disk_full = full

    async def stop_background(self) -> None:
        if self._background is not None:
            await self._background.stop()
            self._background = None
            self._loop = None

    def close(self, clean: bool = True) -> None:
        """Close all logs and unlock the data directories. A clean close forces everything to disk first."""
        logs = list(self.logs.values())
        try:
            if clean:
                for log in logs:
                    log.close()
                list(self.executor.map(_flush_closed, [log for log in logs if log.unflushed]))
                self._write_last_checkpoints()
            else:
                for log in logs:
                    log.close(clean=False)
        finally:
            self.logs.clear()
            self.executor.shutdown()
            for directory in self._dirs:
                directory.unlock()

    def _write_last_checkpoints(self) -> None:
        self.write_recovery_points(sync=True)
        self.write_start_offsets(sync=True)
        self.write_high_watermarks(sync=True)
        self.write_cleaner_offsets()
        for path in self.working_dirs:
            self._write_clean_shutdown(path)

    def _write_clean_shutdown(self, directory: Path) -> None:
        try:
            checkpoints.write_clean_shutdown(directory, self.broker_epoch)
        except OSError as error:
            _LOGGER.error("%s is not marked as cleanly closed: %s", directory, error.strerror)


def _flush_closed(log: Log) -> None:
    log.flush()
    for segment in log.segments:
        segment.close_file()
