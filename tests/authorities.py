"""Certificates for tests, made by trustme."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path

import trustme
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)


@dataclass(frozen=True)
class Authority:
    """Signs certificates and writes them to a directory."""

    directory: Path

    @cached_property
    def _authority(self) -> trustme.CA:
        return trustme.CA()

    @cached_property
    def certificate(self) -> Path:
        """The file to trust."""
        path = self._new("authority")
        self._authority.cert_pem.write_to_path(path)
        return path

    def sign(self, name: str, *hosts: str, days: int = 30) -> Path:
        """Return a file with a key and its certificate; -1 days make one that has expired."""
        path = self._new(name)
        path.touch(mode=0o600)
        issued = self._issue(name, hosts, days)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        # The only form that Java reads.
        text = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.write_bytes(text + b"".join(each.bytes() for each in issued.cert_chain_pems))
        return path

    def sign_pkcs12(self, name: str, password: str, *hosts: str) -> Path:
        """Return a PKCS12 file with a key and its certificate."""
        issued = self._issue(name, hosts, 30)
        key = load_pem_private_key(issued.private_key_pem.bytes(), None)
        assert isinstance(key, EllipticCurvePrivateKey)
        certificate = x509.load_pem_x509_certificate(issued.cert_chain_pems[0].bytes())
        encryption = BestAvailableEncryption(password.encode())
        path = self._new(name, ".p12")
        path.touch(mode=0o600)
        path.write_bytes(pkcs12.serialize_key_and_certificates(b"broker", key, certificate, None, encryption))
        return path

    def _issue(self, name: str, hosts: tuple[str, ...], days: int) -> trustme.LeafCert:
        now = datetime.now(UTC)
        ends = now + timedelta(days=days)
        return self._authority.issue_cert(
            *(hosts or ("localhost", "127.0.0.1")),
            common_name=name,
            organization_name="ottla",
            organization_unit_name="tests",
            not_before=min(now, ends) - timedelta(days=1),
            not_after=ends,
        )

    def _new(self, name: str, ending: str = ".pem") -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        return self.directory / f"{name}{ending}"


EXPIRED = -1
