"""Features of librdkafka only: incremental assignment, metadata of all topics, statistics, small requests."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from .conftest import MakeTopic
from .waiting import DEADLINE, until


@pytest.fixture
def consumer(bootstrap_servers: str) -> Iterator[Consumer]:
    made = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.auto.commit": False, "log_level": 2}
    )
    yield made
    made.close()


def produce(bootstrap_servers: str, topic: str, values: list[bytes], partition: int = 0, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers, **{k.replace("_", "."): v for k, v in config.items()}})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(DEADLINE) == 0


def collect(consumer: Consumer, count: int) -> list[tuple[int, bytes | None]]:
    found: list[tuple[int, bytes | None]] = []
    deadline = time.monotonic() + DEADLINE
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count, 0.5):
            assert message.error() is None, message.error()
            found.append((message.partition() or 0, message.value()))
    return found


def test_metadata_of_the_cluster(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    metadata = admin.list_topics(timeout=DEADLINE)
    assert metadata.cluster_id
    assert metadata.controller_id in metadata.brokers
    assert set(metadata.topics[topic].partitions) == {0, 1, 2}
    one = admin.list_topics(topic, timeout=DEADLINE)
    assert list(one.topics) == [topic]


def test_partitions_assigned_one_by_one(bootstrap_servers: str, consumer: Consumer, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    for partition in (0, 1):
        produce(bootstrap_servers, topic, [b"a", b"b"], partition)
    consumer.incremental_assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert collect(consumer, 2) == [(0, b"a"), (0, b"b")]
    consumer.incremental_assign([TopicPartition(topic, 1, OFFSET_BEGINNING)])
    assert collect(consumer, 2) == [(1, b"a"), (1, b"b")]
    consumer.incremental_unassign([TopicPartition(topic, 0)])
    produce(bootstrap_servers, topic, [b"not read"], 0)
    produce(bootstrap_servers, topic, [b"c"], 1)
    assert collect(consumer, 1) == [(1, b"c")]


def test_many_small_requests_in_flight(bootstrap_servers: str, consumer: Consumer, make_topic: MakeTopic) -> None:
    """Without idempotence, one record per request and 100 requests in flight: in order if none fails."""
    topic = make_topic()
    values = [b"%d" % number for number in range(1_000)]
    produce(bootstrap_servers, topic, values, batch_num_messages=1, max_in_flight=100, linger_ms=0)
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    assert [value for _, value in collect(consumer, 1_000)] == values


def test_statistics_know_the_broker(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    told: list[dict[str, Any]] = []
    topic = make_topic()
    config = {"bootstrap.servers": bootstrap_servers, "statistics.interval.ms": 50}
    producer = Producer({**config, "stats_cb": lambda text: told.append(json.loads(text))})
    producer.produce(topic, b"value")

    def is_up() -> bool:
        producer.poll(0.05)
        return any(broker["state"] == "UP" for stats in told for broker in stats["brokers"].values())

    until(is_up, "the statistics show a connected broker")
    assert producer.flush(DEADLINE) == 0


def test_the_end_of_a_partition_is_told(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    produce(bootstrap_servers, topic, [b"a", b"b"])
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "enable.partition.eof": True}
    made = Consumer(config)
    made.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    messages: list[Message] = []
    while len(messages) < 3:
        message = made.poll(DEADLINE)
        assert message is not None
        messages.append(message)
    errors = [message.error() for message in messages]
    made.close()
    assert errors[:2] == [None, None]
    assert errors[2] is not None
    assert errors[2].name() == "_PARTITION_EOF"
    assert messages[2].offset() == 2
