"""Which segments have outlived their time, and the rolling of segments that nobody writes to any more.

Only whole segments are removed, oldest first, and never one with offsets at or above the high watermark.
Also a compacted log loses the segments that lie before its log start offset.
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
    """Remove what retention lets go of; the number of segments removed. A log that is being compacted is left alone."""
    if log.cleaning:
        return 0
    roll_by_time(log, now=now)
    removed = _remove(log, _before_start(log), high_watermark, "they lie before the log start offset", now)
    if log.config.is_deleted_by_retention:
        removed += _remove(log, _expired(log, now), high_watermark, "retention.ms is over", now)
        removed += _remove(log, _in_excess(log), high_watermark, "the log is larger than retention.bytes", now)
    return removed


def roll_by_time(log: Log, *, now: Millis) -> None:
    """Begin a new segment if the active one is old, so that retention and compaction can reach its records."""
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
        _LOGGER.info("%s: removed %d segments, since %s", log.topic_partition, count, why)
    return count


def remove_paths(paths: Iterable[str]) -> None:
    """Remove files and whole directories; may take long, so not for the event loop's thread."""
    for path in paths:
        if os.path.isdir(path):
            shutil.rmtree(path, ignore_errors=True)
        else:
            remove_files([path])
