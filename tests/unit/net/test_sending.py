"""Responses sent by a thread: complete and in order, whatever the sockets accept; and both twins."""

from __future__ import annotations

import asyncio
import socket
from contextlib import ExitStack
from types import ModuleType
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_server import closed_by_server, connect, framed, receive, serving

from ottla.net.server import _sockets_pure
from ottla.net.server.connection import Connection
from ottla.net.server.kernels import KERNELS, kernels
from ottla.net.server.listener import MANY_ANSWERS
from ottla.net.server.sending import MOST_BATCHES, Sending
from ottla.protocol.codec import Buffer

TWINS: list[Any] = [_sockets_pure] if KERNELS == "pure" else [_sockets_pure, kernels]
MANY = 3 * MANY_ANSWERS


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["open", "full", "closed"]), st.integers(1, 400_000)), max_size=300))
def test_both_twins_send_the_same(jobs: list[tuple[str, int]]) -> None:
    jobs = [*jobs[:5], *((state, size % 50 + 1) for state, size in jobs[5:])]  # socket pairs have large buffers
    first, *others = (_sent(twin, jobs) for twin in TWINS)
    assert all(other == first for other in others)


def _sent(twin: ModuleType, jobs: list[tuple[str, int]]) -> tuple[list[tuple[int, int]], list[bytes]]:
    with ExitStack() as stack:
        pairs = [tuple(map(stack.enter_context, _pair(state))) for state, _ in jobs]
        frames = [bytearray(bytes(range(250)) * (size // 250 + 1))[:size] for _, size in jobs]
        unsent = twin.send_all([ours.fileno() for ours, _ in pairs], frames)
        open_ones = [theirs for (_, theirs), (state, _) in zip(pairs, jobs, strict=True) if state == "open"]
        return unsent, [_received(theirs) for theirs in open_ones]


def _pair(state: str) -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    if state == "full":
        while True:
            try:
                ours.send(bytes(4096))
            except BlockingIOError:
                break
    elif state == "closed":
        theirs.close()
    return ours, theirs


def _received(theirs: socket.socket) -> bytes:
    data = bytearray()
    while True:
        try:
            part = theirs.recv(1 << 20)
        except BlockingIOError:
            return bytes(data)
        data += part


@pytest.mark.parametrize("size", [10, 60_000])
async def test_answers_that_a_thread_sends_arrive_whole_and_in_order(size: int) -> None:
    """Some clients stop reading for a while: the rest is sent later."""

    def answer(connection: Connection, frame: memoryview) -> Buffer:
        server.turn.unwritten.append(nothing)
        return Buffer(framed(bytes(frame) * (size // 10)))

    async with serving(answer, send_buffer=4096) as server:
        handed_over = _watch(server)
        clients = [await connect(server) for _ in range(MANY)]
        for round_ in range(5):
            for _, writer in clients:
                writer.write(framed(b"%010d" % round_))
            for reader, _ in clients[::2]:
                assert await receive(reader) == b"%010d" % round_ * (size // 10)
        for round_ in range(5):
            for reader, _ in clients[1::2]:
                assert await receive(reader) == b"%010d" % round_ * (size // 10)
        assert handed_over
        for _, writer in clients:
            writer.close()


async def test_a_connection_that_ends_meanwhile_harms_no_other() -> None:
    def answer(connection: Connection, frame: memoryview) -> Buffer:
        server.turn.unwritten.append(nothing)
        return Buffer(framed(bytes(frame)))

    async with serving(answer) as server:
        handed_over = _watch(server)
        for _ in range(5):
            clients = [await connect(server) for _ in range(MANY)]
            for number, (_, writer) in enumerate(clients):
                writer.write(framed(b"%010d" % number))
                if number % 3 == 0:
                    writer.transport.abort()
            for number, (reader, writer) in enumerate(clients):
                if number % 3:
                    assert await receive(reader) == b"%010d" % number
                    writer.close()
        assert handed_over


async def test_what_was_handed_over_leaves_before_the_server_stops() -> None:
    waiting: list[asyncio.Future[Buffer]] = []

    def answer(connection: Connection, frame: memoryview) -> Any:
        waiting.append(asyncio.get_running_loop().create_future())
        return waiting[-1]

    async with serving(answer) as server:
        clients = [await connect(server) for _ in range(MANY)]
        for _, writer in clients:
            writer.write(framed(b"question"))
        while len(waiting) < MANY:
            await asyncio.sleep(0.001)
        server.turn.unwritten.append(nothing)
        for future in waiting:
            future.set_result(Buffer(framed(b"answer")))
        while server.sending.is_settled:
            await asyncio.sleep(0)
    for reader, writer in clients:
        assert await receive(reader) == b"answer"
        writer.close()


async def test_answers_that_wait_for_no_write_are_sent_at_once() -> None:
    """For these, waking a thread takes longer than it saves."""

    def answer(connection: Connection, frame: memoryview) -> Buffer:
        return Buffer(framed(bytes(frame)))

    async with serving(answer) as server:
        handed_over = _watch(server)
        clients = [await connect(server) for _ in range(MANY)]
        for _, writer in clients:
            writer.write(framed(b"question"))
        for reader, writer in clients:
            assert await receive(reader) == b"question"
            writer.close()
        assert not handed_over


def nothing() -> None:
    """What must be written before responses leave; unused here."""


def _watch(server: Any) -> list[int]:
    """The number of responses handed over each time."""
    counts: list[int] = []
    hand_over = server.sending.hand_over

    def counted(connections: list[Connection], frames: list[bytearray]) -> None:
        counts.append(len(frames))
        hand_over(connections, frames)

    server.sending.hand_over = counted
    return counts


class Receiver:
    """A connection as the thread sees it, whose client does not read."""

    def __init__(self, stack: ExitStack) -> None:
        self._ours, self._theirs = map(stack.enter_context, _pair("open"))
        self._ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        self.fd = self._ours.fileno()
        self.put_back: list[memoryview] = []

    def not_sent(self, frames: list[memoryview]) -> None:
        assert not self.put_back
        self.put_back = frames

    @property
    def has(self) -> bytes:
        return b"".join([_received(self._theirs), *self.put_back])


class LoopOfNobody:
    """Ignores calls: the test settles itself."""

    def call_soon_threadsafe(self, *_: Any) -> None:
        """A real event loop would settle."""


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.sampled_from([0, 10, 3_000, 9_000]), min_size=4, max_size=4), max_size=MOST_BATCHES))
def test_what_a_socket_did_not_take_is_not_overtaken_by_later_batches(batches: list[list[int]]) -> None:
    with ExitStack() as stack:
        sending, receivers = Sending(), [Receiver(stack) for _ in range(4)]
        expected = [bytearray() for _ in receivers]
        for number, sizes in enumerate(batches):
            frames = [bytearray([number + 1]) * size for size in sizes]
            sending.make_room()
            sending.hand_over(
                [cast(Connection, each) for each, size in zip(receivers, sizes, strict=True) if size],
                [frame for frame in frames if frame],
            )
            for all_of_it, frame in zip(expected, frames, strict=True):
                all_of_it += frame
        assert sending.is_settled == (not batches)
        sending.start(cast(asyncio.AbstractEventLoop, LoopOfNobody()))
        sending.settle()
        assert sending.is_settled
        assert [receiver.has for receiver in receivers] == expected
        sending.close()


async def test_answers_that_cannot_be_sent_at_all_close_their_connections(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class OutOfMemory:
        current_cpu = staticmethod(kernels.current_cpu)

        @staticmethod
        def send_all(fds: list[int], frames: list[bytearray]) -> list[tuple[int, int]]:
            raise MemoryError

    def answer(connection: Connection, frame: memoryview) -> Buffer:
        server.turn.unwritten.append(nothing)
        return Buffer(framed(bytes(frame)))

    async with serving(answer) as server:
        clients = [await connect(server) for _ in range(MANY)]
        monkeypatch.setattr("ottla.net.server.sending.kernels", OutOfMemory)
        for _, writer in clients:
            writer.write(framed(b"question"))
        for reader, writer in clients:
            assert await closed_by_server(reader)
            writer.close()
        monkeypatch.undo()
        reader, writer = await connect(server)
        writer.write(framed(b"question"))
        assert await receive(reader) == b"question"
        writer.close()
    assert "responses could not be sent" in caplog.text
