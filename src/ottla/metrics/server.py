"""A small HTTP server for metrics: GET /metrics and GET /healthz.

It handles one small request per connection, few connections at a time, each within a few seconds. It runs on the
caller's event loop, so that the broker's gauges read consistent state; `MetricsThread` runs it in a thread for programs
without an event loop.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Self

from ottla.net.server.http import HttpLimits, HttpRequest, HttpResponse, HttpServer

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


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
        limits = HttpLimits(max_connections, 8192, 8192, timeout, timeout, keep=False)
        self._http = HttpServer(self._answer, limits=limits)

    @property
    def port(self) -> int:
        """The actual port, also if 0 was requested."""
        return self._http.address[1]

    async def start(self) -> None:
        """Start listening; raises OSError if the address is not available."""
        await self._http.start(self.host, self._port)

    async def stop(self) -> None:
        """Stop listening and close all connections; may be called again."""
        await self._http.stop()

    async def _answer(self, request: HttpRequest) -> HttpResponse:
        path = request.target.partition("?")[0]
        if path not in ("/metrics", "/healthz"):
            return HttpResponse(404, b"use /metrics or /healthz\n")
        if request.method not in ("GET", "HEAD"):
            return HttpResponse(405, b"only GET and HEAD\n", headers=(("Allow", "GET, HEAD"),))
        if path == "/metrics":
            return HttpResponse(200, self._page().encode(errors="backslashreplace"), _PROMETHEUS)
        problem = self._problem()
        if problem is None:
            return HttpResponse(200, b"ok\n")
        return HttpResponse(503, f"{problem}\n".encode(errors="backslashreplace"))


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
