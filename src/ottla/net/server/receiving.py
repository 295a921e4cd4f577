"""Receive requests from many connections with one call.

The event loop spends about 6 µs on each ready socket, more than receiving a small request takes. With an epoll of our
own inside the loop's, and one call that receives from all ready sockets, it is about 1 µs. This is used from the 17th
connection on (`FEW`). The loop watches the first 16 itself, because a nested epoll costs a single client 2 to 8 µs of
90 per request. Without epoll (on macOS), the loop watches all connections.
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

#: Connections that the event loop watches itself.
FEW = 16
#: The most connections to serve before the event loop does other work.
MOST_AT_ONCE = 256
#: Seconds to wait for more requests whose records can be written together with these. Timers wait too.
LONGEST_TURN = 0.005
#: Fewer ready connections than this are received from one by one.
MANY = 4
#: A connection whose last request was at most this long is received from together with others.
LITTLE = 1 << 14
#: The size of the shared buffer. It is small enough to stay in the processor's cache.
RECEIVED_TOGETHER = 1 << 18
_NOTHING_THERE = (-EAGAIN, -EWOULDBLOCK, -EINTR)


class Readers(Protocol):
    """The connections to read from."""

    def add(self, connection: Connection) -> None: ...

    def remove(self, connection: Connection) -> None: ...

    def close(self) -> None: ...


class LoopReaders:
    """Readers for which the event loop watches every connection."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop

    def add(self, connection: Connection) -> None:
        self._loop.add_reader(connection.fd, connection.readable)

    def remove(self, connection: Connection) -> None:
        self._loop.remove_reader(connection.fd)

    def close(self) -> None:
        """Do nothing: there is nothing to release."""


class EpollReaders:
    """Readers for which the event loop watches a few connections and an epoll the others."""

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
        """Receive from the ready connections.

        If their responses wait for a write, include connections that become ready meanwhile: one write serves all.
        """
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
        # Receive before handling: a handler may close a connection, and its descriptor may be reused.
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
