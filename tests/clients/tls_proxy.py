"""A TLS listener, which our broker does not have: a proxy that terminates TLS and passes the bytes on."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ottla.clients.blocking import LoopThread


class TlsProxy:
    """Listens on 127.0.0.1; connections go to `target`, which may be set later."""

    def __init__(self, certificate: Path, *, clients_signed_by: Path | None = None) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate)
        if clients_signed_by is not None:
            self._context.verify_mode = ssl.CERT_REQUIRED
            self._context.load_verify_locations(clients_signed_by)
        self.target: tuple[str, int] | None = None
        self.port = 0

    async def start(self) -> None:
        asyncio.get_running_loop().set_exception_handler(lambda *_: None)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert self.target is not None
        there_reader, there_writer = await asyncio.open_connection(*self.target)
        try:
            await asyncio.gather(_pass(reader, there_writer), _pass(there_reader, writer))
        except OSError:
            pass
        finally:
            there_writer.close()
            writer.close()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    writer.close()


@contextmanager
def running(*proxies: TlsProxy) -> Iterator[None]:
    thread = LoopThread("TLS proxy")
    try:
        for proxy in proxies:
            thread.call(proxy.start())
        yield
    finally:
        for proxy in proxies:
            thread.call(proxy.stop())
        thread.stop()
