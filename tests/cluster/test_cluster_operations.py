"""What people do with a cluster: move replicas, stop moving them, and remove a broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.compat.waiting import until

from ottla import Admin, Cluster, NewTopic, Producer
from ottla.cli.main import main

Run = Callable[..., Any]


@pytest.fixture
def run(ottla_cluster: Cluster, capsys: pytest.CaptureFixture[str]) -> Run:
    """A command with --json on the cluster of the test. It returns what is printed, or the error."""

    def call(*arguments: str) -> Any:
        capsys.readouterr()
        code = main([*arguments, "--json", "--bootstrap-server", ottla_cluster.bootstrap_servers])
        printed = capsys.readouterr()
        return json.loads(printed.out) if code == 0 else printed.err

    return call


@pytest.mark.ottla(brokers=4, isolation=False)
def test_replicas_are_moved_and_a_broker_is_removed(ottla_cluster: Cluster, run: Run) -> None:
    servers = ottla_cluster.bootstrap_servers
    with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers, acks="all") as producer:
        admin.create_topics(NewTopic("orders", 4, 2))
        for number in range(200):
            producer.send("orders", bytes(10_000), partition=number % 4)
        producer.flush()

        def replicas() -> list[set[int]]:
            return [{node.id for node in one.replicas} for one in admin.describe_topics("orders")["orders"].partitions]

        before = replicas()
        # So slow that it is not complete before it is cancelled.
        started = run("topics", "reassign", "orders", "-r", "3", "--throttle", "10000")
        assert [len(one["to"]) for one in started] == [3, 3, 3, 3]
        until(lambda: len(run("topics", "reassign", "orders", "--status")) == 4, "all are being moved")
        assert len(run("topics", "reassign", "orders", "--cancel")) == 4
        until(lambda: replicas() == before, "the replicas are as before")
        assert run("topics", "reassign", "orders", "--status") == []

        assert "broker 4 is running: stop it first" in run("cluster", "unregister", "4")
        run("topics", "reassign", "--all", "--without-broker", "4", "--wait")
        until(lambda: not any(4 in one for one in replicas()), "broker 4 is empty")
    ottla_cluster.broker(4).stop()
    until(lambda: any(one["fenced"] for one in run("cluster", "status")["brokers"]), "broker 4 is away")
    assert run("cluster", "unregister", "4") == {"broker": 4, "status": "unregistered"}
    until(lambda: len(run("cluster", "status")["brokers"]) == 3, "broker 4 is forgotten")
    assert run("cluster", "status")["problems"] == []


@pytest.mark.ottla(brokers=1, num_partitions=2)
def test_the_fixture_takes_configs(ottla_cluster: Cluster) -> None:
    with Admin(bootstrap_servers=ottla_cluster.bootstrap_servers) as admin:
        admin.create_topics("orders")
        until(lambda: len(admin.describe_topics("orders")["orders"].partitions) == 2, "the topic is there")
