"""The connections of one client: opened on demand, shared, reopened with back-off, closed when idle.

This module has the sockets; `connections.py` decides what to do when. All callers that wait for an address share one
attempt, which continues when one of them gives up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from ottla.clients.cluster.connections import Backoff, ConnectionStates, State, idle, least_loaded, next_idle_check_ms
from ottla.clients.cluster.reports import Reports
from ottla.config.client import Address, ClientConfig
from ottla.net.client.connection import DEFAULT_REQUEST_TIMEOUT_MS, Connection, Disconnected
from ottla.net.client.security import Security
from ottla.net.client.transport import OS_BUFFER
from ottla.types import Millis

log = logging.getLogger(__name__)
_RECONNECT = Backoff(50, 1_000)
_SETUP = Backoff(10_000, 30_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionSettings:
    """The settings of connections; the defaults are Kafka's."""

    client_id: str = "ottla"
    request_timeout_ms: Millis = DEFAULT_REQUEST_TIMEOUT_MS
    reconnect: Backoff = _RECONNECT
    setup: Backoff = _SETUP
    max_idle_ms: Millis = 540_000
    send_buffer_bytes: int = OS_BUFFER
    receive_buffer_bytes: int = OS_BUFFER
    security: Security = field(default_factory=Security)

    @classmethod
    def of(cls, config: ClientConfig) -> ConnectionSettings:
        return cls(
            client_id=config.client_id or "ottla",
            request_timeout_ms=config.request_timeout_ms,
            reconnect=Backoff(config.reconnect_backoff_ms, config.reconnect_backoff_max_ms),
            setup=Backoff(config.socket_connection_setup_timeout_ms, config.socket_connection_setup_timeout_max_ms),
            max_idle_ms=config.connections_max_idle_ms,
            send_buffer_bytes=config.send_buffer_bytes,
            receive_buffer_bytes=config.receive_buffer_bytes,
            security=Security.of(config),
        )


class ConnectionPool:
    """One connection per address. Belongs to one event loop."""

    def __init__(self, settings: ConnectionSettings, reports: Reports | None = None) -> None:
        self.settings = settings
        self.reports = reports or Reports()
        self.states: ConnectionStates[Address] = ConnectionStates(settings.reconnect, settings.setup)
        self._open: dict[Address, Connection] = {}
        self._opening: dict[Address, asyncio.Task[Connection]] = {}
        self._closing: set[asyncio.Task[None]] = set()
        self._idle_check: asyncio.TimerHandle | None = None
        self._closed = False

    async def get(self, address: Address) -> Connection:
        """Return an open connection; waits while the address is backing off, and raises why there is none."""
        connection = self._open.get(address)
        if connection is not None and not connection.closed:
            return connection
        if self._closed:
            raise Disconnected("the client is closed")
        task = self._opening.get(address)
        if task is None:
            task = self._opening[address] = asyncio.create_task(self._connect(address))
            task.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            # Only `close` cancels an attempt.
            if task.cancelled():
                raise Disconnected("the client was closed") from None
            raise

    def choose(self, candidates: Iterable[Address]) -> Address | None:
        """The least loaded of these addresses; None if all are backing off."""
        in_flight = {address: connection.in_flight for address, connection in self._open.items()}
        return least_loaded(candidates, self.states, in_flight, now=_now(), start=random.getrandbits(16))

    def soonest(self, candidates: Iterable[Address]) -> Address:
        """The address whose back-off ends first."""
        return min(candidates, key=lambda address: self.states.wait_ms(address, now=_now()))

    def ready(self, candidates: Iterable[Address]) -> list[Address]:
        return [address for address in candidates if self.states.state(address) is State.READY]

    async def close(self) -> None:
        """Close all connections, even those being opened."""
        self._closed = True
        if self._idle_check is not None:
            self._idle_check.cancel()
        opening = list(self._opening.values())
        for task in opening:
            task.cancel()
        await asyncio.gather(*opening, return_exceptions=True)
        connections, self._open = self._open, {}
        for address in connections:
            self.states.closed(address)
        await asyncio.gather(*(connection.close() for connection in connections.values()), *self._closing)

    async def _connect(self, address: Address) -> Connection:
        try:
            await asyncio.sleep(self.states.wait_ms(address, now=_now()) / 1000)
            return await self._attempt(address)
        finally:
            del self._opening[address]

    async def _attempt(self, address: Address) -> Connection:
        timeout_ms = self.states.connecting(address, now=_now(), chance=_chance())
        try:
            connection = await Connection.open(
                *address,
                client_id=self.settings.client_id,
                request_timeout_ms=self.settings.request_timeout_ms,
                connect_timeout_ms=timeout_ms,
                security=self.settings.security,
                send_buffer_bytes=self.settings.send_buffer_bytes,
                receive_buffer_bytes=self.settings.receive_buffer_bytes,
                on_closed=lambda: self._lost(address),
            )
        except asyncio.CancelledError:
            self.states.closed(address)
            raise
        except Exception as error:
            self.states.lost(address, now=_now(), chance=_chance(), connecting=True)
            log.info("%s; the next attempt waits %s ms", error, self.states.wait_ms(address, now=_now()))
            self.reports.failed(address, error, self.states.failures(address))
            raise
        log.debug("connected to %s", connection.address)
        self.states.ready(address)
        self.reports.connected(address)
        self._open[address] = connection
        self._watch_idle()
        return connection

    def _lost(self, address: Address) -> None:
        """A connection ended that this pool has not closed."""
        connection = self._open.get(address)
        if connection is not None and connection.closed:
            del self._open[address]
            self.states.lost(address, now=_now(), chance=_chance())
            log.info("the connection to %s was lost", connection.address)
            self.reports.lost(address, connection.failure)

    # Idle connections.

    def _watch_idle(self) -> None:
        if self._idle_check is not None or self.settings.max_idle_ms <= 0:
            return
        wait = next_idle_check_ms(self._last_used().values(), max_idle_ms=self.settings.max_idle_ms, now=_now())
        if wait is not None:
            self._idle_check = asyncio.get_running_loop().call_later(wait / 1000, self._close_idle)

    def _close_idle(self) -> None:
        self._idle_check = None
        for address in idle(self._last_used(), max_idle_ms=self.settings.max_idle_ms, now=_now()):
            connection = self._open.pop(address)
            self.states.closed(address)
            task = asyncio.get_running_loop().create_task(connection.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        self._watch_idle()

    def _last_used(self) -> dict[Address, Millis]:
        """When each connection was last used; one that waits for a response is in use."""
        now = _now()
        return {
            address: now if connection.in_flight else int(connection.last_used * 1000)
            for address, connection in self._open.items()
        }


def _now() -> Millis:
    return int(asyncio.get_running_loop().time() * 1000)


def _chance() -> float:
    return random.uniform(-1, 1)


def _retrieve(task: asyncio.Task[Connection]) -> None:
    """Mark the error as retrieved: all callers may have given up."""
    with contextlib.suppress(asyncio.CancelledError):
        task.exception()
