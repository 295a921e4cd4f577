"""OAUTHBEARER at the broker: which tokens it believes, and where the keys come from."""

from __future__ import annotations

import asyncio
import base64
import binascii
import http.server
import json
import random
import string
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.issuers import Issuer, unsigned
from tests.unit.broker.sasl_wire import SaslBroker, handshake, log_in, sasl_broker, say, until, works
from tests.unit.broker.wire import Wire

from ottla.broker.authentication import jwks
from ottla.broker.authentication.conversations import Login
from ottla.broker.authentication.oauthbearer import InvalidToken, _read
from ottla.broker.authentication.tokens import SignedTokens
from ottla.broker.authentication.workers import Workers
from ottla.config import BrokerConfig
from ottla.config.channels import UNSECURED_TOKENS
from ottla.errors import ConfigError, SaslAuthenticationFailed
from ottla.net.client.sasl import oauthbearer
from ottla.net.server import few_lines
from ottla.protocol.codec import Struct
from ottla.security.principals import Principal


def part(text: str) -> str:
    """A part of a token."""
    return base64.urlsafe_b64encode(text.encode()).rstrip(b"=").decode()


ISSUER, STRANGER = Issuer(), Issuer()
RULES = {
    "sasl.oauthbearer.expected.audience": "kafka,other",
    "sasl.oauthbearer.expected.issuer": "https://id.example",
    "sasl.oauthbearer.clock.skew.seconds": "5",
}
RIGHT = {"aud": "kafka", "iss": "https://id.example"}


@pytest.fixture(scope="module")
def sasl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SaslBroker]:
    url = ISSUER.publish(tmp_path_factory.mktemp("keys") / "jwks.json")
    with sasl_broker("PLAIN,OAUTHBEARER", **{"sasl.oauthbearer.jwks.endpoint.url": url}, **RULES) as broker:
        yield broker


def log_in_with(wire: Wire, token: str, **extensions: str) -> Struct:
    """Say all that a client says; return the last response."""
    handshake(wire, "OAUTHBEARER")
    answer = say(wire, next(oauthbearer(token, extensions)))
    if answer.auth_bytes:
        assert json.loads(bytes(answer.auth_bytes))["status"] == "invalid_token"
        answer = say(wire, b"\x01")
        assert answer.error_code == SaslAuthenticationFailed.code
        assert wire.is_closed()
    return answer


def test_a_signed_token_is_believed_until_it_expires(sasl: SaslBroker) -> None:
    with Wire(sasl.sasl) as wire:
        answer = log_in_with(wire, ISSUER.token(seconds=600, **RIGHT), traceId="7")
        assert answer.error_code == 0
        assert 500_000 < answer.session_lifetime <= 600_000
        assert works(wire)
        assert Principal("User", "alice") in sasl.principals()


def test_a_session_ends_with_its_token(sasl: SaslBroker) -> None:
    with Wire(sasl.sasl) as wire:
        assert 0 < log_in_with(wire, ISSUER.token(seconds=0.5, **RIGHT)).session_lifetime <= 500
        until(lambda: not works(wire), "the token has expired")


