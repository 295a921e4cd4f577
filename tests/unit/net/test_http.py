"""The small HTTP server: bodies in chunks."""

from __future__ import annotations

import asyncio

import pytest

from ottla.net.server.http import HttpLimits, HttpRequest, HttpResponse, HttpServer


async def answer(request: HttpRequest) -> HttpResponse:
    return HttpResponse(200, str(len(request.body)).encode())


async def asked(body: bytes) -> bytes:
    """Send a body in chunks; return the answer."""
    server = HttpServer(answer, limits=HttpLimits(keep=False, request_seconds=20))
    await server.start("127.0.0.1", 0)
    try:
        reader, writer = await asyncio.open_connection(*server.address)
        writer.write(b"POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n" + body)
        async with asyncio.timeout(30):
            got = await reader.read()
        writer.close()
        return got
    finally:
        await server.stop()


async def test_very_many_short_chunks_are_one_body() -> None:
    count = 20_000
    got = await asked(b"1\r\nx\r\n" * count + b"0\r\n\r\n")
    assert got.endswith(str(count).encode())


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"x\r\n", b"a chunk has no size"),
        (b"-1\r\n", b"larger than"),
        (b"900001\r\n", b"larger than"),
        (b"1\r\nxyz", b"does not end with a new line"),
        (b"1" * 100_000, b"a line between chunks is too long"),
        (b"0\r\n" + b"x" * 100_000, b"a line between chunks is too long"),
    ],
)
async def test_a_wrong_body_is_refused(body: bytes, says: bytes, caplog: pytest.LogCaptureFixture) -> None:
    got = await asked(body)
    assert got.startswith(b"HTTP/1.1 4")
    assert says in got
    assert not caplog.records
