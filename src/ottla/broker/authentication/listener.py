"""The authentication of one SASL listener: its mechanisms, limits and sessions."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from ottla.broker.authentication.authenticator import Authenticator
from ottla.broker.authentication.conversations import Login, Mechanism
from ottla.broker.authentication.jwks import KeySet
from ottla.broker.authentication.oauthbearer import OAuthBearer
from ottla.broker.authentication.plain import Plain
from ottla.broker.authentication.scram import Scram
from ottla.broker.authentication.tokens import SignedTokens, UnsecuredTokens
from ottla.broker.authentication.workers import Workers
from ottla.config.security import ListenerSecurity
from ottla.net.server.connection import Connection, FrameHandler
from ottla.security.scram import ScramMechanism
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.security")


class SaslListener:
    """Puts an authenticator in front of each new connection."""

    def __init__(self, node: Node, security: ListenerSecurity, serve: FrameHandler) -> None:
        """``serve`` handles the requests of clients that are known."""
        self._node = node
        self._security = security
        self._workers = Workers()
        self._key_sets: list[KeySet] = []
        self.serve = serve
        self.protocol = security.protocol
        self.mechanisms: dict[str, Mechanism] = {
            name: self._mechanism(name, security.for_mechanism(name)) for name in security.sasl_enabled_mechanisms
        }
        self._most_ms: dict[str, Millis] = {
            name: security.for_mechanism(name).connections_max_reauth_ms for name in security.sasl_enabled_mechanisms
        }
        self.max_request_size = node.config.socket_request_max_bytes

    @property
    def timeout_seconds(self) -> float:
        """How long a client may take to authenticate."""
        return self._node.config.ottla_authentication_timeout_ms / 1000

    @property
    def delay_seconds(self) -> float:
        """How long a client that failed waits for the answer."""
        return self._node.config.connection_failed_authentication_delay_ms / 1000

    def _mechanism(self, name: str, security: ListenerSecurity) -> Mechanism:
        if name == "OAUTHBEARER":
            return OAuthBearer(self._tokens(security))
        if name == "PLAIN":
            return Plain(security.jaas.users, self._node.metadata, self._workers)
        return Scram(ScramMechanism.named(name), self._node.metadata)

    def _tokens(self, security: ListenerSecurity) -> SignedTokens | UnsecuredTokens:
        if security.accepts_unsecured_tokens:
            logger.warning(
                "the listener %s accepts tokens without a signature (sasl.server.callback.handler.class): everybody "
                "can pretend to be any user",
                security.name,
            )
            return UnsecuredTokens(security)
        keys = KeySet(security, self._workers)
        self._key_sets.append(keys)
        return SignedTokens(security, keys, self._workers)

    async def open(self) -> None:
        """Read the keys that check tokens."""
        await asyncio.gather(*(keys.open() for keys in self._key_sets))

    def admit(self, connection: Connection) -> None:
        """Let a new client do nothing but authenticate."""
        connection.handler = Authenticator(self, connection).handle
        connection.max_request_size = self._security.sasl_server_max_receive_size

    def lifetime_ms(self, mechanism: str, login: Login) -> Millis | None:
        """Return how long a session lasts, None if it has no end."""
        limits = []
        if (most := self._most_ms[mechanism]) > 0:
            limits.append(most)
        if login.expires_at is not None:
            limits.append(max(0, login.expires_at - self._node.clock.now()))
        return min(limits, default=None)

    def count(self, mechanism: str, *, success: bool) -> None:
        """Count an authentication."""
        self._node.metrics.authenticated(self._security.name, mechanism or "none", success=success)

    def close(self) -> None:
        for keys in self._key_sets:
            keys.close()
        self._workers.close()
