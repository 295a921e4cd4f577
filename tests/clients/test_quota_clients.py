"""Clients with quotas: the rate that they get, and that our own pause as they are told."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import confluent_kafka
import kafka
import pytest

from compat.waiting import until
from ottla import Admin, Broker, Consumer, NewTopic, Producer, QuotaEntity, TopicPartition, aio
from ottla.errors import InvalidRequest, ThrottlingQuotaExceeded
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey

RATE = 400_000
RECORD = b"x" * 4_000
#: A second may be used at once, and what is sent behind it takes this long.
SECONDS = 2.0
COUNT = int(RATE * (1 + SECONDS) / len(RECORD))
NAMES = ["ottla", "confluent", "kafka-python"]


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(config={"quota.window.num": 2, "controller.quota.window.num": 2}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("orders"), NewTopic("filled")])
        with Producer(bootstrap_servers=broker.bootstrap_servers, batch_size=16_000) as producer:
            for _ in range(COUNT):
                producer.send("filled", RECORD)
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin
        admin.alter_quotas({entity: dict.fromkeys(quotas) for entity, quotas in admin.describe_quotas().items()})


def produce_with_ottla(servers: str) -> None:
    with Producer(bootstrap_servers=servers, client_id="ottla", batch_size=16_000, linger_ms=5) as producer:
        for _ in range(COUNT):
            producer.send("orders", RECORD)


def produce_with_confluent(servers: str) -> None:
    config = {"bootstrap.servers": servers, "client.id": "confluent", "batch.size": 16_000, "linger.ms": 5}
    producer = confluent_kafka.Producer(config)
    for _ in range(COUNT):
        producer.produce("orders", RECORD)
    assert producer.flush(60) == 0


def produce_with_kafka_python(servers: str) -> None:
    producer = kafka.KafkaProducer(
        bootstrap_servers=servers, client_id="kafka-python", batch_size=16_000, linger_ms=5, acks=1
    )
    for _ in range(COUNT):
        producer.send("orders", RECORD)
    producer.flush(60)
    producer.close()


def consume_with_ottla(servers: str) -> None:
    with Consumer(bootstrap_servers=servers, client_id="ottla", max_partition_fetch_bytes=20_000) as consumer:
        consumer.assign([TopicPartition("filled", 0)])
        consumer.seek(TopicPartition("filled", 0), 0)
        count = 0
        while count < COUNT:
            count += len(consumer.poll(1))


def consume_with_confluent(servers: str) -> None:
    config: dict[str, str | int] = {
        "bootstrap.servers": servers, "client.id": "confluent", "group.id": "g", "fetch.max.bytes": 20_000,
        "message.max.bytes": 20_000, "max.partition.fetch.bytes": 20_000,
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(config)
    consumer.assign([confluent_kafka.TopicPartition("filled", 0, 0)])
    count = 0
    while count < COUNT:
        count += sum(message.error() is None for message in consumer.consume(100, 1))
    consumer.close()


def consume_with_kafka_python(servers: str) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=servers, client_id="kafka-python", max_partition_fetch_bytes=20_000, fetch_max_bytes=20_000
    )
    consumer.assign([kafka.TopicPartition("filled", 0)])
    consumer.seek(kafka.TopicPartition("filled", 0), 0)
    count = 0
    while count < COUNT:
        count += sum(map(len, consumer.poll(1000).values()))
    consumer.close()


PRODUCE = [produce_with_ottla, produce_with_confluent, produce_with_kafka_python]
CONSUME = [consume_with_ottla, consume_with_confluent, consume_with_kafka_python]


def timed(work: Callable[[str], None], servers: str) -> float:
    begun = time.monotonic()
    work(servers)
    return time.monotonic() - begun


@pytest.mark.parametrize(
    ("quota", "works"), [("producer_byte_rate", PRODUCE), ("consumer_byte_rate", CONSUME)], ids=["produce", "consume"]
)
def test_every_client_gets_its_rate(
    broker: Broker, admin: Admin, quota: str, works: list[Callable[[str], None]]
) -> None:
    admin.alter_quotas({QuotaEntity(client_id=name): {quota: RATE} for name in NAMES})
    with ThreadPoolExecutor(3) as threads:
        took = list(threads.map(lambda work: timed(work, broker.bootstrap_servers), works))
    # The last request does not wait for its own pause. A busy machine may take longer, but nobody is faster.
    for name, seconds in zip(NAMES, took, strict=True):
        assert 0.9 * SECONDS - 0.1 <= seconds <= 1.1 * SECONDS + 6, (name, seconds)


def test_the_admin_clients_describe_and_alter_quotas(broker: Broker, admin: Admin) -> None:
    alice = QuotaEntity(user="alice")
    both = QuotaEntity(user="alice", client_id=QuotaEntity.DEFAULT)
    admin.alter_quotas({alice: {"producer_byte_rate": 1_000}, both: {"request_percentage": 7.5}})
    assert admin.describe_quotas() == {alice: {"producer_byte_rate": 1_000}, both: {"request_percentage": 7.5}}
    assert list(admin.describe_quotas(alice, strict=True)) == [alice]
    assert list(admin.describe_quotas(QuotaEntity(client_id=QuotaEntity.ANY))) == [both]

    async def remove() -> dict[QuotaEntity, dict[str, float]]:
        async with aio.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.alter_quotas({alice: {"producer_byte_rate": None}})
            return await admin.describe_quotas()

    assert asyncio.run(remove()) == {both: {"request_percentage": 7.5}}
    admin.alter_quotas({alice: {"producer_byte_rate": 5}}, validate_only=True)
    assert alice not in admin.describe_quotas()
    results = admin.alter_quotas(
        {alice: {"producer_byte_rate": 1.5}, QuotaEntity(user="bob"): {"producer_byte_rate": 5}}, raise_errors=False
    )
    assert isinstance(results.errors[alice], InvalidRequest)
    assert QuotaEntity(user="bob") in results


def test_wrong_arguments_are_explained(admin: Admin) -> None:
    with pytest.raises(ValueError, match="empty"):
        admin.alter_quotas({QuotaEntity(): {}})
    with pytest.raises(ValueError, match="only for describe_quotas"):
        admin.alter_quotas({QuotaEntity(user=QuotaEntity.ANY): {}})
    with pytest.raises(ValueError, match="Did you mean producer_byte_rate"):
        admin.alter_quotas({QuotaEntity(user="a"): {"producer.byte.rate": 1}})
    with pytest.raises(TypeError, match="QuotaEntity"):
        admin.alter_quotas({"alice": {"producer_byte_rate": 1}})  # type: ignore[dict-item]
    with pytest.raises(ValueError, match="cannot have a user"):
        QuotaEntity(user="a", ip="::1")
    with pytest.raises(TypeError, match="must be text"):
        QuotaEntity(user=7)  # type: ignore[arg-type]


def test_topics_are_created_at_the_rate_of_the_quota(broker: Broker, admin: Admin) -> None:
    me = QuotaEntity(client_id="creator")
    admin.alter_quotas({me: {"controller_mutation_rate": 20}})
    with Admin(bootstrap_servers=broker.bootstrap_servers, client_id="creator") as creator:
        begun = time.monotonic()
        # 40 partitions at once, and then 20 each second: the client tries again what was refused.
        creator.create_topics([NewTopic(f"new-{number}", 25) for number in range(3)])
        assert time.monotonic() - begun >= 0.45
        names = set(creator.list_topics())
        assert {"new-0", "new-1", "new-2"} <= names
    with (
        Admin(bootstrap_servers=broker.bootstrap_servers, client_id="creator", retries=0) as impatient,
        pytest.raises(ThrottlingQuotaExceeded, match="Try again in"),
    ):
        impatient.create_topics([NewTopic(f"more-{number}", 60) for number in range(2)])


async def test_our_connections_pause_as_they_are_told(broker: Broker, admin: Admin) -> None:
    admin.alter_quotas({QuotaEntity(client_id="greedy"): {"request_percentage": 0.01}})
    host, port = broker.bootstrap_servers.split(":")
    connection = await Connection.open(host, int(port), client_id="greedy")
    loop = asyncio.get_running_loop()
    pause = 0
    while not pause:
        pause = (await connection.request(ApiKey.METADATA, {"topics": None})).throttle_time
    assert not connection.writable
    begun = loop.time()
    waiting = asyncio.ensure_future(connection.request(ApiKey.METADATA, {"topics": None}))
    await asyncio.sleep(0)
    assert connection.in_flight == 0  # It has not been sent.
    await waiting
    assert loop.time() - begun >= 0.9 * pause / 1000
    await connection.close()


def test_metrics_show_who_has_to_pause() -> None:
    from urllib.request import urlopen

    config = {"quota.window.num": 2, "ottla.metrics.listener": "127.0.0.1:0"}
    with Broker(config=config) as broker, Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topics("orders")
        admin.alter_quotas({QuotaEntity(user=QuotaEntity.DEFAULT): {"producer_byte_rate": 1_000}})
        assert broker.metrics_address is not None
        host, port = broker.metrics_address
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("orders", b"x" * 3_000).get()

            def metrics() -> str:
                with urlopen(f"http://{host}:{port}/metrics") as response:
                    return str(response.read().decode())

            until(lambda: "ottla_throttled_connections 1\n" in metrics(), "a connection must pause")
            labels = '{quota="producer_byte_rate",user="ANONYMOUS",client_id=""}'
            assert f"ottla_throttled_requests_total{labels} 1\n" in metrics()
            left = next(line for line in metrics().splitlines() if line.startswith("ottla_throttled_seconds_left{"))
            assert 0 < float(left.split()[-1]) <= 2.5
