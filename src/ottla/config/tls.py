"""Rules that involve several names of a TLS listener."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.config.security import ListenerSecurity


def problems_of_tls(security: ListenerSecurity) -> Iterator[str]:
    """Return what is missing."""
    name = security.name
    has_file, has_text = security.ssl_keystore_location is not None, security.ssl_keystore_certificate_chain is not None
    if not has_file and not has_text:
        yield (
            f"The listener {name} needs a certificate for TLS. Set ssl.keystore.location to a PEM or PKCS12 file with "
            "the private key and the certificates, or ssl.keystore.key and ssl.keystore.certificate.chain."
        )
    if has_file and has_text:
        yield (
            f"The listener {name} has two certificates. Set only one of ssl.keystore.location and "
            "ssl.keystore.certificate.chain."
        )
    if has_text and security.ssl_keystore_key is None:
        yield f"The listener {name} has ssl.keystore.certificate.chain, but not ssl.keystore.key."
    trusts = security.ssl_truststore_location or security.ssl_truststore_certificates
    if security.ssl_client_auth != "none" and not trusts:
        yield (
            f"The listener {name} has ssl.client.auth={security.ssl_client_auth}, but no authorities for clients' "
            "certificates. Set ssl.truststore.location to a PEM or PKCS12 file with their certificates."
        )
