"""A TCP proxy whose connections a test can break."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Proxy:
    def __init__(self, host: str, port: int) -> None:
        self._target = (host, port)
        self._writers: set[asyncio.StreamWriter] = set()
        self._clients: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.address = ""
        self.swallows_answers = False
        """While this holds, requests arrive but their answers do not."""
        self.is_cut = False
        """While this holds, new connections are closed at once."""
        self.silent = 0
        """How many of the next connections are accepted and never answered."""

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        self._clients.add(writer)
        try:
            if self.is_cut:
                return
            if self.silent:
                self.silent -= 1
                await reader.read()
                return
            with contextlib.suppress(OSError):
                other_reader, other_writer = await asyncio.open_connection(*self._target)
                self._writers.add(other_writer)
                await asyncio.gather(
                    self._copy(reader, other_writer, is_answer=False), self._copy(other_reader, writer, is_answer=True)
                )
        finally:
            self._tasks.discard(task)
            self.cut_connection(writer)

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while data := await reader.read(65536):
            if not (is_answer and self.swallows_answers):
                writer.write(data)
                await writer.drain()
        self.cut_connection(writer)

    def cut_connection(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        self._clients.discard(writer)
        writer.close()

    def inject(self, data: bytes) -> None:
        """Send this to the clients as if it came from the server."""
        for writer in self._clients:
            writer.write(data)

    def cut(self) -> None:
        """Break all connections. New ones are possible unless `is_cut`."""
        for writer in list(self._writers):
            writer.transport.abort()
        self._writers.clear()
        self._clients.clear()


@asynccontextmanager
async def proxy_of(address: str) -> AsyncIterator[Proxy]:
    host, _, port = address.rpartition(":")
    proxy = Proxy(host, int(port))
    server = await asyncio.start_server(proxy._serve, "127.0.0.1", 0)
    proxy.address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield proxy
    finally:
        server.close()
        proxy.cut()
        await asyncio.gather(*proxy._tasks, return_exceptions=True)
