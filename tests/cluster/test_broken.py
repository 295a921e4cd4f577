"""The checker finds the damage that a broken broker does, and nothing on a good one."""

from __future__ import annotations

import pytest

import ottla
from ottla.types import TopicPartition

from .broken import BrokenCluster
from .checker import Acked, History, Read, Sent, check
from .clusters import PlainCluster
from .loads import read_replicas
from .trial import BROKER

pytestmark = pytest.mark.crash
PLACE = TopicPartition("t", 0)
COUNT = 20
#: The frozen followers are not taken for dead.
CONFIG = {**BROKER, "zookeeper.session.timeout.ms": "20000", "replica.lag.time.max.ms": "20000"}


def lose_a_leader(cluster: PlainCluster) -> History:
    """Write to a leader whose followers are frozen, kill it, wake the followers, and write to the new leader."""
    history = History()
    servers = cluster.bootstrap_servers
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic("t", num_partitions=1))
    write(servers, history, "before")
    cluster.wait_until_replicated("t")
    leader = cluster.leader_of("t", 0)
    followers = [broker for broker in cluster.brokers.values() if broker is not leader]
    for broker in followers:
        broker.pause()
    # A follower that is frozen while it waits for the leader gets one more response when it wakes up.
    write(leader.address, history, "replicated", seconds=1)
    write(leader.address, history, "not replicated", seconds=1)
    read(leader.address, history, "early", seconds=1)
    leader.kill()
    for broker in followers:
        broker.resume()
    write(",".join(broker.address for broker in followers), history, "after")
    leader.start()
    cluster.wait_until_replicated("t")
    directories = {broker.id: broker.data_dir for broker in cluster.brokers.values()}
    history.replicas, _, _ = read_replicas(directories, [PLACE], seconds=3)
    return history


def write(servers: str, history: History, name: str, seconds: float = 30) -> None:
    """Write some records, and note which of them were acknowledged in time."""
    values = [f"{name}-{number}".encode() for number in range(COUNT)]
    history.sent += [Sent(name, PLACE, value) for value in values]
    history.at_least_once.add(name)
    # Without idempotence it needs no producer id from the controller, which may be frozen.
    producer = ottla.Producer(bootstrap_servers=servers, acks="all", enable_idempotence=False, linger_ms=5)
    try:
        futures = [producer.send("t", value, partition=0) for value in values]
        for value, future in zip(values, futures, strict=True):
            history.acked.append(Acked(PLACE, future.result(seconds).offset, value))
    except TimeoutError:
        pass
    finally:
        producer.close(0)


def read(servers: str, history: History, name: str, seconds: float) -> None:
    with ottla.Consumer(bootstrap_servers=servers) as consumer:
        consumer.assign([PLACE])
        consumer.seek(PLACE, 0)
        while records := consumer.poll(seconds):
            history.reads[name, PLACE] += [Read(record.offset, record.value or b"") for record in records]


@pytest.mark.long
def test_a_good_cluster_loses_nothing_with_its_leader() -> None:
    with PlainCluster(config=CONFIG) as cluster:
        history = lose_a_leader(cluster)
    assert check(history) == []
    assert {ack.value.split(b"-")[0] for ack in history.acked} == {b"before", b"after"}, "without its followers"
    assert len(history.reads["early", PLACE]) == COUNT, "nothing is read that may be lost"


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("early-ack", {"lost", "changed"}),
        pytest.param("uncommitted-reads", {"changed"}, marks=pytest.mark.long),
        pytest.param("eager-watermark", {"lost", "changed"}, marks=pytest.mark.long),
        pytest.param("no-divergence", {"changed"}, marks=pytest.mark.long),
    ],
)
def test_the_damage_of_a_broken_cluster_is_found(name: str, kinds: set[str]) -> None:
    with BrokenCluster(name, config=CONFIG) as cluster:
        history = lose_a_leader(cluster)
    assert kinds <= {problem.kind for problem in check(history)}
