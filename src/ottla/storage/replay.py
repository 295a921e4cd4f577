"""Restore the producer state of a log from its snapshots and batches."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence

from ottla.records import CONTROL, TRANSACTIONAL, BatchHeader, CorruptBatch
from ottla.storage.files import remove_files
from ottla.storage.producers import CACHED_BATCHES, BatchRecord, CompletedTransaction, ProducerEntry, ProducerState
from ottla.storage.scanning import Piece, walk
from ottla.storage.segment import Segment
from ottla.storage.segments import Segments
from ottla.storage.snapshots import DamagedSnapshot, read_snapshot, snapshot_path
from ottla.storage.transactions import AbortedTransaction, read_marker

_LOGGER = logging.getLogger(__name__)
_RECALL_BYTES = 8 * 1024 * 1024


def load_producers(
    producers: ProducerState,
    directory: str,
    snapshots: Sequence[int],
    segments: Sequence[Segment],
    end_offset: int,
) -> None:
    """Load the producers at `end_offset`: from the newest snapshot before it and the batches after that."""
    start = segments[0].base_offset if segments else end_offset
    producers.load([])
    for offset in sorted((o for o in snapshots if o <= end_offset), reverse=True):
        path = snapshot_path(directory, offset)
        try:
            producers.load(read_snapshot(path))
        except FileNotFoundError:
            continue
        except DamagedSnapshot as error:
            _LOGGER.warning("%s; reading the producers from the log", error)
            remove_files([path])
            continue
        start = offset
        break
    replay_segments(producers, segments, start, end_offset)


def replay_segments(producers: ProducerState, segments: Sequence[Segment], start: int, end_offset: int) -> None:
    """Add the batches with offsets from `start` up to `end_offset` to the producer state."""
    if start >= end_offset:
        return
    for number, segment in enumerate(segments):
        segment_end = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
        if segment_end <= start or segment.base_offset >= end_offset:
            continue
        for piece in walk(segment.open().fd, 0, segment.size, check_crc=False):
            wanted = [
                (position, header)
                for position, header in piece.batches
                if header.producer_id >= 0 and start <= header.base_offset < end_offset
            ]
            replay_piece(producers, piece._replace(batches=wanted), None)


def replay_piece(producers: ProducerState, piece: Piece, segment: Segment | None) -> None:
    """Add batches that have a producer to the state, and aborted transactions to the index of `segment` if given."""
    if any(header.attributes & (TRANSACTIONAL | CONTROL) for _, header in piece.batches):
        for position, header in piece.batches:
            if header.is_control:
                _replay_marker(producers, piece, position, header, segment)
            else:
                producers.update(header, header.base_offset, header.last_offset, header.max_timestamp)
        return
    # Without transactions only the last batches of a producer matter.
    last: dict[int, deque[BatchHeader]] = {}
    for _, header in piece.batches:
        recent = last.get(header.producer_id)
        if recent is None:
            recent = last[header.producer_id] = deque(maxlen=CACHED_BATCHES)
        recent.append(header)
    for recent in last.values():
        for header in recent:
            producers.update(header, header.base_offset, header.last_offset, header.max_timestamp)


def _replay_marker(
    producers: ProducerState, piece: Piece, position: int, header: BatchHeader, segment: Segment | None
) -> None:
    try:
        marker = read_marker(piece.buffer, position - piece.start, header)
    except CorruptBatch as error:
        _LOGGER.warning("cannot read a control batch of %s: %s", producers.topic_partition, error.reason)
        return
    completed = None if marker is None else producers.complete(header, marker, header.base_offset)
    if completed is not None and completed.aborted and segment is not None:
        segment.add_aborted(aborted_entry(completed, producers))


def aborted_entry(completed: CompletedTransaction, producers: ProducerState) -> AbortedTransaction:
    """The index entry of an aborted transaction whose marker was just added to the state."""
    undecided = producers.first_undecided_offset()
    stable = completed.last_offset + 1 if undecided is None else undecided
    return AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)


def recall_batches(entry: ProducerEntry, segments: Segments) -> None:
    """Find the batches before the last one of a producer whose state comes from a snapshot.

    A snapshot holds only the last batch of a producer, but up to five may be sent again after a restart.
    """
    entry.complete = True
    if not entry.batches:
        return
    first_offset = entry.batches[0].first_offset
    budget = _RECALL_BYTES
    before: list[BatchRecord] = []
    for number in range(segments.number_for(first_offset), -1, -1):
        segment = segments[number]
        start = segment.offset_index.last_position_up_to(max(0, segment.size - budget))
        before = [*_batches_before(entry, segment, start, first_offset), *before]
        budget -= segment.size - start
        if len(before) >= CACHED_BATCHES - 1 or budget <= 0:
            break
    entry.batches = deque([*before, *entry.batches], maxlen=CACHED_BATCHES)


def _batches_before(entry: ProducerEntry, segment: Segment, start: int, offset: int) -> list[BatchRecord]:
    return [
        BatchRecord(
            header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, header.max_timestamp
        )
        for piece in walk(segment.open().fd, start, segment.size)
        for _, header in piece.batches
        if header.base_offset < offset
        and header.producer_id == entry.producer_id
        and header.producer_epoch == entry.producer_epoch
        and not header.is_control
    ]
