"""What a console was started with."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from ottla.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a console.

    >>> Settings(config={"bootstrap.servers": "localhost:9092"}).asks_who
    False
    """

    config: Mapping[str, object]
    """The configs of clients, such as ``bootstrap.servers``."""
    host: str = "127.0.0.1"
    port: int = 0
    read_only: bool = False
    token: str | None = None
    """Whoever knows it may use the console."""
    users: bool = False
    """Whether people log in as users of the brokers, and then do everything as that user."""
    registry: str | None = None
    """The URL of a schema registry."""
    pipelines: tuple[str, ...] = ()
    """Files of pipelines, and directories with such files."""
    arguments: tuple[str, ...] = field(default=())
    """The options with which `ottla` commands reach the same cluster."""

    def __post_init__(self) -> None:
        if self.token is not None and self.users:
            raise ConfigError("a console asks for a token or for users, not both: leave out --token-file or --users")
        if self.token is not None and len(self.token) < 16:
            raise ConfigError("the token is too short to be a secret: use at least 16 characters")
        protocol = str(self.config.get("security.protocol", "PLAINTEXT")).upper()
        if self.users and (
            not protocol.startswith("SASL_") or self.config.get("sasl.mechanism", "PLAIN") == "OAUTHBEARER"
        ):
            raise ConfigError(
                "--users needs brokers that ask for a name and a password: set security.protocol=SASL_SSL and "
                "sasl.mechanism=SCRAM-SHA-256 (or what the brokers have) in the file of --command-config"
            )
        if not is_loopback(self.host) and not self.asks_who:
            raise ConfigError(
                f"everybody who reaches {self.host or 'this machine'} could use this console: add --token-file FILE or "
                "--users, or listen on 127.0.0.1"
            )

    @property
    def asks_who(self) -> bool:
        """Whether people must log in."""
        return self.token is not None or self.users

    @property
    def bootstrap(self) -> str:
        """The brokers as text."""
        servers = self.config.get("bootstrap.servers", "")
        return servers if isinstance(servers, str) else ",".join(map(str, servers))  # type: ignore[call-overload]


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0"), is_loopback("")
    (True, True, False, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
