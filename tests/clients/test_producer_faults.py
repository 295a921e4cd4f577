"""A producer under faults: nothing lost, nothing twice, order kept, no call exceeds its timeout."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from benchmarks.ottla_broker import OttlaBroker

from compat.brokers import RunningBroker, start_broker
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.clients.producer.blocking import Producer
from ottla.errors import NetworkException, NotLeaderOrFollower, RequestTimedOut
from ottla.producing.errors import BufferExhausted, DeliveryTimeout
from ottla.protocol.apis import ApiKey

from .cutting_proxy import CuttingProxy
from .producer_scenes import stored_values

sys.path.append(str(Path(__file__).parents[1] / "unit" / "clients"))
from fake_cluster import HANG_UP, FakeCluster

STAGES = ["request lost", "request cut", "response lost", "response cut"]
QUICK = {"retry_backoff_ms": 10, "retry_backoff_max_ms": 50, "reconnect_backoff_ms": 5, "reconnect_backoff_max_ms": 20}


@pytest.fixture(scope="module")
def proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[CuttingProxy]:
    """A broker that can only be reached through a proxy."""
    with CuttingProxy() as proxy:
        config = {"advertised.listeners": f"PLAINTEXT://{proxy.address}", "auto.create.topics.enable": "true"}
        broker = start_broker(config, tmp_path_factory.mktemp("behind-a-proxy"))
        host, _, port = broker.bootstrap_servers.rpartition(":")
        proxy.target = (host, int(port))
        try:
            yield proxy
        finally:
            broker.close()


@pytest.fixture
def topic() -> str:
    return f"topic-{uuid4().hex[:12]}"


@pytest.mark.parametrize("numbers", [(0,), (2, 3), (1, 4, 5, 9)], ids=str)
@pytest.mark.parametrize("stage", STAGES)
def test_a_connection_cut_at_any_stage(proxy: CuttingProxy, topic: str, stage: str, numbers: tuple[int, ...]) -> None:
    with Producer(bootstrap_servers=proxy.address, batch_size=300, linger_ms=1, **QUICK) as producer:
        producer.partitions_for(topic)
        proxy.spoil(stage, *numbers)
        futures = [producer.send(topic, b"%04d" % number + bytes(20)) for number in range(120)]
        offsets = [future.result(20).offset for future in futures]
        assert proxy.spoiled >= 1
    proxy.spoil("nothing")
    assert offsets == list(range(120))
    assert [value[:4] for value in stored_values(proxy.address, topic)[0]] == [b"%04d" % n for n in range(120)]


def test_without_idempotence_nothing_is_lost_either(proxy: CuttingProxy, topic: str) -> None:
    with Producer(
        bootstrap_servers=proxy.address,
        batch_size=300,
        linger_ms=1,
        enable_idempotence=False,
        max_in_flight_requests_per_connection=1,
        **QUICK,
    ) as producer:
        producer.partitions_for(topic)
        proxy.spoil("response lost", 1, 3)
        for number in range(60):
            producer.send(topic, b"%04d" % number + bytes(20))
        producer.flush(20)
    proxy.spoil("nothing")
    written = [value[:4] for value in stored_values(proxy.address, topic)[0]]
    assert list(dict.fromkeys(written)) == [b"%04d" % number for number in range(60)]  # in order, some twice
    assert len(written) > 60


def test_retries_can_be_forbidden(proxy: CuttingProxy, topic: str) -> None:
    with Producer(bootstrap_servers=proxy.address, retries=0, **QUICK) as producer:
        producer.send(topic, b"first").result(30)
        proxy.spoil("request lost", 0)
        with pytest.raises(NetworkException, match=f"partition {topic}-0: the broker at .* closed the connection"):
            producer.send(topic, b"second").result(30)
        proxy.spoil("nothing")
        assert producer.send(topic, b"third").result(30).offset == 1


def test_a_slow_broker_meets_the_request_timeout(proxy: CuttingProxy, topic: str) -> None:
    """The response is held back: the connection is dropped, the batch is retried, and the broker recognizes it."""
    with Producer(bootstrap_servers=proxy.address, request_timeout_ms=200, linger_ms=0, **QUICK) as producer:
        producer.send(topic, b"first").result(30)
        proxy.spoil("held", 0)
        began = time.monotonic()
        future = producer.send(topic, b"second")
        assert future.result(30).offset == 1
        assert 0.15 < time.monotonic() - began < 8
        assert producer.metrics()["record-retry-total"] >= 1
        proxy.release()
    assert stored_values(proxy.address, topic)[0] == [b"first", b"second"]


def test_a_broker_that_never_answers_meets_the_delivery_timeout(proxy: CuttingProxy, topic: str) -> None:
    with Producer(
        bootstrap_servers=proxy.address,
        request_timeout_ms=100,
        delivery_timeout_ms=400,
        linger_ms=0,
        buffer_memory=3_000,
        batch_size=1_000,
        max_block_ms=100,
        **QUICK,
    ) as producer:
        producer.send(topic, b"first").result(30)
        proxy.spoil("request lost", *range(1_000))
        began = time.monotonic()
        futures = [producer.send(topic, bytes(900)) for _ in range(3)]
        with pytest.raises(BufferExhausted):
            producer.send(topic, bytes(900))
        for future in futures:
            with pytest.raises(DeliveryTimeout, match=topic):
                future.result(30)
        assert time.monotonic() - began < 5
        proxy.spoil("nothing")
        assert producer.send(topic, b"last").result(30).offset == 1


def test_a_broker_restarts_in_the_middle(own_broker: Callable[..., RunningBroker], topic: str) -> None:
    broker = own_broker()
    with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=500, linger_ms=1, **QUICK) as producer:
        futures = [producer.send(topic, b"%04d" % number + bytes(20)) for number in range(200)]
        futures[0].result(30)
        broker.stop()
        futures += [producer.send(topic, b"%04d" % number + bytes(20)) for number in range(200, 400)]
        broker.start()
        futures += [producer.send(topic, b"%04d" % number + bytes(20)) for number in range(400, 600)]
        assert [future.result(20).offset for future in futures] == list(range(600))
    written = stored_values(broker.bootstrap_servers, topic)[0]
    assert [value[:4] for value in written] == [b"%04d" % number for number in range(600)]


@pytest.mark.crash
def test_a_broker_is_killed_and_started_again(topic: str) -> None:
    with (
        OttlaBroker() as broker,
        Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=500, linger_ms=1, **QUICK) as producer,
    ):
        futures = [producer.send(topic, b"%05d" % number + bytes(20)) for number in range(500)]
        futures[100].result(30)
        broker.kill()
        futures += [producer.send(topic, b"%05d" % number + bytes(20)) for number in range(500, 1_000)]
        broker.start()
        assert [future.result(20).offset for future in futures] == list(range(1_000))
        written = stored_values(broker.bootstrap_servers, topic)[0]
    assert [value[:5] for value in written] == [b"%05d" % number for number in range(1_000)]


# Several brokers, simulated by `FakeCluster`, which has no producer ids.


def played(scene: Callable[[FakeCluster, AsyncProducer], Any], **config: Any) -> None:
    async def main() -> None:
        async with FakeCluster().running() as cluster:
            servers = [f"{host}:{port}" for host, port in cluster.bootstrap]
            async with AsyncProducer(
                bootstrap_servers=servers, enable_idempotence=False, linger_ms=0, **{**QUICK, **config}
            ) as producer:
                await scene(cluster, producer)

    asyncio.run(main())


def test_a_leader_moves() -> None:
    async def scene(cluster: FakeCluster, producer: AsyncProducer) -> None:
        (key,) = cluster.add_topic("t", [0])
        await producer.send_and_wait("t", b"first")
        cluster.leaders[key] = 1
        await producer.send_and_wait("t", b"second")
        assert cluster.values(key) == [b"first", b"second"]
        assert cluster.count(ApiKey.PRODUCE, 1) == 1

    played(scene)


def test_a_leader_that_cannot_be_reached_is_replaced() -> None:
    async def scene(cluster: FakeCluster, producer: AsyncProducer) -> None:
        (key,) = cluster.add_topic("t", [1])
        cluster._servers[1].close()
        future = await producer.send("t", b"v")
        cluster.leaders[key] = 0
        assert (await future).offset == 0
        assert cluster.values(key) == [b"v"]

    played(scene)


def test_partitions_of_both_brokers_go_at_the_same_time() -> None:
    async def scene(cluster: FakeCluster, producer: AsyncProducer) -> None:
        keys = cluster.add_topic("t", [0, 1])
        futures = [await producer.send("t", b"%d" % number, partition=number % 2) for number in range(100)]
        await producer.flush(30)
        assert all(future.succeeded() for future in futures)
        assert cluster.values(keys[0]) == [b"%d" % number for number in range(0, 100, 2)]
        assert cluster.values(keys[1]) == [b"%d" % number for number in range(1, 100, 2)]

    played(scene)


@pytest.mark.parametrize("failure", [NotLeaderOrFollower.code, RequestTimedOut.code, HANG_UP])
def test_passing_failures_are_retried_in_order(failure: int | str) -> None:
    async def scene(cluster: FakeCluster, producer: AsyncProducer) -> None:
        (key,) = cluster.add_topic("t", [0])
        await producer.send_and_wait("t", b"0")
        cluster.fail(ApiKey.PRODUCE, None if failure == HANG_UP else key, failure, failure)
        futures = [await producer.send("t", b"%d" % number) for number in range(1, 20)]
        await producer.flush(30)
        assert [(await future).offset for future in futures] == list(range(1, 20))
        assert cluster.values(key) == [b"%d" % number for number in range(20)]

    played(scene, max_in_flight_requests_per_connection=1)


def test_a_topic_that_appears_late_is_waited_for() -> None:
    async def scene(cluster: FakeCluster, producer: AsyncProducer) -> None:
        waiting = asyncio.create_task(producer.send_and_wait("late", b"v"))
        while not cluster.count(ApiKey.METADATA):
            await asyncio.sleep(0.01)
        (key,) = cluster.add_topic("late", [1])
        assert (await waiting).offset == 0
        assert cluster.values(key) == [b"v"]

    played(scene, max_block_ms=10_000)
