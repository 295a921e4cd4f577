"""The settings of "No loss" in docs/delivery.md: with all of them nothing is lost, and without any one, a record is.

Most tests do the same harm to two topics or two clients at once. One has all settings, the other lacks one of them.
`make crash-cluster` runs the long ones.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
from tests.cluster.reading_on import CRASHED
from tests.compat.waiting import until

from ottla import Admin, Cluster, Consumer, NewTopic, Producer, TopicPartition
from ottla.clients.admin.values import OffsetSpec
from ottla.errors import OttlaError

pytestmark = [pytest.mark.crash, pytest.mark.timeout(100)]

SETTINGS = {
    # How soon a paused broker is replaced.
    "zookeeper.session.timeout.ms": 2_000,
    "offsets.topic.num.partitions": 1,
}
ALL = (1, 2, 3)
Create = Callable[..., str]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Three brokers. Each test leaves them running and in sync."""
    with Cluster(3, config=SETTINGS) as cluster:
        yield cluster


@pytest.fixture
def create(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[Create]:
    """Create a topic with the settings of the recipe, or others. Broker 1 leads it."""
    names: list[str] = []

    def create(replicas: Sequence[int] = ALL, min_isr: int = 2, unclean: bool = False) -> str:
        names.append(f"{re.sub(r'[^a-z_]', '-', request.node.name)}-{len(names)}")
        configs = {"min.insync.replicas": min_isr, "unclean.leader.election.enable": unclean}
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topics(NewTopic(names[-1], configs=configs, replica_assignments={0: replicas}))
        cluster.wait_until_replicated(names[-1])
        return names[-1]

    yield create
    start_all(cluster)
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics(names)
    cluster.wait_until_replicated()


def start_all(cluster: Cluster) -> None:
    for broker in cluster.brokers.values():
        broker.rejoin()
        broker.resume()
        broker.launch()
    for broker in cluster.brokers.values():
        broker.await_ready()
    cluster.wait_until_ready()


def lose_everything(cluster: Cluster, broker_id: int) -> None:
    """A machine burns down, and a new one replaces it."""
    broker = cluster.broker(broker_id)
    broker.kill()
    shutil.rmtree(broker.data_dir)


def producer(cluster: Cluster, **settings: object) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0, **settings)


def write(cluster: Cluster, topic: str, *values: bytes) -> None:
    """Write as the recipe says."""
    with producer(cluster) as careful:
        for value in values:
            careful.send(topic, value).get(30)


def read(cluster: Cluster, topic: str) -> list[bytes | None]:
    """All records of a topic."""
    key = TopicPartition(topic, 0)
    cluster.leader_of(topic, timeout=30)
    running = [broker.address for broker in cluster.brokers.values() if broker.state == "running"]
    with Admin(bootstrap_servers=running) as admin:
        end = admin.list_offsets({key: OffsetSpec.LATEST})[key].offset
    found: list[bytes | None] = []
    with Consumer(bootstrap_servers=running) as consumer:
        consumer.assign([key])
        consumer.seek_to_beginning(key)
        deadline = time.monotonic() + 30
        while consumer.position(key) < end:
            found += [record.value for record in consumer.poll(0.2)]
            assert time.monotonic() < deadline, f"{len(found)} of {end} records"
    return found


def test_with_all_settings_any_broker_may_die(cluster: Cluster, create: Create, tmp_path: Path) -> None:
    topic = create()
    acknowledged: dict[bytes, int] = {}
    ended = threading.Event()

    def write_on() -> None:
        with producer(cluster) as careful:
            while not ended.is_set():
                value = b"%d" % len(acknowledged)
                acknowledged[value] = careful.send(topic, value).get(60).offset
                ended.wait(0.005)  # a faster writer only takes the time of the brokers

    writer = threading.Thread(target=write_on)
    writer.start()
    try:
        for _ in range(2):
            wait_for_more(acknowledged)
            victim = cluster.leader_of(topic)
            victim.kill()
            wait_for_more(acknowledged)
            victim.start()
            cluster.wait_until_replicated(topic)
    finally:
        ended.set()
        writer.join(60)
    log = read(cluster, topic)
    # Nothing is missing, repeated, or at another offset than the one that was acknowledged.
    assert {value: offset for offset, value in enumerate(log)} == acknowledged
    assert len(log) == len(acknowledged)
    processed = tmp_path / "processed"
    assert read_on(cluster, topic, processed, "after processing", crash_after=7) == CRASHED
    cluster.leader_of("__consumer_offsets").kill()
    assert read_on(cluster, topic, processed, "after processing") == 0
    assert set(processed.read_bytes().splitlines()) == acknowledged.keys()


def wait_for_more(acknowledged: dict[bytes, int], count: int = 50) -> None:
    enough = len(acknowledged) + count
    until(lambda: len(acknowledged) >= enough, "more records are acknowledged", 60)


