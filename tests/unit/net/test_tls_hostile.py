"""TLS listeners and clients that want to stall them, and files that cannot be used at first."""

from __future__ import annotations

import _ssl
import asyncio
import ctypes
import logging
import shutil
import socket
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import NoEncryption, pkcs12
from cryptography.x509.oid import NameOID
from tests.unit.net.test_tls import Client, echo, framed, refused, security, serving, trusted

from authorities import Authority
from ottla.errors import ConfigError
from ottla.net import reloading
from ottla.net.server import tls_listener
from ottla.net.server.tls_listener import TlsListener


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Path:
    return authority.sign("broker")


class OpenSsl:
    """A client that uses OpenSSL itself, because Python's module cannot change keys."""

    def __init__(self, port: int) -> None:
        self._library = ctypes.CDLL(_ssl.__file__)
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._socket.settimeout(None)
        context = self._pointer("SSL_CTX_new", self._pointer("TLS_client_method"))
        self._tls = self._pointer("SSL_new", context)
        self._library.SSL_set_fd(self._tls, self._socket.fileno())
        assert self._library.SSL_connect(self._tls) == 1

    def _pointer(self, function: str, *values: ctypes.c_void_p) -> ctypes.c_void_p:
        found = getattr(self._library, function)
        found.restype = ctypes.c_void_p
        return ctypes.c_void_p(found(*values))

    def change_keys(self, times: int, *, ask: bool) -> int:
        """Change the keys of the connection, and ask the broker to do so too. Return how often it worked."""
        for done in range(times):
            self._library.SSL_key_update(self._tls, int(ask))
            if self._library.SSL_do_handshake(self._tls) != 1:
                return done
        return times

    def close(self) -> None:
        self._socket.close()


@pytest.mark.skipif(not hasattr(ctypes.CDLL(_ssl.__file__), "SSL_key_update"), reason="OpenSSL is inside of Python")
@pytest.mark.parametrize("ask", [False, True])
async def test_a_client_that_only_changes_keys_stops_nobody(
    authority: Authority, broker: Path, ask: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "ottla.net")
    async with serving(echo, TlsListener(security(broker))) as server:
        other = await Client.connect(server, trusted(authority))
        hostile = await asyncio.to_thread(OpenSsl, server.port)
        many = 100_000
        changing = asyncio.create_task(asyncio.to_thread(hostile.change_keys, many, ask=ask))
        answers = 0
        while not changing.done():
            async with asyncio.timeout(10):
                assert await other.ask(b"12345678") == b"12345678"
            answers += 1
        assert answers > 1
        assert await changing < many, "the client may go on for ever"
        hostile.close()
        await other.close()
    assert "the client sends records without data" in caplog.text


async def test_a_chain_of_certificates_may_be_longer_than_the_buffer_of_a_socket(
    authority: Authority, tmp_path: Path
) -> None:
    path = tmp_path / "keystore.pem"
    shutil.copy(authority.sign("broker"), path)
    key, begin, certificate = path.read_text().partition("-----BEGIN CERTIFICATE")
    path.write_text(key + (begin + certificate) * 60)

    def ask(port: int) -> bytes:
        with socket.socket() as plain:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            plain.settimeout(10)
            plain.connect(("127.0.0.1", port))
            with trusted(authority).wrap_socket(plain, server_hostname="localhost") as client:
                client.sendall(framed(b"12345678"))
                return client.recv(12)

    async with serving(echo, TlsListener(security(path)), send_buffer=2048) as server:
        assert await asyncio.to_thread(ask, server.port) == framed(b"12345678")


async def test_refused_clients_do_not_use_up_all_files(
    authority: Authority, broker: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tls_listener, "MOST_LINGERING", 3)
    monkeypatch.setattr(tls_listener, "LINGER_SECONDS", 60.0)
    old = trusted(authority)
    old.maximum_version = ssl.TLSVersion.TLSv1_2
    listener = TlsListener(security(broker, **{"ssl.enabled.protocols": "TLSv1.3"}))
    async with serving(echo, listener) as server:
        for _ in range(6):
            assert await refused(server, old) != ""
        async with asyncio.timeout(30):
            while server.connections:
                await asyncio.sleep(0.01)
        assert len(listener._lingering) == 3
        client = await Client.connect(server, trusted(authority))
        assert await client.ask(b"12345678") == b"12345678"
        await client.close()


async def test_the_advice_about_a_new_key_helps(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reloading, "CHECK_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    path, new = tmp_path / "keystore.pem", tmp_path / "new.pem"
    shutil.copy(authority.sign("first"), path)
    async with serving(echo, TlsListener(security(path))) as server:
        shutil.copy(authority.sign("second"), new)
        new.chmod(0o644)
        new.rename(path)
        for _ in range(2):
            client = await Client.connect(server, trusted(authority))
            assert client.certificate == "first"
            await client.close()
        (message,) = caplog.messages
        command = message.partition("Run: ")[2]
        assert command == f"chmod o-r {path}"
        path.chmod(0o640)
        client = await Client.connect(server, trusted(authority))
        assert client.certificate == "second"
        await client.close()
    assert caplog.messages[1:] == ["the listener SSL uses new certificates"]


def test_a_pkcs12_store_that_openssl_does_not_accept_is_explained(tmp_path: Path) -> None:
    key = rsa.generate_private_key(65537, 1024)
    name, now = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "weak")]), datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key()).serial_number(1)
        .not_valid_before(now).not_valid_after(now + timedelta(days=1)).sign(key, SHA256())
    )  # fmt: skip
    path = tmp_path / "weak.p12"
    path.touch(mode=0o600)
    path.write_bytes(pkcs12.serialize_key_and_certificates(b"weak", key, certificate, None, NoEncryption()))
    with pytest.raises(ConfigError, match="EE_KEY_TOO_SMALL"):
        TlsListener(security(path))
