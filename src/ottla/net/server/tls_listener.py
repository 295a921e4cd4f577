"""The certificates of a TLS listener. They are read again when their files change, so new connections get new ones."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from functools import partial

from ottla.config.security import ListenerSecurity
from ottla.errors import ConfigError
from ottla.net.reloading import Reloading
from ottla.net.server.tls import CHUNK, TlsChannel, TlsFailed
from ottla.net.stores import VERSIONS, load_authorities, load_key, load_key_text, refuse_readable_by_all
from ottla.security.authorizer import shown
from ottla.security.principal_rules import PrincipalRules, distinguished_name
from ottla.security.principals import ANONYMOUS, Principal

logger = logging.getLogger("ottla.security")
#: How long a client that was refused can read the reason.
LINGER_SECONDS = 0.5
#: So many refused clients can do that at a time. They count for no other limit, and each one has an open file.
MOST_LINGERING = 100
_VERIFY = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_TLS_1_3 = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")


class TlsListener:
    """Makes the channels of a listener. Raises ConfigError if its certificates cannot be used."""

    def __init__(self, security: ListenerSecurity) -> None:
        self.scratch = bytearray(CHUNK)
        self._lingering: set[socket.socket] = set()
        self._asked_for = security
        self._use(security)

    def _use(self, security: ListenerSecurity) -> None:
        files = (security.ssl_keystore_location, security.ssl_truststore_location)
        self._contexts = Reloading(partial(server_context, security), files, f"the listener {security.name}")
        self._has_sasl = security.has_sasl
        self._rules = PrincipalRules.parse(security.ssl_principal_mapping_rules)

    def check(self, security: ListenerSecurity) -> None:
        """Raise ConfigError if other settings could not be used."""
        if security != self._asked_for:
            server_context(security)

    def change(self, security: ListenerSecurity) -> None:
        """Use other settings for new connections. If they cannot be used, the old certificates stay."""
        if security == self._asked_for:
            return
        self._asked_for = security
        try:
            self._use(security)
        except ConfigError as error:
            logger.error("the listener %s keeps its old certificates: %s", security.name, error)
        else:
            logger.info("the listener %s uses new certificates", security.name)

    def new_channel(self, sock: socket.socket) -> TlsChannel:
        """Return the channel of a new connection."""
        return TlsChannel(sock, self)

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection."""
        return self._contexts.current()

    def principal_of(self, tls: ssl.SSLObject) -> Principal:
        """Return who the client is by its certificate. With SASL, that alone says it."""
        certificate = None if self._has_sasl else tls.getpeercert()
        if not certificate:
            return ANONYMOUS
        subject = distinguished_name(certificate["subject"])  # type: ignore[arg-type]
        name = self._rules.name_of(subject)
        if name is None:
            raise TlsFailed(
                f"no rule of ssl.principal.mapping.rules matches the client's certificate: {shown(subject)}"
            )
        return Principal("User", name)

    def let_go(self, sock: socket.socket) -> None:
        """Close a socket a little later: the client would lose the reason if bytes from it were unread."""
        if len(self._lingering) >= MOST_LINGERING:
            sock.close()
            return
        try:
            sock.shutdown(socket.SHUT_WR)
        except OSError:
            sock.close()
            return
        self._lingering.add(sock)
        asyncio.get_running_loop().call_later(LINGER_SECONDS, self._let_gone, sock)

    def _let_gone(self, sock: socket.socket) -> None:
        self._lingering.discard(sock)
        sock.close()

    def close(self) -> None:
        for sock in self._lingering:
            sock.close()
        self._lingering.clear()


def server_context(security: ListenerSecurity) -> ssl.SSLContext:
    """Return the context of a listener. Raise ConfigError if its files cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    # As Java does: authorities that were made for a Kafka cluster often have no key usage.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    versions = set(security.ssl_enabled_protocols)
    if security.ssl_cipher_suites:
        versions &= _choose_ciphers(context, security.ssl_cipher_suites)
    if not versions:
        raise ConfigError("ssl.cipher.suites has no cipher suite of a version in ssl.enabled.protocols.")
    context.minimum_version, context.maximum_version = VERSIONS[min(versions)], VERSIONS[max(versions)]
    _load_own_key(context, security)
    context.verify_mode = _VERIFY[security.ssl_client_auth]
    load_authorities(
        context,
        security.ssl_truststore_location,
        security.ssl_truststore_certificates,
        name="ssl.truststore.location",
        password=security.ssl_truststore_password,
    )
    return context


def _load_own_key(context: ssl.SSLContext, security: ListenerSecurity) -> None:
    path, chain = security.ssl_keystore_location, security.ssl_keystore_certificate_chain
    if chain is not None:
        load_key_text(context, security.ssl_keystore_key, chain, security.ssl_key_password)
    if path is not None:
        refuse_readable_by_all(path, "ssl.keystore.location")
    load_key(
        context,
        path,
        name="ssl.keystore.location",
        password=security.ssl_keystore_password,
        key_password=security.ssl_key_password,
    )


def _choose_ciphers(context: ssl.SSLContext, names: tuple[str, ...]) -> set[str]:
    """Let a context use these cipher suites only; return the TLS versions that have some of them."""
    newer, older = set(names) & set(_TLS_1_3), [name for name in names if name not in _TLS_1_3]
    if newer and len(newer) < len(_TLS_1_3):
        raise ConfigError(
            f"ssl.cipher.suites: Python cannot choose among the cipher suites of TLS 1.3. List all of "
            f"{', '.join(_TLS_1_3)}, or none of them."
        )
    if older:
        try:
            context.set_ciphers(":".join(openssl_name(name) for name in older))
        except ssl.SSLError:
            raise ConfigError(f"ssl.cipher.suites: this computer has none of {', '.join(older)}.") from None
    return ({"TLSv1.3"} if newer else set()) | ({"TLSv1.2"} if older else set())


def openssl_name(name: str) -> str:
    """Return OpenSSL's name of a cipher suite of TLS 1.2 under Java's name. Other names stay as they are.

    >>> openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256")
    'ECDHE-RSA-AES128-GCM-SHA256'
    """
    exchange, found, cipher = name.removeprefix("TLS_").partition("_WITH_")
    if not found:
        return name
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    prefix = "" if exchange == "RSA" else f"{exchange}-"
    return f"{prefix}{cipher}".replace("_", "-")
