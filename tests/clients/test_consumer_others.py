"""Our members in one group with members of other libraries: they share partitions, and nothing is lost or repeated."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.clients.consumer.blocking import Consumer

from .consumer_scenes import new_group, numbers, polling, write

FAST = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}


class Other(threading.Thread):
    """A member of another library that polls on its own thread."""

    def __init__(self, servers: str, group: str, topic: str, strategy: str) -> None:
        super().__init__(daemon=True)
        self.servers, self.group, self.topic, self.strategy = servers, group, topic, strategy
        self.owned: set[int] = set()
        self.seen: list[tuple[int, int]] = []
        self.stop = threading.Event()
        self.start()

    def options(self) -> dict[str, Any]:
        times = {"session_timeout_ms": 6000, "heartbeat_interval_ms": 200}
        return {"bootstrap_servers": self.servers, "group_id": self.group, "auto_offset_reset": "earliest", **times}


class Confluent(Other):
    def run(self) -> None:
        from confluent_kafka import Consumer as Theirs

        consumer = Theirs(
            {
                "bootstrap.servers": self.servers,
                "group.id": self.group,
                "auto.offset.reset": "earliest",
                "partition.assignment.strategy": self.strategy,
                "session.timeout.ms": 6000,
                "heartbeat.interval.ms": 200,
            }
        )
        consumer.subscribe([self.topic])
        while not self.stop.is_set():
            message = consumer.poll(0.05)
            if message is not None and message.error() is None:
                self.seen.append((message.partition(), message.offset()))
            self.owned = {one.partition for one in consumer.assignment()}
        consumer.close()


class KafkaPython(Other):
    def run(self) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.range import RangePartitionAssignor

        consumer = KafkaConsumer(self.topic, **self.options(), partition_assignment_strategy=[RangePartitionAssignor])
        while not self.stop.is_set():
            for records in consumer.poll(timeout_ms=50).values():
                self.seen += [(record.partition, record.offset) for record in records]
            self.owned = {one.partition for one in consumer.assignment()}
        consumer.close()


class Aiokafka(Other):
    def run(self) -> None:
        asyncio.run(self._run())

    async def _run(self) -> None:
        from aiokafka import AIOKafkaConsumer
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor

        consumer = AIOKafkaConsumer(
            self.topic, **self.options(), partition_assignment_strategy=[RangePartitionAssignor]
        )
        await consumer.start()
        while not self.stop.is_set():
            for records in (await consumer.getmany(timeout_ms=50)).values():
                self.seen += [(record.partition, record.offset) for record in records]
            self.owned = {one.partition for one in consumer.assignment()}
        await consumer.stop()


@pytest.fixture
def ours(bootstrap_servers: str) -> Iterator[Callable[..., Consumer]]:
    made: list[Consumer] = []

    def make(group: str, strategy: str) -> Consumer:
        settings = {**FAST, "auto_offset_reset": "earliest", "partition_assignment_strategy": strategy}
        made.append(Consumer(bootstrap_servers=bootstrap_servers, group_id=group, **settings))
        return made[-1]

    yield make
    for one in made:
        one.close()


def wait(condition: Callable[[], object], what: str, timeout: float = 40.0) -> None:
    deadline, gate = time.monotonic() + timeout, threading.Event()
    while not condition():
        assert time.monotonic() < deadline, what
        gate.wait(0.02)


@pytest.mark.parametrize(
    ("kind", "strategy"),
    [(Confluent, "range"), (Confluent, "cooperative-sticky"), (KafkaPython, "range"), (Aiokafka, "range")],
)
def test_one_group_with_another_library(
    bootstrap_servers: str, make_topic: Any, ours: Any, kind: type[Other], strategy: str
) -> None:
    topic, group = make_topic(4), new_group()
    member = ours(group, strategy)
    member.subscribe([topic])
    with polling(member) as (mine,):
        wait(lambda: len(mine.owned) == 4, "we have all")
        theirs = kind(bootstrap_servers, group, topic, strategy)
        try:
            wait(lambda: len(mine.owned) == 2 and len(theirs.owned) == 2, "two each")
            for number in range(4):
                write(bootstrap_servers, topic, numbers(0, 25), number)
            wait(lambda: len(mine.seen) + len(theirs.seen) >= 100, "everything is read")
        finally:
            theirs.stop.set()
            theirs.join(20)
        wait(lambda: len(mine.owned) == 4, "we have all again")
        for number in range(4):
            write(bootstrap_servers, topic, numbers(25, 30), number)
        wait(lambda: len(mine.seen) + len(theirs.seen) >= 120, "the rest is read")
        assert mine.error is None
    seen = [(record.partition, record.offset) for record in mine.seen] + theirs.seen
    assert len(seen) == len(set(seen)) == 120
