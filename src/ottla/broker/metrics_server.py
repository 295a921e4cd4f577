"""The HTTP server of the metrics: GET /metrics for Prometheus, GET /healthz for whoever watches the process.

It is no web server: one request a connection, small requests only, few connections at once, and each has to
be done in a few seconds. A client that breaks these rules is closed and costs nothing more.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import NamedTuple

from ottla.broker.metrics import Registry

_TEXT = "text/plain; charset=utf-8"
_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_MAX_REQUEST = 8192


class _Answer(NamedTuple):
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
    """Serves a registry. `problem` says what is wrong with the process, None while it is healthy."""

    def __init__(
        self,
        registry: Registry,
        host: str,
        port: int,
        *,
        problem: Callable[[], str | None] = lambda: None,
        timeout: float = 5.0,
        max_connections: int = 32,
    ) -> None:
        self._registry = registry
        self._address = (host, port)
        self._problem = problem
        self._timeout = timeout
        self._max_connections = max_connections
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def port(self) -> int:
        """The port that is listened on, also when it was given as 0."""
        if self._server is None:
            raise RuntimeError("the metrics server is not running")
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        """Listens from now on; OSError if the address cannot be had."""
        host, port = self._address
        self._server = await asyncio.start_server(self._connected, host or None, port, limit=_MAX_REQUEST)

    async def stop(self) -> None:
        """Stops listening and closes every connection. Stopping twice is stopping once."""
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.wait_closed()

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= self._max_connections:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

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
            # Too slow, or gone: there is nobody left to tell.
            return
        finally:
            writer.transport.abort()

    def _respond(self, head: bytes) -> bytes:
        method, answer = self._answer(head)
        return answer.encode(with_body=method != "HEAD")

    def _answer(self, head: bytes) -> tuple[str, _Answer]:
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[1].startswith("/") or not parts[2].startswith("HTTP/1."):
            return "", _Answer(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request\n")
        method, path = parts[0], parts[1].partition("?")[0]
        if path not in ("/metrics", "/healthz"):
            return method, _Answer(HTTPStatus.NOT_FOUND, "there are /metrics and /healthz\n")
        if method not in ("GET", "HEAD"):
            wrong = _Answer(HTTPStatus.METHOD_NOT_ALLOWED, "only GET and HEAD\n", allow="GET, HEAD")
            return method, wrong
        return method, self._metrics() if path == "/metrics" else self._health()

    def _metrics(self) -> _Answer:
        return _Answer(HTTPStatus.OK, self._registry.render(), _PROMETHEUS)

    def _health(self) -> _Answer:
        problem = self._problem()
        if problem is None:
            return _Answer(HTTPStatus.OK, "ok\n")
        return _Answer(HTTPStatus.SERVICE_UNAVAILABLE, f"{problem}\n")


async def _read_head(reader: asyncio.StreamReader) -> bytes | None:
    """The request line and the headers; what came so far if there is too much; None if the client left."""
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        return b""
    except asyncio.IncompleteReadError:
        return None
