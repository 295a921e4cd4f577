"""A registry that listens: on the running event loop, or in a thread of its own."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.clients.blocking import LoopThread
from ottla.net.server.http import HttpServer
from ottla.registry_server.service import RegistryService, refused

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
        self._http = HttpServer(self._service.answer, refused=refused)
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
        self._thread = LoopThread("registry")
        try:
            self._server = self._thread.call(self._start(config, host, port))
        except BaseException:
            self._thread.stop()
            raise

    async def _start(self, config: Mapping[str, object], host: str, port: int) -> RegistryServer:
        server = RegistryServer(config, host=host, port=port)
        await server.start()
        return server

    @property
    def url(self) -> str:
        return self._server.url

    def stop(self) -> None:
        """Stop the registry and wait for the end of the thread."""
        self._thread.call(self._server.stop())
        self._thread.stop()
