"""The rows of the broker's table about who may do what, and the security of each listener.

channels.py has the rows that each listener can have for itself. `BrokerConfig.listener` returns their values for one
listener.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Self

from ottla.config.channels import GSSAPI, MECHANISMS, UNSECURED_TOKENS, ChannelConfig
from ottla.config.fields import Check, Key, at_least, boolean, int32, one_of, string
from ottla.config.foreign import rejection_of
from ottla.config.table import rows
from ottla.errors import ConfigError
from ottla.security.jaas import Jaas
from ottla.security.principals import parse_principals
from ottla.suggestions import did_you_mean

PREFIX = "listener.name."
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
AUTHORIZERS = (
    "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "kafka.security.authorizer.AclAuthorizer",
)
"""Kafka's authorizers. Both names mean ours."""


def _are_principals(text: str) -> bool:
    try:
        parse_principals(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, kw_only=True)  # Without slots, as another base of BrokerConfig has them.
class SecurityConfig:
    """Which protocol each listener has, who is authorized, and how quotas are measured."""

    listener_security_protocol_map: str = string(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name, as NAME:PROTOCOL separated by commas. The protocols are "
        "PLAINTEXT, SSL, SASL_PLAINTEXT and SASL_SSL.",
    )
    security_inter_broker_protocol: str = string(
        "PLAINTEXT",
        "Other brokers connect to the listener with this name, if inter.broker.listener.name is not set.",
        one_of(*PROTOCOLS),
        item=str.upper,
    )
    sasl_mechanism_inter_broker_protocol: str = string(
        GSSAPI,
        "The SASL mechanism between brokers. There is no GSSAPI (Kerberos) here, so SASL between brokers needs one.",
        one_of(*MECHANISMS, GSSAPI),
    )
    authorizer_class_name: str = string(
        "",
        "Turns ACLs on. Both names of Kafka's authorizers mean the one of this broker.",
        Check(f"empty or one of {', '.join(AUTHORIZERS)}", lambda name: not name or name in AUTHORIZERS),
    )
    super_users: str = string(
        "",
        "Principals that may do everything, such as `User:admin;User:CN=broker-1`.",
        Check("principals such as User:alice, separated by semicolons", _are_principals),
    )
    allow_everyone_if_no_acl_found: bool = boolean(
        False, "Whether everybody may use a resource without ACLs. By default only super.users may."
    )

    # Quotas.
    quota_window_num: int = int32(
        11,
        "How many windows the rate of a client is measured over. A client that was idle may use all but one at once.",
        at_least(1),
    )
    quota_window_size_seconds: int = int32(
        1, "The length of a window. No request quota makes a client pause for longer.", at_least(1)
    )
    controller_quota_window_num: int = int32(
        11, "How many windows of created and deleted partitions a client may use at once.", at_least(1)
    )
    controller_quota_window_size_seconds: int = int32(1, "The length of a window of changes to topics.", at_least(1))

    # Not a row.
    overrides: tuple[tuple[Override, Any], ...] = field(default=(), repr=False)
    """The values of single listeners."""


@dataclass(frozen=True, kw_only=True)
class ListenerSecurity(ChannelConfig):
    """The security of one listener: its own values, and the broker's where it has none.

    >>> from ottla.config import BrokerConfig
    >>> config = BrokerConfig.parse({"listener.name.plaintext.ssl.client.auth": "required"})
    >>> config.listener("PLAINTEXT").ssl_client_auth, config.listener("PLAINTEXT").has_tls
    ('required', False)
    """

    what: ClassVar[str] = "listener configuration"

    name: str
    protocol: str
    mechanisms: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, compare=False, repr=False)
    """Values for single SASL mechanisms, by attribute."""

    @property
    def has_tls(self) -> bool:
        return self.protocol in ("SSL", "SASL_SSL")

    @property
    def has_sasl(self) -> bool:
        return self.protocol in ("SASL_PLAINTEXT", "SASL_SSL")

    def for_mechanism(self, mechanism: str) -> Self:
        """Return these values with those of `listener.name.<listener>.<mechanism>.…`."""
        return replace(self, **self.mechanisms.get(mechanism, {}))

    @property
    def jaas(self) -> Jaas:
        """The parsed sasl.jaas.config of a mechanism. Raise ConfigError if it is invalid."""
        if self.sasl_jaas_config is None:
            return Jaas()
        try:
            return Jaas.parse(self.sasl_jaas_config)
        except ValueError as problem:
            raise ConfigError(f"The sasl.jaas.config of the listener {self.name} is not valid: {problem}.") from None

    @property
    def accepts_unsecured_tokens(self) -> bool:
        """Whether OAUTHBEARER accepts tokens without a signature."""
        return self.sasl_server_callback_handler_class == UNSECURED_TOKENS

    @classmethod
    def suggestion(cls, name: str) -> str:
        return did_you_mean(name, rows(cls))


class Override(NamedTuple):
    """A name that sets a value for one listener: ``listener.name.<listener>.<mechanism>.<config>``."""

    listener: str
    mechanism: str
    """Empty for a value of the whole listener."""
    row: Key

    @property
    def key(self) -> Key:
        """The row under the whole name, for errors."""
        return replace(self.row, name=self.name)

    @property
    def name(self) -> str:
        mechanism = f"{self.mechanism.lower()}." if self.mechanism else ""
        return f"{PREFIX}{self.listener.lower()}.{mechanism}{self.row.name}"

    @classmethod
    def of(cls, name: str) -> Override:
        """Read a name that starts with ``listener.name.``. Raise ConfigError if there is no such config.

        >>> override = Override.of("listener.name.inside.scram-sha-256.sasl.jaas.config")
        >>> override.listener, override.mechanism, override.row.name
        ('INSIDE', 'SCRAM-SHA-256', 'sasl.jaas.config')
        """
        rest = name.removeprefix(PREFIX)
        row = next((row for row in rows(ListenerSecurity).values() if rest.endswith(f".{row.name}")), None)
        if row is None:
            raise ConfigError(f"Unknown broker configuration name: {name}.{_reason(name, rest)}")
        listener = rest.removesuffix(f".{row.name}")
        for mechanism in MECHANISMS:
            if listener.lower().endswith(f".{mechanism.lower()}"):
                return cls(listener[: -len(mechanism) - 1].upper(), mechanism, row)
        return cls(listener.upper(), "", row)


def _reason(name: str, rest: str) -> str:
    own = rest.partition(".")[2]
    rejection = rejection_of(own)
    return f" {rejection}" if rejection else did_you_mean(own, rows(ListenerSecurity))
