"""The layers of a client's channel by ``security.protocol``: none, TLS, SASL, or SASL inside TLS."""

from __future__ import annotations

import ssl
from dataclasses import dataclass

from ottla.config.client import ClientConfig
from ottla.net.client.sasl import Sasl
from ottla.net.client.tls import context_of


@dataclass(frozen=True, slots=True)
class Security:
    """The client's layers between the socket and the requests."""

    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None

    @classmethod
    def of(cls, config: ClientConfig) -> Security:
        """The layers of a configuration. Files are read now, so that errors show when the client is created."""
        return cls(context_of(config), Sasl.of(config))

    @property
    def protocol(self) -> str:
        """Kafka's name of this combination.

        >>> Security().protocol, Security(sasl=Sasl("PLAIN")).protocol
        ('PLAINTEXT', 'SASL_PLAINTEXT')
        """
        plain = "PLAINTEXT" if self.tls is None else "SSL"
        return plain if self.sasl is None else f"SASL_{plain}"


PLAINTEXT = Security()
