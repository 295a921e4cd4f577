"""``ottla quotas``, also against Apache Kafka."""

from __future__ import annotations

import json
from collections.abc import Iterator
from uuid import uuid4

import pytest
from tests.unit.cli.cli_results import Ottla


@pytest.fixture
def user(ottla: Ottla) -> Iterator[str]:
    name = f"user-{uuid4().hex[:8]}"
    yield name
    ottla("quotas", "remove", "--user", name)


def quotas(ottla: Ottla, *options: str) -> object:
    return json.loads(ottla("quotas", "list", "--json", *options).out)


def test_quotas_are_set_listed_and_removed(ottla: Ottla, user: str) -> None:
    done = ottla("quotas", "set", "--user", user, "producer_byte_rate=1,000,000", "request_percentage=12.5")
    assert (done.code, done.text) == (0, f"set 2 quotas of user={user}\n")
    assert quotas(ottla, "--user", user) == [
        {"user": user, "quotas": {"producer_byte_rate": 1_000_000, "request_percentage": 12.5}}
    ]
    shown = ottla("quotas", "list", "--user", user).lines
    assert shown[0].split() == ["USER", "QUOTA", "VALUE"]
    assert shown[1].split() == [user, "producer_byte_rate", "1,000,000"]
    done = ottla("quotas", "remove", "--user", user, "producer_byte_rate")
    assert (done.code, done.text) == (0, f"removed 1 quota of user={user}\n")
    assert quotas(ottla, "--user", user) == [{"user": user, "quotas": {"request_percentage": 12.5}}]
    assert ottla("quotas", "remove", "--user", user).code == 0
    assert quotas(ottla, "--user", user) == []
    assert ottla("quotas", "list", "--user", user).text == "no quotas match\n"


def test_an_entity_may_have_two_parts_and_a_default(ottla: Ottla, user: str) -> None:
    assert ottla("quotas", "set", "--user", user, "--default-client-id", "consumer_byte_rate=5").code == 0
    both = {"user": user, "client_id": "<default>", "quotas": {"consumer_byte_rate": 5}}
    assert quotas(ottla, "--user", user) == [both]
    assert quotas(ottla, "--user", user, "--default-client-id") == [both]
    done = ottla("quotas", "remove", "--user", user, "--default-client-id", "--json")
    assert json.loads(done.out) == [{"user": user, "client_id": "<default>", "quotas": {}}]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["set", "producer_byte_rate=1"], "whose quotas?"),
        (["set", "--user", "a", "producer_byte_rat=1"], "Did you mean producer_byte_rate?"),
        (["set", "--user", "a", "producer_byte_rate=fast"], "must be a number above 0, not 'fast'"),
        (["set", "--user", "a", "producer_byte_rate=-1"], "must be a number above 0"),
        (["set", "--user", "a", "producer_byte_rate"], "NAME=VALUE"),
        (["set", "--user", "a", "--default-user", "producer_byte_rate=1"], "not allowed with"),
        (["set", "--ip", "10.0.0.1", "--user", "a", "connection_creation_rate=1"], "cannot have a user"),
        (["set", "--ip", "10.0.0.1", "producer_byte_rate=1"], "Use connection_creation_rate"),
        (["set", "--user", "a", "connection_creation_rate=1"], "This quota is for addresses (ip)"),
        (["list", "--user", ""], "is empty"),
    ],
)
def test_wrong_usage_is_explained(ottla: Ottla, arguments: list[str], says: str) -> None:
    result = ottla("quotas", *arguments)
    assert result.code == 2
    assert says in result.err


def test_what_the_broker_refuses_is_told(ottla: Ottla, user: str) -> None:
    result = ottla("quotas", "set", "--user", user, "producer_byte_rate=1.5")
    assert result.code == 1
    assert "fractional" in result.err
    result = ottla("quotas", "remove", "--user", user, "producer_byte_rate")
    assert result.code == 1
    assert f"user={user} has no quota 'producer_byte_rate': it has no quotas" in result.err
    assert "has no quotas" in ottla("quotas", "remove", "--user", user).err
