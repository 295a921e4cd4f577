"""TLS listeners over real sockets: data, certificates, and clients that do not do what they should."""

from __future__ import annotations

import asyncio
import logging
import os
import random
import shutil
import socket
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from authorities import EXPIRED, Authority
from ottla.config import BrokerConfig
from ottla.config.security import ListenerSecurity
from ottla.errors import ConfigError
from ottla.net import reloading
from ottla.net.server import few_lines
from ottla.net.server.connection import Connection
from ottla.net.server.listener import Limits, Server
from ottla.net.server.tls_listener import TlsListener, openssl_name
from ottla.protocol.codec import Buffer
from ottla.storage.open_files import OpenFile
from ottla.storage.reading import Slice


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Path:
    return authority.sign("broker")


def security(keystore: Path | None, **values: object) -> ListenerSecurity:
    given = {} if keystore is None else {"ssl.keystore.location": str(keystore)}
    return BrokerConfig.parse({"listeners": "SSL://:0", **given, **values}).listener("SSL")


def trusted(authority: Authority, client: Path | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authority.certificate)
    if client is not None:
        context.load_cert_chain(client)
    return context


def framed(payload: bytes) -> bytes:
    return struct.pack(">i", len(payload)) + payload


def echo(connection: Connection, frame: memoryview) -> Buffer:
    return Buffer(framed(bytes(frame)))


def who(connection: Connection, frame: memoryview) -> Buffer:
    return Buffer(framed(str(connection.channel.principal).encode()))


@asynccontextmanager
async def serving(handler: Any, listener: TlsListener | None, **changes: Any) -> AsyncIterator[Server]:
    values: dict[str, Any] = {
        "max_request_size": 8 << 20,
        "max_connections": 1000,
        "max_connections_from": lambda host: 1000,
        "idle_seconds": 60.0,
        "receive_seconds": 60.0,
    }
    limits = Limits(**{**values, **changes})
    server = Server(handler, limits, new_channel=listener.new_channel) if listener else Server(handler, limits)
    await server.start("127.0.0.1", 0)
    server.serve()
    try:
        yield server
    finally:
        await server.stop()
        if listener is not None:
            listener.close()


class Client:
    """A connection of Python's own TLS."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    @classmethod
    async def connect(cls, server: Server, context: ssl.SSLContext | None) -> Client:
        host = "localhost" if context else None
        return cls(*await asyncio.open_connection("127.0.0.1", server.port, ssl=context, server_hostname=host))

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def ask(self, payload: bytes) -> bytes:
        self.writer.write(framed(payload))
        return await self.receive()

    @property
    def certificate(self) -> str:
        found: str = dict(part[0] for part in self.writer.get_extra_info("peercert")["subject"])["commonName"]
        return found

    async def is_closed(self) -> bool:
        try:
            return await self.reader.read() == b""
        except OSError:
            return True

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            pass


async def refused(server: Server, context: ssl.SSLContext | None, data: bytes = framed(b"12345678")) -> str:
    """Return the name of the client's error, or nothing if the server just closed."""
    try:
        client = await Client.connect(server, context)
        client.writer.write(data)
        assert await client.reader.read() == b""
        await client.close()
    except OSError as error:
        return getattr(error, "reason", None) or type(error).__name__
    return ""


# ── data ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_frames_of_all_sizes_come_back_in_order(authority: Authority, broker: Path, version: str) -> None:
    listener = TlsListener(security(broker, **{"ssl.enabled.protocols": version}))
    sizes = [8, 9, 16_380, 16_384, 16_385, 70_000, 8, 1_000_000, 262_140, 262_144, 8, 4_000_000, *[100] * 300]
    frames = [os.urandom(size) for size in sizes]
    async with serving(echo, listener) as server:
        client = await Client.connect(server, trusted(authority))
        assert client.writer.get_extra_info("cipher")[1] == version
        client.writer.write(b"".join(map(framed, frames)))
        for frame in frames:
            assert await client.receive() == frame
        await client.close()


