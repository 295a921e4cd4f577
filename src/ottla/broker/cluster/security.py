"""How this broker connects to the others and to ZooKeeper: with which protocol, certificate and user."""

from __future__ import annotations

import logging
import ssl
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.config import BrokerConfig
from ottla.config.client import ClientConfig
from ottla.config.security import ListenerSecurity
from ottla.config.table import attribute
from ottla.errors import ConfigError
from ottla.net.client.sasl import Sasl
from ottla.net.client.security import Security
from ottla.net.client.tls import context_of
from ottla.net.reloading import Reloading
from ottla.net.stores import refuse_readable_by_all
from ottla.security.jaas import Jaas
from ottla.zookeeper.values import Access

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
        return Security(self._contexts.current() if self._contexts is not None else None, sasl)

    def _present(self) -> ListenerSecurity:
        config = self._node.config
        return config.listener(config.inter_broker_listener)

    def _use(self, listener: ListenerSecurity) -> None:
        self._listener = listener
        try:
            self._contexts = _contexts(listener)
        except ConfigError as error:
            logger.error("%s keeps its old certificates: %s", _WHO, error)


def _contexts(listener: ListenerSecurity) -> Reloading[ssl.SSLContext] | None:
    if not listener.has_tls:
        return None
    return _reloading({name: getattr(listener, attribute(name)) for name in _SHARED}, _WHO)


def access_to_zookeeper(config: BrokerConfig) -> Access:
    """Return how to connect to ZooKeeper. Raise ConfigError if the certificates cannot be used."""
    tls = None
    if config.zookeeper_ssl_client_enable:
        found = {name: getattr(config, attribute(f"zookeeper.{name}"), None) for name in _SHARED}
        algorithm = config.zookeeper_ssl_endpoint_identification_algorithm.lower()
        values = {**found, "ssl.endpoint.identification.algorithm": algorithm}
        tls = _reloading(values, "the connection to ZooKeeper").current
    sasl = None
    if config.ottla_zookeeper_jaas_config is not None:
        jaas = Jaas.parse(config.ottla_zookeeper_jaas_config)
        sasl = jaas.username or "", jaas.password or ""
    return Access(tls, config.ottla_zookeeper_digest, sasl, config.zookeeper_set_acl)


def _reloading(values: Mapping[str, Any], who: str) -> Reloading[ssl.SSLContext]:
    files = (values.get("ssl.keystore.location"), values.get("ssl.truststore.location"))
    return Reloading(partial(_context, values), files, who)


def _context(values: Mapping[str, Any]) -> ssl.SSLContext:
    given = {name: value for name, value in values.items() if value is not None}
    if (keystore := given.get("ssl.keystore.location")) is not None:
        refuse_readable_by_all(keystore, "ssl.keystore.location")
    context = context_of(ClientConfig.parse({"bootstrap.servers": "unused:1", "security.protocol": "SSL", **given}))
    assert context is not None
    return context
