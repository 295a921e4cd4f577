"""What producers, consumers and admin clients have in common: Kafka's names and defaults for reaching a cluster.

A name of one kind of client belongs in its own table (producer.py, consumer.py, admin.py), which inherits this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ottla.config.elsewhere import hint
from ottla.config.fields import Check, at_least, each_of, int32, int64, listing, one_of, password, plugin, string
from ottla.config.listeners import parse_address
from ottla.config.table import ConfigTable
from ottla.errors import ConfigError
from ottla.suggestions import did_you_mean

Address = tuple[str, int]

_MINUTE = 60_000
_SOME = Check("at least one", lambda names: len(names) > 0)
_BUFFER = Check("at least 0, or -1 for the default of the operating system", lambda size: size >= -1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientConfig(ConfigTable):
    """The configuration that all clients share."""

    what: ClassVar[str] = "client configuration"

    bootstrap_servers: tuple[Address, ...] = listing(
        (),
        "Some brokers of the cluster, as host:port separated by commas; the others are found through them.",
        item=parse_address,
    )
    client_dns_lookup: str = string(
        "use_all_dns_ips", "All addresses of a host name are tried, one after the other.", one_of("use_all_dns_ips")
    )
    client_id: str = string("", "What the client calls itself in the broker's logs and in `ottla groups`.")
    client_rack: str = string("", "Where the client stands; a broker of the same rack may serve its fetches.")
    request_timeout_ms: int = int32(30_000, "How long a request may wait for its response.", at_least(0))
    metadata_max_age_ms: int = int64(
        5 * _MINUTE, "After this time metadata is fetched again even if nothing went wrong.", at_least(0)
    )
    metadata_recovery_strategy: str = string(
        "rebootstrap",
        "What to do when no known broker can be reached: ask the bootstrap servers again, or nothing.",
        one_of("none", "rebootstrap"),
        item=str.lower,
    )
    metadata_recovery_rebootstrap_trigger_ms: int = int64(
        5 * _MINUTE, "After this time without metadata the bootstrap servers are asked again.", at_least(0)
    )
    retry_backoff_ms: int = int64(100, "The wait before the first retry; it doubles with each one.", at_least(0))
    retry_backoff_max_ms: int = int64(1_000, "The longest wait before a retry.", at_least(0))
    reconnect_backoff_ms: int = int64(
        50, "The wait before a lost connection is made again; it doubles with each failure.", at_least(0)
    )
    reconnect_backoff_max_ms: int = int64(1_000, "The longest wait before a connection is made again.", at_least(0))
    socket_connection_setup_timeout_ms: int = int64(10_000, "How long making a connection may take.", at_least(0))
    socket_connection_setup_timeout_max_ms: int = int64(
        30_000, "The longest that making a connection may take after it has failed before.", at_least(0)
    )
    connections_max_idle_ms: int = int64(9 * _MINUTE, "A connection that is idle for this long is closed.", at_least(0))
    send_buffer_bytes: int = int32(
        -1,
        "The send buffer of a connection's socket (SO_SNDBUF). With Kafka's default, 131072, client and broker take "
        "turns at large requests on systems that grow the buffer by themselves.",
        _BUFFER,
    )
    receive_buffer_bytes: int = int32(
        -1,
        "The receive buffer of a connection's socket (SO_RCVBUF). Kafka's default, 65536, halves the speed of large "
        "fetches on systems that grow the buffer by themselves.",
        _BUFFER,
    )
    security_protocol: str = string(
        "PLAINTEXT",
        "How to speak to brokers; in upper or lower case.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        item=str.upper,
    )
    ssl_cafile: str | None = string(None, "A PEM file with the certificates of those who may sign the broker's.")
    ssl_certfile: str | None = string(None, "A PEM file with the client's own certificate, where brokers ask for one.")
    ssl_keyfile: str | None = string(None, "A PEM file with the key of that certificate, if it is not in ssl.certfile.")
    ssl_truststore_location: str | None = string(None, "The same as ssl.cafile, under Kafka's name; PEM only.")
    ssl_truststore_type: str = string("PEM", "The format of the truststore.", one_of("PEM"))
    ssl_truststore_certificates: str | None = string(None, "The certificates of ssl.cafile themselves, as PEM text.")
    ssl_keystore_location: str | None = string(
        None, "A PEM file with the client's key and certificate, under Kafka's name."
    )
    ssl_keystore_type: str = string("PEM", "The format of the keystore.", one_of("PEM"))
    ssl_keystore_certificate_chain: str | None = string(None, "The client's certificate itself, as PEM text.")
    ssl_keystore_key: str | None = password(None, "The client's key itself, as PEM text.")
    ssl_enabled_protocols: tuple[str, ...] = listing(
        ("TLSv1.2", "TLSv1.3"), "The versions of TLS to speak.", each_of("TLSv1.2", "TLSv1.3"), _SOME
    )
    ssl_key_password: str | None = password(None, "The password of the client's key.")
    ssl_endpoint_identification_algorithm: str = string(
        "https", "`https` checks that the broker's certificate names its host; empty does not.", one_of("https", "")
    )
    ssl_context: Any = plugin(None, "An `ssl.SSLContext` of one's own instead of the ssl.* files.")
    sasl_mechanism: str = string(
        "PLAIN",
        "How to say who one is.",
        one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"),
    )
    sasl_username: str | None = string(None, "The user's name, for PLAIN and SCRAM.")
    sasl_password: str | None = password(None, "The user's password, for PLAIN and SCRAM.")
    sasl_jaas_config: str | None = password(
        None, 'Name and password as Kafka\'s tools write them: `... required username="..." password="...";`.'
    )
    sasl_oauth_token_provider: Any = plugin(
        None, "A function, which may be async, that returns a token, for OAUTHBEARER."
    )

    @classmethod
    def given(cls, config: Mapping[str, object] | None, options: Mapping[str, object]) -> Self:
        """The configuration of a constructor's mapping (``{"group.id": …}``) and keywords (``group_id=…``).

        >>> ClientConfig.given({"bootstrap.servers": "localhost:9092"}, {"client_id": "me"}).client_id
        'me'
        """
        if config is not None and not isinstance(config, Mapping):
            raise TypeError(
                f"the {cls.what} is a dict or keywords, not {config!r}: name the brokers as "
                'bootstrap_servers="localhost:9092"; a consumer is told its topics by subscribe(["orders"])'
            )
        named = cls.named(config or {})
        for name, value in cls.named(options).items():
            if name in named:
                raise ConfigError(f"{cls.what} {name} is given twice, in the mapping and as a keyword.")
            named[name] = value
        return cls.parse(named)

    @classmethod
    def suggestion(cls, name: str) -> str:
        return hint(name, frozenset(cls.rows())) or did_you_mean(name, cls.rows())

    def checked(self) -> Self:
        if not self.bootstrap_servers:
            raise ConfigError(
                "bootstrap.servers is missing: name a broker of the cluster, such as "
                'bootstrap_servers="localhost:9092".'
            )
        if self._needs_password():
            for name, value in (("sasl.username", self.sasl_username), ("sasl.password", self.sasl_password)):
                if value is None:
                    raise ConfigError(f"{name} is missing: security.protocol={self.security_protocol} needs it.")
        return self

    def _needs_password(self) -> bool:
        has_sasl = self.security_protocol.startswith("SASL")
        return has_sasl and self.sasl_mechanism != "OAUTHBEARER" and self.sasl_jaas_config is None
