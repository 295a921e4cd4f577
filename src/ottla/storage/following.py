"""Append what a follower has fetched: batches as the leader wrote them.

Offsets, epochs and timestamps stay. Compaction may have left gaps between batches. Only the CRCs and the order of the
offsets are checked; the leader has checked everything else. All batches that go to one segment are written at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeAlias

from ottla.errors import CorruptMessage
from ottla.records import LOG_OVERHEAD, BatchHeader, scan
from ottla.storage import rolling, trimming
from ottla.storage.replay import replay_piece
from ottla.storage.scanning import MAX_RELATIVE_OFFSET, Piece
from ottla.storage.segment import Segment
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.storage.log import Log

Batches: TypeAlias = Sequence[tuple[int, BatchHeader]]


def append_as_follower(log: Log, records: memoryview, now: Millis) -> None:
    batches = _checked(log, records, now)
    while batches:
        active = rolling.segment_for_fetched(log, batches[0][1], now)
        count = _count_for(active, log, batches)
        _append_run(log, active, records, batches[:count])
        batches = batches[count:]
    if log.dirty_since < 0:
        log.dirty_since = now


def _checked(log: Log, records: memoryview, now: Millis) -> Batches:
    """The complete batches of a fetch response. The last one may be cut off."""
    found = scan(records, 0, len(records))
    if found.problem is not None or not found.batches:
        raise CorruptMessage(
            f"what was fetched for {log.topic_partition} from offset {log.log_end_offset} on is corrupt at byte "
            f"{found.end}: {found.problem or 'it has no complete batch'}"
        )
    first = found.batches[0][1]
    if first.base_offset < log.log_start_offset == log.log_end_offset <= first.last_offset:
        # This log is empty, and the leader's starts inside of its first batch.
        with log.reporting("truncate"):
            trimming.truncate_fully_and_start_at(log, first.base_offset, now, log_start_offset=log.log_start_offset)
        expected = first.base_offset
    else:
        expected = log.log_end_offset
    for _, header in found.batches:
        if header.base_offset < expected:
            raise CorruptMessage(
                f"what was fetched for {log.topic_partition} has offset {header.base_offset} where {expected} or more "
                "must follow"
            )
        expected = header.base_offset + header.last_offset_delta + 1
    return found.batches


def _count_for(active: Segment, log: Log, batches: Batches) -> int:
    """How many batches go to the active segment: the first one, and those after it that fit."""
    rules = log.rules
    room = batches[0][0] + min(rules.segment_bytes - active.size, active.indexable_bytes(rules))
    last_offset = active.base_offset + MAX_RELATIVE_OFFSET
    oldest = active.first_timestamp if active.size else batches[0][1].max_timestamp
    newest = oldest + rules.segment_ms if oldest >= 0 else 2**63
    for number in range(1, len(batches)):
        position, header = batches[number]
        if (
            position + header.batch_length + LOG_OVERHEAD > room
            or header.max_timestamp > newest
            or header.base_offset + header.last_offset_delta > last_offset
        ):
            return number
    return len(batches)


def _append_run(log: Log, active: Segment, records: memoryview, batches: Batches) -> None:
    """Write batches to the active segment, and note them in everything that is derived from the log."""
    start, (end, last) = batches[0][0], batches[-1]
    position = log.write(active, records[start : end + last.size])
    active.note_run(batches, position - start, log.rules.index_interval)
    if last.partition_leader_epoch > log.latest_epoch:
        for _, header in batches:
            log.begin_epoch(header.partition_leader_epoch, header.base_offset)
    of_producers = [batch for batch in batches if batch[1].producer_id >= 0]
    if of_producers:
        with log.reporting("write the transaction index of"):
            replay_piece(log.producers, Piece(of_producers, records, 0, len(records), None), active)
    log.log_end_offset = last.next_offset
