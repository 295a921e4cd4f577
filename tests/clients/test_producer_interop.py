"""Our producer with the consumers of other libraries, and the same partitions as theirs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioTopicPartition
from confluent_kafka import Producer as ConfluentProducer
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaTopicPartition

from ottla.clients.producer.blocking import Producer
from ottla.producing.partitioning import partition_for_key

from .conftest import MakeTopic
from .producer_scenes import stored

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LEVELS: dict[str, Any] = {"gzip": 9, "lz4": 12, "zstd": 7}
WHO = (b"ours", b"theirs")
TIME = 1_600_000_000_000
RECORDS: list[tuple[bytes | None, bytes | None, list[tuple[str, bytes]]]] = [
    (b"key", b"value", [("a", b"1"), ("b", b"")]),
    (None, b"x" * 3_000, []),
    (b"gone", None, []),
    (None, b"", []),
]


def write(servers: str, topic: str, codec: str) -> None:
    with Producer(bootstrap_servers=servers, compression_type=codec, linger_ms=20) as producer:
        for number, (key, value, headers) in enumerate(RECORDS):
            producer.send(topic, value, key, headers=headers, timestamp=TIME + number)


def expected() -> list[tuple[Any, ...]]:
    return [(key, value, headers, TIME + number) for number, (key, value, headers) in enumerate(RECORDS)]


@pytest.mark.parametrize("codec", CODECS)
def test_confluent_reads_it(bootstrap_servers: str, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic()
    write(bootstrap_servers, topic, codec)
    found = stored(bootstrap_servers, topic)[0]
    assert [(each.key(), each.value(), each.headers() or [], each.timestamp()[1]) for each in found] == expected()


def test_kafka_python_reads_it(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for codec in CODECS:
        write(bootstrap_servers, topic, codec)
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    try:
        consumer.assign([KafkaTopicPartition(topic, 0)])
        found = [next(consumer) for _ in range(len(CODECS) * len(RECORDS))]
    finally:
        consumer.close()
    assert [(each.key, each.value, list(each.headers), each.timestamp) for each in found] == expected() * len(CODECS)


def test_aiokafka_reads_it(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for codec in CODECS:
        write(bootstrap_servers, topic, codec)

    async def read() -> list[Any]:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        try:
            consumer.assign([AioTopicPartition(topic, 0)])
            return [await asyncio.wait_for(consumer.getone(), 20) for _ in range(len(CODECS) * len(RECORDS))]
        finally:
            await consumer.stop()

    found = asyncio.run(read())
    assert [(each.key, each.value, list(each.headers), each.timestamp) for each in found] == expected() * len(CODECS)


@pytest.mark.parametrize("codec", LEVELS)
def test_levels_are_used(bootstrap_servers: str, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic()
    config: dict[str, Any] = {"compression_type": codec, f"compression_{codec}_level": LEVELS[codec]}
    with Producer(bootstrap_servers=bootstrap_servers, **config) as producer:
        producer.send(topic, b"x" * 1_000)
    assert [each.value() for each in stored(bootstrap_servers, topic)[0]] == [b"x" * 1_000]


def test_keys_go_where_the_java_hash_sends_them(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(7)
    keys = [b"", b"a", b"key", b"customer-17", bytes(range(50)), "ключ".encode()]
    theirs = ConfluentProducer({"bootstrap.servers": bootstrap_servers, "partitioner": "murmur2_random"})
    for key in keys:
        theirs.produce(topic, b"theirs", key=key)
    theirs.flush(20)
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        ours = {key: producer.send(topic, b"ours", key=key).result(30).partition for key in keys}
    assert ours == {key: partition_for_key(key, 7) for key in keys}
    for messages in stored(bootstrap_servers, topic, 7).values():
        # librdkafka treats an empty key as none.
        by_whom = {who: sorted(each.key() for each in messages if each.value() == who and each.key()) for who in WHO}
        assert by_whom[b"ours"] == by_whom[b"theirs"]
