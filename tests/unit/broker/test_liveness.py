"""Brokers notice that the process of another one is gone."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from cluster.waiting import until
from ottla.broker.cluster.liveness import Watchdog
from ottla.metadata.values import Endpoint
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey


class Peer:
    """A broker that answers only when the test says so."""

    def __init__(self) -> None:
        self.asked = 0
        self._writers: list[asyncio.StreamWriter] = []

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header = struct.unpack(">hh", (await reader.readexactly(size))[:4])
                assert header == (ApiKey.API_VERSIONS, 0)
                self.asked += 1
        except asyncio.IncompleteReadError:
            writer.close()

    @property
    def is_watched(self) -> bool:
        return bool(self._writers)

    def answer(self) -> None:
        self._writers[-1].write(codec.encode_response(ApiKey.API_VERSIONS, 0, 0, {"error_code": 0, "api_keys": []}))

    def die(self) -> None:
        for writer in self._writers:
            writer.transport.abort()


class Watched:
    """A watchdog, and what it has said."""

    def __init__(self, peer: Peer, server: asyncio.Server) -> None:
        self.peer = peer
        self.said: list[str] = []
        port = server.sockets[0].getsockname()[1]
        self.watchdog = Watchdog(
            Endpoint("PLAINTEXT", "127.0.0.1", port),
            "broker-1-watch",
            self._say("doubt"),
            self._dead,
            self._say("alive"),
        )

    def _say(self, word: str) -> Callable[[], None]:
        return lambda: self.said.append(word)

    def _dead(self) -> Awaitable[None]:
        self.said.append("dead")
        return asyncio.sleep(0)


@asynccontextmanager
async def watched() -> AsyncIterator[Watched]:
    peer = Peer()
    server = await asyncio.start_server(peer.connected, "127.0.0.1", 0)
    found = Watched(peer, server)
    try:
        await until(lambda: found.said and peer.is_watched)
        yield found
    finally:
        found.watchdog.stop()
        server.close()
        peer.die()


async def test_a_broker_that_answers_is_alive() -> None:
    async with watched() as found:
        confirmed = found.watchdog.confirm()
        await until(lambda: found.peer.asked)
        assert not confirmed.done()
        found.peer.answer()
        await asyncio.wait_for(confirmed, 30)
        assert found.said == ["alive"]


async def test_whoever_asks_about_a_dead_broker_is_answered_when_that_is_known() -> None:
    """A client may notice the end of a process before the other brokers do, and ask one of them who leads now."""
    async with watched() as found:
        confirmed = found.watchdog.confirm()
        await until(lambda: found.peer.asked)
        found.peer.die()
        await asyncio.wait_for(confirmed, 30)
        assert found.said == ["alive", "doubt"]


async def test_an_answer_to_an_earlier_question_confirms_nothing() -> None:
    async with watched() as found:
        first = found.watchdog.confirm()
        later = [found.watchdog.confirm() for _ in range(100)]
        await until(lambda: found.peer.asked == 1)
        found.peer.answer()
        await asyncio.wait_for(first, 30)
        await until(lambda: found.peer.asked == 2)
        assert not any(each.done() for each in later)
        # One question is enough for all that wait.
        found.peer.answer()
        await asyncio.wait_for(asyncio.gather(*later), 30)
        assert found.peer.asked == 2


async def test_nobody_waits_for_a_broker_without_a_connection() -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    said: list[str] = []

    async def dead() -> None:
        said.append("dead")

    watchdog = Watchdog(Endpoint("PLAINTEXT", "127.0.0.1", port), "broker-1-watch", lambda: None, dead, lambda: None)
    try:
        await until(lambda: said)
        assert watchdog.confirm().done()
    finally:
        watchdog.stop()
