"""A journal in a file: one record per line with its checksum, compacted at every start. Only its owner may read it.

A line is eight hexadecimal digits of CRC-32C, a space, and the record as JSON. A torn last line (power loss during a
write) is cut off. Damage anywhere else is an error that names the line, because later records may depend on it.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from ottla.errors import OttlaError
from ottla.records._crc import crc32c

Record = TypeVar("Record")


class JournalDamaged(OttlaError):
    """A line of the journal is damaged."""


class FileJournal(Generic[Record]):
    """An append-only file of records.

    ``to_json`` and ``from_json`` turn a record into a JSON value and back.
    """

    def __init__(
        self, path: Path, to_json: Callable[[Record], Any], from_json: Callable[[Any], Record], *, fsync: bool = True
    ) -> None:
        self._path = path
        self._to_json = to_json
        self._from_json = from_json
        self._fsync = fsync
        self._fd = -1
        self._end = 0
        self._synced = 0
        self._syncing: asyncio.Task[None] | None = None

    def open(self) -> list[Record]:
        """Open or create the file, cut off a torn last line, and return all records."""
        self._fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        data = self._path.read_bytes()
        records, self._end = self._parse(data)
        if self._end < len(data):
            os.ftruncate(self._fd, self._end)
        self._synced = self._end
        return records

    def _parse(self, data: bytes) -> tuple[list[Record], int]:
        records: list[Record] = []
        position = 0
        while position < len(data):
            end = data.find(b"\n", position)
            line = data[position:end] if end >= 0 else None
            if line is None or not _is_whole(line):
                if end >= 0 and data.find(b"\n", end + 1) >= 0:
                    raise JournalDamaged(
                        f"{self._path} is damaged at line {len(records) + 1}; restore the file from a backup, "
                        "or remove it to start without the topics it names"
                    )
                break
            records.append(self._from_json(json.loads(line[9:])))
            position = end + 1
        return records, position

    def rewrite(self, records: Iterable[Record]) -> None:
        """Replace the whole file with these records, atomically."""
        data = b"".join(map(self._line, records))
        temporary = self._path.with_name(self._path.name + ".new")
        fd = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        _write_all(fd, data, 0)
        if self._fsync:
            os.fsync(fd)
        os.replace(temporary, self._path)
        os.close(self._fd)
        self._fd, self._end, self._synced = fd, len(data), len(data)

    def append(self, records: Sequence[Record], /) -> int:
        """Write all records, or none if there is an error."""
        data = b"".join(map(self._line, records))
        try:
            _write_all(self._fd, data, self._end)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._end)
            raise
        self._end += len(data)
        return self._end

    def committed(self, position: int, /) -> asyncio.Future[None] | None:
        """Return a future for an fsync that covers the position, or None if it is covered. Waiters share one."""
        if not self._fsync or position <= self._synced:
            return None
        return asyncio.ensure_future(self._sync_up_to(position))

    async def _sync_up_to(self, position: int) -> None:
        while self._synced < position:
            if self._syncing is None or self._syncing.done():
                self._syncing = asyncio.ensure_future(self._sync())
            await asyncio.shield(self._syncing)

    async def _sync(self) -> None:
        end = self._end
        await asyncio.get_running_loop().run_in_executor(None, os.fsync, self._fd)
        self._synced = max(self._synced, end)

    def _line(self, record: Record) -> bytes:
        text = json.dumps(self._to_json(record), separators=(",", ":")).encode()
        return b"%08x %s\n" % (crc32c(text), text)

    def close(self) -> None:
        """Sync and close the file."""
        if self._fd >= 0:
            if self._fsync:
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1


def _is_whole(line: bytes) -> bool:
    try:
        return int(line[:8], 16) == crc32c(line[9:]) and line[8:9] == b" "
    except ValueError:
        return False


def _write_all(fd: int, data: bytes, position: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(fd, view, position)
        position += written
        view = view[written:]
