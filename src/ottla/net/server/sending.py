"""A thread that sends many responses at once, while the event loop handles the next requests.

Sending takes a quarter of the time of a small request and needs no GIL, so a second thread can do it in parallel. It is
used when 32 or more responses waited for the same write (offset commits, heartbeats), or when the thread is busy
already; for fewer, waking the thread takes longer than sending. See ``Server.send_soon``.

Batches are sent in the order in which they were handed over. They are settled before anything else is sent and before a
connection is closed. So the responses of a connection stay in order, and its descriptor is not reused meanwhile. What a
socket did not accept goes back to its connection, together with the frames of later batches; the thread waits for that.
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
#: The most batches in flight.
MOST_BATCHES = 32


class Batch:
    """One frame for each of several connections."""

    def __init__(self, connections: list[Connection], frames: list[bytearray]) -> None:
        self._connections = connections
        self._frames = frames
        self._on_its_way = threading.Lock()
        self._on_its_way.acquire()
        self._untaken = threading.Lock()
        self._untaken.acquire()
        self.unsent: list[tuple[Connection, memoryview]] = []
        self.handed_over_on = kernels.current_cpu()

    # Called by the thread.

    def send(self) -> None:
        """Send as much as the sockets accept."""
        try:
            unsent = kernels.send_all([connection.fd for connection in self._connections], self._frames)
        except Exception:
            logger.exception("responses could not be sent; their connections are closed")
            self.unsent = [(connection, memoryview(b"")) for connection in self._connections]
        else:
            self.unsent = [(self._connections[index], memoryview(self._frames[index])[sent:]) for index, sent in unsent]
        self._on_its_way.release()

    def wait_until_taken_back(self) -> None:
        """Wait until the event loop has taken the unsent frames back."""
        self._untaken.acquire()

    # Called by the event loop.

    @property
    def is_sent(self) -> bool:
        """Whether the thread is done and nothing is unsent."""
        return not self._on_its_way.locked() and not self.unsent

    def wait(self) -> None:
        """Wait until the thread is done."""
        self._on_its_way.acquire()

    def taken_back(self) -> None:
        """Let the thread continue: the unsent frames are back at their connections."""
        self._untaken.release()

    def withdraw(self, connection: Connection) -> memoryview | None:
        """Remove the frame of a connection from a batch that the thread has not started."""
        if connection not in self._connections:
            return None
        index = self._connections.index(connection)
        del self._connections[index]
        return memoryview(self._frames.pop(index))


class Sending:
    """The thread and its batches."""

    def __init__(self) -> None:
        self._on_their_way: deque[Batch] = deque()
        """Batches that were handed over and may not be sent yet."""
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._loop: AbstractEventLoop
        self._thread: threading.Thread | None = None

    def start(self, loop: AbstractEventLoop) -> None:
        """Start the thread. Make all other calls on the event loop's thread."""
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
        """Make room for another batch. This may close connections."""
        if self.is_busy and len(self._on_their_way) == MOST_BATCHES:
            self.settle()

    def hand_over(self, connections: list[Connection], frames: list[bytearray]) -> None:
        """Let the thread send a frame on each connection."""
        batch = Batch(connections, frames)
        self._on_their_way.append(batch)
        self._batches.put(batch)

    @property
    def is_settled(self) -> bool:
        """Whether everything that was handed over is known to be sent."""
        return not self._on_their_way

    def settle(self) -> None:
        """Wait until everything is sent or back at its connection."""
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
        """Settle, and stop the thread."""
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
    """Keep off the event loop's processor: Linux runs a thread where it was woken, even if others are idle."""
    if others := allowed - {processor}:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, others)
