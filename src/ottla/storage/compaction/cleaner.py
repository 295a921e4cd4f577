"""The broker's side of compaction: choose the next log, describe the job, and install the result.

A log is chosen if enough of it is dirty (`min.cleanable.dirty.ratio`), or if a record has waited for
`max.compaction.lag.ms`. Only inactive segments below the last stable offset and older than `min.compaction.lag.ms` are
compacted. During a run, retention skips the log. If the log still has the source segments afterwards, the result
replaces them: `.cleaned` → `.swap` → final name, so that the next start can finish or undo it after a crash (see
directory.py).
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.storage.compaction.job import CleanedSegment, CleaningJob, SourceSegment
from ottla.storage.files import CLEANED, OFFSET_INDEX, SEGMENT_SUFFIXES, SWAP, TIME_INDEX, file_name, remove_files
from ottla.storage.log import Log
from ottla.storage.segment import Segment
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.storage.manager import LogManager

_LOGGER = logging.getLogger(__name__)
_BYTES_A_KEY = 150
_LINE_LIMIT = 16 * 1024 * 1024


class Candidate(NamedTuple):
    """A log that may be compacted."""

    log: Log
    first_dirty_offset: int
    upper_bound: int
    dirty_ratio: float
    overdue: bool

    @property
    def is_due(self) -> bool:
        return self.overdue or self.dirty_ratio > self.log.config.min_cleanable_dirty_ratio


def candidate(log: Log, clean_offset: int | None, high_watermark: int, *, now: Millis) -> Candidate | None:
    """The part of a log that can be compacted; None if there is none."""
    start = log.log_start_offset
    first_dirty = start if clean_offset is None or not start <= clean_offset <= log.log_end_offset else clean_offset
    upper_bound = _upper_bound(log, first_dirty, high_watermark, now)
    dirty = [s for s in log.segments.inactive if s.base_offset < upper_bound and _end(log, s) > first_dirty]
    dirty_bytes = sum(segment.size for segment in dirty)
    clean_bytes = sum(s.size for s in log.segments.inactive if _end(log, s) <= first_dirty)
    if not dirty_bytes:
        return None
    oldest = min((s.first_timestamp for s in dirty if s.first_timestamp > 0), default=now)
    overdue = oldest < now - log.config.max_compaction_lag_ms
    return Candidate(log, first_dirty, upper_bound, dirty_bytes / (clean_bytes + dirty_bytes), overdue)


def _end(log: Log, segment: Segment) -> int:
    return log.segments.end_of(segment, log.log_end_offset)


def _upper_bound(log: Log, first_dirty: int, high_watermark: int, now: Millis) -> int:
    """The base offset of the first segment that must not be compacted."""
    limit = min(log.last_stable_offset(high_watermark), log.segments.active.base_offset)
    lag = log.config.min_compaction_lag_ms
    for segment in log.segments.inactive if lag > 0 else ():
        if _end(log, segment) > first_dirty and segment.largest_timestamp > now - lag:
            limit = min(limit, segment.base_offset)
            break
    return log.segments[log.segments.number_for(limit)].base_offset


def make_job(chosen: Candidate, *, max_keys: int, now: Millis) -> CleaningJob:
    log = chosen.log
    config = log.config
    producers = log.active_producers()
    return CleaningJob(
        directory=str(log.directory),
        segments=[
            SourceSegment(s.base_offset, _end(log, s), s.size, s.offset_index.size, s.time_index.size)
            for s in log.segments.inactive
            if s.base_offset < chosen.upper_bound
        ],
        first_dirty_offset=chosen.first_dirty_offset,
        upper_bound=chosen.upper_bound,
        now=now,
        delete_retention_ms=config.delete_retention_ms,
        max_segment_size=config.segment_bytes,
        max_index_size=config.segment_index_bytes,
        index_interval=config.index_interval_bytes,
        max_keys=max_keys,
        last_offsets={producer.producer_id: producer.last_offset for producer in producers},
        producer_epochs={producer.producer_id: producer.producer_epoch for producer in producers},
    )


def install(log: Log, cleaned: CleanedSegment, *, is_current: bool = True, now: Millis) -> bool:
    """Replace the source segments by the compacted one; False if the log no longer has them."""
    by_base = {segment.base_offset: segment for segment in log.segments.inactive}
    old = [by_base[base] for base in cleaned.sources if base in by_base]
    directory = str(log.directory)
    names = [file_name(cleaned.base_offset, suffix) for suffix in SEGMENT_SUFFIXES]
    paths = [os.path.join(directory, name) for name in names]
    if log.closed or not is_current or len(old) != len(cleaned.sources):
        remove_files(path + CLEANED for path in paths)
        return False
    _rename(paths, CLEANED, SWAP)
    log.replace_segments(old, [_new_segment(log, cleaned)], now=now)
    _rename(paths, SWAP, "")
    return True


def _rename(paths: Iterable[str], state: str, new_state: str) -> None:
    """Rename the log file first: the other files are useless without it."""
    for path in paths:
        if os.path.exists(path + state):
            os.replace(path + state, path + new_state)


def _new_segment(log: Log, cleaned: CleanedSegment) -> Segment:
    segment = log.new_segment(cleaned.base_offset, cleaned.size)
    for suffix, index in ((OFFSET_INDEX, segment.offset_index), (TIME_INDEX, segment.time_index)):
        path = os.path.join(str(log.directory), file_name(cleaned.base_offset, suffix) + SWAP)
        index.set_file_size(os.stat(path).st_size)
    segment.max_timestamp = segment.time_index.last_timestamp = cleaned.max_timestamp
    segment.max_timestamp_offset = cleaned.max_timestamp_offset
    return segment


class Cleaner:
    """Compacts the logs of a manager, one at a time."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._uncleanable: weakref.WeakSet[Log] = weakref.WeakSet()
        """Logs whose compaction failed: they are skipped until a restart, and reported once."""

    def next_candidate(self, *, now: Millis) -> Candidate | None:
        """The dirtiest log that is due."""
        candidates = []
        for topic_partition, log in self._manager.logs.items():
            if not log.config.is_compacted or log.closed or log in self._uncleanable:
                continue
            clean_offset = self._manager.cleaner_offsets.get(topic_partition)
            found = candidate(log, clean_offset, self._manager.high_watermark(log), now=now)
            if found is not None and found.is_due:
                candidates.append(found)
        return max(candidates, key=lambda found: found.dirty_ratio, default=None)

    async def run(self) -> int:
        """Compact until nothing is due; return the number of runs."""
        count = 0
        chosen = self.next_candidate(now=self._manager.clock.now())
        if chosen is None:
            return 0
        process = await self._start_process()
        try:
            while chosen is not None:
                await self._compact(process, chosen)
                count += 1
                chosen = self.next_candidate(now=self._manager.clock.now())
        finally:
            await _end_process(process)
        return count

    @staticmethod
    async def _start_process() -> asyncio.subprocess.Process:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        starting = asyncio.ensure_future(
            asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "ottla.storage.compaction.process",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                env=environment,
                limit=_LINE_LIMIT,
            )
        )
        try:
            # A start that is cancelled half way leaves the process and its pipes behind.
            await _wait_until_done(starting)
        except asyncio.CancelledError:
            if not starting.cancelled() and starting.exception() is None:
                await _end_process(starting.result())
            raise
        return starting.result()

    async def _compact(self, process: asyncio.subprocess.Process, chosen: Candidate) -> None:
        manager, log = self._manager, chosen.log
        config = manager.broker_config
        now = manager.clock.now()
        job = make_job(chosen, max_keys=max(1, config.log_cleaner_dedupe_buffer_size // _BYTES_A_KEY), now=now)
        message = {"job": job.to_json(), "bytes_per_second": config.log_cleaner_io_max_bytes_per_second}
        log.cleaning, truncations = True, log.truncations
        try:
            async for response in _responses(process, message):
                if not self._take(log, response, log.truncations == truncations):
                    break
        finally:
            log.cleaning = False

    def _take(self, log: Log, response: dict[str, Any], is_current: bool) -> bool:
        """Handle a response of the process; False after the last one. Nothing of a truncated log is installed."""
        if "segment" in response:
            cleaned = CleanedSegment(**response["segment"])
            if install(log, cleaned, is_current=is_current, now=self._manager.clock.now()):
                _LOGGER.info(
                    "%s: compacted %d segments at offset %d from %d to %d bytes, %d of %d records kept",
                    log.topic_partition, len(cleaned.sources), cleaned.base_offset, cleaned.bytes_read, cleaned.size,
                    cleaned.records_kept, cleaned.records_read,
                )  # fmt: skip
            return True
        if log.closed or not is_current:
            return False  # If it was deleted, a new log may have its name.
        if "clean_offset" in response:
            self._manager.cleaner_offsets[log.topic_partition] = response["clean_offset"]
            self._manager.write_cleaner_offsets()
        else:
            self._uncleanable.add(log)
            _LOGGER.error("%s will not be compacted until a restart: %s", log.topic_partition, response["error"])
        return False


async def _responses(process: asyncio.subprocess.Process, message: dict[str, Any]) -> Any:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(json.dumps(message).encode() + b"\n")
    await process.stdin.drain()
    while True:
        line = await process.stdout.readline()
        if not line:
            yield {"error": "the compaction process ended unexpectedly"}
            return
        yield json.loads(line)


async def _end_process(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        process.kill()
    # Not wait(), which returns before the pipes are closed.
    await _wait_until_done(asyncio.ensure_future(process.communicate()))


async def _wait_until_done(future: asyncio.Future[Any]) -> None:
    """Wait to the end. If the caller is cancelled in the meantime, that is raised afterwards."""
    cancelled: asyncio.CancelledError | None = None
    while not future.done():
        try:
            await asyncio.wait([future])
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled
