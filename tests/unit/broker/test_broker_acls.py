"""A broker with an authorizer: its ACLs over the wire, after a restart, and what it logs and counts."""

from __future__ import annotations

import logging
import urllib.request
from pathlib import Path
from typing import Any

import pytest

import ottla
from ottla.errors import InvalidRequest
from ottla.protocol.apis import ApiKey
from unit.broker.wire import Wire, batch

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
SUPER = {**AUTHORIZER, "super.users": "User:admin;User:ANONYMOUS"}
ORDERS = {
    "resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3, "principal": "User:ANONYMOUS",
    "host": "127.0.0.0/8", "operation": 3, "permission_type": 3,
}  # fmt: skip
EVERYTHING = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "principal_filter": None,
    "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip


def create(wire: Wire, *changes: dict[str, Any], version: int = 3) -> list[Any]:
    answer = wire.call(ApiKey.CREATE_ACLS, version, {"creations": [ORDERS | change for change in changes]})
    return list(answer.results)


def described(wire: Wire, version: int = 3, **changes: Any) -> list[tuple[Any, ...]]:
    answer = wire.call(ApiKey.DESCRIBE_ACLS, version, EVERYTHING | changes)
    assert (answer.error_code, answer.error_message) == (0, None)
    return [
        (found.resource_type, found.resource_name, found.pattern_type, *acl_values(each))
        for found in answer.resources
        for each in found.acls
    ]


def acl_values(acl: Any) -> tuple[Any, ...]:
    return acl.principal, acl.host, acl.operation, acl.permission_type


def test_acls_survive_a_restart_and_decide(tmp_path: Path) -> None:
    with ottla.Broker(data_dir=tmp_path, config=SUPER) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.create_topic("orders")
        assert wire.create_topic("payments")
        assert [each.error_code for each in create(wire, {}, {"resource_type": 3, "operation": 2})] == [0, 0]
    with ottla.Broker(data_dir=tmp_path, config=AUTHORIZER) as broker, Wire(broker.bootstrap_servers) as wire:
        assert wire.fetch("orders", 0).error_code == 0
        assert wire.fetch("payments", 0).error_code == 29
        assert wire.produce("orders", batch(b"x")).error_code == 29
    with ottla.Broker(data_dir=tmp_path, config=SUPER) as broker, Wire(broker.bootstrap_servers) as wire:
        assert len(described(wire)) == 2


@pytest.mark.parametrize("version", [1, 2, 3])
def test_acls_are_created_described_and_deleted_in_every_version(version: int) -> None:
    with ottla.Broker(config=SUPER) as broker, Wire(broker.bootstrap_servers) as wire:
        wrong = {"resource_name": "", "resource_pattern_type": 3}
        results = create(wire, {}, wrong, {"resource_pattern_type": 4, "permission_type": 2}, {}, version=version)
        assert [each.error_code for each in results] == [0, InvalidRequest.code, 0, 0]
        assert results[1].error_message == "The name of the resource is empty."
        rows = [
            (2, "orders", 3, "User:ANONYMOUS", "127.0.0.0/8", 3, 3),
            (2, "orders", 4, "User:ANONYMOUS", "127.0.0.0/8", 3, 2),
        ]
        assert described(wire, version) == rows
        assert described(wire, version, pattern_type_filter=4) == rows[1:]
        filters = [EVERYTHING | {"permission_type": 2}, EVERYTHING | {"operation": 99}]
        answer = wire.call(ApiKey.DELETE_ACLS, version, {"filters": filters})
        removed, unknown = answer.filter_results
        assert [(each.pattern_type, each.error_code) for each in removed.matching_acls] == [(4, 0)]
        assert unknown.error_code == InvalidRequest.code
        assert described(wire, version) == rows[:1]


def test_a_refusal_is_logged_once_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    config = {**AUTHORIZER, "super.users": "User:admin", "ottla.metrics.listener": "127.0.0.1:0"}
    with (
        caplog.at_level(logging.WARNING, "ottla.security"),
        ottla.Broker(config=config) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        for _ in range(3):
            assert wire.produce("orders", batch(b"x")).error_code == 29
            # What the client did not name is not logged.
            assert not wire.call(ApiKey.METADATA, 9, {"topics": None}).topics
        messages = [record.getMessage() for record in caplog.records if record.name == "ottla.security"]
        assert [each for each in messages if "do not authenticate" not in each] == [
            "User:ANONYMOUS may not Write on topic orders from 127.0.0.1: the resource has no rules."
        ]
        assert broker.metrics_address is not None
        host, port = broker.metrics_address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics") as answer:
            lines = answer.read().decode().splitlines()
        assert 'ottla_authorization_denied_total{operation="Write",resource="Topic"} 3' in lines


def test_a_client_cannot_fill_the_log_with_refusals(caplog: pytest.LogCaptureFixture) -> None:
    with (
        caplog.at_level(logging.WARNING, "ottla.security"),
        ottla.Broker(config=AUTHORIZER) as broker,
        Wire(broker.bootstrap_servers) as wire,
    ):
        topics = [{"name": f"topic-{number}", "topic_id": None} for number in range(5_000)]
        answer = wire.call(ApiKey.METADATA, 12, {"topics": topics})
        assert {each.error_code for each in answer.topics} == {29}
        lines = [record for record in caplog.records if record.name == "ottla.security"]
        assert 100 <= len(lines) < 1_000  # At most 100 in a second.


def test_without_rules_everyone_may_if_the_config_says_so() -> None:
    config = {**SUPER, "super.users": "User:admin", "allow.everyone.if.no.acl.found": "true"}
    with ottla.Broker(config=config) as broker, Wire(broker.bootstrap_servers) as wire:
        wire.create_topic("orders")
        assert wire.produce("orders", batch(b"x")).error_code == 0
        assert create(wire, {"principal": "User:someone"})[0].error_code == 0
        assert wire.produce("orders", batch(b"x")).error_code == 29
