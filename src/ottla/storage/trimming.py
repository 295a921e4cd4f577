"""Remove parts of a log: DeleteRecords and retention at the start, compaction in the middle, truncation at the end."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.errors import OffsetOutOfRange, PolicyViolation
from ottla.storage.files import DELETED, SNAPSHOT, parse_file_name, remove_files
from ottla.storage.replay import load_producers
from ottla.storage.segment import Found, Segment
from ottla.storage.snapshots import snapshot_path
from ottla.storage.verification import SegmentUnverified
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.storage.log import Log


def delete_records(log: Log, before_offset: int) -> int:
    if log.config.is_compacted and not log.config.is_deleted_by_retention:
        raise PolicyViolation(
            f"cannot delete records of {log.topic_partition}: its cleanup.policy does not include delete"
        )
    if not 0 <= before_offset <= log.log_end_offset:
        raise OffsetOutOfRange(
            f"cannot delete up to offset {before_offset} of {log.topic_partition}, which ends at {log.log_end_offset}"
        )
    advance_start(log, before_offset)
    return log.log_start_offset


def advance_start(log: Log, offset: int) -> None:
    """Raise the log start offset; it never decreases."""
    if offset > log.log_start_offset:
        log.log_start_offset = offset
        log.epochs.truncate_from_start(offset)
        log.host.start_moved(log)


def remove_segments(log: Log, count: int, now: Millis) -> None:
    if count >= len(log.segments):
        log.roll(now=now)
        count = len(log.segments) - 1
    old = [log.segments[number] for number in range(count)]
    if old:
        replace_segments(log, old, [], now)
        advance_start(log, log.segments[0].base_offset)
        log.recovery_point = max(log.recovery_point, log.segments[0].base_offset)


def replace_segments(log: Log, old: Sequence[Segment], new: Sequence[Segment], now: Millis) -> None:
    log.segments.replace(old, new)
    log.places.forget()
    kept = {segment.base_offset for segment in log.segments}
    paths: list[str] = []
    for segment in old:
        paths += segment.rename(DELETED)
        segment.close_file()
        if segment.base_offset not in kept:
            remove_files([snapshot_path(log.path, segment.base_offset)])
    log.host.delete_later(paths, at=now + log.config.file_delete_delay_ms)


def truncate_to(log: Log, offset: int, now: Millis) -> None:
    if offset >= log.log_end_offset:
        return
    if offset < log.log_start_offset:
        raise OffsetOutOfRange(
            f"cannot truncate {log.topic_partition} to offset {offset}: it starts at {log.log_start_offset}"
        )
    first_to_go = log.segments.number_for(offset) + 1
    later = [log.segments[number] for number in range(first_to_go, len(log.segments))]
    if later:
        replace_segments(log, later, [], now)
    log.places.forget()
    active = log.segments.active
    found = _find_verified(active, offset)
    if found is not None:
        active.truncate(found.position, found.header.base_offset)
    _remove_snapshots_above(log, offset)
    log.log_end_offset = offset
    if offset < log.recovery_point:
        log.recovery_point = offset
        log.host.recovery_point_lowered(log)
    log.epochs.truncate_from_end(offset)
    log.latest_epoch = log.epochs.latest
    bases = [segment.base_offset for segment in log.segments]
    load_producers(log.producers, log.path, bases, list(log.segments), offset)


def _remove_snapshots_above(log: Log, offset: int) -> None:
    """They hold the state of producers whose batches are cut."""
    names = (parse_file_name(name) for name in os.listdir(log.path))
    later = [found[0] for found in names if found and found[1] == SNAPSHOT and found[0] > offset]
    remove_files(snapshot_path(log.path, snapshot) for snapshot in later)


def _find_verified(segment: Segment, offset: int) -> Found | None:
    """Find a batch, and verify the segment where that is still to be done."""
    while True:
        try:
            return segment.find(offset)
        except SegmentUnverified:
            segment.verify()
