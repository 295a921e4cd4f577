"""Helpers of the producer tests: read what a topic contains, and wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from ottla.clients.producer.blocking import Producer
from ottla.producing.values import View

DEADLINE = 20.0


def stored(servers: str, topic: str, partitions: int = 1) -> dict[int, list[Any]]:
    """Everything in a topic, partition by partition, as librdkafka reads it."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "reader", "enable.auto.commit": False})
    try:
        keys = [TopicPartition(topic, number, 0) for number in range(partitions)]
        ends = {key.partition: consumer.get_watermark_offsets(key, 10)[1] for key in keys}
        consumer.assign(keys)
        found: dict[int, list[Any]] = {number: [] for number in range(partitions)}
        deadline = time.monotonic() + DEADLINE
        while any(len(found[number]) < end for number, end in ends.items()):
            assert time.monotonic() < deadline, f"not all of {ends} in {DEADLINE:g} s"
            for message in consumer.consume(1_000, 0.1):
                assert message.error() is None, message.error()
                found[message.partition()].append(message)
        return found
    finally:
        consumer.close()


@contextlib.contextmanager
def without_leaders(producer: Producer) -> Iterator[None]:
    """The producer knows no leader, and learns none, until the block ends."""
    topics = producer._core.topics
    view, topics.view = topics.view, View()
    topics._refreshing = asyncio.Future(loop=producer._thread.loop)  # type: ignore[assignment]
    try:
        yield
    finally:
        topics._refreshing = None
        topics.view = view
        producer._core.wake()


def stored_values(servers: str, topic: str, partitions: int = 1) -> dict[int, list[bytes]]:
    return {number: [each.value() for each in found] for number, found in stored(servers, topic, partitions).items()}
