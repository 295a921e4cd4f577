"""A registry that listens: on the running event loop, or in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping

from ottla.errors import OttlaError
from ottla.registry_server.http import HttpServer
from ottla.registry_server.service import RegistryService, refused
from ottla.runtime.loops import new_event_loop

DEFAULT_TOPIC = "_schemas"


class RegistryServer:
    """A registry on the running event loop.

    `config` has the configs of clients, such as ``bootstrap.servers``; schemas live in `topic` of that cluster.
    """

    def __init__(
        self,
        config: Mapping[str, object],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        topic: str = DEFAULT_TOPIC,
        users: Mapping[str, str] | None = None,
    ) -> None:
        self._service = RegistryService(config, topic=topic, users=users)
        self._http = HttpServer(self._service.answer, refused)
        self._host, self._port = host, port

    @property
    def url(self) -> str:
        host, port = self._http.address
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
        return f"http://{f'[{host}]' if ':' in host else host}:{port}"

    async def start(self) -> None:
        """Read the topic, then listen."""
        try:
            await self._service.topic.open()
            await self._http.start(self._host, self._port)
        except BaseException:
            await self._service.topic.close()
            raise

    async def stop(self) -> None:
        await self._http.stop()
        await self._service.topic.close()


class RegistryThread:
    """A registry in a thread with its own event loop: for `ottla.Broker`, whose loop it must not stall."""

    def __init__(self, config: Mapping[str, object], *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._loop = new_event_loop()
        self._server: RegistryServer | None = None
        self._thread = threading.Thread(target=self._loop.run_forever, name="ottla-registry", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._start(config, host, port), self._loop).result()
        except (OttlaError, OSError):
            self._end()
            raise

    async def _start(self, config: Mapping[str, object], host: str, port: int) -> None:
        self._server = RegistryServer(config, host=host, port=port)
        await self._server.start()

    @property
    def url(self) -> str:
        assert self._server is not None
        return self._server.url

    def stop(self) -> None:
        """Stop the registry and wait for the end of the thread."""
        assert self._server is not None
        asyncio.run_coroutine_threadsafe(self._server.stop(), self._loop).result()
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
