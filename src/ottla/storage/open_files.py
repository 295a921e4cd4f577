"""File descriptors that close when they are no longer referenced, and a limit on how many stay open.

A partition opens its segment files when it needs them. The cache keeps the recently used ones (CLOCK replacement: a use
sets a bit, the hand clears it) and drops the others. A dropped file stays open while an `OpenFile` is still referenced,
for instance by a fetch response that is being sent.
"""

from __future__ import annotations

import os
import resource
import threading
from typing import Protocol


class OpenFile:
    """A file descriptor that lives as long as this object is referenced."""

    __slots__ = ("fd", "used")

    def __init__(self, path: str, flags: int = os.O_RDWR) -> None:
        self.fd = -1
        self.fd = os.open(path, flags | os.O_CLOEXEC, 0o644)
        self.used = True

    def fileno(self) -> int:
        return self.fd

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class Holder(Protocol):
    """An object that keeps a file open through the cache. To drop the file, the cache sets it to None."""

    file: OpenFile | None


class FileCache:
    """Keeps at most `capacity` files open for their holders."""

    __slots__ = ("_lock", "_ring", "capacity", "is_disk_full")

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity if capacity is not None else default_capacity()
        self.is_disk_full = False
        """Set by tests: nothing can be written."""
        self._ring: dict[Holder, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ring)

    def admit(self, holder: Holder) -> None:
        """Add a holder whose file was just opened, and drop others if the cache is full."""
        with self._lock:
            self._ring.pop(holder, None)
            while len(self._ring) >= self.capacity:
                self._evict()
            self._ring[holder] = None

    def forget(self, holder: Holder) -> None:
        with self._lock:
            self._ring.pop(holder, None)
            holder.file = None

    def _evict(self) -> None:
        oldest = next(iter(self._ring))
        del self._ring[oldest]
        if oldest.file is not None and oldest.file.used:
            oldest.file.used = False
            self._ring[oldest] = None
        else:
            oldest.file = None


def default_capacity() -> int:
    """Half of the process's limit on descriptors: the other half is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else max(16, min(soft // 2, 65536))
