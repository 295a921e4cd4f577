"""The client's TLS: the SSLContext of a configuration, and explanations of failed handshakes.

Certificates and keys are PEM or PKCS12, as files (``ssl.cafile``, or Kafka's ``ssl.truststore.location``), or PEM as
text (``ssl.truststore.certificates``). `net/stores.py` reads them.
"""

from __future__ import annotations

import ssl

from ottla.config.client import ClientConfig
from ottla.errors import ConfigError
from ottla.net.client.errors import TlsFailed
from ottla.net.stores import VERSIONS, load_authorities, load_key, load_key_text

# OpenSSL's codes for rejected certificates.
_EXPIRED = 10
_UNKNOWN_AUTHORITY = (2, 18, 19, 20, 21)
_WRONG_HOST = (62, 64)


def context_of(config: ClientConfig) -> ssl.SSLContext | None:
    """The SSLContext of a configuration; None if its security.protocol has no TLS."""
    if not config.security_protocol.endswith("SSL"):
        return None
    if config.ssl_context is not None:
        return _own_context(config.ssl_context)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    # Since Python 3.13, authorities without a key usage are rejected by default. Those made for a Kafka cluster often
    # have none; Kafka's clients and older Pythons accept them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    chosen = sorted(VERSIONS[name] for name in config.ssl_enabled_protocols)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    _load_authorities(context, config)
    _load_own_certificate(context, config)
    return context


def _own_context(context: object) -> ssl.SSLContext:
    if not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"ssl.context must be an ssl.SSLContext, not {type(context).__name__}.")
    return context


def _load_authorities(context: ssl.SSLContext, config: ClientConfig) -> None:
    """Trust the given authorities, or those of the system if none are given, as Kafka's clients do."""
    path = config.ssl_cafile or config.ssl_truststore_location
    if path is None and config.ssl_truststore_certificates is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    load_authorities(
        context,
        path,
        config.ssl_truststore_certificates,
        name="ssl.cafile" if config.ssl_cafile else "ssl.truststore.location",
        password=config.ssl_truststore_password,
    )


def _load_own_certificate(context: ssl.SSLContext, config: ClientConfig) -> None:
    path, chain = config.ssl_certfile or config.ssl_keystore_location, config.ssl_keystore_certificate_chain
    if path is None and chain is not None:
        password = config.ssl_key_password or config.ssl_keystore_password
        load_key_text(context, config.ssl_keystore_key, chain, password)
    load_key(
        context,
        path,
        config.ssl_keyfile,
        name="ssl.certfile" if config.ssl_certfile else "ssl.keystore.location",
        password=config.ssl_keystore_password,
        key_password=config.ssl_key_password,
    )


# ── failures ──────────────────────────────────────────────────────────────────────────────────────────────────────


def tls_failure(address: str, host: str, error: Exception) -> TlsFailed:
    """Explain a failed handshake and what to change."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return TlsFailed(_why_not_trusted(address, host, error))
    reason = (getattr(error, "reason", None) or "").upper()
    if "CERTIFICATE_REQUIRED" in reason or "HANDSHAKE_FAILURE" in reason or "BAD_CERTIFICATE" in reason:
        return TlsFailed(
            f"the broker at {address} rejected this client's certificate ({reason.lower()}): it requires one that it "
            "trusts; set ssl.certfile and ssl.keyfile"
        )
    if "UNKNOWN_CA" in reason:
        return TlsFailed(
            f"the broker at {address} does not trust the authority that signed this client's certificate: add the "
            "authority of ssl.certfile to the broker's truststore"
        )
    if "VERSION" in reason and "WRONG" not in reason:
        return TlsFailed(f"{address} uses another version of TLS ({reason.lower()}): check ssl.enabled.protocols")
    why = reason.lower() or str(error) or "it closed the connection"
    return TlsFailed(
        f"{address} does not speak TLS ({why}): use the port of an SSL listener, or set security.protocol=PLAINTEXT"
    )


def _why_not_trusted(address: str, host: str, error: ssl.SSLCertVerificationError) -> str:
    if error.verify_code in _WRONG_HOST:
        return (
            f"the certificate of {address} is for another host ({error.verify_message}): connect with a name that is "
            f"in it instead of {host!r}, or create one for {host!r}. "
            "ssl.endpoint.identification.algorithm= (empty) disables the check"
        )
    if error.verify_code in _UNKNOWN_AUTHORITY:
        return (
            f"the certificate of {address} was signed by an authority that this client does not trust "
            f"({error.verify_message}): set ssl.cafile to a PEM file with the certificate of that authority"
        )
    if error.verify_code == _EXPIRED:
        return f"the certificate of {address} has expired: the broker needs a new one"
    return f"the certificate of {address} is invalid: {error.verify_message}"
