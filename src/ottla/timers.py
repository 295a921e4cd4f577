"""Keyed timers as a value: set, replace, cancel, and ask which are due. Reads no clock."""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterator
from itertools import count

from ottla.types import Millis


class TimerQueue:
    """A queue of keyed deadlines.

    >>> timers = TimerQueue()
    >>> timers.set("a", 10); timers.set("b", 20); timers.set("a", 30)
    >>> list(timers.due(now=25)), timers.next_deadline()
    (['b'], 30)
    """

    __slots__ = ("_at", "_heap", "_order")

    def __init__(self) -> None:
        self._at: dict[Hashable, tuple[Millis, int]] = {}
        self._heap: list[tuple[Millis, int, Hashable]] = []
        self._order = count()

    def __len__(self) -> int:
        return len(self._at)

    def set(self, key: Hashable, at: Millis) -> None:
        """Set the timer of a key, in place of an earlier one."""
        order = next(self._order)
        self._at[key] = (at, order)
        heapq.heappush(self._heap, (at, order, key))

    def cancel(self, key: Hashable) -> None:
        """Forget the timer of a key, if there is one."""
        self._at.pop(key, None)

    def next_deadline(self) -> Millis | None:
        """Return when the next timer is due."""
        self._drop_replaced()
        return self._heap[0][0] if self._heap else None

    def due(self, *, now: Millis) -> Iterator[Hashable]:
        """Remove and give the keys whose time has come, earliest first. Timers set meanwhile wait for the next call."""
        newest, later = next(self._order), []
        try:
            while (deadline := self.next_deadline()) is not None and deadline <= now:
                entry = heapq.heappop(self._heap)
                if entry[1] > newest:
                    later.append(entry)
                    continue
                del self._at[entry[2]]
                yield entry[2]
        finally:
            for entry in later:
                heapq.heappush(self._heap, entry)

    def _drop_replaced(self) -> None:
        # A replaced timer stays in the heap until it comes up: its order number is no longer the key's.
        while self._heap and self._at.get(self._heap[0][2]) != self._heap[0][:2]:
            heapq.heappop(self._heap)
