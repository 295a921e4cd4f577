"""The configuration rows that producers, consumers and admin clients share. Names and defaults are Kafka's.

A row of one kind of client belongs in producer.py, consumer.py or admin.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ottla.config.elsewhere import hint
from ottla.config.fields import Check, at_least, each_of, int32, int64, listing, one_of, password, plugin, string
from ottla.config.listeners import parse_address
from ottla.config.secrets import resolved
from ottla.config.table import named, parsed, rows
from ottla.errors import ConfigError
from ottla.suggestions import did_you_mean

Address = tuple[str, int]

_MINUTE = 60_000
_AT_LEAST_ONE = Check("at least one", lambda names: len(names) > 0)
_STORE_TYPE = (
    "Ignored: the content of the file says whether it is PEM or PKCS12. JKS itself is not supported, but most files of "
    "that name are PKCS12."
)
_BUFFER = Check("at least 0, or -1 for the operating system's default", lambda size: size >= -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig:
    """The configuration that all clients share."""

    what: ClassVar[str] = "client configuration"

    bootstrap_servers: tuple[Address, ...] = listing(
        (),
        "Brokers for the first contact, as host:port separated by commas. The client finds the others through them.",
        item=parse_address,
    )
    client_dns_lookup: str = string(
        "use_all_dns_ips", "The client tries all addresses of a host name in turn.", one_of("use_all_dns_ips")
    )
    client_id: str = string("", "The name of the client in the broker's logs and in `ottla groups`.")
    client_rack: str = string("", "The rack of the client. A broker in the same rack may serve its fetches.")
    request_timeout_ms: int = int32(30_000, "How long to wait for the response to a request.", at_least(0))
    metadata_max_age_ms: int = int64(
        5 * _MINUTE, "Refresh metadata after this time even without an error.", at_least(0)
    )
    metadata_recovery_strategy: str = string(
        "rebootstrap",
        "What to do when no known broker is reachable: contact the bootstrap servers again, or nothing.",
        one_of("none", "rebootstrap"),
        item=str.lower,
    )
    metadata_recovery_rebootstrap_trigger_ms: int = int64(
        5 * _MINUTE, "Contact the bootstrap servers again after this time without metadata.", at_least(0)
    )
    retry_backoff_ms: int = int64(100, "The wait before the first retry. It doubles with each retry.", at_least(0))
    retry_backoff_max_ms: int = int64(1_000, "The longest wait before a retry.", at_least(0))
    reconnect_backoff_ms: int = int64(
        50, "The wait before the first reconnect. It doubles with each failure.", at_least(0)
    )
    reconnect_backoff_max_ms: int = int64(1_000, "The longest wait before a reconnect.", at_least(0))
    socket_connection_setup_timeout_ms: int = int64(
        10_000, "The time to open a connection. It doubles with each failure.", at_least(0)
    )
    socket_connection_setup_timeout_max_ms: int = int64(
        30_000, "The longest time limit for opening a connection after failures.", at_least(0)
    )
    connections_max_idle_ms: int = int64(9 * _MINUTE, "Close a connection that is idle for this long.", at_least(0))
    send_buffer_bytes: int = int32(
        -1,
        "The send buffer of the socket (SO_SNDBUF). The default lets the operating system choose. Kafka's default, "
        "131072, slows large requests down on systems that grow the buffer themselves.",
        _BUFFER,
    )
    receive_buffer_bytes: int = int32(
        -1,
        "The receive buffer of the socket (SO_RCVBUF). The default lets the operating system choose. Kafka's default, "
        "65536, halves the speed of large fetches on systems that grow the buffer themselves.",
        _BUFFER,
    )
    security_protocol: str = string(
        "PLAINTEXT",
        "The protocol for connections to brokers, in upper or lower case.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        item=str.upper,
    )
    ssl_cafile: str | None = string(None, "A PEM file with the CA certificates to trust.")
    ssl_certfile: str | None = string(None, "A PEM file with the client's certificate, if brokers require one.")
    ssl_keyfile: str | None = string(None, "A PEM file with the key of ssl.certfile, if that file does not contain it.")
    ssl_truststore_location: str | None = string(None, "Kafka's name for ssl.cafile. PEM or PKCS12.")
    ssl_truststore_password: str | None = password(None, "The password of a PKCS12 truststore.")
    ssl_truststore_type: str = string("PEM", _STORE_TYPE, one_of("PEM", "PKCS12", "JKS"), item=str.upper)
    ssl_truststore_certificates: str | None = string(None, "The CA certificates as PEM text instead of a file.")
    ssl_keystore_location: str | None = string(
        None, "Kafka's name for a file with the client's key and certificate. PEM or PKCS12."
    )
    ssl_keystore_password: str | None = password(None, "The password of a PKCS12 keystore.")
    ssl_keystore_type: str = string("PEM", _STORE_TYPE, one_of("PEM", "PKCS12", "JKS"), item=str.upper)
    ssl_keystore_certificate_chain: str | None = string(None, "The client's certificate as PEM text.")
    ssl_keystore_key: str | None = password(None, "The client's key as PEM text.")
    ssl_enabled_protocols: tuple[str, ...] = listing(
        ("TLSv1.2", "TLSv1.3"), "The TLS versions to use.", each_of("TLSv1.2", "TLSv1.3"), _AT_LEAST_ONE
    )
    ssl_key_password: str | None = password(None, "The password of the client's key.")
    ssl_endpoint_identification_algorithm: str = string(
        "https",
        "`https` checks that the broker's certificate matches its host name. Empty disables the check.",
        one_of("https", ""),
    )
    ssl_context: Any = plugin(None, "Your own `ssl.SSLContext`, which replaces the other ssl.* settings.")
    sasl_mechanism: str = string(
        "PLAIN",
        "The SASL mechanism.",
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    )
    sasl_username: str | None = string(None, "The user name for PLAIN and SCRAM.")
    sasl_password: str | None = password(None, "The password for PLAIN and SCRAM.")
    sasl_jaas_config: str | None = password(
        None, 'User name and password in the form of Kafka\'s tools: `... required username="..." password="...";`.'
    )
    sasl_oauth_token_provider: Any = plugin(None, "A function that returns a token for OAUTHBEARER. It may be async.")

    @classmethod
    def given(cls, config: Mapping[str, object] | None, options: Mapping[str, object]) -> Self:
        """Read a constructor's mapping (``{"group.id": …}``) and keywords (``group_id=…``).

        >>> ClientConfig.given({"bootstrap.servers": "localhost:9092"}, {"client_id": "me"}).client_id
        'me'
        """
        if config is not None and not isinstance(config, Mapping):
            raise TypeError(
                f"the {cls.what} must be a dict or keywords, not {config!r}. Pass the brokers as "
                'bootstrap_servers="localhost:9092". Pass topics to subscribe(["orders"]).'
            )
        values = named(cls, config or {})
        for name, value in named(cls, options).items():
            if name in values:
                raise ConfigError(f"{cls.what} {name} is given twice, in the mapping and as a keyword.")
            values[name] = value
        return cls.parse(resolved(values))

    @classmethod
    def parse(cls, values: Mapping[str, object]) -> Self:
        """Read names and values, and check that they fit together."""
        return cls(**parsed(cls, values)).checked()

    @classmethod
    def suggestion(cls, name: str) -> str:
        return hint(name, rows(cls).keys()) or did_you_mean(name, rows(cls))

    def checked(self) -> Self:
        """Return this configuration. Raise ConfigError if its values do not fit together."""
        if not self.bootstrap_servers:
            raise ConfigError(
                'bootstrap.servers is missing. Pass a broker of the cluster: bootstrap_servers="localhost:9092".'
            )
        if self._needs_password():
            for name, value in (("sasl.username", self.sasl_username), ("sasl.password", self.sasl_password)):
                if value is None:
                    raise ConfigError(f"{name} is missing. security.protocol={self.security_protocol} requires it.")
        return self

    def _needs_password(self) -> bool:
        has_sasl = self.security_protocol.startswith("SASL")
        return has_sasl and self.sasl_mechanism != "OAUTHBEARER" and self.sasl_jaas_config is None
