"""Gives the memory of many closed connections back to the system.

glibc keeps what is free between blocks that are in use. After 10,000 half-open TLS handshakes that is over 100 MB.
"""

from __future__ import annotations

import ctypes
from functools import cache

#: So many closed connections are worth the milliseconds that it takes.
MANY = 1000


class Keeper:
    """Notices when a peak of connections is over."""

    def __init__(self) -> None:
        self._most = 0

    def count(self, connections: int) -> None:
        """Tell how many connections there are now. If many fewer than before, memory is given back.

        >>> keeper = Keeper()
        >>> keeper.count(5000)
        >>> keeper.count(10)
        """
        self._most = max(self._most, connections)
        if self._most - connections >= MANY:
            self._most = connections
            give_back()


def give_back() -> None:
    """Let the allocator return free pages. Allocators other than glibc's do it themselves."""
    if (trim := _trim()) is not None:
        trim(0)


@cache
def _trim() -> ctypes._NamedFuncPointer | None:
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
