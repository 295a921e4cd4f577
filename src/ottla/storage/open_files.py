"""File descriptors that close themselves when nobody uses them any more, and a bound on how many are kept open.

A partition opens its segment files when it needs them. The cache keeps the recently used ones (a clock:
each has one bit that a use sets and the passing hand clears) and forgets the others. Forgetting is not
closing: whoever still holds an `OpenFile`, for instance a fetch response that is being sent, keeps its
descriptor alive.
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
    """What keeps a file open through the cache: the cache takes it away by setting it to None."""

    file: OpenFile | None


class FileCache:
    """Keeps at most `capacity` files open for their holders."""

    __slots__ = ("_lock", "_ring", "capacity")

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity if capacity is not None else default_capacity()
        self._ring: dict[Holder, None] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._ring)

    def admit(self, holder: Holder) -> None:
        """`holder.file` was just opened: make room for it."""
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
    """Half of the descriptors that this process may have: the other half is for connections."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 4096 if soft == resource.RLIM_INFINITY else max(16, min(soft // 2, 65536))
