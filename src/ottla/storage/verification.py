"""Check the bytes that were on disk at start before they are served, and isolate damaged ranges.

After a clean shutdown no log is read, so the disk may have changed what was written. `Verification` knows which ranges
of a segment were checked, and which of them are damaged. A look-up in an unchecked range raises `SegmentUnverified`;
the caller runs `verify()` of the segment in a thread and repeats the look-up. Reading a damaged range raises an error
that names it; the data before and after it is served.

This also finds damaged indexes: each entry must point to a batch. Otherwise the segment is read from its start, and the
log's thread installs the rebuilt indexes at the next look-up, in `prepare`.
"""

from __future__ import annotations

import logging
import sys
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from ottla.errors import CorruptMessage
from ottla.storage.index import IndexBuilder, OffsetIndex
from ottla.storage.open_files import OpenFile
from ottla.storage.scanning import OffsetOrder, Piece, header_at, valid_batch_at, walk

if TYPE_CHECKING:
    from ottla.storage.segment import Segment

_LOGGER = logging.getLogger(__name__)
_RANGE = 4 * 1024 * 1024


class Damage(NamedTuple):
    """A damaged range of a log file."""

    start: int
    end: int
    first_offset: int
    next_offset: int
    """The first offset after the damage."""
    reason: str


class SegmentUnverified(Exception):
    """A look-up needs bytes that were not checked yet: call `segment.verify` in a thread, then repeat the look-up."""

    def __init__(self, segment: Segment, position: int) -> None:
        super().__init__(f"{segment.path} has not been checked at position {position}")
        self.segment = segment


