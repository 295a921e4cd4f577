"""SASL at the broker, message by message: who gets in, who does not, and what a client may send before."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.broker.sasl_wire import (
    SaslBroker,
    conversation,
    handshake,
    log_in,
    log_in_again,
    sasl_broker,
    say,
    say_raw,
    until,
    upsertion,
    works,
)
from tests.unit.broker.wire import Wire

from ottla import errors
from ottla.protocol.apis import ApiKey
from ottla.security.principals import Principal
from ottla.security.scram import ScramMechanism

SHA256, SHA512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
ALICE = Principal("User", "alice")
VERSIONS = {"client_software_name": "test", "client_software_version": "1"}


@pytest.fixture(scope="module")
def sasl() -> Iterator[SaslBroker]:
    with sasl_broker() as broker:
        broker.add_user("alice", "alice-secret")
        broker.add_user("alice", "alice-secret", SHA512)
        yield broker


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_user_logs_in_with_each_mechanism(sasl: SaslBroker, mechanism: str) -> None:
    with Wire(sasl.sasl) as wire:
        wire.call(ApiKey.API_VERSIONS, 3, VERSIONS)
        answer = log_in(wire, mechanism, "alice", "alice-secret")
        assert (answer.error_code, answer.session_lifetime) == (0, 0)
        assert works(wire)
        assert ALICE in sasl.principals()


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_old_clients_send_the_messages_of_the_mechanism_as_frames(sasl: SaslBroker, mechanism: str) -> None:
    with Wire(sasl.sasl) as wire:
        assert handshake(wire, mechanism, version=0).error_code == 0
        talk = conversation(mechanism, "alice", "alice-secret")
        for message in talk:
            heard = say_raw(wire, message)
            if heard.startswith(b"r="):
                heard = say_raw(wire, talk.send(heard))
            assert heard[:2] in (b"", b"v=")
            break
        assert works(wire)
    with Wire(sasl.sasl) as wire:
        handshake(wire, "PLAIN", version=0)
        wire.socket.sendall(struct.pack(">i", 4) + b"\0a\0b")  # Shorter than any request.
        assert wire.is_closed()


def test_users_of_the_jaas_config_log_in_with_plain_only(sasl: SaslBroker) -> None:
    with Wire(sasl.sasl) as wire:
        assert log_in(wire, "PLAIN", "admin", "admin-secret").error_code == 0
        assert works(wire)
    with Wire(sasl.sasl) as wire:
        assert log_in(wire, "SCRAM-SHA-256", "admin", "admin-secret").error_code == 58


def test_the_salt_of_an_unknown_user_outlives_a_restart(tmp_path: Path) -> None:
    """As that of a known one does: otherwise it would show who exists."""
    found: list[bytes] = []
    for _ in range(2):
        with sasl_broker(data_dir=tmp_path) as broker, Wire(broker.sasl) as wire:
            handshake(wire, "SCRAM-SHA-256")
            challenge = say(wire, b"n,,n=nobody,r=nonce").auth_bytes
            found.append(bytes(challenge).partition(b",s=")[2])
    assert found[0] == found[1] != b""


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_an_unknown_user_and_a_wrong_password_look_the_same(
    sasl: SaslBroker, mechanism: str, caplog: pytest.LogCaptureFixture
) -> None:
    answers = []
    for name in ("alice", "nobody", "admin"):
        with Wire(sasl.sasl) as wire, caplog.at_level(logging.INFO):
            answer = log_in(wire, mechanism, name, "hush-hush")
            answers.append((answer.error_code, answer.error_message, bytes(answer.auth_bytes)))
            assert wire.is_closed()
    assert len(set(answers)) == 1
    assert answers[0][0] == errors.SaslAuthenticationFailed.code
    until(lambda: len(caplog.records) >= 3, "the broker has logged it")
    lines = [record for record in caplog.records if "failed" in record.getMessage()]
    assert len(lines) == 3
    assert not any("hush" in line.getMessage() or line.exc_info for line in lines)


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(sasl: SaslBroker) -> None:
    for mechanism in ("OAUTHBEARER", "GSSAPI", "", "x" * 1000):
        with Wire(sasl.sasl) as wire:
            answer = handshake(wire, mechanism)
            assert answer.error_code == errors.UnsupportedSaslMechanism.code
            assert list(answer.mechanisms) == ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
            assert wire.is_closed()


def test_nothing_else_is_served_before_the_login(sasl: SaslBroker) -> None:
    for api_key, version, message in (
        (ApiKey.METADATA, 9, {"topics": []}),
        (ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": None}),
        (ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": b"\0admin\0admin-secret"}),
    ):
        with Wire(sasl.sasl) as wire:
            wire.call(ApiKey.API_VERSIONS, 3, VERSIONS)
            wire.send(api_key, version, message)
            assert wire.is_closed()
    with Wire(sasl.sasl) as wire:
        wire.call(ApiKey.API_VERSIONS, 3, VERSIONS)
        wire.send(ApiKey.API_VERSIONS, 3, VERSIONS)
        assert wire.is_closed()
    with Wire(sasl.sasl) as wire:
        handshake(wire, "PLAIN")
        wire.send(ApiKey.METADATA, 9, {"topics": []})
        assert wire.is_closed()


def test_a_client_that_knows_newer_versions_may_ask_again(sasl: SaslBroker) -> None:
    with Wire(sasl.sasl) as wire:
        wire.socket.sendall(bytes.fromhex("00000010 0012 0063 00000001 0001 61 00 02 61 02") + b"a")
        (size,) = struct.unpack(">i", wire._exactly(4))
        assert wire._exactly(size)[4:6] == b"\0\x23"
        assert wire.call(ApiKey.API_VERSIONS, 3, VERSIONS).error_code == 0
        assert log_in(wire, "PLAIN", "admin", "admin-secret").error_code == 0


def test_before_the_login_frames_are_small(sasl: SaslBroker, caplog: pytest.LogCaptureFixture) -> None:
    with Wire(sasl.sasl) as wire:
        wire.socket.sendall(struct.pack(">i", 524_289))
        assert wire.is_closed()
    until(lambda: "sasl.server.max.receive.size" in caplog.text, "the broker has logged it")
    with Wire(sasl.sasl) as wire:
        log_in(wire, "PLAIN", "admin", "admin-secret")
        wire.socket.sendall(struct.pack(">i", 600_000))
        wire.socket.settimeout(0.2)
        with pytest.raises(TimeoutError):
            wire.is_closed()


def test_a_client_that_does_not_log_in_is_disconnected(caplog: pytest.LogCaptureFixture) -> None:
    with (
        sasl_broker(ottla_authentication_timeout_ms="300", ottla_request_receive_timeout_ms="400") as sasl,
        Wire(sasl.sasl) as known,
        Wire(sasl.sasl) as silent,
        Wire(sasl.sasl) as slow,
    ):
        log_in(known, "PLAIN", "admin", "admin-secret")
        handshake(slow, "PLAIN")
        assert silent.is_closed()
        assert slow.is_closed()
        assert works(known)
        until(lambda: "did not authenticate in time" in caplog.text, "the broker has logged it")


def test_a_refusal_comes_after_the_delay() -> None:
    with sasl_broker(connection_failed_authentication_delay_ms="300") as sasl:
        for mechanism, password in (("PLAIN", "wrong"), ("SCRAM-SHA-256", "wrong"), ("GSSAPI", "")):
            with Wire(sasl.sasl) as wire:
                begun = time.monotonic()
                if mechanism == "GSSAPI":
                    handshake(wire, mechanism)
                else:
                    log_in(wire, mechanism, "admin", password)
                assert 0.25 <= time.monotonic() - begun < 5
                assert wire.is_closed()


def test_a_client_cannot_act_for_another_user(sasl: SaslBroker) -> None:
    with Wire(sasl.sasl) as wire:
        handshake(wire, "PLAIN")
        answer = say(wire, b"alice\0admin\0admin-secret")
        assert answer.error_code == errors.SaslAuthenticationFailed.code


@pytest.mark.parametrize("message", [b"", b"\0", b"\0a", b"\0a\0b\0c", b"\0\0secret", b"\0admin\0", b"\xff\0a\0b"])
def test_what_is_not_plain_is_refused(sasl: SaslBroker, message: bytes) -> None:
    with Wire(sasl.sasl) as wire:
        handshake(wire, "PLAIN")
        assert say(wire, message).error_code == errors.SaslAuthenticationFailed.code
        assert wire.is_closed()


def test_sasl_on_a_listener_without_it_is_an_illegal_state(sasl: SaslBroker) -> None:
    with Wire(sasl.plain) as wire:
        assert handshake(wire, "PLAIN").error_code == errors.IllegalSaslState.code
        assert say(wire, b"\0admin\0admin-secret").error_code == errors.IllegalSaslState.code
        assert works(wire)


# Sessions.


def test_a_session_ends_unless_the_client_authenticates_again() -> None:
    with (
        sasl_broker(**{"listener.name.sasl.connections.max.reauth.ms": "1500"}) as sasl,
        Wire(sasl.sasl) as lazy,
        Wire(sasl.sasl) as wire,
    ):
        assert log_in(lazy, "PLAIN", "admin", "admin-secret").session_lifetime == 1500
        assert log_in(wire, "PLAIN", "admin", "admin-secret").session_lifetime == 1500
        # Too early: it is handled as any other request.
        assert handshake(wire, "PLAIN").error_code == errors.IllegalSaslState.code
        assert works(wire)
        assert log_in_again(wire, "PLAIN", "admin", "admin-secret").session_lifetime == 1500
        until(lambda: not works(lazy), "the session has ended")
        assert works(wire)


@pytest.mark.parametrize(
    ("mechanism", "name", "password", "problem"),
    [
        ("PLAIN", "bob", "b", "Cannot change principals"),
        ("SCRAM-SHA-256", "admin", "admin-secret", "not supported for re-authentication of mechanism 'PLAIN'"),
        ("PLAIN", "admin", "wrong", "Invalid username or password"),
    ],
)
def test_a_session_stays_with_its_user_and_mechanism(mechanism: str, name: str, password: str, problem: str) -> None:
    with sasl_broker(connections_max_reauth_ms="60000") as sasl, Wire(sasl.sasl) as wire:
        assert log_in(wire, "PLAIN", "admin", "admin-secret").session_lifetime == 60_000
        answer = log_in_again(wire, mechanism, name, password)
        assert answer.error_code == errors.SaslAuthenticationFailed.code
        assert problem in answer.error_message
        assert wire.is_closed()


# Users.


def described(wire: Wire, *names: str) -> dict[str, list[tuple[int, int]] | int]:
    users = [{"name": name} for name in names] or None
    answer = wire.call(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, {"users": users})
    assert answer.error_code == 0
    return {
        each.user: each.error_code or [(info.mechanism, info.iterations) for info in each.credential_infos]
        for each in answer.results
    }


def test_users_are_described_without_keys_and_survive_a_restart(tmp_path: Path) -> None:
    with sasl_broker(data_dir=tmp_path) as sasl, Wire(sasl.plain) as wire:
        assert described(wire) == {}
        assert sasl.add_user("alice", "secret") == 0
        assert sasl.add_user("alice", "secret", SHA512) == 0
        assert sasl.add_user("bob", "secret") == 0
        assert described(wire) == {"alice": [(1, 4096), (2, 4096)], "bob": [(1, 4096)]}
        assert described(wire, "bob", "carol", "alice", "alice") == {
            "bob": [(1, 4096)],
            "carol": errors.ResourceNotFound.code,
            "alice": errors.DuplicateResource.code,
        }
        deletion = {"deletions": [{"name": "bob", "mechanism": 1}], "upsertions": []}
        assert wire.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, deletion).results[0].error_code == 0
    journal = tmp_path / "metadata.journal"
    assert "secret" not in journal.read_text()
    assert journal.stat().st_mode & 0o077 == 0
    with sasl_broker(data_dir=tmp_path) as sasl, Wire(sasl.sasl) as wire:
        assert log_in(wire, "SCRAM-SHA-512", "alice", "secret").error_code == 0
        assert described(wire) == {"alice": [(1, 4096), (2, 4096)]}


def test_errors_of_users_do_not_stop_the_others(sasl: SaslBroker) -> None:
    with Wire(sasl.plain) as wire:
        upsertions = [
            upsertion("few", "x", SHA256) | {"iterations": 100},
            upsertion("good", "x", SHA256),
            upsertion("unknown", "x", SHA256) | {"mechanism": 7},
        ]
        message = {"deletions": [{"name": "nobody", "mechanism": 1}], "upsertions": upsertions}
        answer = wire.call(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, message)
        assert {each.user: each.error_code for each in answer.results} == {
            "nobody": errors.ResourceNotFound.code,
            "few": errors.UnacceptableCredential.code,
            "good": 0,
            "unknown": errors.UnsupportedSaslMechanism.code,
        }


def test_a_connection_lives_on_after_a_new_password_but_the_old_one_is_refused(sasl: SaslBroker) -> None:
    sasl.add_user("dave", "old")
    with Wire(sasl.sasl) as wire:
        log_in(wire, "SCRAM-SHA-256", "dave", "old")
        sasl.add_user("dave", "new")
        assert works(wire)
        for mechanism in ("PLAIN", "SCRAM-SHA-256"):
            with Wire(sasl.sasl) as again:
                assert log_in(again, mechanism, "dave", "old").error_code == 58
            with Wire(sasl.sasl) as again:
                assert log_in(again, mechanism, "dave", "new").error_code == 0


def test_a_client_that_has_not_logged_in_gets_a_small_buffer(sasl: SaslBroker) -> None:
    server = sasl.broker._running().servers[0]

    def buffers() -> list[int]:
        return [len(each.buffer) for each in list(server.connections) if each.buffer is not None]

    with Wire(sasl.sasl) as stranger, Wire(sasl.sasl) as known:
        stranger.socket.sendall(b"\0")
        until(lambda: len(buffers()) == 1, "the byte has arrived")
        assert buffers() == [4096]
        log_in(known, "PLAIN", "bob", "b")
        known.socket.sendall(b"\0")
        until(lambda: len(buffers()) == 2, "the byte has arrived")
        assert max(buffers()) > 4096
