"""Reused receive buffers: a new bytearray is filled with zeros, which costs as much as the copy into it."""

from __future__ import annotations

SMALLEST = 1 << 12


class BufferPool:
    """Hands out bytearrays of power-of-two sizes and takes them back, keeping at most ``limit`` bytes.

    >>> pool = BufferPool(limit=1 << 20)
    >>> buffer = pool.take(100_000); len(buffer)
    131072
    >>> pool.give(buffer); pool.take(70_000) is buffer
    True
    """

    __slots__ = ("_free", "_kept", "_limit")

    def __init__(self, limit: int) -> None:
        self._free: dict[int, list[bytearray]] = {}
        self._kept = 0
        self._limit = limit

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least this size."""
        size = SMALLEST if size <= SMALLEST else 1 << (size - 1).bit_length()
        free = self._free.get(size)
        if free:
            self._kept -= size
            return free.pop()
        return bytearray(size)

    def give(self, buffer: bytearray) -> None:
        """Take a buffer back."""
        size = len(buffer)
        if self._kept + size <= self._limit:
            self._free.setdefault(size, []).append(buffer)
            self._kept += size
