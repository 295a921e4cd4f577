"""Notice at once that another broker's process is gone.

The operating system closes the connections of a process that dies, and its port refuses new ones. So an idle
connection that breaks, and a port that then refuses, are certain. A machine that does not answer is left to ZooKeeper's
session timeout.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.metadata.values import Endpoint
from ottla.zookeeper.client import probe

RETRY_SECONDS = 0.5
OnDead: TypeAlias = Callable[[], Awaitable[None]]


class Watchdog:
    """Holds a connection to one address, and calls back when the process behind it is gone."""

    def __init__(
        self, endpoint: Endpoint, on_doubt: Callable[[], None], on_dead: OnDead, on_alive: Callable[[], None]
    ) -> None:
        """``on_doubt`` is called when the connection breaks, ``on_dead`` again and again while the port refuses."""
        self._endpoint = endpoint
        self._on_doubt = on_doubt
        self._on_dead = on_dead
        self._on_alive = on_alive
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        self._task.cancel()

    async def _run(self) -> None:
        while True:
            try:
                reader, writer = await asyncio.open_connection(self._endpoint.host, self._endpoint.port)
            except ConnectionRefusedError:
                await self._on_dead()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._on_alive()
            try:
                await reader.read(1)  # Nothing is ever sent, so this ends with the connection.
            except OSError:
                pass
            finally:
                writer.close()
            self._on_doubt()
            if isinstance(await probe(self._endpoint.host, self._endpoint.port), ConnectionRefusedError):
                await self._on_dead()
                await asyncio.sleep(RETRY_SECONDS)
