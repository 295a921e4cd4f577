"""A thread that sends the answers of turns with many of them, while the event loop takes the next requests. Sending
takes no interpreter, and a quarter of all the time that a small request takes.

Batches of answers leave in the order in which they were handed over. Before anything else is sent, and before a
connection is closed, all of them are settled: so the answers of a connection stay in order, and the number of a socket
means no other one meanwhile. What a socket did not take goes back to its connection, with what later batches have for
it; the thread waits until that is done.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from asyncio import AbstractEventLoop
from collections import deque
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ottla.net.server.kernels import kernels

if TYPE_CHECKING:
    from ottla.net.server.connection import Connection

logger = logging.getLogger("ottla.net")
#: So many batches are on their way at most.
MOST_BATCHES = 32


class Batch:
    """A frame for each of some connections."""

    def __init__(self, connections: list[Connection], frames: list[bytearray]) -> None:
        self._connections = connections
        self._frames = frames
        self._on_its_way = threading.Lock()
        self._on_its_way.acquire()
        self._untaken = threading.Lock()
        self._untaken.acquire()
        self.unsent: list[tuple[Connection, memoryview]] = []
        self.handed_over_on = kernels.current_cpu()

    # What the thread does.

    def send(self) -> None:
        """Send what the sockets take."""
        try:
            unsent = kernels.send_all([connection.fd for connection in self._connections], self._frames)
        except Exception:
            logger.exception("answers could not be sent; their connections are closed")
            self.unsent = [(connection, memoryview(b"")) for connection in self._connections]
        else:
            self.unsent = [(self._connections[index], memoryview(self._frames[index])[sent:]) for index, sent in unsent]
        self._on_its_way.release()

    def wait_until_taken_back(self) -> None:
        """Wait until somebody has taken what was not sent."""
        self._untaken.acquire()

    # What the event loop does.

    @property
    def is_sent(self) -> bool:
        """Whether the thread has done with it, and nothing is left."""
        return not self._on_its_way.locked() and not self.unsent

    def wait(self) -> None:
        """Wait for the thread."""
        self._on_its_way.acquire()

    def taken_back(self) -> None:
        """Let the thread go on: what was not sent is back at its connections."""
        self._untaken.release()

    def withdraw(self, connection: Connection) -> memoryview | None:
        """Take the frame for a connection out of a batch that the thread has not begun."""
        if connection not in self._connections:
            return None
        index = self._connections.index(connection)
        del self._connections[index]
        return memoryview(self._frames.pop(index))


class Sending:
    """The thread, and what it is sending."""

    def __init__(self) -> None:
        self._on_their_way: deque[Batch] = deque()
        """What was handed over and is not known to be sent."""
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._loop: AbstractEventLoop
        self._thread: threading.Thread | None = None

    def start(self, loop: AbstractEventLoop) -> None:
        """Start the thread; all other calls come from the thread of the event loop."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="ottla-sending", daemon=True)
        self._thread.start()

    @property
    def is_busy(self) -> bool:
        """Whether the thread is sending."""
        while self._on_their_way and self._on_their_way[0].is_sent:
            self._on_their_way.popleft()
        return bool(self._on_their_way)

    def make_room(self) -> None:
        """Be ready for another batch. Connections may be closed by it."""
        if self.is_busy and len(self._on_their_way) == MOST_BATCHES:
            self.settle()

    def hand_over(self, connections: list[Connection], frames: list[bytearray]) -> None:
        """Have the thread send a frame on each connection."""
        batch = Batch(connections, frames)
        self._on_their_way.append(batch)
        self._batches.put(batch)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was handed over is known to be sent."""
        return not self._on_their_way

    def settle(self) -> None:
        """Wait until what was handed over is sent, or back at its connection."""
        stuck: dict[Connection, list[memoryview]] = {}
        while self._on_their_way:
            batch = self._on_their_way.popleft()
            batch.wait()
            for connection, rest in batch.unsent:
                later = (each.withdraw(connection) for each in self._on_their_way)
                stuck[connection] = [rest, *(frame for frame in later if frame is not None)]
            if batch.unsent:
                batch.taken_back()
        for connection, frames in stuck.items():
            connection.not_sent(frames)

    def close(self) -> None:
        """Settle, and end the thread."""
        self.settle()
        if self._thread is not None:
            self._batches.put(None)
            self._thread.join()
            self._thread = None

    def _run(self) -> None:
        allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
        left_alone = -1
        while (batch := self._batches.get()) is not None:
            if batch.handed_over_on != left_alone:
                left_alone = batch.handed_over_on
                _stay_off(left_alone, allowed)
            batch.send()
            if batch.unsent:
                self._loop.call_soon_threadsafe(self.settle)
                batch.wait_until_taken_back()
            del batch


def _stay_off(processor: int, allowed: set[int]) -> None:
    """Leave its processor to the event loop: Linux runs a thread where it was woken, even if others are idle."""
    if others := allowed - {processor}:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, others)
