"""Nothing acknowledged is lost, and clients get on, when a broker or ZooKeeper fails. Longer: `make crash-cluster`."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator

import pytest
from tests.compat.waiting import until

import ottla
from ottla.cluster.member import ClusterBroker
from ottla.protocol.apis import ApiKey
from ottla.types import TopicPartition
from unit.broker.wire import Wire

from .clusters import PlainCluster
from .faults import OFFSETS, TRANSACTIONS, Faults
from .trial import BROKER, Trial

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]
CONFIG = {
    **BROKER,
    "zookeeper.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "200",
    "group.consumer.heartbeat.interval.ms": "200",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[PlainCluster]:
    with PlainCluster(config=CONFIG) as started:
        yield started


def kill_leader(faults: Faults) -> None:
    _bounce(faults.victim("leader"))


def kill_controller(faults: Faults) -> None:
    _bounce(faults.victim("controller"))


def _bounce(broker: ClusterBroker) -> None:
    broker.kill()
    broker.start()


def pause_leader(faults: Faults) -> None:
    """A zombie: it still believes to be the leader when it wakes up."""
    leader = faults.victim("leader")
    leader.pause()
    faults.wait(2, 2)
    leader.resume()


def cut_leader_off(faults: Faults) -> None:
    """Clients still reach it, but it cannot commit anything."""
    leader = faults.victim("leader")
    leader.isolate(clients=False)
    faults.wait(2, 2)
    leader.rejoin()


@pytest.mark.parametrize(
    "fault",
    [
        kill_leader,
        pytest.param(kill_controller, marks=pytest.mark.long),
        pause_leader,
        pytest.param(cut_leader_off, marks=pytest.mark.long),
    ],
)
def test_nothing_is_lost(cluster: PlainCluster, fault: Callable[[Faults], None]) -> None:
    trial = Trial(cluster, fault.__name__, 1, others=())
    faults = Faults(cluster, random.Random(1), trial.plain)
    trial.start()
    try:
        trial.await_progress(60)
        fault(faults)
        trial.await_progress(60)
        _until(lambda: len(trial.history.acked) > 100)
    finally:
        trial.halt()
    assert trial.finish() == []
    # Each record has three replicas, and two readers.
    assert trial.checked > 5 * 100


def test_records_flow_while_zookeeper_is_away(cluster: PlainCluster) -> None:
    servers = cluster.bootstrap_servers
    place = TopicPartition("calm", 0)
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic("calm", num_partitions=1))
        with (
            ottla.Producer(bootstrap_servers=servers, acks="all") as producer,
            ottla.Consumer(bootstrap_servers=servers, group_id="calm", auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([place])
            producer.send("calm", b"before", partition=0).result(20)
            cluster.zookeeper.kill()
            try:
                producer.send("calm", b"meanwhile", partition=0).result(20)
                seen: list[bytes | None] = []
                while len(seen) < 2:
                    seen += [record.value for record in consumer.poll(10)]
                assert seen == [b"before", b"meanwhile"]
                consumer.commit({place: 2}, timeout=10)
                created = _in_background(lambda: admin.create_topics(ottla.NewTopic("later", num_partitions=1)))
            finally:
                cluster.zookeeper.start()
            created.join(60)
            assert not created.is_alive()
            producer.send("later", b"after").result(20)
            assert cluster.controller().state == "running"


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_survives_its_coordinator(cluster: PlainCluster, protocol: str) -> None:
    topic = f"group-{protocol}"
    servers = cluster.bootstrap_servers
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic(topic, num_partitions=2))
    seen: set[bytes] = set()
    stop = threading.Event()
    members = [
        _in_background(lambda: _consume(servers, topic, protocol, seen, stop)),
        _in_background(lambda: _consume(servers, topic, protocol, seen, stop)),
    ]
    try:
        with ottla.Producer(bootstrap_servers=servers, acks="all") as producer:
            _send(producer, topic, 0, 50)
            _until(lambda: len(seen) == 50)
            coordinator = cluster.leader_of(OFFSETS, 0)
            coordinator.kill()
            _send(producer, topic, 50, 100)
            _until(lambda: len(seen) == 100)
            coordinator.start()
    finally:
        stop.set()
        for member in members:
            member.join(30)
    with ottla.Consumer(bootstrap_servers=servers, group_id=topic) as reader:
        keys = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
        assert sum(found.offset for found in reader.committed(keys).values() if found is not None) == 100


def test_a_transaction_survives_its_coordinator(cluster: PlainCluster) -> None:
    servers = cluster.bootstrap_servers
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic("payments", num_partitions=3))
    with ottla.Producer(bootstrap_servers=servers, transactional_id="payments") as producer:
        producer.init_transactions()
        with producer.transaction():
            for number in range(3):
                producer.send("payments", b"%d" % number, partition=number)
            coordinator = cluster.leader_of(TRANSACTIONS, 0)
            coordinator.kill()
            for number in range(3):
                producer.send("payments", b"%d" % (number + 3), partition=number)
        producer.begin_transaction()
        producer.send("payments", b"aborted", partition=0)
        producer.abort_transaction()
    coordinator.start()
    keys = [TopicPartition("payments", index) for index in range(3)]
    with ottla.Consumer(bootstrap_servers=servers, isolation_level="read_committed") as consumer:
        consumer.assign(keys)
        consumer.seek_to_beginning(*keys)
        seen: list[bytes | None] = []
        while any(consumer.position(key) < end for key, end in consumer.end_offsets(keys).items()):
            seen += [record.value for record in consumer.poll(5)]
    assert sorted(value or b"" for value in seen) == [b"0", b"1", b"2", b"3", b"4", b"5"]


# ── helpers ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _consume(servers: str, topic: str, protocol: str, seen: set[bytes], stop: threading.Event) -> None:
    with ottla.Consumer(
        bootstrap_servers=servers, group_id=topic, group_protocol=protocol, auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        consumer.subscribe([topic])
        while not stop.is_set():
            seen.update(record.value or b"" for record in consumer.poll(0.1))
            consumer.commit()


def _send(producer: ottla.Producer, topic: str, start: int, end: int) -> None:
    futures = [producer.send(topic, b"%d" % number, partition=number % 2) for number in range(start, end)]
    for future in futures:
        future.result(30)


def _in_background(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def _until(condition: Callable[[], bool], seconds: float = 60) -> None:
    event = threading.Event()
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        event.wait(0.02)
    raise AssertionError("the condition did not come true in time")


def test_a_client_that_has_lost_the_leader_is_told_the_next_one_at_once(cluster: PlainCluster) -> None:
    """librdkafka asks again only after a second if it is told the dead leader, or if that broker is not listed."""
    topic = {"topics": [{"name": "asked"}], "allow_auto_topic_creation": False}
    with ottla.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topics(ottla.NewTopic("asked", num_partitions=1, replication_factor=3))
    cluster.wait_until_replicated()
    leader = cluster.leader_of("asked", 0)
    others = [each for each in cluster.brokers.values() if each is not leader]
    with Wire(others[0].address) as wire:
        assert wire.call(ApiKey.METADATA, 9, topic).topics[0].partitions[0].leader_id == leader.id
        leader.kill()
        answer = wire.call(ApiKey.METADATA, 9, topic)
    assert answer.topics[0].partitions[0].leader_id in {each.id for each in others}
    assert {each.node_id for each in answer.brokers} == set(cluster.brokers)
    leader.start()
    cluster.wait_until_replicated()


def test_a_client_that_has_lost_its_coordinator_is_told_the_next_one_at_once(cluster: PlainCluster) -> None:
    group = {"key": "asked", "key_type": 0}
    with Wire(cluster.broker(1).address) as wire:
        until(lambda: wire.call(ApiKey.FIND_COORDINATOR, 3, group).error_code == 0, "there is a coordinator")
    cluster.wait_until_replicated()
    coordinator = cluster.leader_of(OFFSETS, 0)
    others = [each for each in cluster.brokers.values() if each is not coordinator]
    with Wire(others[0].address) as wire:
        assert wire.call(ApiKey.FIND_COORDINATOR, 3, group).node_id == coordinator.id
        coordinator.kill()
        assert wire.call(ApiKey.FIND_COORDINATOR, 3, group).node_id in {each.id for each in others}
    coordinator.start()
    cluster.wait_until_replicated()
