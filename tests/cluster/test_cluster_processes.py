"""ottla.Cluster with real processes: brokers die, hang, and are cut off, and clients go on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.waiting import until

from ottla import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition
from ottla.cli.main import main
from ottla.errors import OttlaError

#: A request to a broker that hangs ends only by its timeout.
IMPATIENT = {"request_timeout_ms": 2_000, "linger_ms": 0}
FAST = {"zookeeper.session.timeout.ms": 2_000, "offsets.topic.num.partitions": 1}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers for all tests here. Each test leaves them running and in sync."""
    with Cluster(3, config=FAST, racks=["a", "b", "c"]) as cluster:
        yield cluster


@pytest.fixture
def topic(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A topic with one partition and three replicas."""
    name = request.node.name.replace("[", "-").replace("]", "")[-60:]
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(NewTopic(name, 1, 3))
    cluster.wait_until_replicated(name)
    yield name
    for broker in cluster.brokers.values():
        broker.rejoin()
        broker.resume()
        broker.start()
    cluster.wait_until_ready()
    cluster.wait_until_replicated()


def written(cluster: Cluster, topic: str, *values: bytes) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all") as producer:
        for value in values:
            producer.send(topic, value).get(30)


def read(cluster: Cluster, topic: str, count: int) -> list[bytes | None]:
    healthy = [broker.address for broker in cluster.brokers.values() if broker.state == "running"]
    with Consumer(bootstrap_servers=healthy) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning(TopicPartition(topic, 0))
        found: list[bytes | None] = []
        deadline = time.monotonic() + 30
        while len(found) < count and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(1.0) or ()]
        return found


def status(cluster: Cluster, capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, object]:
    capsys.readouterr()
    assert main([*arguments, "--json", "--bootstrap-server", cluster.bootstrap_servers]) == 0
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("fault", ["kill", "stop", pytest.param("pause", marks=pytest.mark.long), "isolate"])
def test_another_broker_takes_over(cluster: Cluster, topic: str, fault: str) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, acks="all", **IMPATIENT) as producer:
        producer.send(topic, b"before").get(30)
        leader = cluster.leader_of(topic)
        getattr(leader, fault)()
        producer.send(topic, b"after").get(60)
        until(lambda: cluster.leader_of(topic).id != leader.id, "a new leader", 30)
    assert read(cluster, topic, 2) == [b"before", b"after"]
    assert leader.state == {"kill": "stopped", "stop": "stopped", "pause": "paused", "isolate": "isolated"}[fault]


def test_the_status_shows_what_is_wrong(cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    # A broker that was away in an earlier test may still catch up.
    until(lambda: not status(cluster, capsys, "cluster", "status")["problems"], "every replica is in sync", 60)
    assert len(status(cluster, capsys, "cluster", "status")["brokers"]) == 3
    leader = cluster.leader_of(topic)
    leader.kill()
    until(lambda: cluster.leader_of(topic).id != leader.id, "a new leader", 30)
    after = status(cluster, capsys, "cluster", "status")
    problems = {(one["topic"], one["partition"]): one["problem"] for one in after["problems"]}
    assert problems[topic, 0] == "under-replicated"
    assert {one["broker"] for one in after["brokers"] if one["fenced"]} == {leader.id}
    explained = status(cluster, capsys, "cluster", "explain", f"{topic}-0")
    assert str(leader.id) in explained["changes"][-1]["reason"]
    assert explained["changes"][-1]["leader"] == cluster.leader_of(topic).id


def test_two_brokers_of_three_are_needed_to_write(cluster: Cluster, topic: str) -> None:
    leader = cluster.leader_of(topic)
    for broker in cluster.brokers.values():
        if broker.id != leader.id:
            broker.kill()
    with (
        Producer(bootstrap_servers=leader.address, acks="all", delivery_timeout_ms=4_000, **IMPATIENT) as producer,
        pytest.raises(OttlaError),
    ):
        producer.send(topic, b"too few").get(30)


@pytest.mark.long  # test_failover.py has a shorter form
def test_zookeeper_may_be_away(cluster: Cluster, topic: str) -> None:
    written(cluster, topic, b"before")
    cluster.zookeeper.kill()
    try:
        written(cluster, topic, b"during")
        assert read(cluster, topic, 2) == [b"before", b"during"]
    finally:
        cluster.zookeeper.start()
    cluster.wait_until_ready()
    cluster.leader_of(topic).kill()
    written(cluster, topic, b"after")
    assert read(cluster, topic, 3) == [b"before", b"during", b"after"]


def test_a_leader_that_nobody_follows_cannot_commit(cluster: Cluster, topic: str) -> None:
    written(cluster, topic, b"before")
    leader = cluster.leader_of(topic)
    leader.isolate(clients=False)
    until(lambda: cluster.leader_of(topic).id != leader.id, "a new leader", 30)
    others = ",".join(broker.address for broker in cluster.brokers.values() if broker.id != leader.id)
    with Producer(bootstrap_servers=others, acks="all") as producer:
        producer.send(topic, b"after").get(30)
    leader.rejoin()
    cluster.wait_until_replicated(topic)
    assert read(cluster, topic, 2) == [b"before", b"after"]


def test_groups_survive_their_coordinator(cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    written(cluster, topic, b"one")
    options = {"bootstrap_servers": cluster.bootstrap_servers, "auto_offset_reset": "earliest", "group_id": topic}
    with Consumer(**options, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        until(lambda: bool(consumer.poll(0.5)), "the first record", 30)
        consumer.commit()
        before = cluster.leader_of("__consumer_offsets", 0)
        before.kill()
        written(cluster, topic, b"two")
        found: list[bytes | None] = []
        until(lambda: bool(found.extend(one.value for one in consumer.poll(0.5) or ()) or found), "the next record", 60)
        assert found == [b"two"]
        consumer.commit()
        explained = status(cluster, capsys, "groups", "explain", topic)
        (move,) = explained["coordinator_moves"]
        now = cluster.leader_of("__consumer_offsets", 0).id
        assert (move["from"], move["to"], str(before.id) in move["reason"]) == (before.id, now, True)
        assert move["at"] > explained["rebalances"][0]["started_at"]
        assert main(["groups", "explain", topic, "--bootstrap-server", cluster.bootstrap_servers]) == 0
        assert f"the coordinator moved from broker {before.id} to broker {now}" in capsys.readouterr().out


def test_a_broker_is_added_and_gets_replicas(capsys: pytest.CaptureFixture[str]) -> None:
    with Cluster(1, config=FAST) as cluster:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics(NewTopic("orders", 2, 1))
        written(cluster, "orders", b"one", b"two")
        cluster.add_broker()
        cluster.add_broker()
        server = ["--bootstrap-server", cluster.bootstrap_servers]
        assert main(["topics", "reassign", "orders", "-r", "3", "--wait", "--throttle", "50000000", *server]) == 0
        cluster.wait_until_replicated("orders")
        assert main(["topics", "elect-leaders", "orders", *server]) == 0
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:

            def leaders() -> int:
                # The broker that is asked may know of the elections a little later.
                partitions = admin.describe_topics("orders")["orders"].partitions
                assert all({node.id for node in one.isr} == {1, 2, 3} for one in partitions)
                return len({one.leader and one.leader.id for one in partitions})

            until(lambda: leaders() == 2, "two brokers lead")
            configs = admin.describe_configs("orders").popitem()[1]
            assert not configs["leader.replication.throttled.replicas"].differs


def test_no_process_survives_the_program(tmp_path: Path) -> None:
    code = (
        "import ottla, sys, time\n"
        "with ottla.Cluster(1) as cluster:\n"
        "    print(cluster.broker(1).pid, cluster.zookeeper.pid, flush=True)\n"
        "    cluster.broker(1).pause()\n"
        "    time.sleep(60)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        pids = [int(pid) for pid in program.stdout.readline().split()]
        program.send_signal(signal.SIGKILL)
        program.wait()
    until(lambda: not any(_is_alive(pid) for pid in pids), "the end of the processes", 30)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