@pytest.mark.parametrize(
    ("token", "problem"),
    [
        (ISSUER.token(seconds=-60, **RIGHT), "it has expired"),
        (ISSUER.token(nbf=32503680000, **RIGHT), "it is not valid yet"),
        (ISSUER.token(aud="bank", iss="https://id.example"), "it is for another audience"),
        (ISSUER.token(iss="https://id.example"), "it has no claim aud"),
        (ISSUER.token(aud="kafka", iss="https://evil.example"), "it is from another issuer"),
        (ISSUER.token(aud="kafka"), "it has no claim iss"),
        (ISSUER.token(iat=None, **RIGHT), "it has no claim iat"),
        (ISSUER.token(exp=None, **RIGHT), "it has no claim exp"),
        (ISSUER.token(None, **RIGHT), "no claim sub"),
        (ISSUER.token("  ", **RIGHT), "no claim sub"),
        (STRANGER.token(**RIGHT), "its signature is not valid"),
        (Issuer("two").token(**RIGHT), "a key that is not in the key set"),
        (unsigned(), "its signature algorithm is not one of"),
        (
            jwt.encode({"sub": "alice", **RIGHT}, "x" * 64, algorithm="HS256"),
            "signature algorithm",
        ),
        ("not.a.token", "it is not a JSON web token"),
        ("nonsense", "it is not a JSON web token"),
        (part("[" * 100_000) + ".e30.AAAA", "it is not a JSON web token"),
        (part('{"alg":"ES256","kid":"x","x":"%s"}' % ("x" * 99_999)) + ".e30.AAAA", "it is not a JSON web token"),
        (part('{"alg":"ES256","kid":7}') + ".e30.AAAA", "it is not a JSON web token"),
        (part('{"alg":["ES256"]}') + ".e30.AAAA", "its signature algorithm is not one of"),
    ],
)
def test_a_token_that_proves_nothing_is_refused_with_the_reason(
    sasl: SaslBroker, token: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Wire(sasl.sasl) as wire:
        assert problem in log_in_with(wire, token).error_message
    until(lambda: problem in caplog.text, "the broker has logged it")
    assert token not in caplog.text
    assert not any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize("message", [b"", b"n,,\x01\x01", b"n,,\x01auth=Basic abc\x01\x01", b"auth=Bearer x", b"\xff"])
def test_what_is_not_oauthbearer_is_refused(sasl: SaslBroker, message: bytes) -> None:
    with Wire(sasl.sasl) as wire:
        handshake(wire, "OAUTHBEARER")
        assert say(wire, message).error_code == SaslAuthenticationFailed.code
        assert wire.is_closed()


def test_a_client_cannot_act_for_another_user(sasl: SaslBroker) -> None:
    with Wire(sasl.sasl) as wire:
        handshake(wire, "OAUTHBEARER")
        answer = say(wire, f"n,a=bob,\x01auth=Bearer {ISSUER.token(**RIGHT)}\x01\x01".encode())
        assert answer.error_code == SaslAuthenticationFailed.code


def test_a_new_key_of_the_issuer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "LEAST_SECONDS_BETWEEN_READS", 0.0)
    old, new = Issuer("old"), Issuer("new")
    url = old.publish(tmp_path / "keys")
    with sasl_broker("OAUTHBEARER", **{"sasl.oauthbearer.jwks.endpoint.url": url}) as sasl:
        with Wire(sasl.sasl) as wire:
            assert log_in_with(wire, new.token()).error_code == SaslAuthenticationFailed.code
        new.publish(tmp_path / "keys", old)
        for issuer in (new, old):
            with Wire(sasl.sasl) as wire:
                assert log_in_with(wire, issuer.token()).error_code == 0


def test_another_claim_may_name_the_user(tmp_path: Path) -> None:
    configs = {
        "sasl.oauthbearer.jwks.endpoint.url": ISSUER.publish(tmp_path / "keys"),
        "sasl.oauthbearer.sub.claim.name": "email",
    }
    with sasl_broker("OAUTHBEARER", **configs) as sasl, Wire(sasl.sasl) as wire:
        assert log_in_with(wire, ISSUER.token(email="a@example")).error_code == 0
        assert Principal("User", "a@example") in sasl.principals()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "No such file"),
        ("x", "not JSON"),
        ("[]", "not a key set"),
        ('{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}', "no public key"),
    ],
)
def test_a_broker_does_not_start_without_the_keys_in_a_file(tmp_path: Path, content: str | None, problem: str) -> None:
    if content is not None:
        (tmp_path / "keys").write_text(content)
    with (
        pytest.raises(ConfigError, match=problem),
        sasl_broker("OAUTHBEARER", **{"sasl.oauthbearer.jwks.endpoint.url": f"file://{tmp_path}/keys"}),
    ):
        pass


