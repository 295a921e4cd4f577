"""The server's connections over real sockets: order, flow control, files, limits and misbehaving clients."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from ottla.net.server.connection import CloseConnection, Connection
from ottla.net.server.listener import Limits, Server
from ottla.protocol.codec import Buffer
from ottla.storage.open_files import OpenFile
from ottla.storage.reading import Slice

Handler = Callable[[Connection, memoryview], Any]


def limits(**changes: Any) -> Limits:
    values: dict[str, Any] = {
        "max_request_size": 4 << 20,
        "max_connections": 1000,
        "max_connections_from": lambda host: 1000,
        "idle_seconds": 60.0,
        "receive_seconds": 60.0,
    }
    return Limits(**{**values, **changes})


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(connection: Connection, frame: memoryview) -> Buffer:
    return Buffer(framed(bytes(frame)))


async def receive(reader: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    return await reader.readexactly(size)


@asynccontextmanager
async def serving(handler: Handler, **changes: Any) -> AsyncIterator[Server]:
    server = Server(handler, limits(**changes))
    await server.start("127.0.0.1", 0)
    server.serve()
    try:
        yield server
    finally:
        await server.stop()


async def connect(server: Server) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", server.port)


async def closed_by_server(reader: asyncio.StreamReader) -> bool:
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


SIZES = [
    [8],
    [8, 9, 10] * 50,
    [70_000, 8, 200_000],
    [3_000_000, 8],
    [1_000_000] * 5,
    [1_000_000, 999_990, 1_000_010, 8, 70_000, 1_000_000],
    [65_531, 65_532, 65_533, 8, 65_536, 131_068, 131_069, 8],
]


@pytest.mark.parametrize("sizes", SIZES)
async def test_frames_of_any_size_come_back_in_order(sizes: list[int]) -> None:
    async with serving(echo) as server:
        reader, writer = await connect(server)
        payloads = [os.urandom(size) for size in sizes]
        writer.write(b"".join(map(framed, payloads)))
        for payload in payloads:
            assert await receive(reader) == payload
        writer.close()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("piece", [40_007, 300_000])
async def test_frames_may_come_in_pieces_of_any_size(sizes: list[int], piece: int) -> None:
    async def later(connection: Connection, frame: bytes) -> Buffer:
        await asyncio.sleep(0)
        return Buffer(framed(frame))

    async with serving(lambda connection, frame: later(connection, bytes(frame))) as server:
        reader, writer = await connect(server)
        payloads = [os.urandom(size) for size in sizes]
        stream = b"".join(map(framed, payloads))

        async def send() -> None:
            for start in range(0, len(stream), piece):
                writer.write(stream[start : start + piece])
                await writer.drain()
                await asyncio.sleep(0)

        sending = asyncio.create_task(send())
        for payload in payloads:
            assert await receive(reader) == payload
        await sending
        assert [connection.buffer for connection in server.connections] == [None]
        writer.close()


async def test_a_frame_may_come_byte_by_byte() -> None:
    async with serving(echo) as server:
        reader, writer = await connect(server)
        for byte in framed(b"slowly, slowly"):
            writer.write(bytes([byte]))
            await writer.drain()
        assert await receive(reader) == b"slowly, slowly"
        writer.close()


async def test_answers_keep_the_order_of_requests_when_one_takes_longer() -> None:
    release = asyncio.Event()

    async def later(frame: bytes) -> Buffer:
        await release.wait()
        return Buffer(framed(frame))

    def handler(connection: Connection, frame: memoryview) -> Any:
        if bytes(frame[:4]) == b"wait":
            return later(bytes(frame))
        release.set()
        return Buffer(framed(bytes(frame)))

    async with serving(handler) as server:
        slow_reader, slow_writer = await connect(server)
        slow_writer.write(framed(b"wait 123") + framed(b"second 2"))
        fast_reader, fast_writer = await connect(server)
        fast_writer.write(framed(b"release!"))
        assert await receive(fast_reader) == b"release!"
        assert await receive(slow_reader) == b"wait 123"
        assert await receive(slow_reader) == b"second 2"
        slow_writer.close()
        fast_writer.close()


@pytest.mark.parametrize("later", [False, True])
async def test_what_was_answered_before_a_broken_frame_is_still_sent(later: bool) -> None:
    async def after_a_while(frame: bytes) -> Buffer:
        await asyncio.sleep(0)
        return Buffer(framed(frame))

    def handler(connection: Connection, frame: memoryview) -> Any:
        return after_a_while(bytes(frame)) if later else echo(connection, frame)

    async with serving(handler) as server:
        reader, writer = await connect(server)
        writer.write(framed(b"in order") + struct.pack(">i", -5))
        assert await receive(reader) == b"in order"
        assert await closed_by_server(reader)
        writer.close()


async def test_many_connections_that_ask_at_once_are_all_answered() -> None:
    async with serving(echo) as server:
        streams = [await connect(server) for _ in range(100)]
        for turn in range(3):
            for number, (_, writer) in enumerate(streams):
                writer.write(framed(b"request %4d of turn %d" % (number, turn)))
            for number, (reader, _) in enumerate(streams):
                assert await receive(reader) == b"request %4d of turn %d" % (number, turn)
        for _, writer in streams:
            writer.close()


async def test_a_request_without_an_answer_does_not_hold_up_the_next() -> None:
    def handler(connection: Connection, frame: memoryview) -> Buffer | None:
        return None if bytes(frame[:4]) == b"none" else Buffer(framed(bytes(frame)))

    async with serving(handler) as server:
        reader, writer = await connect(server)
        writer.write(framed(b"none....") * 3 + framed(b"answered"))
        assert await receive(reader) == b"answered"
        writer.close()


@pytest.mark.parametrize("length", [5, 10_000, 3_000_000])
async def test_slices_of_files_are_sent_between_the_bytes(tmp_path: Path, length: int) -> None:
    data = os.urandom(length + 100)
    (tmp_path / "f").write_bytes(data)

    def handler(connection: Connection, frame: memoryview) -> Buffer:
        file = OpenFile(str(tmp_path / "f"), os.O_RDONLY)
        out = Buffer(struct.pack(">i", 6 + 2 * length) + b"abcdef")
        out.splices.append((6, Slice(file, 100, length, 0)))
        out.splices.append((10, Slice(file, 0, length, 0)))
        return out

    async with serving(handler) as server:
        reader, writer = await connect(server)
        for _ in range(2):
            writer.write(framed(b"whatever"))
            expected = b"ab" + data[100:] + b"cdef" + data[:length]
            assert await receive(reader) == expected
        writer.close()


async def test_a_client_that_does_not_read_is_held_back_and_costs_no_memory() -> None:
    answered = 0

    def handler(connection: Connection, frame: memoryview) -> Buffer:
        nonlocal answered
        answered += 1
        return Buffer(framed(bytes(1 << 20)))

    async with serving(handler) as server:
        reader, writer = await connect(server)
        other_reader, other_writer = await connect(server)
        writer.write(framed(b"12345678") * 1000)
        # The others are served as usual.
        for _ in range(20):
            other_writer.write(framed(b"12345678"))
            await receive(other_reader)
        stuck = next(connection for connection in server.connections if connection.is_stuck)
        assert answered - 20 < 50
        assert stuck.buffer is None or len(stuck.buffer) <= 1 << 17
        for _ in range(1000):
            await receive(reader)
        writer.close()
        other_writer.close()


@pytest.mark.parametrize("size", [-1, 0, 7, (4 << 20) + 1, 2**31 - 1])
async def test_a_frame_of_an_impossible_size_closes_only_its_connection(
    size: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(echo) as server:
        other_reader, other_writer = await connect(server)
        reader, writer = await connect(server)
        writer.write(struct.pack(">i", size) + b"x" * 100)
        assert await closed_by_server(reader)
        other_writer.write(framed(b"still here"))
        assert await receive(other_reader) == b"still here"
        writer.close()
        other_writer.close()
    assert [f"a request of {size} bytes" in record.getMessage() for record in caplog.records] == [True]


async def test_a_declared_size_takes_no_memory_before_the_bytes_are_there() -> None:
    async with serving(echo, max_request_size=100 << 20) as server:
        _, writer = await connect(server)
        writer.write(struct.pack(">i", 100 << 20) + b"x" * 10_000)
        await writer.drain()
        other_reader, other_writer = await connect(server)
        other_writer.write(framed(b"ping ping"))
        await receive(other_reader)
        assert sum(len(c.buffer) for c in server.connections if c.buffer) <= 1 << 18
        writer.close()
        other_writer.close()


@pytest.mark.parametrize("error", [CloseConnection("enough"), RuntimeError("a bug")])
async def test_a_handler_that_fails_closes_only_its_connection(error: Exception) -> None:
    def handler(connection: Connection, frame: memoryview) -> Buffer:
        if bytes(frame[:4]) == b"fail":
            raise error
        return Buffer(framed(bytes(frame)))

    async with serving(handler) as server:
        reader, writer = await connect(server)
        other_reader, other_writer = await connect(server)
        writer.write(framed(b"failing!"))
        assert await closed_by_server(reader)
        other_writer.write(framed(b"still here"))
        assert await receive(other_reader) == b"still here"
        assert len(server.connections) == 1
        writer.close()
        other_writer.close()


async def test_an_awaited_answer_that_fails_closes_the_connection() -> None:
    async def fails() -> Buffer:
        await asyncio.sleep(0)
        raise RuntimeError("a bug")

    async with serving(lambda connection, frame: fails()) as server:
        reader, writer = await connect(server)
        writer.write(framed(b"12345678"))
        assert await closed_by_server(reader)
        assert server.failures == 1
        writer.close()


async def test_closing_a_connection_cancels_what_it_waits_for() -> None:
    waiting: list[Connection] = []
    cancelled = asyncio.Event()

    async def forever(connection: Connection) -> Buffer:
        waiting.append(connection)
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()
        return Buffer()

    async with serving(lambda connection, frame: forever(connection)) as server:
        _, writer = await connect(server)
        writer.write(framed(b"12345678"))
        while not waiting:
            await asyncio.sleep(0)
        waiting[0].close("", expected=True)
        await cancelled.wait()
        assert not server.connections
        writer.close()


async def test_connections_in_all_and_per_address_are_limited() -> None:
    for changes in ({"max_connections": 2}, {"max_connections_from": lambda host: 2}):
        async with serving(echo, **changes) as server:
            first, second = await connect(server), await connect(server)
            for reader, writer in (first, second):
                writer.write(framed(b"welcome!"))
                assert await receive(reader) == b"welcome!"
            third_reader, third_writer = await connect(server)
            assert await closed_by_server(third_reader)
            assert server.refused == 1
            first[1].close()
            while len(server.connections) > 1:
                await asyncio.sleep(0)
            reader, writer = await connect(server)
            writer.write(framed(b"there is room"))
            assert await receive(reader) == b"there is room"
            for each in (second[1], third_writer, writer):
                each.close()


async def test_idle_and_half_sent_connections_are_closed() -> None:
    async with serving(echo, idle_seconds=0.1) as server:
        reader, writer = await connect(server)
        assert await closed_by_server(reader)
        writer.close()
    async with serving(echo, receive_seconds=0.1) as server:
        reader, writer = await connect(server)
        idle_reader, idle_writer = await connect(server)
        writer.write(framed(b"x" * 100)[:50])
        assert await closed_by_server(reader)
        idle_writer.write(framed(b"not idle too long"))
        assert await receive(idle_reader) == b"not idle too long"
        writer.close()
        idle_writer.close()


async def test_an_awaited_answer_follows_earlier_ones_that_the_client_has_not_read() -> None:
    answers = asyncio.Queue[Buffer]()

    async def later() -> Buffer:
        return await answers.get()

    def handler(connection: Connection, frame: memoryview) -> Any:
        return Buffer(framed(bytes(8 << 20))) if bytes(frame[:3]) == b"big" else later()

    async with serving(handler) as server:
        reader, writer = await connect(server)
        writer.write(framed(b"big.....") + framed(b"later..1") + framed(b"later..2"))
        while not any(connection.is_stuck for connection in server.connections):
            await asyncio.sleep(0)
        answers.put_nowait(Buffer(framed(b"one")))
        answers.put_nowait(Buffer(framed(b"two")))
        assert [len(await receive(reader)), await receive(reader), await receive(reader)] == [8 << 20, b"one", b"two"]
        writer.close()
