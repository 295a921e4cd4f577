"""The HTTP server for metrics, over real sockets: valid requests, invalid ones, and silent clients."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TypeAlias

import pytest

from ottla.metrics.registry import Registry
from ottla.metrics.server import MetricsServer

Connection: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]

HEALTH = b"GET /healthz HTTP/1.1\r\n\r\n"


@contextlib.asynccontextmanager
async def serving(**options: object) -> AsyncIterator[MetricsServer]:
    registry = Registry()
    registry.counter("requests_total", "Requests.").value += 7
    server = MetricsServer(registry.render, "127.0.0.1", 0, **options)  # type: ignore[arg-type]
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


@contextlib.asynccontextmanager
async def connected(server: MetricsServer) -> AsyncIterator[Connection]:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ask(server: MetricsServer, request: bytes) -> bytes:
    """The response, up to the end of the connection."""
    async with connected(server) as (reader, writer):
        writer.write(request)
        try:
            return await reader.read()
        except ConnectionResetError:
            return b""


async def accepted(server: MetricsServer) -> set[asyncio.Task[None]]:
    """The open connections. They are accepted in order, so one that got a response comes after them."""
    assert status(await ask(server, HEALTH)) == 200
    return set(server._http._serving)


def status(answer: bytes) -> int:
    return int(answer.split(b" ")[1])


async def test_metrics() -> None:
    async with serving() as server:
        answer = await ask(server, b"GET /metrics?x=1 HTTP/1.1\r\nHost: x\r\n\r\n")
        head, _, body = answer.partition(b"\r\n\r\n")
        assert status(answer) == 200
        assert b"Content-Type: text/plain; version=0.0.4" in head
        assert b"Content-Length: %d" % len(body) in head
        assert body.endswith(b"requests_total 7\n")


async def test_head_has_no_body() -> None:
    async with serving() as server:
        answer = await ask(server, b"HEAD /metrics HTTP/1.1\r\n\r\n")
        assert status(answer) == 200
        assert answer.endswith(b"\r\n\r\n")


async def test_health() -> None:
    problems: list[str] = []
    async with serving(problem=lambda: problems[-1] if problems else None) as server:
        answer = await ask(server, HEALTH)
        assert (status(answer), answer.endswith(b"\r\n\r\nok\n")) == (200, True)
        problems.append("the disk is full")
        answer = await ask(server, b"GET /healthz HTTP/1.0\r\n\r\n")
        assert (status(answer), answer.endswith(b"the disk is full\n")) == (503, True)


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 404),
        (b"GET /metrics/x HTTP/1.1\r\n\r\n", 404),
        (b"POST /metrics HTTP/1.1\r\n\r\n", 405),
        (b"DELETE /healthz HTTP/1.1\r\n\r\n", 405),
        (b"GET /metrics\r\n\r\n", 400),
        (b"GET metrics HTTP/1.1\r\n\r\n", 400),
        (b"GET /metrics HTTP/2.0\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x00\xff\xfe\x16\x03\x01\r\n\r\n", 400),
        (b"GET /metrics HTTP/1.1\r\nX: " + b"a" * 9000, 431),
    ],
)
async def test_bad_requests(request_bytes: bytes, expected: int) -> None:
    async with serving() as server:
        assert status(await ask(server, request_bytes)) == expected
        assert status(await ask(server, HEALTH)) == 200


@pytest.mark.parametrize("request_bytes", [b"", b"GET /metrics HTTP/1.1\r\n"])
async def test_silent_clients_are_closed(request_bytes: bytes) -> None:
    async with serving(timeout=0.05) as server:
        assert await ask(server, request_bytes) == b""


async def test_client_that_never_reads_is_closed() -> None:
    async with serving(timeout=0.3) as server:
        server._page = lambda: "x" * 20_000_000
        async with connected(server) as (_, writer):
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(b"GET /metrics HTTP/1.1\r\n\r\n")
            # On a slow machine, the timeout may have expired already.
            if tasks := await accepted(server):
                await asyncio.wait(tasks)
            assert await accepted(server) == set()


async def test_client_that_leaves_is_forgotten() -> None:
    async with serving() as server:
        async with connected(server) as (_, writer):
            writer.write(b"GET /met")
            tasks = await accepted(server)
        await asyncio.wait(tasks)
        assert await accepted(server) == set()


async def test_too_many_connections_are_closed_at_once() -> None:
    async with serving(max_connections=2) as server, connected(server):
        async with connected(server):
            assert await ask(server, HEALTH) == b""
            tasks = set(server._http._serving)
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert status(await ask(server, HEALTH)) == 200


async def test_stop_closes_connections_and_can_be_repeated() -> None:
    async with serving() as server:
        async with connected(server) as (reader, _):
            await accepted(server)
            await server.stop()
            with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
                await reader.readexactly(1)
        with pytest.raises(RuntimeError, match="not running"):
            assert server.port


async def test_address_in_use_is_an_error() -> None:
    async with serving() as server:
        with pytest.raises(OSError, match="address"):
            await MetricsServer(Registry().render, "127.0.0.1", server.port).start()
