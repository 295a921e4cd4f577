"""Keys and certificates for an SSLContext, of clients and of brokers: PEM or PKCS12, as files or as text.

The content of a file says what it is: keytool writes PKCS12, whatever the file is called. PKCS12 requires
``pip install 'ottla[pkcs12]'``. The older formats JKS and JCEKS are read only by Java, so their error has the command
that converts them.
"""

from __future__ import annotations

import os
import shlex
import ssl
import stat
import tempfile
from pathlib import Path

from ottla.errors import ConfigError

VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}

_PEM = b"-----BEGIN "
_PKCS12 = b"\x30"
_ONLY_JAVA = (b"\xfe\xed\xfe\xed", b"\xce\xce\xce\xce")


def load_authorities(
    context: ssl.SSLContext, path: str | None, text: str | None, *, name: str, password: str | None
) -> None:
    """Let a context trust the certificates of a file and of a text. `name` is the config with the location."""
    if path is not None:
        try:
            if _is_pkcs12(path, name):
                context.load_verify_locations(cadata=_authorities_of(path, name, password))
            else:
                context.load_verify_locations(cafile=path)
        except (OSError, ssl.SSLError) as error:
            raise _unusable(name, path, error) from None
    if text is not None:
        try:
            context.load_verify_locations(cadata=text)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"ssl.truststore.certificates has no PEM certificates ({error}).") from None


def load_key(
    context: ssl.SSLContext,
    path: str | None,
    key_path: str | None = None,
    *,
    name: str,
    password: str | None,
    key_password: str | None,
) -> None:
    """Give a context the key and certificates of a file. `name` is the config with the location."""
    if path is not None:
        try:
            if _is_pkcs12(path, name):
                _load_text(context, _key_of(path, name, password or key_password), None)
            else:
                # Never None: Python would ask for a password on the terminal.
                context.load_cert_chain(path, key_path, key_password or password or "")
        except (OSError, ssl.SSLError) as error:
            if _has_no_key(key_path or path):
                raise ConfigError(
                    f"{name}: {key_path or path} has no private key. Write the key and then the certificates to one "
                    "PEM file."
                ) from None
            raise _unusable(name, path, error) from None


def load_key_text(context: ssl.SSLContext, key: str | None, chain: str, password: str | None) -> None:
    """Give a context a key and certificates that are PEM text."""
    try:
        _load_text(context, f"{key or ''}\n{chain}\n", password)
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"ssl.keystore.key and ssl.keystore.certificate.chain are not a PEM key and certificates ({error})."
        ) from None


def refuse_readable_by_all(path: str, name: str) -> None:
    """Raise ConfigError if every user of this computer can read a private key."""
    try:
        mode = Path(path).stat().st_mode
    except OSError:  # explained by whoever reads it next
        return
    if os.name == "posix" and mode & stat.S_IROTH:
        raise ConfigError(
            f"{name}: every user of this computer can read the private key in {path}. Run: "
            f"chmod o-r {shlex.quote(path)}"
        )


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


def _has_no_key(path: str) -> bool:
    """Whether a PEM file has only certificates. OpenSSL says nothing that helps then."""
    try:
        content = Path(path).read_bytes()
    except OSError:  # explained by whoever asks
        return False
    return _PEM in content and b"PRIVATE KEY-----" not in content


def _is_pkcs12(path: str, name: str) -> bool:
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


def _authorities_of(path: str, name: str, password: str | None) -> str:
    """The certificates of a truststore."""
    _, certificates = _opened(path, name, password)
    if not certificates:
        raise ConfigError(f"{name}: {path} has no certificates.")
    return "".join(certificates)


def _key_of(path: str, name: str, password: str | None) -> str:
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
    except OSError as error:
        raise _unusable(name, path, error) from None
    except ValueError as error:
        secret = name.replace("location", "password")
        raise ConfigError(f"{name}: cannot open {path} ({error}). Check {secret}.") from None
    key = None
    if found.key is not None:
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    own = [] if found.cert is None else [found.cert]
    chain = [one.certificate.public_bytes(Encoding.PEM).decode() for one in (*own, *found.additional_certs)]
    return key, chain