async def test_requests_that_wait_are_followed_by_those_that_arrived_with_them(
    authority: Authority, broker: Path
) -> None:
    async def later(answer: Buffer) -> Buffer:
        await asyncio.sleep(0)
        return answer

    async with serving(
        lambda connection, frame: later(echo(connection, frame)), TlsListener(security(broker))
    ) as server:
        client = await Client.connect(server, trusted(authority))
        frames = [b"%08d" % number for number in range(5_000)]
        client.writer.write(b"".join(map(framed, frames)))
        assert [await client.receive() for _ in frames] == frames
        await client.close()


async def test_files_arrive_whole_although_the_client_reads_slowly(
    authority: Authority, broker: Path, tmp_path: Path
) -> None:
    data = random.Random(1).randbytes(9_000_000)
    (tmp_path / "segment").write_bytes(data)
    file = OpenFile(tmp_path / "segment")

    def answer(connection: Connection, frame: memoryview) -> Buffer:
        out = Buffer(struct.pack(">i", len(data) + 8) + b"head")
        out.splices.append((8, Slice(file, 0, len(data), 0)))
        out += b"tail"
        return out

    async with serving(answer, TlsListener(security(broker)), send_buffer=1 << 17) as server:
        client = await Client.connect(server, trusted(authority))
        for _ in range(2):
            client.writer.write(framed(b"12345678"))
            assert await client.receive() == b"head" + data + b"tail"
        await client.close()


# ── certificates ──────────────────────────────────────────────────────────────────────────────────────────────────

RULE = {"ssl.principal.mapping.rules": "RULE:^CN=(a.*?),OU=tests,O=ottla$/$1/U"}


async def test_the_certificate_of_a_client_says_who_it_is(authority: Authority, broker: Path) -> None:
    trust = {"ssl.client.auth": "required", "ssl.truststore.location": str(authority.certificate)}
    alice = authority.sign("alice")
    async with serving(who, TlsListener(security(broker, **trust))) as server:
        client = await Client.connect(server, trusted(authority, alice))
        assert await client.ask(b"12345678") == b"User:CN=alice,OU=tests,O=ottla"
        await client.close()
    async with serving(who, TlsListener(security(broker, **trust, **RULE))) as server:
        client = await Client.connect(server, trusted(authority, alice))
        assert await client.ask(b"12345678") == b"User:ALICE"
        await client.close()
        assert await refused(server, trusted(authority, authority.sign("bob"))) == ""


def ask_twice(port: int, context: ssl.SSLContext) -> list[tuple[bool | None, bytes]]:
    """Connect, and connect again with the same session; return whether it was reused, and the answers."""
    found: list[tuple[bool | None, bytes]] = []
    session = None
    for _ in range(2):
        with (
            socket.create_connection(("127.0.0.1", port)) as plain,
            context.wrap_socket(plain, server_hostname="localhost", session=session) as wrapped,
        ):
            wrapped.sendall(framed(b"12345678"))
            (size,) = struct.unpack(">i", wrapped.recv(4))
            found.append((wrapped.session_reused, wrapped.recv(size)))
            session = wrapped.session
    return found


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
async def test_a_client_that_resumes_a_session_stays_who_it_is(
    authority: Authority, broker: Path, version: str
) -> None:
    trust = {"ssl.client.auth": "required", "ssl.truststore.location": str(authority.certificate)}
    listener = TlsListener(security(broker, **trust, **RULE, **{"ssl.enabled.protocols": version}))
    async with serving(who, listener) as server:
        context = trusted(authority, authority.sign("alice"))
        answers = await asyncio.to_thread(ask_twice, server.port, context)
    assert answers == [(False, b"User:ALICE"), (True, b"User:ALICE")]


