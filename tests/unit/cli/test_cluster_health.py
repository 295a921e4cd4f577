"""``ottla cluster status``: what counts as a problem, and how it is shown."""

from __future__ import annotations

import json

from tests.unit.cli.cli_results import Ottla

from ottla.cli.cluster.health import OFFLINE, UNDER_MIN_ISR, UNDER_REPLICATED, health_of
from ottla.cli.cluster.status import _lines
from ottla.clients.admin.values import ClusterDescription, PartitionDescription, TopicDescription
from ottla.clients.cluster.metadata import Node

NODES = {1: Node(1, "a", 9092, "east"), 2: Node(2, "b", 9092, "west"), 3: Node(3, "c", 9092, None, is_fenced=True)}
CLUSTER = ClusterDescription("id", NODES[1], tuple(NODES.values()))


def topic(name: str, *partitions: tuple[int | None, str, str, str]) -> TopicDescription:
    """A topic of partitions with leader, replicas, ISR and ELR, such as (1, "123", "12", "3")."""

    def nodes(ids: str) -> tuple[Node, ...]:
        return tuple(NODES[int(one)] for one in ids)

    described = [
        PartitionDescription(number, NODES[leader] if leader else None, 7, nodes(replicas), nodes(isr), (), nodes(elr))
        for number, (leader, replicas, isr, elr) in enumerate(partitions)
    ]
    return TopicDescription(name, None, False, tuple(described))


def test_the_worst_problem_of_each_partition_counts_and_comes_first() -> None:
    topics = [
        topic("fine", (1, "12", "12", ""), (2, "21", "12", "")),
        topic("orders", (1, "123", "12", ""), (2, "123", "2", "1"), (None, "321", "", "3")),
    ]
    health = health_of(CLUSTER, topics, {"orders": 2})
    assert [(str(problem.key), problem.what) for problem in health.problems] == [
        ("orders-2", OFFLINE),
        ("orders-1", UNDER_MIN_ISR),
        ("orders-0", UNDER_REPLICATED),
    ]
    assert (health.topics, health.partitions, health.not_preferred) == (2, 5, 1)
    assert (health.leads, health.replicas[3], health.in_sync[3]) == ({1: 2, 2: 2}, 3, 0)


def test_a_partition_with_few_replicas_needs_no_more_than_it_has() -> None:
    health = health_of(CLUSTER, [topic("small", (1, "13", "1", ""))], {"small": 3})
    assert [(problem.what, problem.min_isr) for problem in health.problems] == [(UNDER_MIN_ISR, 2)]


def test_the_text() -> None:
    partitions = [(2, "123", "2", "1"), (None, "321", "", "3")]
    health = health_of(CLUSTER, [topic("orders", *partitions)], {"orders": 2}, controller_epoch=4)
    assert "\n".join(_lines(health, limit=1)).splitlines() == [
        "cluster id: 3 brokers, 1 of them away, controller 1 (epoch 4)",
        "",
        "BROKER  ADDRESS  RACK  STATE    LEADS  REPLICAS  IN-SYNC",
        "     1  a:9092   east  running      0         2        0",
        "     2  b:9092   west  running      1         2        1",
        "     3  c:9092   -     fenced       0         2        0",
        "",
        "1 topic, 2 partitions: 1 offline, 1 under min ISR, 1 not led by the first replica",
        "PARTITION  PROBLEM  LEADER  EPOCH  REPLICAS  ISR  ELR  MIN-ISR",
        "orders-1   offline  -           7  3,2,1     -    3          2",
        "and 1 other partition; show more with --limit",
    ]


def test_a_healthy_cluster(ottla: Ottla, topic: str) -> None:
    shown = ottla("cluster", "status")
    assert shown.code == 0
    assert shown.lines[0].startswith("cluster ")
    assert "all replicas in sync" in shown.lines[-1]
    found = json.loads(ottla("cluster", "status", "--json").out)
    assert found["problems"] == []
    assert [broker["broker"] for broker in found["brokers"]] == [found["controller"]]
    assert found["partitions"] >= 3


def test_a_cluster_to_start_is_checked_first(ottla: Ottla) -> None:
    for arguments, says in (
        (["--racks", "a,b"], "--racks has 2 racks for 3 brokers"),
        (["--listen-port", "65534"], "use a smaller --listen-port"),
        (["--brokers", "0"], "'0' is not a whole number >= 1"),
    ):
        refused = ottla("cluster", "start", "--data-dir", "/nowhere", *arguments)
        assert (refused.code, says in refused.err) == (2, True), refused.err
    refused = ottla("cluster", "start", "--data-dir", "/nowhere", "--override", "listeners=PLAINTEXT://:1")
    assert (refused.code, "listeners is different for each broker" in refused.err) == (1, True)


def test_a_broker_that_runs_or_is_unknown_is_not_unregistered(ottla: Ottla) -> None:
    running = json.loads(ottla("cluster", "status", "--json").out)["controller"]
    refused = ottla("cluster", "unregister", str(running))
    assert (refused.code, f"broker {running} is running: stop it first" in refused.err) == (1, True)
    refused = ottla("cluster", "unregister", "4711")
    assert (refused.code, "there is no broker 4711: the cluster has" in refused.err) == (1, True)
