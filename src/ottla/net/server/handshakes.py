"""TLS handshakes: a few in each turn of the event loop.

A handshake takes as long as many requests. If a lot of clients connect at once, those that are connected must not wait
for them. So a connection with something to read before its handshake is over goes into a queue.
"""

from __future__ import annotations

import time
from asyncio import AbstractEventLoop
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.net.server.connection import Connection

#: Seconds of each turn for handshakes. The last one may take longer.
LONGEST_TURN = 0.001


class Handshakes:
    """The connections of a server whose handshake can go on."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self._loop = loop
        self._ready: deque[Connection] = deque()

    def add(self, connection: Connection) -> None:
        """Let the handshake of a connection go on soon. Until then nobody watches its socket."""
        if not self._ready:
            self._loop.call_soon(self._run)
        self._ready.append(connection)

    def _run(self) -> None:
        end = time.monotonic() + LONGEST_TURN
        while self._ready:
            self._ready.popleft().shake_hands()
            if time.monotonic() > end:
                break
        if self._ready:
            self._loop.call_soon(self._run)
