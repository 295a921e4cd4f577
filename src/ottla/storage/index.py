"""The two sparse indexes of a segment: offset → position, and timestamp → offset.

On disk as in Kafka (big endian, offsets relative to the base offset of the segment):

    .index      8 bytes per entry: offset (4), position (4)      the last offset of the batch at that position
    .timeindex 12 bytes per entry: timestamp (8), offset (4)     no record up to that offset is newer

New entries are kept in memory and written in blocks. Recovery rewrites what a crash loses, since it reads the whole
unflushed segment anyway. A look-up opens the file and closes it, so that idle partitions keep no index open. The blocks
that were read last stay in memory, since readers continue from where they were. Only the thread that owns the log
appends and looks up.
"""

from __future__ import annotations

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from typing import NamedTuple

from ottla.records import LOG_OVERHEAD, BatchHeader
from ottla.storage.files import OFFSET_INDEX, TIME_INDEX, file_name, write_all

#: Entries that are written and read together.
_BLOCK_ENTRIES = 512
#: Blocks in memory: the number of readers that may be at different places of a segment.
_KEPT_BLOCKS = 4


class DamagedIndex(Exception):
    """The index file is damaged and must be rebuilt from the log."""


class _Block(NamedTuple):
    """The raw entries of the file from number `first` up to `end`."""

    first: int
    end: int
    entries: bytes


