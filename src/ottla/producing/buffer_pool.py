"""The memory of a producer: who may have some, who waits for it, and buffers that are used again.

Whoever asks while others wait has to wait behind them, even if his share would be free: otherwise a small record
would overtake a large one for ever. Nobody is woken here: the shell wakes the owners of the tickets that are granted.
"""

from __future__ import annotations

from collections import deque

from ottla.types import Millis


class Ticket:
    """A place in the line for memory."""

    __slots__ = ("granted", "since", "size")

    def __init__(self, size: int, since: Millis) -> None:
        self.size = size
        self.since = since
        self.granted = False


class BufferPool:
    """`total` bytes, of which buffers of `batch_size` are kept for the next batch."""

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
        """A ticket that is granted at once, or waits in the line. `size` is at most the total."""
        if size > self.total:
            raise ValueError(f"{size} bytes can never be had of {self.total}")
        ticket = Ticket(size, now)
        self._line.append(ticket)
        self._grant()
        return ticket

    def take(self, size: int) -> None:
        """Reserve memory that is known to be there while nobody waits."""
        if self._line or size > self.available:
            raise ValueError(f"{size} bytes are not there for the taking")
        self.available -= size

    def release(self, size: int, buffer: bytearray | None = None) -> list[Ticket]:
        """Give memory back, with the buffer that it was used for; the tickets that this grants, in order."""
        if buffer is not None and len(buffer) == self.batch_size and len(self._free) * self.batch_size < self.total:
            self._free.append(buffer)
        self.available += size
        if self.available > self.total:
            raise ValueError("more memory came back than was ever given")
        return self._grant()

    def leave(self, ticket: Ticket) -> list[Ticket]:
        """Give up a ticket, granted or not; the tickets that this grants."""
        if ticket.granted:
            ticket.granted = False
            return self.release(ticket.size)
        if ticket in self._line:
            self._line.remove(ticket)
        return self._grant()

    def buffer(self, size: int) -> bytearray:
        """A buffer for memory that was reserved; what is in it is of no meaning."""
        return self._free.pop() if size == self.batch_size and self._free else bytearray(size)

    def _grant(self) -> list[Ticket]:
        granted: list[Ticket] = []
        while self._line and self._line[0].size <= self.available:
            ticket = self._line.popleft()
            ticket.granted = True
            self.available -= ticket.size
            granted.append(ticket)
        return granted
