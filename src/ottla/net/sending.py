"""A thread that sends the answers of a turn with many of them, while the event loop takes the next requests. Sending
takes no interpreter, and a quarter of all the time that a small request takes.

One batch of answers is on its way at most. Before anything else is sent, and before a connection is closed, it is
settled: so the answers of a connection stay in order, and the number of a socket means no other one meanwhile. What a
socket did not take goes back to its connection.
"""

from __future__ import annotations

import contextlib
import os
import threading
from asyncio import AbstractEventLoop
from queue import SimpleQueue
from typing import TYPE_CHECKING

from ottla.net.kernels import kernels

if TYPE_CHECKING:
    from ottla.net.connection import Connection


class Batch:
    """A frame for each of some connections."""

    def __init__(self, connections: list[Connection], frames: list[bytearray]) -> None:
        self._connections = connections
        self._frames = frames
        self._on_its_way = threading.Lock()
        self._on_its_way.acquire()
        self.unsent: list[tuple[Connection, memoryview]] = []
        self.handed_over_on = kernels.current_cpu()

    def send(self) -> None:
        """Send what the sockets take. This is what the thread does."""
        unsent = kernels.send_all([connection.fd for connection in self._connections], self._frames)
        self.unsent = [(self._connections[index], memoryview(self._frames[index])[sent:]) for index, sent in unsent]
        self._frames.clear()
        self._on_its_way.release()

    def settle(self) -> None:
        """Wait for the thread, and give back what was not sent."""
        self._on_its_way.acquire()
        for connection, rest in self.unsent:
            connection.not_sent(rest)


class Sending:
    """The thread, and what it is sending."""

    def __init__(self) -> None:
        self.batch: Batch | None = None
        """What was handed over and is not settled."""
        self._batches: SimpleQueue[Batch | None] = SimpleQueue()
        self._loop: AbstractEventLoop
        self._thread: threading.Thread | None = None

    def start(self, loop: AbstractEventLoop) -> None:
        """Start the thread; all other calls come from the thread of the event loop."""
        self._loop = loop
        self._thread = threading.Thread(target=self._run, name="ottla-sending", daemon=True)
        self._thread.start()

    def hand_over(self, connections: list[Connection], frames: list[bytearray]) -> None:
        """Have the thread send a frame on each connection."""
        assert self.batch is None
        self.batch = Batch(connections, frames)
        self._batches.put(self.batch)

    def settle(self) -> None:
        """Wait until what was handed over is sent, or back at its connection."""
        batch, self.batch = self.batch, None
        if batch is not None:
            batch.settle()

    def _settle(self, batch: Batch) -> None:
        if batch is self.batch:
            self.settle()

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
                # Otherwise whoever sends next settles it.
                self._loop.call_soon_threadsafe(self._settle, batch)
            del batch


def _stay_off(processor: int, allowed: set[int]) -> None:
    """Leave its processor to the event loop: Linux runs a thread where it was woken, even if others are idle."""
    if others := allowed - {processor}:
        with contextlib.suppress(OSError):
            os.sched_setaffinity(0, others)
