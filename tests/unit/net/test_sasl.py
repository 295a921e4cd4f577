"""SASL: each mechanism with a scripted broker, error messages, and re-authentication before a session ends."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.net.sasl_server import SaslServer
from tests.unit.net.test_client import negotiated, read_request, serving

from ottla.config.client import ClientConfig
from ottla.errors import (
    AuthenticationError,
    ConfigError,
    IllegalSaslState,
    NetworkException,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanism,
)
from ottla.net.client import connection as client
from ottla.net.client.connection import Connection, Disconnected
from ottla.net.client.sasl import Sasl, oauthbearer, plain, scram
from ottla.net.client.security import Security
from ottla.protocol.apis import ApiKey

USER, PASSWORD = SaslServer.username, SaslServer.password


async def ask(port: int, sasl: Sasl | None, requests: int = 1) -> Connection:
    connection = await Connection.open("127.0.0.1", port, security=Security(sasl=sasl))
    for _ in range(requests):
        await connection.request(ApiKey.METADATA, {"topics": None})
    return connection


async def meet(server: Any, sasl: Sasl | None, requests: int = 1) -> None:
    async with serving(server) as port:
        connection = await ask(port, sasl, requests)
        await connection.close()


# The conversations.


def test_scram_is_the_one_of_the_rfc() -> None:
    """The example of RFC 7677."""
    nonce = "rOprNGfwEbeRWgbNEkqO"
    talk = scram("sha256", "user", "pencil", nonce=nonce)
    assert next(talk) == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_nonce = f"{nonce}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    proof = "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    final = talk.send(f"r={server_nonce},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode())
    assert final == f"c=biws,r={server_nonce},p={proof}".encode()
    with pytest.raises(StopIteration):
        talk.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


def test_names_are_escaped_in_scram_and_not_in_plain() -> None:
    assert next(scram("sha256", "a=b,c", "p", nonce="n")) == b"n,,n=a=3Db=2Cc,r=n"
    assert next(plain("a=b,c", "p")) == b"\0a=b,c\0p"


@pytest.mark.parametrize(
    ("challenge", "problem"),
    [
        (b"r=other,s=AAAA,i=4096", "is for another request"),
        (b"r=n,s=AAAA,i=4096", "is for another request"),
        (b"r=nx,s=AAAA,i=10", "not safe"),
        (b"r=nx,s=AAAA,i=99999999", "not safe"),
        (b"r=nx,s=*,i=4096", "cannot read"),
        (b"r=nx,i=4096", "cannot read"),
        (b"\xff\xfe", "cannot read"),
        (b"e=unknown-user", "unknown-user"),
    ],
)
def test_a_challenge_that_is_not_safe_is_not_answered(challenge: bytes, problem: str) -> None:
    talk = scram("sha512", "user", "pencil", nonce="n")
    next(talk)
    with pytest.raises(SaslAuthenticationFailed, match=problem):
        talk.send(challenge)


def test_a_token_that_is_none_is_not_sent() -> None:
    with pytest.raises(SaslAuthenticationFailed, match="did not return a bearer token"):
        next(oauthbearer("two words"))
    assert next(oauthbearer("t", {"traceId": "7"})) == b"n,,\x01auth=Bearer t\x01traceId=7\x01\x01"


def test_credentials_come_from_the_configuration() -> None:
    jaas = 'x.PlainLoginModule required username="me" password="secret";'
    base = {"bootstrap.servers": "a:1", "security.protocol": "SASL_PLAINTEXT"}
    assert Sasl.of(ClientConfig.given(base, {"sasl_jaas_config": jaas})) == Sasl("PLAIN", "me", "secret")
    own = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "you", "sasl_password": "s"}
    assert Sasl.of(ClientConfig.given(base, own)) == Sasl("SCRAM-SHA-512", "you", "s")
    assert Sasl.of(ClientConfig.given({"bootstrap.servers": "a:1"}, own)) is None
    with pytest.raises(ConfigError, match=r"sasl\.password is missing"):
        ClientConfig.given(base, {"sasl_username": "you"})
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config: it must be one entry that ends") as caught:
        Sasl.of(ClientConfig.given(base, {"sasl_jaas_config": jaas.rstrip(";")}))
    assert "secret" not in str(caught.value)


# With a broker.


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
async def test_the_right_password_is_accepted(mechanism: str) -> None:
    server = SaslServer(mechanisms=(mechanism,))
    await meet(server, Sasl(mechanism, USER, PASSWORD))
    rounds = 1 if mechanism == "PLAIN" else 2
    said = ["api_versions", "sasl_handshake", *["sasl_authenticate"] * rounds, "metadata"]
    assert server.diary == said


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize(("username", "password"), [(USER, "wrong"), ("mallory", PASSWORD)])
async def test_a_wrong_password_is_said_without_saying_the_password(
    mechanism: str, username: str, password: str
) -> None:
    with pytest.raises(SaslAuthenticationFailed) as caught:
        await meet(SaslServer(mechanisms=(mechanism,)), Sasl(mechanism, username, password))
    message = str(caught.value)
    assert f"rejected user '{username}' with {mechanism}" in message
    assert "check sasl.username, sasl.password" in message
    assert password not in message


async def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    server = SaslServer(mechanisms=("SCRAM-SHA-256",), broken_signature=True)
    with pytest.raises(SaslAuthenticationFailed, match="could not prove that it knows the password"):
        await meet(server, Sasl("SCRAM-SHA-256", USER, PASSWORD))


class Provider:
    """A provider as in aiokafka and kafka-python."""

    async def token(self) -> str:
        return "good.token"

    def extensions(self) -> dict[str, str]:
        return {}


async def good_token() -> str:
    return "good.token"


@pytest.mark.parametrize("provider", [lambda: "good.token", good_token, Provider()])
async def test_a_token_comes_from_a_function(provider: Any) -> None:
    await meet(SaslServer(mechanisms=("OAUTHBEARER",)), Sasl("OAUTHBEARER", token_provider=provider))


async def test_a_refused_token_is_told_with_the_reason_of_the_broker() -> None:
    with pytest.raises(SaslAuthenticationFailed, match=r"Authentication failed; check sasl\.oauth\.token\.provider"):
        await meet(SaslServer(mechanisms=("OAUTHBEARER",)), Sasl("OAUTHBEARER", token_provider=lambda: "bad"))


async def test_a_provider_that_gives_no_text_is_told() -> None:
    with pytest.raises(SaslAuthenticationFailed, match="must return the token as str, not NoneType"):
        await meet(SaslServer(mechanisms=("OAUTHBEARER",)), Sasl("OAUTHBEARER", token_provider=lambda: None))


async def test_a_mechanism_that_the_broker_does_not_know_is_told_with_those_that_it_does() -> None:
    server = SaslServer(mechanisms=("SCRAM-SHA-256", "SCRAM-SHA-512"))
    with pytest.raises(UnsupportedSaslMechanism, match=r"does not support PLAIN.*: SCRAM-SHA-256, SCRAM-SHA-512"):
        await meet(server, Sasl("PLAIN", USER, PASSWORD))


async def test_sasl_on_a_listener_without_it_is_told() -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)

    served = [{"api_key": ApiKey.METADATA, "min_version": 0, "max_version": 7}]
    with pytest.raises(IllegalSaslState, match=r"has no SASL: set security\.protocol"):
        await meet(negotiated(handle, served), Sasl("PLAIN", USER, PASSWORD))


async def test_no_sasl_on_a_listener_with_it_is_guessed() -> None:
    with pytest.raises(Disconnected, match=r"requires SASL, set security\.protocol=SASL_PLAINTEXT"):
        await meet(SaslServer(), None)


def test_the_password_is_in_no_text_of_the_objects() -> None:
    assert "secret" not in repr(Security(sasl=Sasl("PLAIN", "me", "secret")))


# Session expiry (KIP-368).


async def test_a_session_is_renewed_before_it_ends_and_requests_wait_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # For this client, the sessions of a day expire at once.
    monkeypatch.setattr(client, "RENEW_AFTER", (0.0, 0.0))
    server = SaslServer(mechanisms=("SCRAM-SHA-256",), lifetimes_ms=[86_400_000, 86_400_000])
    async with serving(server) as port:
        connection = await ask(port, Sasl("SCRAM-SHA-256", USER, PASSWORD), requests=0)
        await asyncio.gather(*(connection.request(ApiKey.METADATA, {"topics": None}) for _ in range(3)))
        await connection.close()
    renewal = ["sasl_handshake", "sasl_authenticate", "sasl_authenticate"]
    assert server.diary == ["api_versions", *renewal * 3, "metadata", "metadata", "metadata"]


async def test_a_session_without_end_is_not_renewed() -> None:
    server = SaslServer()
    await meet(server, Sasl("PLAIN", USER, PASSWORD), requests=3)
    assert server.diary.count("sasl_handshake") == 1


async def test_a_renewal_that_fails_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RENEW_AFTER", (0.0, 0.0))
    server = SaslServer(lifetimes_ms=[86_400_000])
    async with serving(server) as port:
        connection = await Connection.open("127.0.0.1", port, security=Security(sasl=Sasl("PLAIN", USER, PASSWORD)))
        server.password = "changed meanwhile"
        with pytest.raises(SaslAuthenticationFailed, match="rejected user 'alice'"):
            await connection.request(ApiKey.METADATA, {"topics": None})
        assert connection.closed
        with pytest.raises(SaslAuthenticationFailed):
            await connection.request(ApiKey.METADATA, {"topics": None})
    assert "metadata" not in server.diary


# Broken connections.


async def test_a_connection_that_is_cut_anywhere_is_an_error_and_never_a_wait() -> None:
    """Cut the server's responses after each number of bytes."""
    server = SaslServer(mechanisms=("SCRAM-SHA-256",))
    sasl = Sasl("SCRAM-SHA-256", USER, PASSWORD)

    class Cut:
        """A writer that stops after a number of bytes."""

        def __init__(self, writer: asyncio.StreamWriter, left: int) -> None:
            self._writer, self.left, self.said = writer, left, 0

        def write(self, data: bytes) -> None:
            self.said += len(data)
            self._writer.write(data[: max(self.left, 0)])
            self.left -= len(data)
            if self.left <= 0:
                raise ConnectionError

    limit, said = 1_000_000, 0

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal said
        cut = Cut(writer, limit)
        try:
            await server(reader, cut)  # type: ignore[arg-type]
        finally:
            said = max(said, cut.said)

    async with serving(handle) as port:
        await (await ask(port, sasl)).close()
        await asyncio.sleep(0)
        total = said
        assert total > 500
        async with asyncio.timeout(60):
            while (limit := 1 if limit > total else limit + 7) < total:
                with pytest.raises((NetworkException, AuthenticationError)):
                    await (await ask(port, sasl)).close()