class _Index:
    """Entries of a fixed size: the first `_stored` are in the file, the others in `_tail`."""

    __slots__ = ("_blocks", "_stored", "_tail", "base_offset", "directory", "found")

    suffix = ""
    entry = struct.Struct("")

    def __init__(self, directory: str, base_offset: int) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self._stored = 0
        self._tail = bytearray()
        self._blocks: list[_Block] = []
        self.found = 0
        """The number of entries in the file when it was opened."""

    def set_file_size(self, size: int) -> None:
        """Start with an existing file of this size."""
        self._stored = self.found = size // self.entry.size

    @property
    def path(self) -> str:
        return os.path.join(self.directory, file_name(self.base_offset, self.suffix))

    @property
    def count(self) -> int:
        return self._stored + len(self._tail) // self.entry.size

    @property
    def size(self) -> int:
        return self.count * self.entry.size

    def _add(self, first: int, second: int) -> None:
        self._tail += self.entry.pack(first, second)
        if len(self._tail) >= _BLOCK_ENTRIES * self.entry.size:
            self.write_out()

    def write_out(self) -> None:
        """Write all entries to the file."""
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            if self._tail:
                write_all(descriptor, self._tail, self._stored * self.entry.size)
                self._stored = self.count
                self._tail.clear()
            os.ftruncate(descriptor, self._stored * self.entry.size)
        finally:
            os.close(descriptor)

    def reset(self) -> None:
        """Remove all entries; the next `write_out` changes the file."""
        self._stored = 0
        self._blocks.clear()
        self._tail.clear()

    def replace(self, entries: bytes) -> None:
        """Replace all entries in the file and in memory."""
        self._stored = 0
        self._blocks.clear()
        self._tail = bytearray(entries)
        self.write_out()

    def added(self) -> bytes:
        """The entries that were added since the file was opened."""
        return self._read(self.found, self._stored - self.found) + bytes(self._tail)

    def get(self, number: int) -> tuple[int, int]:
        entry: tuple[int, int]
        if number >= self._stored:
            entry = self.entry.unpack_from(self._tail, (number - self._stored) * self.entry.size)
            return entry
        for block in self._blocks:
            if block.first <= number < block.end:
                entry = self.entry.unpack_from(block.entries, (number - block.first) * self.entry.size)
                return entry
        entry = self.entry.unpack(self._read(number, 1))
        return entry

    def _read(self, number: int, count: int) -> bytes:
        if not count:
            return b""
        size = self.entry.size
        with open(self.path, "rb", buffering=0) as file:
            data = os.pread(file.fileno(), count * size, number * size)
        if len(data) != count * size:
            raise DamagedIndex(f"{self.path} is shorter than expected")
        return data

    def _keep(self, count: int) -> None:
        """Drop all entries from number `count` on."""
        self.found = min(self.found, count)
        self._blocks.clear()
        if count < self._stored:
            self._stored = count
            self._tail.clear()
            self.write_out()
        else:
            del self._tail[(count - self._stored) * self.entry.size :]

    def _search(self, bisect: Callable[..., int], target: int, field: int) -> int:
        """`bisect` over one field of all entries: in memory if the result is there, else in the file."""
        if self._tail:
            number = self._bisect(bisect, self._tail, target, field)
            if number or not self._stored:
                return self._stored + number
        if not self._stored:
            return 0
        for block in self._blocks:
            number = block.first + self._bisect(bisect, block.entries, target, field)
            if block.first < number < block.end or (number == block.end == self._stored):
                return number
        block = self._load_block(target, field)
        others = [kept for kept in self._blocks if kept.first != block.first]  # It may be longer now.
        self._blocks = [block, *others[: _KEPT_BLOCKS - 1]]
        return block.first + self._bisect(bisect, block.entries, target, field)

    def _bisect(self, bisect: Callable[..., int], entries: bytes | bytearray, target: int, field: int) -> int:
        unpack, size = self.entry.unpack_from, self.entry.size
        return bisect(range(len(entries) // size), target, key=lambda number: unpack(entries, number * size)[field])

    def _load_block(self, target: int, field: int) -> _Block:
        """The block of the file in which `target` belongs."""
        unpack, size = self.entry.unpack, self.entry.size
        descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            number = bisect_right(
                range(0, self._stored, _BLOCK_ENTRIES),
                target,
                key=lambda n: unpack(os.pread(descriptor, size, n * size))[field],
            )
            first = max(0, number - 1) * _BLOCK_ENTRIES
            end = min(first + _BLOCK_ENTRIES, self._stored)
            entries = os.pread(descriptor, (end - first) * size, first * size)
        except struct.error:
            raise DamagedIndex(f"{self.path} is shorter than expected") from None
        finally:
            os.close(descriptor)
        if len(entries) != (end - first) * size:
            raise DamagedIndex(f"{self.path} is shorter than expected")
        return _Block(first, end, entries)


class OffsetIndex(_Index):
    """The position in the log file at which to start a search for an offset."""

    __slots__ = ()

    suffix = OFFSET_INDEX
    entry = struct.Struct(">ii")

    def append(self, last_offset: int, position: int) -> None:
        self._add(last_offset - self.base_offset, position)

    def lookup(self, offset: int) -> int:
        """The position of a batch at or before the one that holds `offset`."""
        number = self._search(bisect_right, offset - self.base_offset, 0)
        return self.get(number - 1)[1] if number else 0

    def last_position_up_to(self, position: int) -> int:
        """The largest indexed position that is not after `position`; 0 if there is none."""
        number = self._search(bisect_right, position, 1)
        return self.get(number - 1)[1] if number else 0

    def check(self, log_size: int) -> None:
        """Raise DamagedIndex if the last entry is impossible. This is cheap enough for every start."""
        if self.count:
            offset, position = self.get(self.count - 1)
            if not (offset >= 0 and 0 <= position < log_size) or (self.count > 1 and not position):
                raise DamagedIndex(f"the last entry of {self.path} is ({offset}, {position})")

    def truncate_to_position(self, position: int) -> None:
        """Keep the entries of batches before `position`."""
        self._keep(self._search(bisect_left, position, 1))

    @property
    def last_position(self) -> int:
        return self.get(self.count - 1)[1] if self.count else 0


class TimeIndex(_Index):
    """The offset at which to start a search for a timestamp."""

    __slots__ = ("last_timestamp",)

    suffix = TIME_INDEX
    entry = struct.Struct(">qi")

    def __init__(self, directory: str, base_offset: int) -> None:
        super().__init__(directory, base_offset)
        self.last_timestamp = -1

    def maybe_append(self, timestamp: int, offset: int) -> None:
        """Add an entry if its timestamp is newer than the last one."""
        if timestamp > self.last_timestamp:
            self._add(timestamp, offset - self.base_offset)
            self.last_timestamp = timestamp

    def load(self) -> tuple[int, int]:
        """(timestamp, offset) of the last entry, (-1, base offset) if there is none. Call it after opening."""
        if not self.count:
            self.last_timestamp = -1
            return -1, self.base_offset
        timestamp, offset = self.get(self.count - 1)
        self.last_timestamp = timestamp
        return timestamp, self.base_offset + offset

    def reset(self) -> None:
        super().reset()
        self.last_timestamp = -1

    def lookup(self, timestamp: int) -> int:
        """An offset before whose batch all records are older than `timestamp`."""
        number = self._search(bisect_right, timestamp, 0)
        return self.base_offset + (self.get(number - 1)[1] if number else 0)

    def check(self) -> None:
        """Raise DamagedIndex if the last entry is impossible. This is cheap enough for every start."""
        if self.count:
            timestamp, offset = self.get(self.count - 1)
            if timestamp < 0 or offset < 0 or (self.count > 1 and not timestamp):
                raise DamagedIndex(f"the last entry of {self.path} is ({timestamp}, {offset})")

    def truncate_to_offset(self, offset: int) -> None:
        """Keep the entries of offsets before `offset`."""
        self._keep(self._search(bisect_left, offset - self.base_offset, 1))
        self.load()


class IndexBuilder:
    """Builds both indexes from the batches of a segment, in order."""

    __slots__ = ("_base_offset", "_interval", "_max", "_offsets", "_since_entry", "_times")

    def __init__(self, base_offset: int, interval: int = 4096) -> None:
        self._base_offset = base_offset
        self._interval = interval
        self._since_entry = 0
        self._max = (-1, base_offset)
        self._offsets: list[bytes] = []
        self._times: list[tuple[int, int]] = []

    def add(self, position: int, header: BatchHeader) -> None:
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp > self._max[0]:
            self._max = (header.max_timestamp, last_offset)
        if self._since_entry > self._interval:
            self._offsets.append(OffsetIndex.entry.pack(last_offset - self._base_offset, position))
            self._add_time()
            self._since_entry = 0
        self._since_entry += header.batch_length + LOG_OVERHEAD

    def _add_time(self) -> None:
        if self._max[0] > (self._times[-1][0] if self._times else -1):
            self._times.append(self._max)

    def finish(self) -> tuple[bytes, bytes]:
        """The bytes of the offset index and of the time index, whose last entry is the newest timestamp."""
        self._add_time()
        times = (TimeIndex.entry.pack(time, offset - self._base_offset) for time, offset in self._times)
        return b"".join(self._offsets), b"".join(times)

    @property
    def max_timestamp(self) -> tuple[int, int]:
        """The newest timestamp, and the last offset of the batch that has it."""
        return self._max

    @property
    def bytes_since_entry(self) -> int:
        return self._since_entry
