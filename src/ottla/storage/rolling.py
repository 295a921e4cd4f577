"""Choose the segment for an append: the active one, or a new one if that is full or old."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.errors import RecordListTooLarge
from ottla.records import BatchHeader
from ottla.storage.scanning import MAX_RELATIVE_OFFSET
from ottla.storage.segment import Segment
from ottla.storage.snapshots import write_snapshot
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.storage.log import Log


def segment_for(log: Log, size: int, timestamp: Millis, last_offset: int, now: Millis) -> Segment:
    """The segment for the next `size` bytes of a leader."""
    limit = log.rules.segment_bytes
    if size > limit:
        raise RecordListTooLarge(
            f"an append of {size} bytes to {log.topic_partition} is larger than segment.bytes ({limit}): send smaller "
            "batches or raise segment.bytes"
        )
    return _active_or_new(log, size, timestamp, last_offset, now)


def segment_for_fetched(log: Log, header: BatchHeader, now: Millis) -> Segment:
    """The segment for a batch of the leader, whatever its size. The gap before it may be too large for a segment."""
    if header.last_offset - log.log_end_offset > MAX_RELATIVE_OFFSET:
        log.log_end_offset = header.base_offset
    return _active_or_new(log, header.size, header.max_timestamp, header.last_offset, now)


def _active_or_new(log: Log, size: int, timestamp: Millis, last_offset: int, now: Millis) -> Segment:
    rules, active = log.rules, log.segments.active
    if (
        active.size + size > rules.segment_bytes
        or last_offset - active.base_offset > MAX_RELATIVE_OFFSET
        or (active.size and _is_old(log, active, timestamp, now))
        or (active.bytes_since_index_entry > rules.index_interval and not active.indexable_bytes(rules))
    ):
        return roll(log, now)
    return active


def _is_old(log: Log, active: Segment, timestamp: Millis, now: Millis) -> bool:
    first = active.first_timestamp
    waited = timestamp - first if first >= 0 and timestamp >= 0 else now - active.created
    return waited > log.rules.segment_ms


def roll(log: Log, now: Millis) -> Segment:
    active = log.segments.active
    if not active.size and active.base_offset == log.log_end_offset:
        return active
    with log.reporting("start a new segment in"):
        active.write_indexes()
        write_snapshot(log.path, log.log_end_offset, log.producers)
        segment = log.create_segment(log.log_end_offset, now=now)
    log.segments.append(segment)
    # A reader at the end of the log continues in the new segment.
    log.places.remember(log.log_end_offset, segment, 0)
    log.host.rolled(log)
    return segment
