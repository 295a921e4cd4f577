"""What the pages share: the clients of a console, and the collectors that read the cluster."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.console.collector import Collector
from ottla.console.decoding import Decoder
from ottla.console.experiments import Experiments
from ottla.console.pipelines import Jobs, Pipelines
from ottla.console.readers import GroupReaders
from ottla.console.sessions import Streams
from ottla.console.settings import Settings
from ottla.console.shared import Shared
from ottla.errors import KafkaError
from ottla.types import Millis

TIMEOUTS: Mapping[str, object] = {"default.api.timeout.ms": 15_000, "request.timeout.ms": 10_000}
"""A page must not wait longer, whatever the clients' defaults are."""
ASKING = 8


class Access:
    """The cluster as one user sees it: an admin client, and the collector that all pages of this user share.

    access = access_of(request)
    topics = await access.admin.list_topics()
    """

    def __init__(self, config: Mapping[str, object], now: Callable[[], Millis]) -> None:
        self.config = {**config, "client.id": "ottla-console"}
        """The configs for further clients: ``AsyncConsumer(access.config)``."""
        self.admin = AsyncAdmin({**TIMEOUTS, **self.config})
        self.now = now
        self.collector = Collector(self.admin.cluster, now)
        self.groups = GroupReaders(self.admin.cluster)
        self.shared = Shared()
        """Other answers of the cluster that pages share for a few seconds."""

    async def close(self) -> None:
        await self.groups.close()
        await self.collector.close()
        await self.shared.close()
        await self.admin.close()


class Console:
    """A console: its settings, and an `Access` for each user, or one for everybody."""

    def __init__(self, settings: Settings, now: Callable[[], Millis]) -> None:
        self.settings = settings
        self.now = now
        self.secret = secrets.token_bytes(32)
        self.experiments = Experiments()
        self.decoder = None if settings.registry is None else Decoder(settings.registry)
        """Reads values with a schema registry."""
        self.pipelines = Pipelines([Path(one) for one in settings.pipelines], settings.bootstrap, _kafka(settings))
        self.jobs = Jobs()
        self.streams = Streams(each=20, most=200)
        """Pages that are told of changes."""
        self.tails = Streams(each=10, most=50)
        """Pages that follow the records of a topic, which costs more."""
        self.asking = ThreadPoolExecutor(ASKING, "ottla-pipelines")
        """Threads that ask the brokers of pipelines, which may not answer. Pages need the others."""
        self._accesses: dict[str | None, Access] = {}
        self._closed = False

    def access(self, user: str | None = None) -> Access:
        """The access of a user who has logged in, or of everybody if nobody has to."""
        if self._closed:
            # A browser asks again as soon as its stream has ended. Nobody would close a new access.
            raise HTTPException(503, "The console is being stopped.")
        if not self.knows(user):
            raise HTTPException(401, "Your session is over: log in again.")
        if user not in self._accesses:
            self._accesses[None] = Access(self.settings.config, self.now)
        return self._accesses[user]

    async def log_in(self, user: str, password: str) -> None:
        """Try a name and a password at the brokers. Raises KafkaError."""
        config = {**self.settings.config, "sasl.username": user, "sasl.password": password}
        config.pop("sasl.jaas.config", None)
        access = Access(config, self.now)
        try:
            await access.admin.describe_cluster()
        except KafkaError:
            await access.close()
            raise
        # The password may be another one now. Pages that load meanwhile, and other logins, find the new access.
        before, self._accesses[user] = self._accesses.get(user), access
        if before is not None:
            await before.close()

    def knows(self, user: str | None) -> bool:
        """Whether there is an access for a user."""
        return not self._closed and (user is None or user in self._accesses)

    async def keep_only(self, users: Collection[str | None]) -> None:
        """Close the connections of others: their sessions are over."""
        for user in [one for one in self._accesses if one is not None and one not in users]:
            await self._accesses.pop(user).close()

    async def close(self) -> None:
        self._closed = True
        await self.experiments.close()
        self.asking.shutdown(wait=False, cancel_futures=True)
        await asyncio.to_thread(self.jobs.close)
        for access in self._accesses.values():
            await access.close()
        self._accesses.clear()


def _kafka(settings: Settings) -> dict[str, str]:
    """The configs for pipelines that use the cluster of the console."""
    left_out = ("bootstrap.servers", "client.id")
    return {name: str(value) for name, value in settings.config.items() if name not in left_out}


def console_of(request: Request) -> Console:
    """The console that serves a request."""
    console: Console = request.app.state.console
    return console


def access_of(request: Request) -> Access:
    """The cluster as the user of a request sees it."""
    return console_of(request).access(request.state.user)
