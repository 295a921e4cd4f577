"""A client disconnects during a request: the handler is cancelled."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Awaitable

from ottla.net.server.connection import Answer, Connection
from ottla.net.server.listener import Limits, Server
from ottla.protocol.codec import Buffer

NOW, LATER = b"answer me now", b"answer me later"
LIMITS = Limits(
    max_request_size=1 << 20,
    max_connections=10,
    max_connections_from=lambda host: 10,
    idle_seconds=60.0,
    receive_seconds=60.0,
)


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def reset(client: socket.socket) -> None:
    """Close the socket with a reset, so that the peer cannot send."""
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.close()


def test_a_request_has_begun_when_the_answer_before_it_finds_nobody() -> None:
    """The handler is cancelled and not left hanging."""
    gone = threading.Event()

    async def scenario() -> None:
        begun: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def handler(connection: Connection, frame: memoryview) -> Answer | Awaitable[Answer]:
            if bytes(frame) == LATER:
                return begun
            assert gone.wait(30)
            return Buffer(framed(NOW))

        server = Server(handler, LIMITS)
        await server.start("127.0.0.1", 0)
        client = socket.create_connection(("127.0.0.1", server.port))
        client.sendall(framed(NOW) + framed(LATER))

        def go_away() -> None:
            while not server.bytes_in:
                continue
            reset(client)
            gone.set()

        thread = threading.Thread(target=go_away)
        thread.start()
        server.serve()
        try:
            await asyncio.wait([begun], timeout=20)
        finally:
            thread.join()
            await server.stop()
        assert begun.cancelled()
        assert server.failures == 0

    asyncio.run(scenario())
