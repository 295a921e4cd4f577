"""Runs the console: on the running event loop, or in a thread of its own for `ottla.Broker`."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn

from ottla.clients.blocking import LoopThread
from ottla.console.app import create_app
from ottla.console.render import prepare
from ottla.console.settings import Settings
from ottla.console.state import Console
from ottla.errors import OttlaError
from ottla.runtime.clock import SystemClock

GRACE = 1
"""Seconds for open pages to end."""
LONGEST_ADDRESS = 1024 * 1024
"""Bytes of an address with headers: a plan has all values of its form in the address, also the record to produce."""


class _Uvicorn(uvicorn.Server):
    """Leaves signals to whoever runs the event loop."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class ConsoleServer:
    """A console on the running event loop.

    server = ConsoleServer(Settings(config={"bootstrap.servers": "localhost:9092"}))
    await server.start()
    """

    def __init__(self, settings: Settings) -> None:
        self.console = Console(settings, SystemClock().now)
        self._settings = settings
        self._server: _Uvicorn | None = None
        self._task: asyncio.Task[None] | None = None
        self._port = 0

    @property
    def url(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(self._settings.host, self._settings.host)
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}"

    async def start(self) -> None:
        """Listen. The brokers may start later: the pages say so."""
        prepare()
        listening = _listen(self._settings.host, self._settings.port)
        self._port = listening.getsockname()[1]
        config = uvicorn.Config(
            create_app(self.console),
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=GRACE,
            http="h11",
            h11_max_incomplete_event_size=LONGEST_ADDRESS,
        )
        self._server = _Uvicorn(config)
        self._task = asyncio.create_task(self._server.serve([listening]))

    async def stop(self) -> None:
        if self._server is not None:
            self._server.should_exit = True
        await self.console.close()
        if self._task is not None:
            await self._task


GONE_MS = 30_000
"""A browser that has not confirmed for so long what it was sent is gone, even if it never said so."""


def _listen(host: str, port: int) -> socket.socket:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, _, _, _, address = found[0]
        listening = socket.create_server(address[:2], family=family, backlog=128)
    except OSError as error:
        advice = ": choose another port with --listen, or port 0 for a free one" if port else ""
        raise OttlaError(f"the console cannot listen on {host}:{port} ({error.strerror or error}){advice}") from None
    if hasattr(socket, "TCP_USER_TIMEOUT"):
        # Linux: the connections that it accepts inherit this. Elsewhere it takes minutes until the system gives up.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, GONE_MS)
    return listening


class ConsoleThread:
    """A console in a thread with its own event loop."""

    def __init__(self, settings: Settings) -> None:
        self._thread = LoopThread("console")
        try:
            self._server = self._thread.call(self._start(settings))
        except BaseException:
            self._thread.stop()
            raise

    async def _start(self, settings: Settings) -> ConsoleServer:
        server = ConsoleServer(settings)
        await server.start()
        return server

    @property
    def url(self) -> str:
        return self._server.url

    @property
    def console(self) -> Console:
        return self._server.console

    def stop(self) -> None:
        """Stop the console and wait for the end of the thread."""
        self._thread.call(self._server.stop())
        self._thread.stop()
