"""Users in the metadata: Kafka's rules for credentials, and that they survive a snapshot."""

from __future__ import annotations

import json

import pytest

from ottla import errors
from ottla.metadata import Metadata
from ottla.metadata.records import from_json, to_json
from ottla.metadata.users import Deletion, Upsertion, alter_users
from ottla.security.scram import ScramMechanism, is_password, salted_password

SHA256, SHA512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512


def upsertion(name: str, password: str = "secret", mechanism: int = SHA256, iterations: int = 4096) -> Upsertion:
    salted = salted_password(SHA512 if mechanism == SHA512 else SHA256, password, b"salt", 4096)
    return Upsertion(name, mechanism, iterations, b"salt", salted)


def alter(metadata: Metadata, *changes: Deletion | Upsertion) -> dict[str, errors.KafkaError | None]:
    outcome = alter_users(
        metadata,
        [each for each in changes if isinstance(each, Deletion)],
        [each for each in changes if isinstance(each, Upsertion)],
        now=0,
    )
    for record in outcome.records:
        metadata.replay(from_json(json.loads(json.dumps(to_json(record)))))
    assert isinstance(outcome.response, dict)
    return outcome.response


def test_a_user_has_a_credential_for_each_mechanism_until_it_is_deleted() -> None:
    metadata = Metadata()
    assert alter(metadata, upsertion("alice"), upsertion("bob")) == {"alice": None, "bob": None}
    alter(metadata, upsertion("alice", mechanism=SHA512))
    assert set(metadata.users.of("alice")) == {SHA256, SHA512}
    alter(metadata, Deletion("alice", SHA256))
    assert set(metadata.users.of("alice")) == {SHA512}
    alter(metadata, Deletion("alice", SHA512))
    assert metadata.users.names() == ["bob"]


def test_a_new_password_replaces_the_old_one() -> None:
    metadata = Metadata()
    alter(metadata, upsertion("alice", "old"))
    alter(metadata, upsertion("alice", "new"))
    credential = metadata.users.credential("alice", SHA256)
    assert credential is not None
    assert is_password(SHA256, credential, "new")
    assert not is_password(SHA256, credential, "old")


def test_a_snapshot_has_the_users_and_no_password() -> None:
    metadata, again = Metadata(), Metadata()
    alter(metadata, upsertion("alice", "hush"), upsertion("bob", "hush", SHA512))
    lines = [json.dumps(to_json(record)) for record in metadata.snapshot()]
    salted = salted_password(SHA256, "hush", b"salt", 4096)
    assert not any("hush" in line or salted.hex() in line for line in lines)
    for line in lines:
        again.replay(from_json(json.loads(line)))
    assert again.users.of("alice") == metadata.users.of("alice")
    assert again.users.of("bob") == metadata.users.of("bob")
    assert not any(key in repr(list(metadata.snapshot())) for key in ("stored_key", salted.hex()))


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (upsertion(""), errors.UnacceptableCredential),
        (upsertion("alice", iterations=4095), errors.UnacceptableCredential),
        (upsertion("alice", iterations=16385), errors.UnacceptableCredential),
        (upsertion("alice", mechanism=0), errors.UnsupportedSaslMechanism),
        (upsertion("alice", mechanism=3), errors.UnsupportedSaslMechanism),
        (upsertion("alice")._replace(salt=b""), errors.UnacceptableCredential),
        (upsertion("alice")._replace(salt=bytes(1025)), errors.UnacceptableCredential),
        (upsertion("a" * 1025), errors.UnacceptableCredential),
        (Deletion("alice", SHA256), errors.ResourceNotFound),
        (Deletion("", SHA256), errors.UnacceptableCredential),
        (Deletion("alice", 9), errors.UnsupportedSaslMechanism),
    ],
)
def test_kafkas_errors(change: Deletion | Upsertion, problem: type[errors.KafkaError]) -> None:
    metadata = Metadata()
    found = alter(metadata, change, upsertion("other"))
    assert isinstance(found[change.name], problem)
    assert metadata.users.names() == ["other"]


def test_a_request_names_a_user_only_once() -> None:
    metadata = Metadata()
    alter(metadata, upsertion("alice", "old"))
    for twice in (
        (upsertion("alice", "new"), upsertion("alice", "new", SHA512)),
        (Deletion("alice", SHA256), upsertion("alice", "new")),
        (upsertion("alice"), upsertion("alice"), upsertion("alice")),
    ):
        assert isinstance(alter(metadata, *twice)["alice"], errors.DuplicateResource)
    credential = metadata.users.credential("alice", SHA256)
    assert credential is not None
    assert is_password(SHA256, credential, "old")


def test_the_usual_kind_is_the_one_of_most_users() -> None:
    metadata = Metadata()
    assert metadata.users.usual_kind == (4096, 32)
    alter(metadata, upsertion("a", iterations=8192), upsertion("b", iterations=8192), upsertion("c"))
    assert metadata.users.usual_kind == (8192, 4)
    alter(metadata, Deletion("a", SHA256))
    alter(metadata, Deletion("b", SHA256))
    assert metadata.users.usual_kind == (4096, 4)
