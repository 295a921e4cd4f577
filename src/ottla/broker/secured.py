"""What ``Broker(tls=…, users=…, acls=…)`` adds: an authority, a certificate and users for one run, all in memory."""

from __future__ import annotations

import secrets
import ssl
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

from ottla.errors import ConfigError
from ottla.metadata.acls import create_acls
from ottla.metadata.users import Upsertion, alter_users
from ottla.security.acl_texts import parse_acls
from ottla.security.acls import AclBinding
from ottla.security.scram import MIN_ITERATIONS, ScramMechanism, salted_password
from ottla.suggestions import did_you_mean

if TYPE_CHECKING:
    import trustme

    from ottla.broker.node import Node

ADMIN = "admin"
"""The user that may do everything. It exists in every broker with users."""
MECHANISM = "SCRAM-SHA-256"
#: The user is the common name of the certificate: O=…,OU=…,CN=alice
_COMMON_NAME = r"RULE:^.*CN=([^,]+).*$/$1/,DEFAULT"


class Authority:
    """A certificate authority that lives as long as its broker."""

    def __init__(self) -> None:
        try:
            import trustme
        except ImportError as error:
            raise ConfigError("tls=True needs the package trustme: pip install 'ottla[security]'.") from error
        self._ca: trustme.CA = trustme.CA()

    @property
    def certificate(self) -> str:
        """The certificate that clients trust, as PEM text."""
        return self._ca.cert_pem.bytes().decode()

    def server(self, *names: str) -> tuple[str, str]:
        """Return the certificate chain and the key of a server, as PEM texts."""
        return _pem(self._ca.issue_cert(*names))

    def client(self, user: str) -> tuple[str, str]:
        """Return the certificate chain and the key of a user, as PEM texts."""
        return _pem(self._ca.issue_cert(common_name=user))

    def context(self, user: str | None) -> ssl.SSLContext:
        """Return a context for clients that take one. It trusts this authority only, and has a user's certificate."""
        context = ssl.create_default_context(cadata=self.certificate)
        if user is not None:
            self._ca.issue_cert(common_name=user).configure_cert(context)
        return context


def _pem(certificate: trustme.LeafCert) -> tuple[str, str]:
    chain = "".join(blob.bytes().decode() for blob in certificate.cert_chain_pems)
    return chain, certificate.private_key_pem.bytes().decode()


@dataclass(frozen=True)
class Secured:
    """The security of one embedded broker."""

    tls: bool = False
    client_certificates: bool = False
    users: Mapping[str, str] | None = field(default=None, repr=False)
    acls: Sequence[AclBinding] | None = None

    @classmethod
    def of(cls, tls: bool | str, users: Mapping[str, str] | None, acls: Sequence[str | AclBinding] | None) -> Secured:
        """Check the arguments of `Broker`."""
        if tls not in (True, False, "mutual"):
            raise ConfigError(f"tls must be True, False or 'mutual', not {tls!r}.")
        if users is not None and not _are_texts(users):
            raise ConfigError('users must be a dict of names and passwords, such as {"alice": "secret"}.')
        if any(not name or not password for name, password in (users or {}).items()):
            raise ConfigError("users: a name or a password is empty, and clients refuse to log in with it.")
        secured = cls(bool(tls), tls == "mutual", users, None if acls is None else _bindings(acls))
        for problem in secured.strangers():
            warnings.warn(f"acls: {problem}", stacklevel=3)
        return secured

    def strangers(self) -> Iterator[str]:
        """Yield a sentence for each user of the rules that cannot log in, unless it is added later: often a typo."""
        if self.client_certificates:
            return  # Every name can have a certificate.
        known = ["ANONYMOUS"] if self.users is None else [*self.passwords]
        for principal in dict.fromkeys(each.principal for each in self.acls or ()):
            kind, _, name = principal.partition(":")
            if kind == "User" and name in ("*", *known):
                continue
            if self.users is None:
                yield f"without users=… or tls='mutual', no client is {principal}: all are User:ANONYMOUS."
            else:
                yield f"there is no {principal} in users.{did_you_mean(name, known)}"

    @cached_property
    def authority(self) -> Authority:
        return Authority()

    @cached_property
    def passwords(self) -> dict[str, str]:
        """The password of every user. The administrator's is random, unless it is given."""
        return {} if self.users is None else {ADMIN: secrets.token_urlsafe(16), **self.users}

    @property
    def protocol(self) -> str:
        """Kafka's name of the protocol of the listener."""
        plain = "SSL" if self.tls else "PLAINTEXT"
        return plain if self.users is None else f"SASL_{plain}"

    def broker_configs(self, host: str) -> dict[str, Any]:
        """Return what the broker is configured with."""
        configs: dict[str, Any] = {}
        if self.tls:
            chain, key = self.authority.server("localhost", "127.0.0.1", "::1", *_names(host))
            configs |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": chain,
                "ssl.keystore.key": key,
            }
        if self.client_certificates:
            configs |= {
                "ssl.client.auth": "required",
                "ssl.truststore.type": "PEM",
                "ssl.truststore.certificates": self.authority.certificate,
                "ssl.principal.mapping.rules": _COMMON_NAME,
            }
        if self.users is not None:
            configs["sasl.enabled.mechanisms"] = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
        if self.acls is not None:
            configs["authorizer.class.name"] = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
            configs["super.users"] = f"User:{ADMIN}"
        return configs

    def client_config(self, user: str | None, library: str, bootstrap_servers: str) -> dict[str, Any]:
        """Return the settings of a client. See `Broker.client_config`."""
        write = _LIBRARIES.get(library)
        if write is None:
            raise ValueError(f"library must be one of {', '.join(_LIBRARIES)}, not {library!r}")
        password = None
        if self.users is not None:
            user = ADMIN if user is None else user
            if user not in self.passwords:
                raise ValueError(f"there is no user {user!r}. Known users: {', '.join(self.passwords)}.")
            password = self.passwords[user]
        elif user is None and self.client_certificates:
            user = ADMIN
        return write(self, user, password, bootstrap_servers)

    async def prepare(self, node: Node) -> None:
        """Create the users and the rules, before the broker serves clients."""
        for mechanism in ScramMechanism if self.passwords else ():
            upsertions = [
                Upsertion(name, mechanism, MIN_ITERATIONS, *_salted(mechanism, password))
                for name, password in self.passwords.items()
            ]
            await node.controller.run(alter_users, node.metadata, (), upsertions)
        if self.acls:
            problems = await node.controller.run(create_acls, node.metadata, self.acls)
            for problem in filter(None, problems):
                raise ConfigError(str(problem))


