"""The memory of a producer: a limit, a queue for it, and reused buffers.

A request for memory waits behind earlier ones, even if its own share is free: otherwise small records would overtake a
large one forever. The shell wakes the owners of the granted tickets.
"""

from __future__ import annotations

from collections import deque

from ottla.types import Millis


class Ticket:
    """A place in the queue for memory."""

    __slots__ = ("granted", "since", "size")

    def __init__(self, size: int, since: Millis) -> None:
        self.size = size
        self.since = since
        self.granted = False


class BufferPool:
    """`total` bytes, with buffers of `batch_size` kept for the next batch."""

    def __init__(self, total: int, batch_size: int) -> None:
        self.total = total
        self.batch_size = batch_size
        self.available = total
        self._free: list[bytearray] = []
        self._line: deque[Ticket] = deque()

    @property
    def waiting(self) -> int:
        return len(self._line)

    def reserve(self, size: int, *, now: Millis) -> Ticket:
        """Return a ticket that is granted at once or waits in the queue. `size` must not exceed the total."""
        if size > self.total:
            raise ValueError(f"{size} bytes are more than the total of {self.total}")
        ticket = Ticket(size, now)
        self._line.append(ticket)
        self._grant()
        return ticket

    def take(self, size: int) -> None:
        """Reserve memory that is known to be free while no ticket waits."""
        if self._line or size > self.available:
            raise ValueError(f"{size} bytes are not free")
        self.available -= size

    def release(self, size: int, buffer: bytearray | None = None) -> list[Ticket]:
        """Release memory, with the buffer that it was used for; returns the tickets that this grants, in order."""
        if buffer is not None and len(buffer) == self.batch_size and len(self._free) * self.batch_size < self.total:
            self._free.append(buffer)
        self.available += size
        if self.available > self.total:
            raise ValueError("more memory was released than reserved")
        return self._grant()

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Give up a ticket, granted or not; returns the tickets that this grants."""
        if ticket.granted:
            ticket.granted = False
            return self.release(ticket.size)
        if ticket in self._line:
            self._line.remove(ticket)
        return self._grant()

    def buffer(self, size: int) -> bytearray:
        """A buffer for reserved memory, with arbitrary content."""
        return self._free.pop() if size == self.batch_size and self._free else bytearray(size)

    def _grant(self) -> list[Ticket]:
        granted: list[Ticket] = []
        while self._line and self._line[0].size <= self.available:
            ticket = self._line.popleft()
            ticket.granted = True
            self.available -= ticket.size
            granted.append(ticket)
        return granted