def test_without_acks_all_a_dead_leader_takes_records_along(cluster: Cluster, create: Create) -> None:
    topic = create()
    write(cluster, topic, b"before")
    with producer(cluster, acks=1, enable_idempotence=False) as careless, producer(cluster) as careful:
        for each in (careless, careful):
            each.partitions_for(topic)
        cluster.broker(1).isolate(clients=False)
        careless.send(topic, b"acks=1").get(30)
        waiting = careful.send(topic, b"acks=all")
        cluster.broker(1).kill()
        # It was not acknowledged, so the producer sends it again, to the new leader.
        waiting.get(30)
    assert read(cluster, topic) == [b"before", b"acks=all"]


@pytest.mark.long
def test_without_replicas_the_only_copy_is_lost(cluster: Cluster, create: Create) -> None:
    three, one = create(), create(replicas=(1,))
    for topic in (three, one):
        write(cluster, topic, b"an order")
    lose_everything(cluster, 1)
    cluster.broker(1).start()
    assert read(cluster, three) == [b"an order"]
    assert read(cluster, one) == []


def test_without_min_insync_replicas_a_lonely_leader_acknowledges(cluster: Cluster, create: Create) -> None:
    two, one = create(), create(min_isr=1)
    for topic in (two, one):
        write(cluster, topic, b"before")
    cluster.broker(2).stop()
    cluster.broker(3).stop()
    write(cluster, one, b"alone")
    impatient = producer(cluster, delivery_timeout_ms=1_000, request_timeout_ms=1_000)
    # The program is told that this record is not safe.
    with impatient, pytest.raises(OttlaError):
        impatient.send(two, b"alone").get(30)
    lose_everything(cluster, 1)
    start_all(cluster)
    assert b"alone" not in read(cluster, one)
    assert read(cluster, two) == [b"before"]


@pytest.mark.long
def test_with_unclean_elections_an_old_replica_leads(cluster: Cluster, create: Create) -> None:
    clean, unclean = create(), create(unclean=True)
    cluster.broker(3).stop()
    for topic in (clean, unclean):
        write(cluster, topic, b"an order")
    cluster.broker(2).kill()
    cluster.broker(1).kill()
    cluster.broker(3).start()
    until(lambda: cluster.leader_of(unclean).id == 3, "the old replica leads")
    assert read(cluster, unclean) == []
    with pytest.raises(OttlaError, match="has no leader"):
        cluster.leader_of(clean, timeout=0)
    start_all(cluster)
    assert read(cluster, clean) == [b"an order"]
    assert read(cluster, unclean) == []


@pytest.mark.long
def test_without_retries_an_error_loses_the_record(cluster: Cluster, create: Create) -> None:
    topic = create()
    with (
        producer(cluster, request_timeout_ms=1_000, retries=0, enable_idempotence=False) as careless,
        producer(cluster, request_timeout_ms=1_000) as careful,
    ):
        for each in (careless, careful):
            each.send(topic, b"before").get(30)
        cluster.broker(1).pause()
        lost, kept = careless.send(topic, b"sent once"), careful.send(topic, b"sent again")
        with pytest.raises(OttlaError):
            lost.get(30)
        kept.get(30)
        cluster.broker(1).kill()
    assert read(cluster, topic) == [b"before", b"before", b"sent again"]


@pytest.mark.long
def test_without_idempotence_a_retry_repeats_the_record(cluster: Cluster, create: Create) -> None:
    topic = create()
    with (
        producer(cluster, request_timeout_ms=500, enable_idempotence=False) as careless,
        producer(cluster, request_timeout_ms=500) as careful,
    ):
        both = (careless, careful)
        for each in both:
            each.send(topic, b"before").get(30)
        cluster.broker(2).pause()
        cluster.broker(3).pause()
        waiting = [careless.send(topic, b"any producer"), careful.send(topic, b"idempotent producer")]
        # The leader has the record, and cannot acknowledge it yet.
        until(lambda: all(each.metrics()["request-total"] >= 3 for each in both), "both have sent it again")
        cluster.broker(2).resume()
        cluster.broker(3).resume()
        for each in waiting:
            each.get(30)
    log = read(cluster, topic)
    assert log.count(b"idempotent producer") == 1
    assert log.count(b"any producer") > 1


@pytest.mark.parametrize("commits", ["automatic", "after processing"])
def test_a_commit_before_processing_skips_records(
    cluster: Cluster, create: Create, tmp_path: Path, commits: str
) -> None:
    topic = create()
    values = [b"%d" % number for number in range(10)]
    write(cluster, topic, *values)
    processed = tmp_path / "processed"
    assert read_on(cluster, topic, processed, commits, crash_after=3) == CRASHED
    assert read_on(cluster, topic, processed, commits) == 0
    found = set(processed.read_bytes().splitlines())
    assert found == set(values[:3] if commits == "automatic" else values)


def read_on(cluster: Cluster, topic: str, processed: Path, commits: str, crash_after: int = 0) -> int:
    """Run a consumer until it crashes, or until it has processed everything from the committed offset on."""
    arguments = [cluster.bootstrap_servers, topic, topic, str(processed), commits, str(crash_after)]
    command = [sys.executable, "-m", "tests.cluster.reading_on", *arguments]
    return subprocess.run(command, timeout=60, check=False).returncode
