"""How this broker connects to the others: with the protocol of their listener, and its own certificate and user."""

from __future__ import annotations

import logging
import ssl
from functools import partial
from typing import TYPE_CHECKING

from ottla.config.client import ClientConfig
from ottla.config.security import ListenerSecurity
from ottla.config.table import attribute
from ottla.errors import ConfigError
from ottla.net.client.sasl import Sasl
from ottla.net.client.security import Security
from ottla.net.client.tls import context_of
from ottla.net.reloading import Reloading

if TYPE_CHECKING:
    from ottla.broker.node import Node

logger = logging.getLogger("ottla.security")
_WHO = "the connection to other brokers"
#: What a listener and a client have in common.
_SHARED = (
    "ssl.enabled.protocols",
    "ssl.endpoint.identification.algorithm",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
)


class SecurityBetweenBrokers:
    """The security of connections to other brokers. Changed files and dynamic configs count for the next connection."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._listener = self._present()
        self._contexts = _contexts(self._listener)

    def current(self) -> Security:
        """Return the layers of a new connection."""
        listener, config = self._present(), self._node.config
        if listener != self._listener:
            self._use(listener)
        sasl = None
        if listener.has_sasl:
            mechanism = config.sasl_mechanism_inter_broker_protocol
            jaas = listener.for_mechanism(mechanism).jaas
            sasl = Sasl(mechanism, jaas.username or "", jaas.password or "")
        return Security(self._contexts.current() if listener.has_tls else None, sasl)

    def _present(self) -> ListenerSecurity:
        config = self._node.config
        return config.listener(config.inter_broker_listener)

    def _use(self, listener: ListenerSecurity) -> None:
        self._listener = listener
        try:
            self._contexts = _contexts(listener)
        except ConfigError as error:
            logger.error("%s keeps its old certificates: %s", _WHO, error)


def _contexts(listener: ListenerSecurity) -> Reloading[ssl.SSLContext | None]:
    files = (listener.ssl_keystore_location, listener.ssl_truststore_location) if listener.has_tls else ()
    return Reloading(partial(_context, listener), files, _WHO)


def _context(listener: ListenerSecurity) -> ssl.SSLContext | None:
    values = {name: getattr(listener, attribute(name)) for name in _SHARED}
    protocol = "SSL" if listener.has_tls else "PLAINTEXT"
    given = {name: value for name, value in values.items() if value is not None}
    return context_of(ClientConfig.parse({"bootstrap.servers": "unused:1", "security.protocol": protocol, **given}))
