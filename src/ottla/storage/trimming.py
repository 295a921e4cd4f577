"""Remove parts of a log: DeleteRecords and retention at the start, compaction in the middle, truncation at the end."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from ottla.errors import CorruptMessage, OffsetOutOfRange, PolicyViolation
from ottla.storage.files import DELETED, SNAPSHOT, parse_file_name, remove_files
from ottla.storage.replay import load_producers
from ottla.storage.segment import Segment
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


def replace_segments(
    log: Log, old: Sequence[Segment], new: Sequence[Segment], now: Millis, *, newest_first: bool = False
) -> None:
    log.segments.replace(old, new)
    log.places.forget()
    _retire(log, reversed(old) if newest_first else old, now)


def _retire(log: Log, old: Iterable[Segment], now: Millis) -> None:
    """Rename the files of segments that the log does not have any more; they are removed later."""
    kept = {segment.base_offset for segment in log.segments}
    paths: list[str] = []
    for segment in old:
        paths += segment.rename(DELETED)
        segment.close_file()
        if segment.base_offset not in kept:
            remove_files([snapshot_path(log.path, segment.base_offset)])
    log.host.delete_later(paths, at=now + log.config.file_delete_delay_ms)


def truncate_to(log: Log, offset: int, now: Millis) -> None:
    """Cut from the end backwards: after a crash in between, what is left of the log has no gap."""
    if offset < log.log_start_offset:
        raise OffsetOutOfRange(
            f"cannot truncate {log.topic_partition} to offset {offset}: it starts at {log.log_start_offset}"
        )
    if offset < log.log_end_offset:
        _cut(log, offset, now)
    # A leader that wrote nothing has left an epoch at the end of the log.
    log.epochs.truncate_from_end(log.log_end_offset)
    log.latest_epoch = log.epochs.latest


def _cut(log: Log, offset: int, now: Millis) -> None:
    log.begin_truncation()
    first_to_go = log.segments.number_for(offset) + 1
    later = [log.segments[number] for number in range(first_to_go, len(log.segments))]
    if later:
        replace_segments(log, later, [], now, newest_first=True)
    active = log.segments.active
    found = _find_verified(active, offset)
    if found is not None:
        # A batch that is cut in two goes as a whole, so the follower fetches it again.
        position, base_offset = found
        offset = max(log.log_start_offset, min(offset, base_offset))
        active.truncate(position, base_offset)
    _remove_snapshots(log, above=offset)
    log.log_end_offset = offset
    lowered = offset < log.recovery_point
    log.recovery_point = min(log.recovery_point, offset)
    log.host.truncated(log, below_recovery_point=lowered)
    bases = [segment.base_offset for segment in log.segments]
    load_producers(log.producers, log.path, bases, list(log.segments), offset)


def truncate_fully_and_start_at(log: Log, offset: int, now: Millis, *, log_start_offset: int | None = None) -> None:
    """Start again with one empty segment at `offset`.

    A crash at any point leaves the new log, an empty one, or the end of the old one. The checkpoints are written first:
    they must not hide or protect what will be appended at lower offsets.
    """
    log.begin_truncation()
    start = offset if log_start_offset is None else log_start_offset
    start_lowered, below = start < log.log_start_offset, offset < log.recovery_point
    log.log_start_offset = log.log_end_offset = start
    log.recovery_point = min(offset, start)
    if start_lowered:
        log.host.start_lowered(log)
    log.host.truncated(log, below_recovery_point=below)
    _remove_snapshots(log, above=-1)
    old = list(log.segments)
    _retire(log, old, now)
    log.segments.replace(old, [log.create_segment(offset, now=now)])
    log.producers.load([])
    log.epochs.truncate_from_end(0)
    log.latest_epoch = log.epochs.latest
    log.host.start_moved(log)


def _remove_snapshots(log: Log, *, above: int) -> None:
    """They hold the state of producers whose batches are cut."""
    names = (parse_file_name(name) for name in os.listdir(log.path))
    later = [found[0] for found in names if found and found[1] == SNAPSHOT and found[0] > above]
    remove_files(snapshot_path(log.path, snapshot) for snapshot in later)


def _find_verified(segment: Segment, offset: int) -> tuple[int, int] | None:
    """Position and base offset of the batch, or the damage, that holds `offset`. What is unverified is verified."""
    while True:
        try:
            found = segment.find(offset)
            return None if found is None else (found.position, found.header.base_offset)
        except SegmentUnverified:
            segment.verify()
        except CorruptMessage:
            damages = [] if segment.verification is None else segment.verification.damages
            return next((d.start, d.first_offset) for d in damages if d.first_offset <= offset < d.next_offset)
