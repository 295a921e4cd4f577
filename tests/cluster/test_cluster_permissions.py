"""Permissions in a cluster: forwarded requests have those of their client, and brokers act for the cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.cluster.secured import SCRAM, client, configs
from tests.compat.waiting import until

import ottla
from ottla import errors
from ottla.broker.first_users import add_users
from ottla.broker.forwarding import encode_host, encode_principal
from ottla.broker.handlers import HANDLERS
from ottla.clients.admin.users import new_upsertion
from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey
from ottla.security.principals import Principal
from ottla.security.scram import ScramMechanism
from unit.broker.sasl_wire import log_in
from unit.broker.wire import Wire

ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:broker",
}
#: Requests between brokers, with nothing in them that could be done.
BETWEEN: dict[int, dict[str, Any]] = {
    ApiKey.ALTER_PARTITION: {"broker_id": 1, "broker_epoch": 0, "topics": []},
    ApiKey.BROKER_HEARTBEAT: {
        "broker_id": 1, "broker_epoch": 0, "current_metadata_offset": 0, "want_fence": False, "want_shut_down": True,
    },
    ApiKey.ALLOCATE_PRODUCER_IDS: {"broker_id": 1, "broker_epoch": 0},
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: {"broker_id": 1, "broker_epoch": 0, "directories": []},
    ApiKey.ENVELOPE: {
        "request_data": bytes(codec.encode_request(ApiKey.DELETE_TOPICS, 4, 1, "x", {
            "topic_names": ["orders"], "timeout": 1000,
        })[4:]),
        "request_principal": encode_principal(Principal("User", "broker")),
        "client_host_address": encode_host("127.0.0.1"),
    },
}  # fmt: skip


QUORUM = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}
#: A request that brokers do not forward.
METADATA = bytes(codec.encode_request(ApiKey.METADATA, 9, 1, "x", {"topics": None})[4:])


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory, zookeeper_server: LocalZooKeeper) -> Iterator[list[ottla.Broker]]:
    """Three brokers with a topic, and two users."""
    directory: Path = tmp_path_factory.mktemp("permissions")
    add_users(directory / "1", [new_upsertion("broker", "between", ScramMechanism.named(SCRAM), 4096)])
    address = f"{zookeeper_server.address}/permissions"
    with ExitStack() as stack:
        found = [
            stack.enter_context(ottla.Broker(config=configs(number, directory, address) | ACLS)) for number in (1, 2, 3)
        ]
        with ottla.Admin(**client("broker", "between", *found)) as admin:
            until(lambda: len(admin.describe_cluster().nodes) == 3, "all brokers are there")
            admin.create_topics([ottla.NewTopic("orders", 3), ottla.NewTopic("payments", 1)])
            admin.alter_users({"alice": "secret", "bob": "secret"})
        yield found


def rules(broker: ottla.Broker) -> list[ottla.AclBinding]:
    with ottla.Admin(**client("broker", "between", broker)) as admin:
        return admin.describe_acls()


def add(brokers: list[ottla.Broker], *bindings: ottla.AclBinding) -> None:
    """Add rules, and wait until all brokers have them."""
    with ottla.Admin(**client("broker", "between", *brokers)) as admin:
        admin.create_acls(bindings)
    for each in brokers:
        until(lambda each=each: set(bindings) <= set(rules(each)), "every broker has the rules")


def test_a_forwarded_request_has_the_permissions_of_its_client(brokers: list[ottla.Broker]) -> None:
    mine = ottla.AclBinding("topic", "alice-", "prefixed", "User:alice", "127.0.0.0/8")
    add(brokers, mine)
    for number, each in enumerate(brokers):
        # Two of the three brokers forward it to the controller.
        with ottla.Admin(**client("alice", "secret", each)) as alice:
            with pytest.raises(errors.TopicAuthorizationFailed):
                alice.create_topics(f"orders-{number}")
            assert f"alice-{number}" in alice.create_topics(f"alice-{number}")
            with pytest.raises(errors.ClusterAuthorizationFailed):
                alice.create_acls(mine._replace(resource_name="orders"))
            assert all(name.startswith("alice-") for name in alice.list_topics())


def test_brokers_replicate_what_a_user_may_write(brokers: list[ottla.Broker]) -> None:
    add(brokers, ottla.AclBinding("topic", "orders", principal="User:bob", operation="write"))
    with ottla.Producer(**client("bob", "secret", *brokers), acks="all") as producer:
        for partition in range(3):
            assert producer.send("orders", b"x", partition=partition).get(30).offset >= 0
        with pytest.raises(errors.TopicAuthorizationFailed):
            producer.send("payments", b"x").get(30)


@pytest.mark.parametrize("key", [key for key, handler in HANDLERS.items() if handler.only_in_cluster])
def test_only_brokers_may_act_for_the_cluster(brokers: list[ottla.Broker], key: int) -> None:
    """A test for a request between brokers is missing if this one fails with a KeyError."""
    for broker in brokers:
        for version in range(HANDLERS[key].first, HANDLERS[key].last + 1):
            with Wire(broker.bootstrap_servers) as wire:
                log_in(wire, SCRAM, "alice", "secret")
                assert wire.call(key, version, BETWEEN[key]).error_code == errors.ClusterAuthorizationFailed.code
    with ottla.Admin(**client("broker", "between", *brokers)) as admin:
        assert "orders" in admin.list_topics()


def test_an_envelope_has_no_more_permissions_than_its_client(brokers: list[ottla.Broker]) -> None:
    codes = {}
    for number, broker in enumerate(brokers):
        for name in ("alice", "broker"):
            principal = encode_principal(Principal("User", name))
            data = codec.encode_request(ApiKey.DESCRIBE_QUORUM, 0, 1, "x", QUORUM)[4:]
            with Wire(broker.bootstrap_servers) as wire:
                log_in(wire, SCRAM, "broker", "between")
                envelope = BETWEEN[ApiKey.ENVELOPE] | {"request_data": bytes(data), "request_principal": principal}
                answer = wire.call(ApiKey.ENVELOPE, 0, envelope)
                wrong = wire.call(ApiKey.ENVELOPE, 0, envelope | {"request_principal": b"nobody"})
                strange = wire.call(ApiKey.ENVELOPE, 0, envelope | {"request_data": METADATA})
            if answer.error_code == errors.NotController.code:
                continue
            inner = codec.decode_response(ApiKey.DESCRIBE_QUORUM, 0, bytes(answer.response_data))
            codes[number, name] = inner.error_code
            assert wrong.error_code == errors.PrincipalDeserializationFailure.code
            assert strange.error_code == errors.InvalidRequest.code
    assert sorted(codes.values()) == [0, errors.ClusterAuthorizationFailed.code]