async def test_who_needs_a_certificate(
    authority: Authority, broker: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stranger, expired = Authority(tmp_path).sign("stranger"), authority.sign("late", days=EXPIRED)
    trust = {"ssl.truststore.location": str(authority.certificate)}
    async with serving(who, TlsListener(security(broker, **trust, **{"ssl.client.auth": "required"}))) as server:
        assert await refused(server, trusted(authority)) == "TLSV13_ALERT_CERTIFICATE_REQUIRED"
        assert "the client has no certificate, but ssl.client.auth=required" in caplog.messages[-1]
        assert await refused(server, trusted(authority, stranger)) == "TLSV1_ALERT_UNKNOWN_CA"
        assert "certificate is not accepted: unable to get local issuer certificate" in caplog.messages[-1]
        assert await refused(server, trusted(authority, expired)) == "SSLV3_ALERT_CERTIFICATE_EXPIRED"
        assert "certificate is not accepted: certificate has expired" in caplog.messages[-1]
    async with serving(who, TlsListener(security(broker, **trust, **{"ssl.client.auth": "requested"}))) as server:
        client = await Client.connect(server, trusted(authority))
        assert await client.ask(b"12345678") == b"User:ANONYMOUS"
        await client.close()
        assert await refused(server, trusted(authority, stranger)) == "TLSV1_ALERT_UNKNOWN_CA"
    assert len(caplog.messages) == 4
    assert not any(record.exc_info for record in caplog.records)


def stored_as(kind: str, authority: Authority, broker: Path) -> ListenerSecurity:
    if kind == "file":
        return security(broker)
    if kind == "PKCS12":
        password = {"ssl.keystore.password": "a secret", "ssl.keystore.type": "PKCS12"}
        return security(authority.sign_pkcs12("broker", "a secret"), **password)
    key, middle, certificate = broker.read_text().partition("-----BEGIN CERT")
    return security(None, **{"ssl.keystore.key": key, "ssl.keystore.certificate.chain": middle + certificate})


@pytest.mark.parametrize("kind", ["file", "text", "PKCS12"])
async def test_forms_of_the_brokers_certificate(authority: Authority, broker: Path, kind: str) -> None:
    async with serving(echo, TlsListener(stored_as(kind, authority, broker))) as server:
        client = await Client.connect(server, trusted(authority))
        assert client.certificate == "broker"
        await client.close()


async def test_new_files_are_used_for_new_connections(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reloading, "CHECK_SECONDS", 0.0)
    caplog.set_level(logging.INFO)
    path = tmp_path / "keystore.pem"
    shutil.copy(authority.sign("first"), path)
    async with serving(echo, TlsListener(security(path))) as server:
        old = await Client.connect(server, trusted(authority))
        shutil.copy(authority.sign("second"), path)
        new = await Client.connect(server, trusted(authority))
        assert (old.certificate, new.certificate) == ("first", "second")
        assert await old.ask(b"12345678") == b"12345678"
        path.write_text("nonsense")
        for _ in range(2):
            last = await Client.connect(server, trusted(authority))
            assert last.certificate == "second"
            await last.close()
        await old.close()
        await new.close()
    assert caplog.messages[0] == "the listener SSL uses new certificates"
    assert "keeps its old certificates: ssl.keystore.location: cannot use" in caplog.messages[1]
    assert len(caplog.messages) == 2


def test_a_key_that_everybody_can_read_is_refused(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "my key.pem"
    shutil.copy(authority.sign("broker"), path)
    path.chmod(0o644)
    with pytest.raises(ConfigError) as caught:
        TlsListener(security(path))
    command = str(caught.value).partition("Run: ")[2]
    assert os.system(command) == 0
    TlsListener(security(path))


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({}, "The listener SSL needs a certificate for TLS. Set ssl.keystore.location"),
        ({"ssl.keystore.location": "/no/such.pem"}, "there is no file /no/such.pem"),
        ({"ssl.keystore.certificate.chain": "x"}, "but not ssl.keystore.key"),
        ({"ssl.keystore.certificate.chain": "x", "ssl.keystore.key": "y"}, "are not a PEM key and certificates"),
        ({"ssl.client.auth": "required", "ssl.keystore.location": "x"}, "Set ssl.truststore.location"),
        ({"ssl.keystore.location": "{broker}", "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "List all of"),
        ({"ssl.keystore.location": "{broker}", "ssl.cipher.suites": "NULL-MD4"}, "has none of NULL-MD4"),
        (
            {"ssl.keystore.location": "{broker}", "ssl.cipher.suites": "ECDHE-RSA-AES128-GCM-SHA256",
             "ssl.enabled.protocols": "TLSv1.3"},
            "no cipher suite of a version in ssl.enabled.protocols",
        ),
        ({"ssl.principal.mapping.rules": "nonsense"}, "rules such as RULE:"),
    ],
)  # fmt: skip
def test_wrong_settings_are_explained(broker: Path, values: dict[str, str], says: str) -> None:
    with pytest.raises(ConfigError) as caught:
        TlsListener(security(None, **{name: value.format(broker=broker) for name, value in values.items()}))
    assert says in str(caught.value)


def test_a_store_without_a_key_is_explained(authority: Authority, tmp_path: Path) -> None:
    path = tmp_path / "ca.pem"
    shutil.copy(authority.certificate, path)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location: .*ca\.pem has no private key\. Write the key"):
        TlsListener(security(path))


async def test_cipher_suites_have_javas_names(authority: Authority, broker: Path) -> None:
    suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"
    async with serving(echo, TlsListener(security(broker, **{"ssl.cipher.suites": suites}))) as server:
        client = await Client.connect(server, trusted(authority))
        assert client.writer.get_extra_info("cipher")[:2] == ("ECDHE-ECDSA-AES128-GCM-SHA256", "TLSv1.2")
        await client.close()


@pytest.mark.parametrize(
    ("java", "openssl"),
    [
        ("TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256", "ECDHE-RSA-CHACHA20-POLY1305"),
        ("TLS_DHE_RSA_WITH_AES_256_GCM_SHA384", "DHE-RSA-AES256-GCM-SHA384"),
        ("TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA384", "ECDHE-ECDSA-AES256-SHA384"),
        ("TLS_RSA_WITH_AES_128_CBC_SHA", "AES128-SHA"),
        ("ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-AES128-GCM-SHA256"),
    ],
)
def test_names_of_cipher_suites(java: str, openssl: str) -> None:
    assert openssl_name(java) == openssl
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ciphers(openssl)


# ── clients that do not do what they should ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (framed(b"12345678"), "requires TLS, but the client sends plain text: set security.protocol"),
        (b"GET / HTTP/1.1\r\n\r\n", "requires TLS, but the client speaks HTTP"),
        (b"\x16\x03\x01\x00\x05nonsense" * 10, "TLS failed: "),
    ],
)
async def test_a_client_without_tls(broker: Path, data: bytes, says: str, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo, TlsListener(security(broker))) as server:
        client = await Client.connect(server, None)
        client.writer.write(data)
        await client.reader.read()
        await client.close()
        assert server.failed_handshakes == 1
    (message,) = caplog.messages
    assert says in message


