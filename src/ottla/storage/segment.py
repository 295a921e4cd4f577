"""One segment of a log: its files, and the position of an offset in it.

A segment does not know its log. Bytes of the file after `size` are ignored. Bytes that were there at start are served
only after their CRCs were checked (see verification.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import NamedTuple

from ottla.errors import KafkaStorageError
from ottla.records import BATCH_OVERHEAD, LOG_OVERHEAD, BatchHeader, read_header
from ottla.storage.files import (
    LOG,
    OFFSET_INDEX,
    SEGMENT_SUFFIXES,
    TIME_INDEX,
    file_name,
    remove_files,
    touch,
    write_all,
)
from ottla.storage.index import OffsetIndex, TimeIndex
from ottla.storage.open_files import FileCache, OpenFile
from ottla.storage.scanning import header_at, walk
from ottla.storage.transactions import (
    AbortedTransaction,
    append_aborted,
    read_aborted,
    replace_aborted,
    transaction_index_path,
)
from ottla.storage.validation import AppendRules
from ottla.storage.verification import Verification
from ottla.types import Millis

_LOOKUP_BYTES = 8192
_TAIL_WINDOW = 16384


class Found(NamedTuple):
    """A batch in a segment."""

    position: int
    header: BatchHeader


class Segment:
    """The files with the offsets from `base_offset` on."""

    __slots__ = (
        "_aborted",
        "_cache",
        "_first_timestamp",
        "_has_new_aborted",
        "base_offset",
        "bytes_since_index_entry",
        "created",
        "directory",
        "file",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "size",
        "time_index",
        "verification",
    )

    def __init__(self, directory: str, base_offset: int, cache: FileCache, *, created: Millis, size: int = 0) -> None:
        self.directory = directory
        self.base_offset = base_offset
        self.size = size
        self.created = created
        self.file: OpenFile | None = None
        self.offset_index = OffsetIndex(directory, base_offset)
        self.time_index = TimeIndex(directory, base_offset)
        self.max_timestamp: Millis = -1
        self.max_timestamp_offset = base_offset
        self.bytes_since_index_entry = 0
        self.verification: Verification | None = None
        self._first_timestamp: Millis | None = None
        self._aborted: list[AbortedTransaction] | None = None
        self._has_new_aborted = False
        self._cache = cache

    @classmethod
    def create(cls, directory: str, base_offset: int, cache: FileCache, *, created: Millis) -> Segment:
        """Create an empty segment and its files; an existing log file is emptied."""
        segment = cls(directory, base_offset, cache, created=created)
        segment.file = OpenFile(segment.path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
        cache.admit(segment)
        for suffix in (OFFSET_INDEX, TIME_INDEX):
            touch(os.path.join(directory, file_name(base_offset, suffix)))
        return segment

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, size={self.size})"

    @property
    def path(self) -> str:
        return os.path.join(self.directory, file_name(self.base_offset, LOG))

    @property
    def paths(self) -> list[str]:
        """All files that the segment may have."""
        return [os.path.join(self.directory, file_name(self.base_offset, s)) for s in SEGMENT_SUFFIXES]

    @property
    def first_timestamp(self) -> Millis:
        """The max timestamp of the first batch, -1 without one. Rolling by time counts from it."""
        if self._first_timestamp is None:
            header = header_at(self.open().fd, 0) if self.size else None
            if header is None:
                return -1
            self._first_timestamp = header.max_timestamp
        return self._first_timestamp

    @property
    def largest_timestamp(self) -> Millis:
        """The newest timestamp of a record, or the file's modification time if there is none."""
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return os.fstat(self.open().fd).st_mtime_ns // 1_000_000

    def open(self) -> OpenFile:
        """Return the log file, opened if necessary; it stays open while the result is referenced."""
        file = self.file
        if file is None:
            try:
                file = self.file = OpenFile(self.path)
            except OSError as error:
                raise KafkaStorageError(f"cannot open {self.path}: {error.strerror}") from error
            self._cache.admit(self)
        file.used = True
        return file

    def close_file(self) -> None:
        self._cache.forget(self)

    def write(self, data: memoryview) -> int:
        """Append bytes in one write and return their position. An error leaves the file unchanged."""
        file = self.open()
        position = self.size
        try:
            if self._cache.is_disk_full:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            write_all(file.fd, data, position)
        except OSError as error:
            self._cut_partial_write(file.fd, position)
            raise KafkaStorageError(f"cannot append to {self.path}: {error.strerror}") from error
        self.size = position + len(data)
        return position

    @staticmethod
    def _cut_partial_write(fd: int, position: int) -> None:
        """If this fails, the next append overwrites the rest, or recovery cuts it."""
        try:
            os.ftruncate(fd, position)
        except OSError:
            return

    def note(self, header: BatchHeader, last_offset: int, timestamp: Millis, position: int, interval: int) -> None:
        """Record a batch written at `position`: its timestamp and, every `interval` bytes, index entries."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.max_timestamp_offset = last_offset
        if not position:
            self._first_timestamp = timestamp
        if self.bytes_since_index_entry > interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
            self.bytes_since_index_entry = 0
        self.bytes_since_index_entry += header.size

    def note_run(self, batches: Sequence[tuple[int, BatchHeader]], shift: int, interval: int) -> None:
        """Like `note`, for batches that were written together at their positions plus `shift`."""
        newest, newest_offset, pending = self.max_timestamp, self.max_timestamp_offset, self.bytes_since_index_entry
        if not batches[0][0] + shift:
            self._first_timestamp = batches[0][1].max_timestamp
        for position, header in batches:
            if header.max_timestamp > newest:
                newest, newest_offset = header.max_timestamp, header.base_offset + header.last_offset_delta
            if pending > interval:
                self.offset_index.append(header.base_offset + header.last_offset_delta, position + shift)
                self.time_index.maybe_append(newest, newest_offset)
                pending = 0
            pending += header.batch_length + LOG_OVERHEAD
        self.max_timestamp, self.max_timestamp_offset, self.bytes_since_index_entry = newest, newest_offset, pending

    def indexable_bytes(self, rules: AppendRules) -> int:
        """For how many bytes of batches the indexes have room; 0 if they are full."""
        limit = rules.max_index_size
        entries = min((limit - index.size) // index.entry.size for index in (self.offset_index, self.time_index))
        return max(0, entries) * max(1, rules.index_interval)

    def write_indexes(self) -> None:
        """Write the index files. The time index of a closed segment always has the newest timestamp."""
        if self.max_timestamp >= 0:
            self.time_index.maybe_append(self.max_timestamp, self.max_timestamp_offset)
        self.offset_index.write_out()
        self.time_index.write_out()

    def find(self, offset: int) -> Found | None:
        """The first batch that ends at or after `offset`; None if all batches end before it."""
        return self.find_from(0, offset)

    def find_from(self, position: int, offset: int) -> Found | None:
        """Like `find`, starting at the position of a known batch."""
        if self.verification is not None:
            self.verification.prepare(self)
        if self.offset_index.count:
            position = max(position, self.offset_index.lookup(offset))
        file = self.open()
        data, start = b"", position
        while position < self.size:
            if self.verification is not None:
                position = self.verification.pass_damage(self, position, offset)
            if position - start + BATCH_OVERHEAD > len(data):
                data, start = os.pread(file.fd, min(_LOOKUP_BYTES, self.size - position), position), position
                if len(data) < BATCH_OVERHEAD:
                    return None
            header = read_header(data, position - start)
            if header.base_offset + header.last_offset_delta >= offset:
                return Found(position, header)
            position += header.size
        return None

    def verify(self) -> None:
        """Check the bytes that a `SegmentUnverified` was raised for. Any thread may call this."""
        verification = self.verification
        if verification is not None:
            verification.verify_wanted(self)

    def boundary(self, position: int, limit: int) -> int:
        """The last batch boundary in (position, limit] that the index knows; 0 if there is none."""
        if not self.offset_index.count:
            return 0
        found = self.offset_index.last_position_up_to(limit)
        return found if found > position else 0

    def aborted_transactions(self) -> list[AbortedTransaction]:
        if self._aborted is None:
            self._aborted = read_aborted(transaction_index_path(self.directory, self.base_offset))
        return self._aborted

    def add_aborted(self, aborted: AbortedTransaction) -> None:
        known = self.aborted_transactions()
        append_aborted(transaction_index_path(self.directory, self.base_offset), aborted)
        known.append(aborted)
        self._has_new_aborted = True

    def new_aborted_paths(self) -> list[str]:
        """The paths to force to disk for transactions that were aborted since the last call."""
        if not self._has_new_aborted:
            return []
        self._has_new_aborted = False
        return [transaction_index_path(self.directory, self.base_offset), self.directory]

    def forget_aborted(self) -> None:
        """Remove the transaction index; replay writes it again."""
        remove_files([transaction_index_path(self.directory, self.base_offset)])
        self._aborted = []

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut everything from `position` on; `next_offset` is the offset that follows there."""
        os.ftruncate(self.open().fd, position)
        self.size = position
        self.offset_index.truncate_to_position(position)
        self.time_index.truncate_to_offset(next_offset)
        self._truncate_aborted(next_offset)
        self.read_tail()
        if self.verification is not None:
            self.verification.cut(position, next_offset)

    def _truncate_aborted(self, next_offset: int) -> None:
        """Remove the transactions whose markers were cut: they are open again."""
        known = self.aborted_transactions()
        kept = [aborted for aborted in known if aborted.last_offset < next_offset]
        if len(kept) < len(known):
            replace_aborted(transaction_index_path(self.directory, self.base_offset), kept)
            self._aborted = kept

    def read_tail(self) -> int | None:
        """Read the batches after the last index entry and return the offset that follows the segment.

        None if one of those batches is invalid.
        """
        start = self.offset_index.last_position
        self.max_timestamp, self.max_timestamp_offset = self.time_index.load()
        self.bytes_since_index_entry = self.size - start
        self._first_timestamp = None
        end_offset = self.base_offset
        for piece in walk(self.open().fd, start, self.size, window=_TAIL_WINDOW):
            if piece.problem is not None:
                return None
            for _, header in piece.batches:
                end_offset = header.next_offset
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
        return end_offset

    def rename(self, suffix: str) -> list[str]:
        """Append a suffix such as ``.deleted`` to the names of all files; return the new paths."""
        renamed = []
        for path in self.paths:
            try:
                os.rename(path, path + suffix)
            except FileNotFoundError:
                continue
            renamed.append(path + suffix)
        return renamed

    def remove(self) -> None:
        self.close_file()
        remove_files(self.paths)
