"""Connections to the other brokers. A broker answers one connection in order, so each purpose has its own."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ottla.broker.cluster.security import SecurityBetweenBrokers
from ottla.errors import OttlaError
from ottla.metadata.values import BrokerState, Endpoint
from ottla.net.client.connection import Connection
from ottla.protocol.codec import Message, Struct
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.broker.node import Node


class PeerUnavailable(OttlaError):
    """Another broker cannot be reached now."""


class Peers:
    """The other brokers of the cluster."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self.security = SecurityBetweenBrokers(node)
        self._connections: dict[tuple[int, str], Connection] = {}
        self._opening: dict[tuple[int, str], asyncio.Lock] = {}

    def endpoint(self, broker_id: int) -> Endpoint:
        """Return the address of a broker for other brokers."""
        broker = self._node.metadata.brokers.get(broker_id)
        if broker is None or not broker.listeners:
            raise PeerUnavailable(f"broker {broker_id} is not known")
        return endpoint_of(broker, self._node.config.inter_broker_listener)

    async def request(
        self, broker_id: int, api_key: int, message: Message, *, purpose: str, timeout_ms: Millis
    ) -> Struct:
        """Send a request to a broker on the connection for a purpose, and return the response."""
        # A timeout needs a task, and a handler may have none.
        connection = await asyncio.ensure_future(self.connection(broker_id, purpose))
        return await connection.request(api_key, message, timeout_ms=timeout_ms)

    async def connection(self, broker_id: int, purpose: str) -> Connection:
        """Return the open connection for a purpose. It belongs to the present address of the broker."""
        known, endpoint = self._connections.get((broker_id, purpose)), self.endpoint(broker_id)
        if known is not None and not known.closed and (known.host, known.port) == (endpoint.host, endpoint.port):
            return known
        # A handler may run outside of a task, and opening a connection has a timeout, which needs one.
        return await asyncio.ensure_future(self._open(broker_id, purpose))

    async def _open(self, broker_id: int, purpose: str) -> Connection:
        key = broker_id, purpose
        async with self._opening.setdefault(key, asyncio.Lock()):
            endpoint = self.endpoint(broker_id)
            known = self._connections.get(key)
            if known is not None and not known.closed:
                if (known.host, known.port) == (endpoint.host, endpoint.port):
                    return known
                await known.close()
            config = self._node.config
            connection = await Connection.open(
                endpoint.host,
                endpoint.port,
                client_id=f"broker-{self._node.id}-{purpose}",
                request_timeout_ms=config.replica_socket_timeout_ms,
                connect_timeout_ms=config.replica_socket_timeout_ms,
                security=self.security.current(),
            )
            self._connections[key] = connection
            return connection

    async def close(self) -> None:
        """Close all connections."""
        connections = list(self._connections.values())
        self._connections.clear()
        await asyncio.gather(*(connection.close() for connection in connections), return_exceptions=True)


def endpoint_of(broker: BrokerState, name: str | None) -> Endpoint:
    """Return the address of a listener by its name, or the first one."""
    return next((each for each in broker.listeners if each.name == name), broker.listeners[0])