class Verification:
    """The state of the first `end` bytes of a segment; the offset after them is `next_offset`."""

    __slots__ = (
        "_entries",
        "_expected",
        "_lock",
        "_ranges",
        "_rebuilt",
        "_wanted",
        "damages",
        "end",
        "next_offset",
    )

    def __init__(self, end: int, next_offset: int) -> None:
        self.end = end
        self.next_offset = next_offset
        self.damages: list[Damage] = []
        self._ranges: tuple[list[int], list[int]] = ([], [])
        """Starts and ends of the checked ranges. Threads write it, so it is only replaced as a whole."""
        self._expected: dict[int, int] = {}
        """The offset expected at the end of each checked range."""
        self._entries: IndexEntries | None = None
        self._rebuilt: tuple[bytes, bytes] | None = None
        self._wanted: dict[int, OpenFile] = {}
        self._lock = threading.Lock()

    @classmethod
    def with_damage(cls, damages: list[Damage]) -> Verification:
        """The state of a segment that was just read completely and has this damage."""
        verification = cls(damages[-1].end, damages[-1].next_offset)
        verification.damages = damages
        verification._add_range(0, verification.end)
        return verification

    def checked_until(self, position: int) -> int:
        """The end of the checked range around `position`; `position` if it is unchecked."""
        starts, stops = self._ranges
        number = bisect_right(starts, position)
        return max(position, stops[number - 1]) if number else position

    def cut(self, position: int, next_offset: int) -> None:
        """The segment was truncated."""
        if position < self.end:
            self.end, self.next_offset = position, next_offset
            self.damages = [damage for damage in self.damages if damage.end <= position]

    def prepare(self, segment: Segment) -> None:
        """Before a look-up: install rebuilt indexes, and drop the verification when everything is checked."""
        if self._rebuilt is not None:
            self._install_indexes(segment)
        if not self.damages and self._ranges == ([0], [self.end]):
            segment.verification = None

    def pass_damage(self, segment: Segment, position: int, offset: int) -> int:
        """Where a search for `offset` continues: at `position`, or after damage that does not hold the offset."""
        if position >= self.end:
            return position
        for damage in self.damages:
            if damage.start <= position < damage.end:
                if offset < damage.next_offset:
                    raise damaged(segment, damage)
                return damage.end
        if self.checked_until(position) == position:
            self._wanted[position] = segment.open()
            raise SegmentUnverified(segment, position)
        return position

    def limit(self, segment: Segment, position: int, end: int) -> int:
        """The limit of a read from `position`, at most `end`. Raises the same errors as `pass_damage`."""
        if position >= self.end:
            return end
        self.pass_damage(segment, position, -1)
        checked = self.checked_until(position)
        stop = end if checked >= self.end else min(end, checked)
        return min([stop, *(damage.start for damage in self.damages if damage.start > position)])

    def verify_wanted(self, segment: Segment) -> None:
        """Check the ranges that look-ups need. Any thread may call this; calls run one at a time."""
        with self._lock:
            while self._wanted:
                position, file = self._wanted.popitem()
                if self.checked_until(position) == position < self.end:
                    self._verify(segment, file, position)

    def _verify(self, segment: Segment, file: OpenFile, position: int) -> None:
        """Check a few megabytes from `position` on, or the whole file if the expected offset there is unknown."""
        check = self._new_check(segment, file)
        expected = self._expected_at(segment, check, position)
        if expected is not None:
            check.run(position, expected, min(self.end, position + _RANGE))
        if expected is None or check.index_is_wrong:
            check, position = self._new_check(segment, file), 0
            check.run(0, segment.base_offset, self.end)
        self._record(segment, position, check)

    def _expected_at(self, segment: Segment, check: _Check, position: int) -> int | None:
        """The offset of the batch at `position`, if the index or an earlier check confirms it."""
        if not position:
            return segment.base_offset
        if position in self._expected:
            return self._expected[position]
        header = valid_batch_at(check.fd, position, self.end)
        if header is not None and check.entries.offset_at(position) == header.last_offset:
            return header.base_offset
        return None

    def rebuild(self, segment: Segment) -> None:
        """Check the whole segment and rebuild its indexes."""
        check = self._new_check(segment, segment.open())
        check.run(0, segment.base_offset, self.end)
        check.index_is_wrong = True
        self._record(segment, 0, check)
        self._install_indexes(segment)

    def damage_at(self, segment: Segment, position: int, offset: int, reason: str) -> Damage | None:
        """The damage that starts at `position` with `offset`; None if no valid batch follows."""
        check = self._new_check(segment, segment.open())
        damage = check.damage(position, offset, reason)
        return damage if damage.end < self.end else None

    def _new_check(self, segment: Segment, file: OpenFile) -> _Check:
        if self._entries is None:
            self._entries = IndexEntries(segment.offset_index, self.end)
        return _Check(file.fd, segment.base_offset, self.end, self.next_offset, self._entries)

    def _record(self, segment: Segment, start: int, check: _Check) -> None:
        known = {damage.start for damage in self.damages}
        fresh = [damage for damage in check.damages if damage.start not in known]
        self.damages = sorted([*self.damages, *fresh])
        if check.index_is_wrong:
            self._rebuilt = check.indexes()
        self._expected[check.position] = check.expected
        self._add_range(start, check.position)
        for damage in fresh:
            _LOGGER.error(
                "%s is damaged at position %d to %d: %s. Offsets %d to %d are lost; restore the file from a backup, or "
                "let consumers continue at offset %d",
                segment.path, damage.start, damage.end, damage.reason, damage.first_offset, damage.next_offset - 1,
                damage.next_offset,
            )  # fmt: skip

    def _add_range(self, start: int, stop: int) -> None:
        ranges = sorted([*zip(*self._ranges, strict=True), (start, stop)])
        starts: list[int] = []
        stops: list[int] = []
        for low, high in ranges:
            if stops and low <= stops[-1]:
                stops[-1] = max(stops[-1], high)
            else:
                starts.append(low)
                stops.append(high)
        self._ranges = (starts, stops)

    def _install_indexes(self, segment: Segment) -> None:
        """Replace the index entries of the checked bytes; entries that were appended since then stay."""
        assert self._rebuilt is not None
        offsets, times = self._rebuilt
        self._rebuilt = None
        self._entries = None
        segment.offset_index.replace(offsets + segment.offset_index.added())
        segment.time_index.replace(times + segment.time_index.added())
        timestamp, offset = segment.time_index.load()
        if timestamp > segment.max_timestamp:
            segment.max_timestamp, segment.max_timestamp_offset = timestamp, offset
        _LOGGER.warning("the indexes of %s were damaged and have been rebuilt", segment.path)


