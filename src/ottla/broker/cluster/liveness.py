"""Notice at once that another broker's process is gone.

The operating system closes the connections of a process that dies, and its port refuses new ones. So an idle
connection that breaks, and a port that then refuses, are certain. A machine that does not answer is left to ZooKeeper's
session timeout.

A client may notice the death of a broker a moment earlier, and ask another one who leads now. `Watchdog.confirm` finds
out before it is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from ottla.errors import OttlaError
from ottla.metadata.values import Endpoint
from ottla.net.client.sasl import Sasl, authenticate
from ottla.net.client.security import Security
from ottla.protocol.apis import ApiKey, api
from ottla.protocol.codec import Message, Struct, decode_response, encode_request
from ottla.zookeeper.client import probe

RETRY_SECONDS = 0.5
#: The part of a session's lifetime that is used.
SESSION_PART = 0.9
OnDead: TypeAlias = Callable[[], Awaitable[None]]


class Watchdog:
    """Holds a connection to one address, and calls back when the process behind it is gone."""

    def __init__(
        self,
        endpoint: Endpoint,
        client_id: str,
        on_doubt: Callable[[], None],
        on_dead: OnDead,
        on_alive: Callable[[], None],
        security: Callable[[], Security] = Security,
    ) -> None:
        """``on_doubt`` is called when the connection breaks, ``on_dead`` again and again while the port refuses."""
        self._endpoint = endpoint
        self._client_id = client_id
        self._security = security
        self._question = bytes(encode_request(ApiKey.API_VERSIONS, 0, 0, client_id, {}))
        self._on_doubt = on_doubt
        self._on_dead = on_dead
        self._on_alive = on_alive
        self._writer: asyncio.StreamWriter | None = None
        self._asked: asyncio.Future[None] | None = None
        """Done when the question that was sent is answered, or cannot be."""
        self._next: asyncio.Future[None] | None = None
        """The same for the next question, which is sent after that: many may wait for it."""
        self._task = asyncio.ensure_future(self._run())

    def stop(self) -> None:
        self._task.cancel()

    def confirm(self) -> asyncio.Future[None]:
        """Return a future that is done when the process has answered a question from now on, or is in doubt."""
        if self._next is None:
            self._next = asyncio.get_running_loop().create_future()
        found = self._next
        if self._asked is None:
            self._ask()
        return found

    def _ask(self) -> None:
        self._asked, self._next = self._next, None
        if self._writer is None:
            self._answered()
        elif self._asked is not None:
            self._writer.write(self._question)

    def _answered(self) -> None:
        if self._asked is not None and not self._asked.done():
            self._asked.set_result(None)
        self._asked = None
        if self._next is not None:
            self._ask()

    async def _run(self) -> None:
        while True:
            security = self._security()
            try:
                reader, writer = await asyncio.open_connection(
                    self._endpoint.host, self._endpoint.port, ssl=security.tls
                )
            except ConnectionRefusedError:
                await self._on_dead()
                await asyncio.sleep(RETRY_SECONDS)
                continue
            except OSError:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            try:
                lifetime = await self._log_in(security.sasl, reader, writer)
                self._on_alive()
                async with asyncio.timeout(lifetime):
                    await self._until_broken(reader, writer)
            except TimeoutError:
                continue  # The next connection begins a new session.
            except (OttlaError, OSError, asyncio.IncompleteReadError):
                await asyncio.sleep(RETRY_SECONDS)  # Connections with other purposes report what is wrong.
            finally:
                writer.close()
            if isinstance(await probe(self._endpoint.host, self._endpoint.port), ConnectionRefusedError):
                await self._on_dead()
                await asyncio.sleep(RETRY_SECONDS)

    async def _log_in(
        self, sasl: Sasl | None, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> float | None:
        """Authenticate if the listener requires it. Return the seconds after which to begin again."""
        if sasl is None:
            return None

        async def request(api_key: int, message: Message) -> Struct:
            version = api(api_key).last
            writer.write(encode_request(api_key, version, 0, self._client_id, message))
            return decode_response(api_key, version, await _frame(reader))

        lifetime = await authenticate(f"{self._endpoint.host}:{self._endpoint.port}", sasl, request)
        return lifetime * SESSION_PART / 1000 if lifetime else None

    async def _until_broken(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        try:
            while True:
                await _frame(reader)
                self._answered()
        except (OSError, asyncio.IncompleteReadError):
            self._on_doubt()
        finally:
            self._writer = None
            self._answered()


async def _frame(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
