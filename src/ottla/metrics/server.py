"""A small HTTP server for metrics: GET /metrics and GET /healthz.

It handles one small request per connection, few connections at a time, each within a few seconds. Other clients are
disconnected. It runs on the caller's event loop, so that the broker's gauges read consistent state; `MetricsThread`
runs it in a thread for programs without an event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple, Self

_TEXT = "text/plain; charset=utf-8"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_MAX_REQUEST = 8192


class _Response(NamedTuple):
    status: HTTPStatus
    body: str
    content_type: str = _TEXT
    allow: str = ""

    def encode(self, *, with_body: bool) -> bytes:
        body = self.body.encode(errors="backslashreplace")
        allow = f"Allow: {self.allow}\r\n" if self.allow else ""
        head = (
            f"HTTP/1.1 {self.status.value} {self.status.phrase}\r\nContent-Type: {self.content_type}\r\n"
            f"Content-Length: {len(body)}\r\n{allow}Connection: close\r\n\r\n"
        )
        return head.encode() + (body if with_body else b"")


class MetricsServer:
    """Serve a page of metrics. `problem` returns None while the process is healthy."""

    def __init__(
        self,
        page: Callable[[], str],
        host: str,
        port: int,
        *,
        problem: Callable[[], str | None] = lambda: None,
        timeout: float = 5.0,
        max_connections: int = 32,
    ) -> None:
        self._page = page
        self.host = host
        self._port = port
        self._problem = problem
        self._timeout = timeout
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def port(self) -> int:
        """The actual port, also if 0 was requested."""
        if self._server is None:
            raise RuntimeError("the metrics server is not running")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Start listening; raises OSError if the address is not available."""
        host = self.host or None
        self._server = await asyncio.start_server(self._connected, host, self._port, limit=_MAX_REQUEST)

    async def stop(self) -> None:
        """Stop listening and close all connections; may be called again."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        serving = dict(self._serving)
        for task, writer in serving.items():
            task.cancel()
            # A task that has not started would leave its connection open, and newer Pythons wait for it.
            writer.transport.abort()
        await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(self._timeout):
                head = await _read_head(reader)
                if head is not None:
                    writer.write(self._respond(head))
                    await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (TimeoutError, OSError):
            # The client is too slow, or gone.
            return
        finally:
            writer.transport.abort()

    def _respond(self, head: bytes) -> bytes:
        method, response = self._response(head)
        return response.encode(with_body=method != "HEAD")

    def _response(self, head: bytes) -> tuple[str, _Response]:
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[1].startswith("/") or not parts[2].startswith("HTTP/1."):
            return "", _Response(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request\n")
        method, path = parts[0], parts[1].partition("?")[0]
        if path not in ("/metrics", "/healthz"):
            return method, _Response(HTTPStatus.NOT_FOUND, "use /metrics or /healthz\n")
        if method not in ("GET", "HEAD"):
            return method, _Response(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n", allow="GET, HEAD")
        return method, self._metrics() if path == "/metrics" else self._health()

    def _metrics(self) -> _Response:
        return _Response(HTTPStatus.OK, self._page(), _PROMETHEUS)

    def _health(self) -> _Response:
        problem = self._problem()
        if problem is None:
            return _Response(HTTPStatus.OK, "ok\n")
        return _Response(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n")


async def _read_head(reader: asyncio.StreamReader) -> bytes | None:
    """The request line and the headers; empty if too large; None if the client left."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return b""
    except asyncio.IncompleteReadError:
        return None


class MetricsThread:
    """A `MetricsServer` in a thread with its own event loop, as a context manager.

    >>> with MetricsThread(lambda: "up 1\\n", "127.0.0.1", 0) as server:
    ...     server.port > 0
    True
    """

    def __init__(self, page: Callable[[], str], host: str, port: int) -> None:
        self._server = MetricsServer(page, host, port)
        self._loop = asyncio.new_event_loop()
        try:
            self._loop.run_until_complete(self._server.start())
        except OSError:
            self._loop.close()
            raise
        self.port = self._server.port
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-metrics", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
