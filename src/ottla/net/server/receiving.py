"""Which connections have something to read, and receiving what many of them have with one call.

What an event loop does around every single socket that is ready takes longer than receiving a small request. So it
watches a few connections by itself, which is the shortest way for each of them, and an epoll that watches the others.
Where there is no epoll it watches all of them.
"""

from __future__ import annotations

import os
import select
import time
from asyncio import AbstractEventLoop
from errno import EAGAIN, EINTR, EWOULDBLOCK
from typing import TYPE_CHECKING, Protocol

from ottla.net.server.kernels import kernels

if TYPE_CHECKING:
    from ottla.net.server.connection import Connection
    from ottla.net.server.turn import Turn

#: So many connections the event loop watches by itself.
FEW = 16
#: So many of the others are served before the event loop does anything else.
MOST_AT_ONCE = 256
#: So many seconds are others waited for whose requests can be written together with these; timers wait as well.
LONGEST_TURN = 0.005
#: Fewer than these are received from one by one, as it is done without epoll.
MANY = 4
#: A connection whose last request was no longer than this is received from together with others.
LITTLE = 1 << 14
#: What is received at once. It is dense, so that it stays in the processor's cache.
RECEIVED_TOGETHER = 1 << 18
_NOTHING_THERE = (-EAGAIN, -EWOULDBLOCK, -EINTR)


class Readers(Protocol):
    """The connections that are read from."""

    def add(self, connection: Connection) -> None: ...

    def remove(self, connection: Connection) -> None: ...

    def close(self) -> None: ...


class LoopReaders:
    """The event loop watches every connection."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop

    def add(self, connection: Connection) -> None:
        self._loop.add_reader(connection.fd, connection.readable)

    def remove(self, connection: Connection) -> None:
        self._loop.remove_reader(connection.fd)

    def close(self) -> None:
        """Nothing is held here."""


class EpollReaders:
    """The event loop watches a few, and an epoll the others."""

    def __init__(self, loop: AbstractEventLoop, turn: Turn) -> None:
        self._loop = loop
        self._turn = turn
        self._few: set[Connection] = set()
        self._by_loop = LoopReaders(loop)
        self._others: dict[int, Connection] = {}
        self._epoll = select.epoll()
        self._buffer = bytearray(RECEIVED_TOGETHER)
        self._view = memoryview(self._buffer)
        loop.add_reader(self._epoll.fileno(), self._receive)

    def add(self, connection: Connection) -> None:
        if len(self._few) < FEW:
            self._few.add(connection)
            self._by_loop.add(connection)
        else:
            self._epoll.register(connection.fd, select.EPOLLIN)
            self._others[connection.fd] = connection

    def remove(self, connection: Connection) -> None:
        if connection in self._few:
            self._few.remove(connection)
            self._by_loop.remove(connection)
        elif self._others.pop(connection.fd, None) is not None:
            self._epoll.unregister(connection.fd)

    def close(self) -> None:
        self._loop.remove_reader(self._epoll.fileno())
        self._epoll.close()

    def _receive(self) -> None:
        """Receive from those that are ready. Where something is to be written, receive from those too that become ready
        meanwhile: what they ask is written together with it."""
        left, end = MOST_AT_ONCE, time.monotonic() + LONGEST_TURN
        while left > 0:
            ready = [self._others[fd] for fd, _ in self._epoll.poll(0, left)]
            self._receive_from(ready)
            if not self._turn.unwritten or len(ready) < MANY or time.monotonic() > end:
                return
            left -= len(ready)

    def _receive_from(self, ready: list[Connection]) -> None:
        if len(ready) < MANY:
            for connection in ready:
                connection.readable()
            return
        together = [connection for connection in ready if connection.expects_little]
        alone = [connection for connection in ready if not connection.expects_little]
        # Before anything is handled: that may close a connection, and its number may become another file's.
        counts = kernels.receive_all([connection.fd for connection in together], self._buffer, LITTLE)
        self._hand_out(together, counts)
        for connection in alone:
            connection.readable()

    def _hand_out(self, connections: list[Connection], counts: list[int]) -> None:
        start, now, view = 0, self._loop.time(), self._view
        for connection, count in zip(connections, counts, strict=False):
            if count > 0:
                end = start + count
                connection.received(view[start:end], now)
                start = end
            elif count not in _NOTHING_THERE and not connection.is_busy:
                connection.receiving_ended(os.strerror(-count) if count else "")


def readers_of(loop: AbstractEventLoop, turn: Turn) -> Readers:
    """Return the best readers for this system."""
    return EpollReaders(loop, turn) if hasattr(select, "epoll") else LoopReaders(loop)
