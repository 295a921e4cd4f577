"""Certificates for tests, created by openssl: an authority, and the certificates that it signs."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

AVAILABLE = shutil.which("openssl") is not None
_KEY = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]


@dataclass(frozen=True)
class Signed:
    """A certificate and its key, PEM, in one file."""

    path: Path


class Authority:
    """Signs certificates. Each is one call of openssl."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key, self.certificate = directory / f"{name}.key", directory / f"{name}.pem"
        self._openssl("-x509", *_KEY, "-keyout", self._key, "-out", self.certificate, "-subj", f"/CN={name}")

    def sign(self, name: str, *alternative_names: str) -> Signed:
        key, certificate = self._directory / f"{name}.key", self._directory / f"{name}.crt"
        names = ["-addext", f"subjectAltName={','.join(alternative_names)}"] if alternative_names else []
        by = ["-CA", self.certificate, "-CAkey", self._key]
        self._openssl("-x509", *_KEY, *by, "-keyout", key, "-out", certificate, "-subj", f"/CN={name}", *names)
        both = self._directory / f"{name}.both.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return Signed(both)

    @staticmethod
    def _openssl(*args: str | Path) -> None:
        subprocess.run(["openssl", "req", *args, "-days", "1"], check=True, capture_output=True)