def _are_texts(users: object) -> bool:
    return isinstance(users, Mapping) and all(isinstance(each, str) for pair in users.items() for each in pair)


def _bindings(acls: Sequence[str | AclBinding]) -> list[AclBinding]:
    if isinstance(acls, str):
        raise ConfigError(f"acls must be a list, such as [{acls!r}].")
    found: list[AclBinding] = []
    for each in acls:
        try:
            found += parse_acls(each) if isinstance(each, str) else [each]
        except ValueError as error:
            raise ConfigError(f"acls: {error}.") from None
    return found


def _salted(mechanism: ScramMechanism, password: str) -> tuple[bytes, bytes]:
    salt = secrets.token_bytes(16)
    return salt, salted_password(mechanism, password, salt, MIN_ITERATIONS)


def _names(host: str) -> tuple[str, ...]:
    return (host,) if host not in ("", "0.0.0.0", "::", "localhost", "127.0.0.1", "::1") else ()


# ── the settings of each library ──────────────────────────────────────────────────────────────────────────────────


def _ottla(secured: Secured, user: str | None, password: str | None, servers: str) -> dict[str, Any]:
    config: dict[str, Any] = {"bootstrap.servers": servers, "security.protocol": secured.protocol}
    if secured.tls:
        config["ssl.truststore.certificates"] = secured.authority.certificate
    if secured.client_certificates and user is not None:
        chain, key = secured.authority.client(user)
        config |= {"ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
    if password is not None:
        config |= {"sasl.mechanism": MECHANISM, "sasl.username": user, "sasl.password": password}
    return config


def _confluent(secured: Secured, user: str | None, password: str | None, servers: str) -> dict[str, Any]:
    names = {
        "ssl.truststore.certificates": "ssl.ca.pem",
        "ssl.keystore.certificate.chain": "ssl.certificate.pem",
        "ssl.keystore.key": "ssl.key.pem",
        "sasl.mechanism": "sasl.mechanisms",
    }
    return {names.get(name, name): value for name, value in _ottla(secured, user, password, servers).items()}


def _python(secured: Secured, user: str | None, password: str | None, servers: str) -> dict[str, Any]:
    """kafka-python and aiokafka have the same names."""
    config: dict[str, Any] = {"bootstrap_servers": servers, "security_protocol": secured.protocol}
    if secured.tls:
        config["ssl_context"] = secured.authority.context(user if secured.client_certificates else None)
    if password is not None:
        config |= {"sasl_mechanism": MECHANISM, "sasl_plain_username": user, "sasl_plain_password": password}
    return config


_LIBRARIES: dict[str, Callable[[Secured, str | None, str | None, str], dict[str, Any]]] = {
    "ottla": _ottla,
    "confluent-kafka": _confluent,
    "kafka-python": _python,
    "aiokafka": _python,
}