def damaged(segment: Segment, damage: Damage) -> CorruptMessage:
    return CorruptMessage(
        f"{segment.path} is damaged at position {damage.start} to {damage.end} ({damage.reason}); offsets "
        f"{damage.first_offset} to {damage.next_offset - 1} cannot be read, the next readable offset is "
        f"{damage.next_offset}"
    )


class IndexEntries:
    """The offset index of a segment as it is on disk, possibly damaged."""

    __slots__ = ("_offsets", "is_sorted", "positions")

    def __init__(self, index: OffsetIndex, end: int) -> None:
        numbers = array("i")
        try:
            with open(index.path, "rb") as file:
                data = file.read(index.found * index.entry.size)
            numbers.frombytes(data[: len(data) - len(data) % index.entry.size])
        except FileNotFoundError:
            _LOGGER.warning("%s is missing", index.path)
        if sys.byteorder == "little":
            numbers.byteswap()
        self._offsets = [index.base_offset + offset for offset in numbers[0::2]]
        self.positions = numbers[1::2].tolist()
        pairs = zip(self.positions, self.positions[1:], strict=False)
        self.is_sorted = all(low < high for low, high in pairs) and all(0 <= p < end for p in self.positions[-1:])

    def offset_at(self, position: int) -> int | None:
        """The last offset of the batch at `position`, according to the index."""
        number = bisect_left(self.positions, position)
        found = number < len(self.positions) and self.positions[number] == position
        return self._offsets[number] if found else None


class _Check:
    """A check of a range of a file: the damage in it, whether the index is right, and the rebuilt index."""

    def __init__(self, fd: int, base_offset: int, end: int, next_offset: int, entries: IndexEntries) -> None:
        self.damages: list[Damage] = []
        self.index_is_wrong = not entries.is_sorted
        self.position = 0
        self.expected = base_offset
        self.fd = fd
        self.entries = entries
        self._base_offset = base_offset
        self._end = end
        self._next_offset = next_offset
        self._builder = IndexBuilder(base_offset)

    def run(self, position: int, expected: int, until: int) -> None:
        """Check from `position`, where offset `expected` should be, at least to `until`."""
        order = OffsetOrder(self._base_offset, expected, self._next_offset)
        self.position = position
        while self.position < until:
            for piece in walk(self.fd, self.position, self._end, order=order):
                self._take(piece)
                self.position = piece.end
                if piece.problem is not None:
                    damage = self.damage(self.position, order.expected, piece.problem)
                    self.damages.append(damage)
                    self.position, order.expected = damage.end, damage.next_offset
                    break
                if self.position >= until:
                    break
        self.expected = order.expected

    def _take(self, piece: Piece) -> None:
        """Compare the batches with the index: each entry must be the position of a batch."""
        positions = self.entries.positions
        number = bisect_left(positions, piece.start)
        following = positions[number] if number < len(positions) else self._end
        for position, header in piece.batches:
            self._builder.add(position, header)
            if position < following:
                continue
            # A larger offset only makes a look-up start earlier; logs written by Kafka may have such entries.
            entry = self.entries.offset_at(position)
            self.index_is_wrong |= entry is None or entry < header.last_offset
            number += 1
            following = positions[number] if number < len(positions) else self._end
        self.index_is_wrong |= following < piece.end

    def damage(self, start: int, offset: int, reason: str) -> Damage:
        """The damage from `start`, where `offset` should be, to the next valid batch or to the end."""
        for candidate in self._candidates(start):
            header = valid_batch_at(self.fd, candidate, self._end)
            if header is not None and header.base_offset >= offset:
                return Damage(start, candidate, offset, header.base_offset, reason)
        return Damage(start, self._end, offset, self._next_offset, reason)

    def _candidates(self, position: int) -> Iterator[int]:
        """Possible positions of the next batch: after the damaged one if its length is right, else from the index."""
        header = header_at(self.fd, position)
        if header is not None and header.batch_length > 0:
            yield position + header.size
        yield from (entry for entry in self.entries.positions if entry > position)

    def indexes(self) -> tuple[bytes, bytes]:
        return self._builder.finish()
