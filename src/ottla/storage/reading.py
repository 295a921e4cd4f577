"""Read from a log: slices of segment files for fetches, and look-ups by timestamp.

A read returns the place of the bytes, not the bytes. Slices end at a batch boundary from the offset index, and the log
remembers the offset that follows: a consumer that reads sequentially needs neither a look-up nor a scan.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import OffsetOutOfRange
from ottla.records import BATCH_OVERHEAD, find_timestamp, read_header
from ottla.storage.open_files import OpenFile
from ottla.storage.scanning import header_at, walk
from ottla.storage.segment import Segment
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.storage.log import Log

_PLACES = 64
_HEADERS = 4096 + BATCH_OVERHEAD


class Slice(NamedTuple):
    """Whole batches in a segment file; the first one holds `first_offset` or starts after it."""

    file: OpenFile
    position: int
    length: int
    first_offset: int

    def read(self) -> bytes:
        return os.pread(self.file.fd, self.length, self.position)

    def following_offset(self) -> int | None:
        """The offset of the next batch, if it is in the same file."""
        header = header_at(self.file.fd, self.position + self.length)
        return header.base_offset if header is not None and header.base_offset > self.first_offset else None


class OffsetAndTimestamp(NamedTuple):
    """A record that was found by its timestamp."""

    offset: int
    timestamp: Millis
    leader_epoch: int


class Places:
    """The positions of some offsets: the ends of recent slices."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[Segment, int]] = {}

    def get(self, offset: int) -> tuple[Segment, int] | None:
        return self._known.get(offset)

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        known = self._known
        if offset not in known and len(known) >= _PLACES:
            del known[next(iter(known))]
        known[offset] = (segment, position)

    def forget(self) -> None:
        self._known.clear()


def read(log: Log, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> Slice:
    """The batches from `offset` on, below `end_offset`, within `max_bytes`."""
    log_end_offset = log.log_end_offset
    if offset > log_end_offset or offset < log.log_start_offset:
        raise OffsetOutOfRange(
            f"offset {offset} of {log.topic_partition} is not between its log start offset {log.log_start_offset} and "
            f"its log end offset {log_end_offset}"
        )
    place = log.places.get(offset) if offset < end_offset else None
    if place is None:
        place = _locate(log, offset) if offset < min(end_offset, log_end_offset) else None
        if place is None:
            return Slice(log.segments.active.open(), log.segments.active.size, 0, offset)
    segment, position = place
    file = segment.open()
    limit = segment.size
    if end_offset < log_end_offset:
        limit = _position_of_end(log, segment, position, end_offset)
    verification = segment.verification
    if verification is not None and position < limit:
        verification.prepare(segment)
        limit = verification.limit(segment, position, limit)
    if limit - position > max_bytes:
        limit = _cut(log, segment, position, max_bytes, min_one_batch)
    elif limit == segment.size:
        _remember_end(log, segment, limit)
    return Slice(file, position, max(0, limit - position), offset)


def _locate(log: Log, offset: int) -> tuple[Segment, int] | None:
    """The segment and position of the batch that holds `offset`, or of the first one after it."""
    for number in range(log.segments.number_for(offset), len(log.segments)):
        segment = log.segments[number]
        found = segment.find(offset)
        if found is not None:
            log.places.remember(offset, segment, found.position)
            return segment, found.position
    return None


def _position_of_end(log: Log, segment: Segment, position: int, end_offset: int) -> int:
    """The position in `segment` at which the batches below `end_offset` end."""
    if log.segments.end_of(segment, log.log_end_offset) <= end_offset:
        return segment.size
    known = log.places.get(end_offset)
    if known is not None and known[0] is segment:
        return known[1]
    found = segment.find_from(position, end_offset)
    limit = found.position if found is not None else segment.size
    log.places.remember(end_offset, segment, limit)
    return limit


def _remember_end(log: Log, segment: Segment, position: int) -> None:
    if segment is log.segments.active:
        log.places.remember(log.log_end_offset, segment, position)
        return
    following = log.segments.after(segment)
    if following is not None and following.size:
        log.places.remember(following.base_offset, following, 0)


def _cut(log: Log, segment: Segment, position: int, max_bytes: int, min_one_batch: bool) -> int:
    """The end of a slice that is limited by `max_bytes`: the last known boundary that fits."""
    boundary = segment.boundary(position, position + max_bytes)
    if boundary:
        header = header_at(segment.open().fd, boundary)
        if header is not None:
            log.places.remember(header.base_offset, segment, boundary)
        return boundary
    data = os.pread(segment.open().fd, min(_HEADERS, segment.size - position), position)
    end = position
    while end - position + BATCH_OVERHEAD <= len(data):
        size = read_header(data, end - position).size
        if end + size - position > max_bytes:
            return end if end > position or not min_one_batch else position + size
        end += size
    return end


def offset_for_timestamp(log: Log, timestamp: Millis, end_offset: int) -> OffsetAndTimestamp | None:
    """The first record that is not older than `timestamp`, if it is below `end_offset`."""
    for segment in list(log.segments):
        if segment.max_timestamp < timestamp or not segment.size:
            continue
        if segment.verification is not None:
            segment.verification.prepare(segment)
        start = max(segment.time_index.lookup(timestamp), log.log_start_offset)
        found = segment.find(start)
        result = _search(log, segment, found.position, timestamp) if found is not None else None
        if result is not None:
            return result if result.offset < end_offset else None
    return None


def max_timestamp_offset(log: Log) -> OffsetAndTimestamp | None:
    """The first record that has the newest timestamp of the log."""
    newest = max(log.segments, key=lambda segment: segment.max_timestamp)
    if newest.max_timestamp < 0 or not newest.size:
        return None
    if newest.max_timestamp_offset < log.log_start_offset:
        return _newest_from_start(log)
    found = newest.find(max(newest.max_timestamp_offset, log.log_start_offset))
    return _search(log, newest, found.position, newest.max_timestamp) if found is not None else None


def _newest_from_start(log: Log) -> OffsetAndTimestamp | None:
    """The same, if the newest record is before the log start offset: this has to read one segment."""
    first = log.segments[log.segments.number_for(log.log_start_offset)]
    found = first.find(log.log_start_offset)
    timestamps = [segment.max_timestamp for segment in log.segments if segment.base_offset > first.base_offset]
    if found is not None:
        for piece in walk(first.open().fd, found.position, first.size, check_crc=False):
            timestamps += [header.max_timestamp for _, header in piece.batches]
    for timestamp in sorted(set(timestamps), reverse=True):
        result = offset_for_timestamp(log, timestamp, log.log_end_offset) if timestamp >= 0 else None
        if result is not None:
            return result
    return None


def _search(log: Log, segment: Segment, position: int, timestamp: Millis) -> OffsetAndTimestamp | None:
    """Search the batches from `position` on."""
    while position < segment.size:
        limit = segment.size
        if segment.verification is not None:
            limit = segment.verification.limit(segment, position, limit)
        for piece in walk(segment.open().fd, position, limit, check_crc=False, window=65536):
            for at, header in piece.batches:
                if header.max_timestamp < timestamp or header.last_offset < log.log_start_offset:
                    continue
                found = find_timestamp(piece.buffer, at - piece.start, timestamp, min_offset=log.log_start_offset)
                if found is not None:
                    return OffsetAndTimestamp(*found, header.partition_leader_epoch)
            position = piece.end
            if piece.problem is not None:
                return None
    return None