def test_tokens_without_a_signature_are_believed_only_if_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    with sasl_broker("OAUTHBEARER", **{"sasl.server.callback.handler.class": UNSECURED_TOKENS}) as sasl:
        assert "everybody can pretend to be any user" in caplog.text
        head = part('{"alg":"none"}')
        strange = [
            f"{head}.{part(text)}."
            for text in ('{"sub":"a","exp":1e999}', '{"sub":"a","exp":NaN}', "[1]", "[" * 99_999)
        ]
        for token, code in (
            (unsigned(), 0),
            (unsigned(seconds=-60), 58),
            (ISSUER.token(), 58),
            *((each, 58) for each in strange),
        ):
            with Wire(sasl.sasl) as wire:
                assert log_in_with(wire, token).error_code == code


# Keys on a server.


class KeyServer(http.server.ThreadingHTTPServer):
    """Serves a key set when it is allowed to."""

    daemon_threads = True

    def __init__(self, port: int = 0) -> None:
        self.may_answer = threading.Event()
        self.asked = 0
        self.answer: bytes | None = None
        """What it sends instead of HTTP."""

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(handler) -> None:  # noqa: N805
                self.asked += 1
                self.may_answer.wait(20)
                if self.answer is not None:
                    handler.wfile.write(self.answer)
                    return
                body = json.dumps({"keys": [ISSUER.public_key]}).encode()
                handler.send_response(200)
                handler.end_headers()
                handler.wfile.write(body)

            def log_message(handler, *_: Any) -> None:  # noqa: N805
                pass

        super().__init__(("127.0.0.1", port), Handler)


@contextmanager
def key_server(port: int = 0) -> Iterator[KeyServer]:
    with KeyServer(port) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.may_answer.set()
        server.shutdown()
        thread.join()


def test_keys_come_from_a_server_and_stay_when_it_is_gone() -> None:
    with key_server() as server:
        server.may_answer.set()
        url = f"http://127.0.0.1:{server.server_port}/keys"
        configs = {"sasl.oauthbearer.jwks.endpoint.url": url, "sasl.oauthbearer.jwks.endpoint.refresh.ms": "50"}
        with sasl_broker("OAUTHBEARER", **configs) as sasl:
            until(lambda: server.asked > 2, "the keys are read again")
            server.shutdown()
            server.socket.close()
            for _ in range(2):
                with Wire(sasl.sasl) as wire:
                    assert log_in_with(wire, ISSUER.token()).error_code == 0


def test_a_server_that_is_away_at_the_start_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    with KeyServer() as taken:
        port = taken.server_port
    with sasl_broker(
        "PLAIN,OAUTHBEARER", **{"sasl.oauthbearer.jwks.endpoint.url": f"http://127.0.0.1:{port}/"}
    ) as sasl:
        assert "tokens are refused until it can be read" in caplog.text
        with Wire(sasl.sasl) as wire:
            assert log_in(wire, "PLAIN", "admin", "admin-secret").error_code == 0
        with key_server(port) as server:
            server.may_answer.set()
            until(lambda: server.asked > 0, "the broker asks again")

            def accepted() -> bool:
                with Wire(sasl.sasl) as again:
                    return log_in_with(again, ISSUER.token()).error_code == 0

            until(accepted, "the keys are known")


