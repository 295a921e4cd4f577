"""The client's TLS: the SSLContext of a configuration, and explanations of failed handshakes.

Certificates and keys are PEM or PKCS12, as files (``ssl.cafile``, or Kafka's ``ssl.truststore.location``), or PEM as
text (``ssl.truststore.certificates``). `stores.py` reads PKCS12.
"""

from __future__ import annotations

import ssl
import tempfile
from pathlib import Path

from ottla.config.client import ClientConfig
from ottla.errors import ConfigError
from ottla.net.client.errors import TlsFailed
from ottla.net.client.stores import authorities_of, is_java_store, key_of

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
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
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH)
    # Since Python 3.13, authorities without a key usage are rejected by default. Those made for a Kafka cluster often
    # have none; Kafka's clients and older Pythons accept them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = config.ssl_endpoint_identification_algorithm == "https"
    chosen = sorted(_VERSIONS[name] for name in config.ssl_enabled_protocols)
    context.minimum_version, context.maximum_version = chosen[0], chosen[-1]
    _load_authorities(context, config)
    _load_own_certificate(context, config)
    return context


def _own_context(context: object) -> ssl.SSLContext:
    if not isinstance(context, ssl.SSLContext):
        raise ConfigError(f"ssl.context must be an ssl.SSLContext, not {type(context).__name__}.")
    return context


def _load_authorities(context: ssl.SSLContext, config: ClientConfig) -> None:
    path = config.ssl_cafile or config.ssl_truststore_location
    name = "ssl.cafile" if config.ssl_cafile else "ssl.truststore.location"
    if path is not None and is_java_store(path, name):
        context.load_verify_locations(cadata=authorities_of(path, name, config.ssl_truststore_password))
    elif path is not None:
        try:
            context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(name, path, error) from None
    if config.ssl_truststore_certificates is not None:
        try:
            context.load_verify_locations(cadata=config.ssl_truststore_certificates)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"ssl.truststore.certificates has no PEM certificates ({error}).") from None


def _load_own_certificate(context: ssl.SSLContext, config: ClientConfig) -> None:
    path = config.ssl_certfile or config.ssl_keystore_location
    name = "ssl.certfile" if config.ssl_certfile else "ssl.keystore.location"
    if path is not None and is_java_store(path, name):
        password = config.ssl_keystore_password or config.ssl_key_password
        _load_text(context, key_of(path, name, password), None)
    elif path is not None:
        try:
            context.load_cert_chain(path, config.ssl_keyfile, _key_password(config))
        except (OSError, ssl.SSLError) as error:
            raise _unusable(name, path, error) from None
    elif config.ssl_keystore_certificate_chain is not None:
        text = f"{config.ssl_keystore_key or ''}\n{config.ssl_keystore_certificate_chain}\n"
        try:
            _load_text(context, text, _key_password(config))
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ssl.keystore.key and ssl.keystore.certificate.chain are not a PEM key and certificates ({error})."
            ) from None


def _key_password(config: ClientConfig) -> str:
    """Never None: Python would ask for a password on the terminal."""
    return config.ssl_key_password or config.ssl_keystore_password or ""


def _load_text(context: ssl.SSLContext, text: str, password: str | None) -> None:
    """Python reads keys only from files, so write a temporary one that only this user can read."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "keystore.pem"
        path.touch(mode=0o600)
        path.write_text(text)
        context.load_cert_chain(path, None, password or "")


def _unusable(name: str, path: str, error: OSError) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"{name}: there is no file {path}.")
    if isinstance(error, ssl.SSLError):
        return ConfigError(
            f"{name}: cannot use {path} ({error.reason or error}): it must be PEM or PKCS12, with a matching key and "
            "password if it has a key."
        )
    return ConfigError(f"{name}: cannot read {path} ({error.strerror}).")


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