async def test_a_client_with_tls_on_a_plain_port(authority: Authority, caplog: pytest.LogCaptureFixture) -> None:
    async with serving(echo, None) as server:
        assert await refused(server, trusted(authority)) in ("ConnectionResetError", "UNEXPECTED_EOF_WHILE_READING")
    (message,) = caplog.messages
    assert "the client speaks TLS, but this listener does not: set its security.protocol" in message


def shake_hands(port: int, context: ssl.SSLContext) -> str:
    """Connect like OpenSSL's own client, which tells the server of its error."""
    with socket.create_connection(("127.0.0.1", port)) as plain:
        try:
            with context.wrap_socket(plain, server_hostname="localhost"):
                return ""
        except ssl.SSLError as error:
            return error.reason


@pytest.mark.parametrize(
    ("connect", "says"),
    [
        (refused, "the client closed, maybe because it does not trust"),
        (
            lambda server, context: asyncio.to_thread(shake_hands, server.port, context),
            "the client does not trust the authority that signed this broker's certificate",
        ),
    ],
)
async def test_a_client_that_does_not_trust_the_broker(
    broker: Path, tmp_path: Path, connect: Any, says: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(echo, TlsListener(security(broker))) as server:
        assert await connect(server, trusted(Authority(tmp_path))) == "CERTIFICATE_VERIFY_FAILED"
        async with asyncio.timeout(30):
            while not caplog.messages:
                await asyncio.sleep(0.01)
    (message,) = caplog.messages
    assert says in message


async def test_a_handshake_must_end_in_time(
    authority: Authority, broker: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(echo, TlsListener(security(broker)), authentication_seconds=0.2) as server:
        ready = await Client.connect(server, trusted(authority))
        silent, half = await Client.connect(server, None), await Client.connect(server, None)
        half.writer.write(b"\x16\x03\x01\x02\x00\x01")
        assert await silent.is_closed()
        assert await half.is_closed()
        assert await ready.ask(b"12345678") == b"12345678"
        for client in (ready, silent, half):
            await client.close()
    assert all("did not authenticate in time" in message for message in caplog.messages)
    assert len(caplog.messages) == 2


async def test_one_address_may_have_few_connections_before_their_handshake(authority: Authority, broker: Path) -> None:
    async with serving(echo, TlsListener(security(broker)), max_strangers_per_ip=5) as server:
        known = [await Client.connect(server, trusted(authority)) for _ in range(10)]
        silent = [await Client.connect(server, None) for _ in range(8)]
        assert all([await client.is_closed() for client in silent[5:]])
        assert [await client.ask(b"12345678") for client in known] == [b"12345678"] * 10
        for client in silent:
            await client.close()
        for client in known:
            await client.close()


async def test_many_clients_without_tls_do_not_fill_the_log(
    broker: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_lines, "MOST_PER_SECOND", 3)
    async with serving(echo, TlsListener(security(broker))) as server:
        for _ in range(10):
            assert await refused(server, None) in ("", "ConnectionResetError")
        async with asyncio.timeout(30):
            while "more connections were closed or refused" not in caplog.text:
                await asyncio.sleep(0.01)
    assert len([message for message in caplog.messages if "requires TLS" in message]) < 10


async def test_a_handshake_has_a_size_limit(broker: Path, caplog: pytest.LogCaptureFixture) -> None:
    hello = b"\x16\x03\x01\x40\x00\x01\x00\xff\xff\x03\x03" + bytes(32) + b"\x00" * 16_336
    async with serving(echo, TlsListener(security(broker))) as server:
        client = await Client.connect(server, None)
        client.writer.write(hello + (b"\x16\x03\x01\x40\x00" + bytes(16_384)) * 8)
        await client.is_closed()
        await client.close()
    (message,) = caplog.messages
    assert "TLS failed: " in message


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a client."""
    sent = ssl.MemoryBIO()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), sent, server_hostname="localhost").do_handshake()
    return sent.read()


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the memory is read from /proc")
async def test_a_handshake_that_has_only_begun_costs_little_memory(authority: Authority, broker: Path) -> None:
    count, start = 400, hello(trusted(authority))[:100]
    async with serving(echo, TlsListener(security(broker))) as server, asyncio.timeout(20):
        before = resident_bytes()
        strangers = [await Client.connect(server, None) for _ in range(count)]
        for stranger in strangers:
            stranger.writer.write(start)
        # A client that connects later is served after them, so they have been read.
        client = await Client.connect(server, trusted(authority))
        assert await client.ask(b"12345678") == b"12345678"
        # The sockets of the clients are in this process too.
        assert (resident_bytes() - before) / count < 32_000
        for each in (client, *strangers):
            await each.close()


async def test_a_hello_may_come_byte_by_byte(authority: Authority, broker: Path) -> None:
    async with serving(echo, TlsListener(security(broker))) as server:
        received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = trusted(authority).wrap_bio(received, sent, server_hostname="localhost")
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(20):
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    for byte in sent.read():
                        writer.write(bytes([byte]))
                        await asyncio.sleep(0)
                    received.write(await reader.read(1 << 16))
            tls.write(framed(b"12345678"))
            writer.write(sent.read())
            while True:
                try:
                    assert tls.read(100) == framed(b"12345678")
                    break
                except ssl.SSLWantReadError:
                    received.write(await reader.read(1 << 16))
        writer.close()
