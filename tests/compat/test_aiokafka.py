"""Features of aiokafka only: hand-built batches, single records, asynchronous iteration, seeking to both ends."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from .clients.aio import LoopThread
from .conftest import MakeTopic

run = LoopThread.run
Scenario = Coroutine[Any, Any, None]


def test_a_batch_built_by_hand(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    async def scenario(topic: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="gzip") as producer:
            batch = producer.create_batch()
            for number in range(10):
                batch.append(key=b"k", value=b"%d" % number, timestamp=None)
            batch.close()
            delivered = await (await producer.send_batch(batch, topic, partition=0))
            assert delivered.offset == 0
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            values = [(await consumer.getone()).value for _ in range(10)]
        assert values == [b"%d" % number for number in range(10)]

    run(scenario(make_topic()))


def test_asynchronous_iteration(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    async def scenario(topic: str) -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True) as producer:
            for number in range(5):
                await producer.send_and_wait(topic, b"%d" % number)
        values = []
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            async for record in consumer:
                values.append(record.value)
                if len(values) == 5:
                    break
        assert values == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario(make_topic()))


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_both_ends(bootstrap_servers: str, make_topic: MakeTopic, isolation_level: str) -> None:
    async def scenario(topic: str) -> None:
        partition = TopicPartition(topic, 0)
        async with (
            AIOKafkaProducer(bootstrap_servers=bootstrap_servers) as producer,
            AIOKafkaConsumer(bootstrap_servers=bootstrap_servers, isolation_level=isolation_level) as consumer,
        ):
            await producer.send_and_wait(topic, b"first")
            consumer.assign([partition])
            await consumer.seek_to_end(partition)
            assert await consumer.position(partition) == 1
            await producer.send_and_wait(topic, b"second")
            assert (await consumer.getone()).value == b"second"
            await consumer.seek_to_beginning(partition)
            assert (await consumer.getone()).value == b"first"
            assert consumer.highwater(partition) == 2
            assert consumer.last_stable_offset(partition) == 2

    run(scenario(make_topic()))