def test_a_slow_server_of_keys_does_not_stop_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "LEAST_SECONDS_BETWEEN_READS", 0.0)
    with key_server() as server:
        server.may_answer.set()
        url = f"http://127.0.0.1:{server.server_port}/keys"
        with sasl_broker("PLAIN,OAUTHBEARER", **{"sasl.oauthbearer.jwks.endpoint.url": url}) as sasl:
            server.may_answer.clear()
            asked = server.asked
            with Wire(sasl.sasl) as waiting, Wire(sasl.sasl) as other:
                handshake(waiting, "OAUTHBEARER")
                waiting.send(36, 2, {"auth_bytes": next(oauthbearer(Issuer("unknown").token()))})
                until(lambda: server.asked > asked, "the broker asks for the key")
                assert log_in(other, "PLAIN", "admin", "admin-secret").error_code == 0
                assert works(other)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"[" * 100_000,
    ],
)
def test_a_server_that_answers_nonsense_is_tried_again(answer: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with key_server() as server:
        server.may_answer.set()
        server.answer = answer
        url = f"http://127.0.0.1:{server.server_port}/keys"
        configs = {"sasl.oauthbearer.jwks.endpoint.url": url, "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "20"}
        with sasl_broker("OAUTHBEARER", **configs) as sasl:
            until(lambda: server.asked > 2, "the broker asks again")
            server.answer = None

            def accepted() -> bool:
                with Wire(sasl.sasl) as wire:
                    return log_in_with(wire, ISSUER.token()).error_code == 0

            until(accepted, "the keys are known")
    assert "tokens are refused until it can be read" in caplog.text
    assert not any(record.exc_info for record in caplog.records)


def test_many_bad_tokens_do_not_fill_the_log(
    sasl: SaslBroker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(few_lines, "MOST_PER_SECOND", 3)
    for _ in range(20):
        with Wire(sasl.sasl) as wire:
            handshake(wire, "OAUTHBEARER")
            assert say(wire, next(oauthbearer("x"))).auth_bytes
    until(lambda: "more connections were closed or refused" in caplog.text, "the other lines are counted")
    assert len([line for line in caplog.messages if "it is not a JSON web token" in line]) < 20


# Long messages. Reading one must not keep others waiting.


@pytest.mark.parametrize("start", [b"n,a=%s,\x01" % (b"x" * 200_000), b"n,,\x01" + b"a=\x01" * 60_000])
def test_only_the_token_may_be_long(start: bytes) -> None:
    with pytest.raises(SaslAuthenticationFailed):
        _read(start + b"auth=Bearer x\x01\x01")
    assert _read(b"n,,\x01auth=Bearer " + b"x" * 200_000 + b"\x01\x01") == ("", "x" * 200_000)


def test_a_token_may_be_long(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    ISSUER.publish(keys)
    assert asyncio.run(judged(ISSUER.token(groups="g" * 200_000), keys)) is not None


# Mutations.


async def judged(token: str, keys: Path) -> Login | None:
    """Return whom the broker takes a token for, None if it refuses it."""
    values = {"listeners": "SASL_PLAINTEXT://:0", "sasl.enabled.mechanisms": "OAUTHBEARER"}
    config = BrokerConfig.parse({**values, "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}"})
    security, workers = config.listener("SASL_PLAINTEXT"), Workers()
    key_set = jwks.KeySet(security, workers)
    try:
        await key_set.open()
        return await SignedTokens(security, key_set, workers)(token)
    except InvalidToken:
        return None
    finally:
        key_set.close()
        workers.close()


def test_a_changed_token_is_refused_and_nothing_else_happens(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    ISSUER.publish(keys)
    right, rng = ISSUER.token(), random.Random(7)
    found = asyncio.run(judged(right, keys))
    assert found is not None
    assert found.name == "alice"
    letters = string.ascii_letters + string.digits + "-_."
    for _ in range(150):
        changed = list(right)
        for _ in range(rng.randrange(1, 4)):
            changed[rng.randrange(len(changed))] = rng.choice(letters)
        token = "".join(changed)[: rng.choice([None, rng.randrange(1, len(right))])]
        # The last letter of a part has bits without a meaning.
        if b64(token) != b64(right):
            assert asyncio.run(judged(token, keys)) is None


def b64(token: str) -> list[bytes]:
    """Return the bytes of the parts of a token."""
    parts = [part + "=" * (-len(part) % 4) for part in token.split(".")]
    try:
        return [base64.urlsafe_b64decode(part) for part in parts]
    except binascii.Error:
        return []


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=80) | st.from_regex(rb"n,(a=[a-z=,]*)?,\x01([a-z]*=[ -~]*\x01){0,3}\x01?", fullmatch=True))
def test_any_first_message_is_read_or_refused(message: bytes) -> None:
    try:
        authorization, token = _read(message)
    except SaslAuthenticationFailed:
        return
    assert token
    assert "," not in authorization or b"=2C" in message
