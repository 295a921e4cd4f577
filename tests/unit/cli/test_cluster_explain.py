"""``ottla cluster explain``: the history of a partition."""

from __future__ import annotations

import json
import re

import pytest
from tests.unit.cli.cli_results import Ottla

from ottla.cli.cluster.explain import explained
from ottla.clients.admin.values import PartitionDescription
from ottla.clients.cluster.metadata import Node
from ottla.metadata.history import Change
from ottla.times import clock_time
from ottla.types import TopicPartition

NOW = 1_700_000_100_000
KEY = TopicPartition("orders", 0)
ONE, TWO = Node(1, "a", 1), Node(2, "b", 1)


def test_who_led_and_who_was_out_of_sync() -> None:
    changes = [
        Change(0, "", 1, 0, (1, 2)),
        Change(NOW - 60_000, "broker 1 stopped", 2, 1, (2,), (1,)),
        Change(NOW - 50_000, "broker 2 stopped", -1, 2, (), (1, 2)),
        Change(NOW - 48_500, "broker 2 started", 2, 3, (2,), (1,)),
        Change(NOW - 30_000, "broker 1 caught up", 2, 3, (2, 1)),
        Change(NOW - 2_000, "broker 1 is too slow", 2, 3, (2,), (1,)),
    ]
    partition = PartitionDescription(0, TWO, 3, (ONE, TWO), (TWO,), (), (ONE,), ())

    text = "\n".join(explained(KEY, partition, changes, now=NOW)).splitlines()
    assert text[0] == "orders-0: led by broker 2 in epoch 3; replicas 1,2, in sync 2, eligible 1"
    assert [re.split(" {2,}", line) for line in text[2:]] == [
        ["LEADER", "EPOCH", "SINCE", "FOR", "BECAUSE"],
        ["broker 1", "0", "before", "-", "-"],
        ["broker 2", "1", clock_time(NOW - 60_000), "10.0 s", "broker 1 stopped"],
        ["nobody", "2", clock_time(NOW - 50_000), "1.5 s", "broker 2 stopped"],
        ["broker 2", "3", clock_time(NOW - 48_500), "48.5 s so far", "broker 2 started"],
        [""],
        ["OUT OF SYNC", "SINCE", "FOR", "BECAUSE"],
        ["broker 1", clock_time(NOW - 60_000), "30.0 s", "broker 1 stopped"],
        ["broker 2", clock_time(NOW - 50_000), "1.5 s", "broker 2 stopped"],
        ["broker 1", clock_time(NOW - 2_000), "2.0 s so far", "broker 1 is too slow"],
    ]


def test_a_partition_without_changes() -> None:
    partition = PartitionDescription(0, None, 0, (ONE,), ())
    assert list(explained(KEY, partition, [], now=NOW)) == [
        "orders-0: offline; replicas 1, in sync -",
        "nothing has changed since the partition was created",
    ]


def test_the_command(ottla: Ottla, topic: str) -> None:
    shown = ottla("cluster", "explain", f"{topic}-2")
    assert (shown.code, shown.lines[0].startswith(f"{topic}-2: led by broker")) == (0, True)
    assert json.loads(ottla("cluster", "explain", f"{topic}-2", "--json").out)["changes"] == []
    for name, says in ((f"{topic}-9", "has no partition 9"), ("orders", "such as orders-0"), ("x-0", "does not exist")):
        refused = ottla("cluster", "explain", name)
        assert refused.code
        assert says in refused.err


def test_the_history_is_not_among_the_configs(ottla: Ottla, topic: str) -> None:
    assert "ottla.history" not in ottla("topics", "describe", topic, "--all-configs").text


def test_a_broker_without_a_history(ottla: Ottla, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # Brokers leave out configs that they do not know.
    monkeypatch.setattr("ottla.clients.admin.partition_history.CONFIG_PREFIX", "another.broker.")
    shown = ottla("cluster", "explain", f"{topic}-2")
    assert shown.code != 0
    assert f"keeps no history of partitions, so {topic}-2 cannot be explained" in shown.err
