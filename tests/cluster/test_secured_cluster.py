"""Brokers that log in at each other with SASL: the first user, users on all brokers, and failover."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.cluster.secured import SCRAM, client, configs
from tests.compat.waiting import until

import ottla
from ottla.broker.first_users import add_users
from ottla.clients.admin.users import new_upsertion
from ottla.cluster.zookeeper import LocalZooKeeper
from ottla.errors import ConfigError, OttlaError
from ottla.security.scram import ScramMechanism


@pytest.fixture
def brokers(tmp_path: Path, zookeeper_server: LocalZooKeeper, chroot: str) -> Iterator[list[ottla.Broker]]:
    """Three brokers; the first one brings the first user."""
    add_users(tmp_path / "1", [new_upsertion("broker", "between", ScramMechanism.named(SCRAM), 4096)])
    with ExitStack() as stack:
        yield [
            stack.enter_context(ottla.Broker(config=configs(number, tmp_path, zookeeper_server.address + chroot)))
            for number in (1, 2, 3)
        ]


def test_brokers_replicate_and_forward_as_users(brokers: list[ottla.Broker]) -> None:
    broker = client("broker", "between", *brokers)
    with ottla.Admin(**broker) as admin:
        until(lambda: len(admin.describe_cluster().nodes) == 3, "all brokers are there")
        admin.create_topics(ottla.NewTopic("orders", 3))
    for number, each in enumerate(brokers):
        with ottla.Admin(**client("broker", "between", each)) as admin:
            # Two of the three forward it to the controller.
            admin.alter_users({f"user-{number}": "secret"})
    for each in brokers:
        with ottla.Admin(**client("broker", "between", each)) as admin:
            until(lambda admin=admin: len(admin.describe_users()) == 4, "this broker knows the users")
    with ottla.Producer(**client("user-2", "secret", *brokers), acks="all", linger_ms=0) as producer:
        for number in range(20):
            producer.send("orders", b"%d" % number, partition=number % 3).get(30)
        brokers[2].stop()
        for number in range(20, 40):
            producer.send("orders", b"%d" % number, partition=number % 3).get(30)
    with (
        pytest.raises(OttlaError, match="rejected user 'user-0'"),
        ottla.Admin(**client("user-0", "no", *brokers[:2])) as admin,
    ):
        admin.describe_cluster()


def test_a_broker_without_the_credentials_is_told_what_to_set(tmp_path: Path) -> None:
    given = configs(1, tmp_path, "127.0.0.1:1")
    for name, value, problem in (
        ("sasl.mechanism.inter.broker.protocol", "GSSAPI", r"Set sasl\.mechanism\.inter\.broker\.protocol to one of"),
        ("sasl.mechanism.inter.broker.protocol", "PLAIN", r"sasl\.enabled\.mechanisms .* does not have it"),
        (
            "listener.name.inside.scram-sha-256.sasl.jaas.config",
            "x required;",
            r"Set username and password in listener\.name\.inside\.scram-sha-256\.sasl\.jaas\.config",
        ),
    ):
        with pytest.raises(ConfigError, match=problem):
            ottla.Broker(config={**given, name: value})
