"""Requests received from many connections at once: complete, in order, each for its connection; and both twins."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import struct
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from random import Random
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_server import closed_by_server, connect, echo, framed, receive, serving

from ottla.net.server import _sockets_pure
from ottla.net.server import listener as server_module
from ottla.net.server.connection import ANSWERS_TOGETHER, Connection
from ottla.net.server.kernels import KERNELS, kernels
from ottla.net.server.listener import Server
from ottla.net.server.receiving import FEW, LITTLE, MANY, EpollReaders, LoopReaders
from ottla.protocol.codec import Buffer

TWINS: list[Any] = [_sockets_pure] if KERNELS == "pure" else [_sockets_pure, kernels]
READERS = {"loop": lambda loop, _: LoopReaders(loop), **({"epoll": EpollReaders} if hasattr(select, "epoll") else {})}
CLIENTS = FEW + 10 * MANY


@pytest.fixture(params=READERS, autouse=True)
def _readers(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "readers_of", READERS[request.param])


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["open", "closed", "none"]), st.integers(0, 300)), max_size=600),
    st.integers(0, 100_000),
    st.integers(1, 200),
)
def test_both_twins_receive_the_same(sockets: list[tuple[str, int]], size: int, most: int) -> None:
    first, *others = (_received(twin, sockets, size, most) for twin in TWINS)
    assert all(other == first for other in others)
    counts, buffer = first
    assert all(count == min(sent, most) for (state, sent), count in zip(sockets, counts, strict=False) if count > 0)
    assert len(counts) == len(sockets) or sum(max(count, 0) for count in counts) + most > size
    assert not any(buffer[sum(max(count, 0) for count in counts) :])


def _received(twin: ModuleType, sockets: list[tuple[str, int]], size: int, most: int) -> tuple[list[int], bytes]:
    buffer = bytearray(size)
    with ExitStack() as stack:
        fds = []
        for number, (state, sent) in enumerate(sockets):
            ours, theirs = map(stack.enter_context, socket.socketpair())
            ours.setblocking(False)
            theirs.send(bytes([number % 255 + 1]) * sent)
            if state == "closed":
                theirs.close()
            elif state == "none":
                ours.close()
            fds.append(ours.fileno())
        return twin.receive_all(fds, buffer, most), bytes(buffer)


Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def many_clients(server: Server) -> AsyncIterator[list[Client]]:
    clients = [await connect(server) for _ in range(CLIENTS)]
    while len(server.connections) < CLIENTS:
        await asyncio.sleep(0)
    yield clients
    for _, writer in clients:
        writer.close()


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("at_once", [True, False])
async def test_each_of_many_clients_gets_its_own_answers_in_order(seed: int, at_once: bool) -> None:
    """Requests of all sizes in pieces of all sizes, several in flight on each connection."""
    random = Random(seed)
    longest = random.choice([30, 3_000, 3 * LITTLE])

    async def later(frame: bytes) -> Buffer:
        await asyncio.sleep(0)
        return Buffer(framed(frame))

    async with (
        serving(echo if at_once else lambda _, frame: later(bytes(frame))) as server,
        many_clients(server) as clients,
    ):
        sent = [[os.urandom(random.randint(8, longest)) for _ in range(5)] for _ in clients]
        streams = [b"".join(map(framed, payloads)) for payloads in sent]
        while any(streams):
            for number, (_, writer) in enumerate(clients):
                cut = random.choice([3, 12, len(streams[number]) // 2, len(streams[number])])
                writer.write(streams[number][:cut])
                streams[number] = streams[number][cut:]
            await asyncio.sleep(0)
        for (reader, _), payloads in zip(clients, sent, strict=True):
            assert [await receive(reader) for _ in payloads] == payloads
        assert server.bytes_in == server.bytes_out == sum(4 + len(each) for payloads in sent for each in payloads)


async def test_clients_that_send_without_end_do_not_keep_the_event_loop_from_others() -> None:
    handled = most = 0

    def slow(connection: Connection, frame: memoryview) -> None:
        nonlocal handled
        handled += 1
        server.turn.unwritten[:] = [bool]
        end = time.monotonic() + 0.002
        while time.monotonic() < end:
            pass

    async with serving(slow) as server, many_clients(server) as clients:
        busy = clients[FEW : FEW + 2 * MANY]
        for _, writer in busy:
            writer.write(framed(bytes(10_000)) * 40)
        while handled < 40 * len(busy):
            before = handled
            await asyncio.sleep(0)
            most = max(most, handled - before)
    assert most <= 7 * len(busy)  # One buffer, once from each of them.


async def test_an_answer_that_cannot_be_sent_for_lack_of_a_write_harms_no_other() -> None:
    def broken() -> None:
        raise RuntimeError("no such thing as a log")

    def answer(connection: Connection, frame: memoryview) -> Buffer:
        if frame == b"write it":
            server.turn.unwritten.append(broken)
            return Buffer(framed(bytes(ANSWERS_TOGETHER)))
        return Buffer(framed(bytes(frame)))

    async with serving(answer) as server, many_clients(server) as clients:
        for number, (_, writer) in enumerate(clients):
            writer.write(framed(b"say this" if number % 3 else b"write it"))
        for number, (reader, _) in enumerate(clients):
            if number % 3:
                assert await receive(reader) == b"say this"
            else:
                assert await closed_by_server(reader)


async def test_those_that_go_wrong_among_many_do_not_harm_the_others() -> None:
    """One closes, one is reset, one sends an invalid length."""
    async with serving(echo) as server, many_clients(server) as clients:
        for number, (_, writer) in enumerate(clients):
            if number % 4 == 1:
                writer.write(framed(b"")[:2])
                writer.close()
            elif number % 4 == 2:
                sock = writer.get_extra_info("socket")
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            elif number % 4 == 3:
                writer.write(struct.pack(">i", 7) + bytes(7))
            else:
                writer.write(framed(b"number %d of many" % number))
        for number, (reader, writer) in enumerate(clients):
            if number % 4 == 3:
                assert await closed_by_server(reader)
            elif number % 4 == 0:
                assert await receive(reader) == b"number %d of many" % number
                writer.write(framed(b"and again"))
                assert await receive(reader) == b"and again"
        while len(server.connections) > CLIENTS / 4:
            await asyncio.sleep(0.001)


async def test_what_a_connection_sent_is_dropped_when_it_is_closed_while_others_are_handled() -> None:
    asked: list[bytes] = []

    def close_all_others(connection: Connection, frame: memoryview) -> Buffer:
        asked.append(bytes(frame))
        for other in server.connections - {connection}:
            other.close("enough")
        return Buffer(framed(b"the only one"))

    async with serving(close_all_others) as server, many_clients(server) as clients:
        for _, writer in clients:
            writer.write(framed(b"a request"))
        answers = [await _last_words(reader) for reader, _ in clients]
        assert asked == [b"a request"]
        assert [answer for answer in answers if answer] == [framed(b"the only one")]


async def _last_words(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read(100)
    except ConnectionError:
        return b""


async def test_a_client_that_sends_on_while_it_waits_is_answered_in_order_among_many() -> None:
    release = asyncio.Event()

    async def when_released(frame: bytes) -> Buffer:
        await release.wait()
        return Buffer(framed(frame))

    async with serving(lambda _, frame: when_released(bytes(frame))) as server, many_clients(server) as clients:
        for text in (b"first one", b"second one", b"third one"):
            for _, writer in clients:
                writer.write(framed(text))
            while server.bytes_in < CLIENTS * len(framed(b"first one")):
                await asyncio.sleep(0)
        release.set()
        for reader, _ in clients:
            assert [await receive(reader) for _ in range(3)] == [b"first one", b"second one", b"third one"]
