"""ACLs with our admin client and ``ottla acls``, and with other clients: on ottla and on Apache Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import admin as confluent
from kafka import KafkaAdminClient
from kafka.admin import ACL, ACLFilter, ACLOperation, ACLPermissionType, ResourcePattern
from kafka.admin import ResourceType as KafkaResourceType
from tests.compat.brokers import RunningBroker
from tests.compat.waiting import until

import ottla
from ottla import aio
from ottla.cli.main import main
from ottla.errors import InvalidRequest, SecurityDisabled

CONFIG = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super_users": "User:ANONYMOUS",
}
ORDERS = ottla.AclBinding("topic", "orders", principal="User:etl", operation="read")
TEAM = ottla.AclBinding("group", "team-", "prefixed", "User:etl", "10.0.0.1", "all", "deny")


@pytest.fixture
def secured(own_broker: Callable[..., RunningBroker]) -> str:
    return own_broker(**CONFIG).bootstrap_servers


def test_rules_are_created_described_and_deleted(secured: str) -> None:
    with ottla.Admin(bootstrap_servers=secured) as admin:
        assert admin.create_acls([ORDERS, TEAM, ORDERS]) == {ORDERS: None, TEAM: None}
        until(lambda: len(admin.describe_acls()) == 2, "both rules are there")
        assert admin.describe_acls(ottla.AclFilter("topic", "orders", "match")) == [ORDERS]
        assert admin.describe_acls(ottla.AclFilter(permission="deny")) == [TEAM]
        assert admin.describe_acls(ottla.AclFilter(principal="User:nobody")) == []
        everything = ottla.AclFilter(principal="User:etl")
        assert {*admin.delete_acls([TEAM])[ottla.AclFilter(*TEAM)]} == {TEAM}
        assert admin.delete_acls(everything) == {everything: [ORDERS]}
        until(lambda: admin.describe_acls() == [], "both are gone")


async def test_the_asyncio_client(own_broker: Callable[..., RunningBroker]) -> None:
    async with aio.Admin(bootstrap_servers=own_broker(**CONFIG).bootstrap_servers) as admin:
        await admin.create_acls(ORDERS)
        assert (await admin.delete_acls(ORDERS)).errors == {}


def test_wrong_rules_are_not_sent(secured: str) -> None:
    with ottla.Admin(bootstrap_servers=secured) as admin:
        with pytest.raises(ValueError, match="'etl' is not a principal such as User:alice"):
            admin.create_acls(ORDERS._replace(principal="etl"))
        with pytest.raises(TypeError, match="an ACL must be an AclBinding, not 'orders'"):
            admin.create_acls(["orders"])  # type: ignore[list-item]
        with pytest.raises(ValueError, match=r"'raed' is no operation; did you mean Read\?"):
            ottla.AclBinding("topic", "orders", operation="raed")


def test_a_broker_without_an_authorizer_says_so(bootstrap_servers: str) -> None:
    with ottla.Admin(bootstrap_servers=bootstrap_servers) as admin:
        for call in (admin.describe_acls, lambda: admin.create_acls(ORDERS), lambda: admin.delete_acls(ORDERS)):
            with pytest.raises(SecurityDisabled):
                call()


def test_the_command(secured: str, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*args: str) -> str:
        assert main(["acls", *args, "--bootstrap-server", secured]) == 0
        return capsys.readouterr().out

    etl = ("--principal", "User:etl", "--operation", "Write", "--topic", "orders")
    assert "no: User:etl may not Write on topic orders from 127.0.0.1: the resource has no rules." in run(
        "explain", *etl
    )
    run("add", *etl)
    until(lambda: "yes: User:etl may Write on topic orders" in run("explain", *etl), "the rule is there")
    answer = run("explain", "--principal", "User:ANONYMOUS", *etl[2:])
    assert "it is one of super.users" in answer or "The brokers do not tell super.users." in answer
    run("test", *etl)
    assert "removed: allow User:etl Write on topic orders from every host" in run("remove", *etl)


def test_confluent_kafka(secured: str) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": secured})
    binding = confluent.AclBinding(
        confluent.ResourceType.TOPIC, "orders", confluent.ResourcePatternType.LITERAL, "User:etl", "*",
        confluent.AclOperation.READ, confluent.AclPermissionType.ALLOW,
    )  # fmt: skip
    for future in admin.create_acls([binding]).values():
        future.result(20)
    everything = confluent.AclBindingFilter(
        confluent.ResourceType.ANY, None, confluent.ResourcePatternType.ANY, None, None, confluent.AclOperation.ANY,
        confluent.AclPermissionType.ANY,
    )  # fmt: skip
    until(lambda: admin.describe_acls(everything).result(20) == [binding], "the rule is there")
    (future,) = admin.delete_acls([everything]).values()
    assert future.result(20) == [binding]


def test_kafka_python(secured: str) -> None:
    admin = KafkaAdminClient(bootstrap_servers=secured)
    try:
        topic = ResourcePattern(KafkaResourceType.TOPIC, "orders")
        acl = ACL("User:etl", "*", ACLOperation.READ, ACLPermissionType.ALLOW, topic)
        assert admin.create_acls([acl])["failed"] == []
        everything = ACLFilter(None, None, ACLOperation.ANY, ACLPermissionType.ANY, topic)
        until(lambda: admin.describe_acls(everything)[0] == [acl], "the rule is there")
    finally:
        admin.close()


def test_an_empty_name_is_refused_by_the_broker_too(secured: str) -> None:
    admin = confluent.AdminClient({"bootstrap.servers": secured})
    binding = confluent.AclBinding(
        confluent.ResourceType.BROKER, "no-cluster", confluent.ResourcePatternType.LITERAL, "User:etl", "*",
        confluent.AclOperation.READ, confluent.AclPermissionType.ALLOW,
    )  # fmt: skip
    (future,) = admin.create_acls([binding]).values()
    error = future.exception(20)
    assert error.args[0].code() == InvalidRequest.code
