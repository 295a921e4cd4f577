"""Java's key stores as PEM. The content of a file says what it is: keytool writes PKCS12, whatever the file is called.

PKCS12 requires ``pip install 'ottla[pkcs12]'``. The older formats JKS and JCEKS are read only by Java, so their error
has the command that converts them.
"""

from __future__ import annotations

from pathlib import Path

from ottla.errors import ConfigError

_PEM = b"-----BEGIN "
_PKCS12 = b"\x30"
_ONLY_JAVA = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


def is_java_store(path: str, name: str) -> bool:
    """Whether a file is PKCS12. `name` is the config with its location."""
    content = _start(path)
    if content.startswith(_ONLY_JAVA):
        raise ConfigError(
            f"{name}: {path} is a JKS store, which only Java can read. Convert it to PKCS12, and use the new file: "
            f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
        )
    return content.startswith(_PKCS12) and _PEM not in content


def _start(path: str) -> bytes:
    try:
        with Path(path).open("rb") as file:
            return file.read(4096)
    except OSError:  # explained by whoever reads it next
        return b""


def authorities_of(path: str, name: str, password: str | None) -> str:
    """The certificates of a truststore."""
    _, certificates = _opened(path, name, password)
    if not certificates:
        raise ConfigError(f"{name}: {path} has no certificates.")
    return "".join(certificates)


def key_of(path: str, name: str, password: str | None) -> str:
    """The key of a keystore, unencrypted, and its certificates."""
    key, certificates = _opened(path, name, password)
    if key is None:
        raise ConfigError(f"{name}: {path} has no key. A store with only certificates is a truststore.")
    return "".join([key, *certificates])


def _opened(path: str, name: str, password: str | None) -> tuple[str | None, list[str]]:
    try:
        from cryptography.hazmat.primitives.serialization import (
            Encoding,
            NoEncryption,
            PrivateFormat,
            pkcs12,
        )
    except ImportError:
        raise ConfigError(
            f"{name}: {path} is a PKCS12 store, which requires pip install 'ottla[pkcs12]'. Or convert it to PEM: "
            f"openssl pkcs12 -in {path} -out {path}.pem -nodes"
        ) from None
    try:
        found = pkcs12.load_pkcs12(Path(path).read_bytes(), None if password is None else password.encode())
    except ValueError as error:
        secret = name.replace("location", "password")
        raise ConfigError(f"{name}: cannot open {path} ({error}). Check {secret}.") from None
    key = None
    if found.key is not None:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    own = [] if found.cert is None else [found.cert]
    chain = [one.certificate.public_bytes(Encoding.PEM).decode() for one in (*own, *found.additional_certs)]
    return key, chain
