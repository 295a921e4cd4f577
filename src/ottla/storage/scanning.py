"""Read the batches of a log file in order, in pieces of bounded size.

Recovery, verification, index rebuilding and look-ups by header all use `walk`. It yields one piece at a time, since a
segment may hold millions of batches. The last piece says why it stopped.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ottla.records import BATCH_OVERHEAD, BatchHeader, CorruptBatch, check_batch, read_header, scan

WINDOW = 1024 * 1024
MAX_RELATIVE_OFFSET = 2**31 - 1


class Piece(NamedTuple):
    """Consecutive valid batches. Positions are in the file; `buffer` starts at `start`."""

    batches: Sequence[tuple[int, BatchHeader]]
    buffer: memoryview
    start: int
    end: int
    """The first byte after the last valid batch."""
    problem: str | None
    """Why there is no valid batch at `end`; None without a problem."""


class OffsetOrder:
    """Checks that offsets grow from batch to batch. The CRC does not cover offsets, so this is their only check."""

    __slots__ = ("_limit", "expected")

    def __init__(self, base_offset: int, expected: int, end_offset: int | None = None) -> None:
        self.expected = expected
        """The smallest offset that the next batch may have."""
        self._limit = base_offset + MAX_RELATIVE_OFFSET
        if end_offset is not None:
            self._limit = min(self._limit, end_offset - 1)

    def check(self, batches: Sequence[tuple[int, BatchHeader]], fd: int) -> tuple[int, str | None]:
        """The number of consecutive `batches` that are in order, and what is wrong with the next one."""
        for number, (position, header) in enumerate(batches):
            offset = header.base_offset
            if offset != self.expected:
                problem = self._problem(offset, header, batches, number, position, fd)
                if problem is not None:
                    return number, problem
            self.expected = offset + header.last_offset_delta + 1
        return len(batches), None

    def _problem(
        self,
        offset: int,
        header: BatchHeader,
        batches: Sequence[tuple[int, BatchHeader]],
        number: int,
        position: int,
        fd: int,
    ) -> str | None:
        if offset < self.expected:
            return f"offset {offset} comes after offset {self.expected - 1}"
        if header.last_offset > self._limit:
            return f"offset {header.last_offset} is too large for the segment"
        # Compaction leaves gaps. But if the next batch's offset is in the gap, the offset here is wrong.
        following = batches[number + 1][1] if number + 1 < len(batches) else header_at(fd, position + header.size)
        if following is not None and self.expected <= following.base_offset < header.next_offset:
            return f"offset {offset} is followed by offset {following.base_offset}"
        return None


def walk(
    fd: int,
    position: int,
    end: int,
    *,
    check_crc: bool = True,
    order: OffsetOrder | None = None,
    window: int = WINDOW,
) -> Iterator[Piece]:
    """The batches from `position` up to `end`. In an undamaged file both are boundaries of batches."""
    buffer = bytearray(min(window, max(0, end - position)))
    while position < end:
        wanted = min(len(buffer), end - position)
        view = memoryview(buffer)[:wanted]
        there = read_fully(fd, view, position)
        found = scan(view, 0, there, check_crc=check_crc)
        problem = found.problem
        if problem is None and found.end < there and not found.batches and there < end - position:
            larger = _size_needed(view, there, end - position)
            if larger:
                buffer = bytearray(larger)
                continue
        at_end = position + there >= end or there < wanted
        if problem is None and found.end < there and (at_end or not found.batches):
            problem = f"the file ends inside a batch, of which it has {there - found.end} bytes"
        elif problem is None and there < wanted:
            problem = f"the file ends too early, at position {position + there}"
        batches = [(position + at, header) for at, header in found.batches] if position else found.batches
        piece = Piece(batches, view, position, position + found.end, problem)
        if order is not None:
            piece = _in_order(piece, order, fd)
        yield piece
        if piece.problem is not None:
            return
        position = piece.end


def _in_order(piece: Piece, order: OffsetOrder, fd: int) -> Piece:
    """The piece up to the first batch whose offset is wrong."""
    count, problem = order.check(piece.batches, fd)
    if problem is None:
        return piece
    return piece._replace(batches=piece.batches[:count], end=piece.batches[count][0], problem=problem)


def _size_needed(view: memoryview, there: int, left: int) -> int:
    """The window size that the batch at its start needs; 0 if the file is too short for that batch."""
    if there < BATCH_OVERHEAD:
        return 0
    size = read_header(view).size
    return size if size <= left else 0


def read_fully(fd: int, view: memoryview, position: int) -> int:
    """Fill `view` from the file and return the number of bytes read."""
    done = os.preadv(fd, [view], position)
    while done < len(view):
        more = os.preadv(fd, [view[done:]], position + done)
        if not more:
            break
        done += more
    return done


def header_at(fd: int, position: int) -> BatchHeader | None:
    """The unchecked header at `position`; None if the file is too short."""
    data = os.pread(fd, BATCH_OVERHEAD, position)
    return read_header(data) if len(data) == BATCH_OVERHEAD else None


def valid_batch_at(fd: int, position: int, end: int) -> BatchHeader | None:
    """The header of the batch at `position` if it is complete, ends by `end` and has the right CRC."""
    header = header_at(fd, position) if position + BATCH_OVERHEAD <= end else None
    if header is None or header.batch_length < 0 or position + header.size > end:
        return None
    data = os.pread(fd, header.size, position)
    try:
        check_batch(data, 0, header)
    except CorruptBatch:
        return None
    return header
