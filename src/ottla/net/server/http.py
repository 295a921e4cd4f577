"""A small HTTP/1.1 server on the running event loop, for metrics, the schema registry and the testing kit.

It reads a request with a body of limited size, awaits an answer and writes it. Clients that are too slow, too many or
send something else are disconnected. There is no TLS, no streaming and no routing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple


class HttpLimits(NamedTuple):
    """What a client may take. Without `keep`, each connection serves one request."""

    connections: int = 1000
    head: int = 64 * 1024
    body: int = 8 * 1024 * 1024
    idle_seconds: float = 120.0
    request_seconds: float = 60.0
    keep: bool = True


DEFAULT_LIMITS = HttpLimits()


class HttpRequest(NamedTuple):
    """A request; names of headers are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes
    keep: bool


class HttpResponse(NamedTuple):
    """The answer to a request."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()

    def encode(self, *, with_body: bool, keep: bool) -> bytes:
        try:
            phrase = HTTPStatus(self.status).phrase
        except ValueError:
            phrase = "Error"
        lines = [
            f"HTTP/1.1 {self.status} {phrase}",
            f"Content-Type: {self.content_type}",
            f"Content-Length: {len(self.body)}",
            *(f"{name}: {value}" for name, value in self.headers),
            f"Connection: {'keep-alive' if keep else 'close'}",
        ]
        return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (self.body if with_body else b"")


class _Refused(Exception):
    """A request that is not HTTP, or too large: it is answered, and the connection is closed."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def refused_as_text(status: int, text: str) -> HttpResponse:
    """The answer to bad HTTP as a line of text."""
    return HttpResponse(status, f"{text}\n".encode())


class HttpServer:
    """Serve `answer`, which must not raise; `refused` makes the answer to bad HTTP."""

    def __init__(
        self,
        answer: Callable[[HttpRequest], Awaitable[HttpResponse]],
        *,
        refused: Callable[[int, str], HttpResponse] = refused_as_text,
        limits: HttpLimits = DEFAULT_LIMITS,
    ) -> None:
        self._answer = answer
        self._refused = refused
        self._limits = limits
        self._server: asyncio.Server | None = None
        self._serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    @property
    def address(self) -> tuple[str, int]:
        """The actual address, also if port 0 was requested."""
        if self._server is None:
            raise RuntimeError("the server is not running")
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    async def start(self, host: str, port: int) -> None:
        """Start listening; raises OSError if the address is not available."""
        self._server = await asyncio.start_server(self._connected, host or None, port, limit=self._limits.head)

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
        if len(self._serving) >= self._limits.connections:
            writer.transport.abort()
            return
        task = asyncio.get_running_loop().create_task(self._serve(reader, writer))
        self._serving[task] = writer
        task.add_done_callback(self._serving.pop)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with suppress(TimeoutError, OSError, asyncio.IncompleteReadError):
                while await self._one(reader, writer):
                    pass
        finally:
            writer.transport.abort()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve a request, and return whether the connection is kept."""
        limits = self._limits
        try:
            async with asyncio.timeout(limits.idle_seconds):
                head = await _head(reader)
            async with asyncio.timeout(limits.request_seconds):
                request = await _request(head, reader, writer, limits)
        except _Refused as error:
            keep, answer = False, self._refused(error.status, str(error)).encode(with_body=True, keep=False)
        else:
            keep, response = request.keep, await self._answer(request)
            answer = response.encode(with_body=request.method != "HEAD", keep=keep)
        async with asyncio.timeout(limits.request_seconds):
            writer.write(answer)
            await writer.drain()
            if not keep:
                writer.close()
                await writer.wait_closed()
        return keep


async def _head(reader: asyncio.StreamReader) -> str:
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.LimitOverrunError:
        raise _Refused(431, "the head of the request is too large") from None
    return head[:-4].lstrip(b"\r\n").decode("latin-1")


async def _request(
    head: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: HttpLimits
) -> HttpRequest:
    first, *lines = head.split("\r\n")
    parts = first.split(" ")
    if len(parts) != 3 or not parts[1].startswith("/") or parts[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise _Refused(400, "not an HTTP/1 request")
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            raise _Refused(400, "a header is not NAME: VALUE")
        headers[name.lower()] = value.strip()
    if headers.get("expect", "").lower() == "100-continue":
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
    body = await _body(headers, reader, limits.body)
    wanted = headers.get("connection", "").lower()
    keep = wanted != "close" if parts[2] == "HTTP/1.1" else wanted == "keep-alive"
    return HttpRequest(parts[0], parts[1], headers, body, keep and limits.keep)


async def _body(headers: Mapping[str, str], reader: asyncio.StreamReader, limit: int) -> bytes:
    coding = headers.get("transfer-encoding", "").lower()
    if coding:
        if coding != "chunked" or "content-length" in headers:
            raise _Refused(400, "the only transfer encoding is chunked, without a content length")
        return await _chunks(reader, limit)
    length = headers.get("content-length", "0")
    if not length.isascii() or not length.isdecimal() or len(length) > 12:
        raise _Refused(400, "the content length is not a number")
    if int(length) > limit:
        raise _Refused(413, f"the body is larger than {limit} bytes")
    return await reader.readexactly(int(length))


async def _chunks(reader: asyncio.StreamReader, limit: int) -> bytes:
    body = bytearray()  # Chunks can be as short as a byte, so that adding to bytes would take minutes.
    while True:
        try:
            size = int((await _line(reader)).partition(b";")[0], 16)
        except ValueError:
            raise _Refused(400, "a chunk has no size") from None
        if size < 0 or len(body) + size > limit:
            raise _Refused(413, f"the body is larger than {limit} bytes")
        if size == 0:
            while await _line(reader) != b"\r\n":
                pass
            return bytes(body)
        body += await reader.readexactly(size)
        if await reader.readexactly(2) != b"\r\n":
            raise _Refused(400, "a chunk does not end with a new line")


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.readuntil(b"\r\n")
    except asyncio.LimitOverrunError:
        raise _Refused(400, "a line between chunks is too long") from None
