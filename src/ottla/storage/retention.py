"""Remove segments that retention no longer keeps, and roll old active segments.

Only whole segments are removed, oldest first, and never one with offsets at or above the high watermark. Segments
before the log start offset are removed from compacted logs too.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterable

from ottla.storage.files import remove_files
from ottla.storage.log import Log
from ottla.storage.segment import Segment
from ottla.types import Millis

_LOGGER = logging.getLogger(__name__)


def apply(log: Log, high_watermark: int, *, now: Millis) -> int:
    """Apply retention and return the number of removed segments. A log that is being compacted is skipped."""
    if log.cleaning:
        return 0
    roll_by_time(log, now=now)
    removed = _remove(log, _before_start(log), high_watermark, "they are before the log start offset", now)
    if log.config.is_deleted_by_retention:
        removed += _remove(log, _expired(log, now), high_watermark, "they are older than retention.ms", now)
        removed += _remove(log, _in_excess(log), high_watermark, "the log is larger than retention.bytes", now)
    return removed


def roll_by_time(log: Log, *, now: Millis) -> None:
    """Roll an old active segment, so that retention and compaction can process its records."""
    active = log.segments.active
    if active.size and now - active.created > log.segment_ms:
        log.roll(now=now)


def _before_start(log: Log) -> Callable[[Segment], bool]:
    return lambda segment: segment is not log.segments.active and _end(log, segment) <= log.log_start_offset


def _expired(log: Log, now: Millis) -> Callable[[Segment], bool]:
    limit = log.config.retention_ms
    return lambda segment: limit >= 0 and bool(segment.size) and now - segment.largest_timestamp > limit


def _in_excess(log: Log) -> Callable[[Segment], bool]:
    limit = log.config.retention_bytes
    excess = log.size - limit

    def too_much(segment: Segment) -> bool:
        nonlocal excess
        if limit < 0 or not segment.size or excess < segment.size:
            return False
        excess -= segment.size
        return True

    return too_much


def _end(log: Log, segment: Segment) -> int:
    return log.segments.end_of(segment, log.log_end_offset)


def _remove(log: Log, is_due: Callable[[Segment], bool], high_watermark: int, why: str, now: Millis) -> int:
    count = 0
    for segment in log.segments:
        if _end(log, segment) > high_watermark or not is_due(segment):
            break
        count += 1
    if count:
        log.remove_segments(count, now=now)
        _LOGGER.info("%s: removed %d segments because %s", log.topic_partition, count, why)
    return count


def remove_paths(paths: Iterable[str]) -> None:
    """Remove files and directories. This may take long: do not call it in the event loop's thread."""
    for path in paths:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            remove_files([path])
