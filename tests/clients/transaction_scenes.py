"""Helpers of the transaction tests: what read_committed consumers see, and groups to commit offsets for."""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import OFFSET_BEGINNING
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition

from ottla import Consumer, TopicPartition

DEADLINE = 20.0


def committed(servers: str, topic: str, count: int, partitions: int = 1) -> list[bytes]:
    """What our consumer and librdkafka's see of a topic with read_committed: the same, sorted."""
    ours = sorted(committed_by_ours(servers, topic, partitions))
    theirs = sorted(committed_by_confluent(servers, topic, count, partitions))
    assert ours == theirs
    return ours


def committed_by_ours(servers: str, topic: str, partitions: int = 1) -> list[bytes]:
    """Up to the last stable offset."""
    keys = [TopicPartition(topic, number) for number in range(partitions)]
    with Consumer(
        bootstrap_servers=servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as consumer:
        consumer.assign(keys)
        ends = consumer.end_offsets(keys)
        found: list[bytes] = []
        deadline = time.monotonic() + DEADLINE
        while any(consumer.position(key) < ends[key] for key in keys):
            assert time.monotonic() < deadline
            found += [record.value or b"" for record in consumer.poll(0.2)]
        return found


def committed_by_confluent(servers: str, topic: str, count: int, partitions: int = 1) -> list[bytes]:
    consumer = ConfluentConsumer(
        {"bootstrap.servers": servers, "group.id": "reader", "isolation.level": "read_committed", "log_level": 0,
         "enable.auto.commit": False, "enable.partition.eof": True, "fetch.wait.max.ms": 20}
    )  # fmt: skip
    try:
        consumer.assign([ConfluentPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        found: list[bytes] = []
        ends: set[Any] = set()
        deadline = time.monotonic() + DEADLINE
        while len(ends) < partitions or len(found) < count:
            assert time.monotonic() < deadline, found
            for message in consumer.consume(1_000, 0.1):
                if message.error():
                    ends.add(message.partition())
                else:
                    found.append(message.value())
        return found
    finally:
        consumer.close()


def values(prefix: str, count: int) -> list[bytes]:
    return sorted(b"%s-%d" % (prefix.encode(), number) for number in range(count))
