"""Helpers of the consumer tests: records to read, polling until a condition holds, members on their own threads."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from uuid import uuid4

from confluent_kafka import Producer

from ottla.clients.consumer.blocking import Consumer
from ottla.consuming.values import ConsumerRecord, RebalanceListener
from ottla.types import TopicPartition

DEADLINE = 40.0


def write(servers: str, topic: str, values: Iterable[bytes], partition: int = 0, **config: Any) -> None:
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, value, key=value, partition=partition)
    assert producer.flush(20) == 0


def numbers(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last)]


def new_group() -> str:
    return f"group-{uuid4().hex[:12]}"


def partitions(topic: str, count: int) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for number in range(count)]


def read(consumer: Consumer, count: int, timeout: float = DEADLINE) -> list[ConsumerRecord]:
    """Poll until so many records have arrived."""
    found: list[ConsumerRecord] = []
    deadline = time.monotonic() + timeout
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count} records in {timeout:g} s"
        found += consumer.poll(0.2)
    return found


def values(records: Iterable[ConsumerRecord]) -> list[bytes]:
    return [record.value for record in records]


def poll_until(consumers: Iterable[Consumer], condition: Callable[[], object], what: str) -> None:
    """Poll members in turn until a condition holds."""
    members = list(consumers)
    deadline = time.monotonic() + DEADLINE
    while not condition():
        assert time.monotonic() < deadline, f"not within {DEADLINE:g} s: {what}"
        for member in members:
            member.poll(0.02)


def sizes(*consumers: Consumer) -> list[int]:
    return sorted(len(consumer.assignment()) for consumer in consumers)


class Log(RebalanceListener):
    """Records its calls and their threads."""

    def __init__(self) -> None:
        self.events: list[tuple[str, list[int]]] = []
        self.threads: set[int] = set()

    @property
    def moved(self) -> list[tuple[str, list[int]]]:
        """The events with partitions: Kafka first assigns none of a topic that its coordinator does not know yet."""
        return [event for event in self.events if event[1]]

    def _note(self, what: str, given: Any) -> None:
        self.events.append((what, [one.partition for one in given]))
        self.threads.add(threading.get_ident())

    def on_partitions_revoked(self, partitions: Any) -> None:
        self._note("revoked", partitions)

    def on_partitions_assigned(self, partitions: Any) -> None:
        self._note("assigned", partitions)

    def on_partitions_lost(self, partitions: Any) -> None:
        self._note("lost", partitions)


class Polling(threading.Thread):
    """A member that polls on its own thread until it is stopped."""

    def __init__(self, consumer: Consumer) -> None:
        super().__init__(daemon=True)
        self.consumer = consumer
        self.seen: list[ConsumerRecord] = []
        self.stop = threading.Event()
        self.error: BaseException | None = None
        self.owned: set[TopicPartition] = set()

    def run(self) -> None:
        try:
            while not self.stop.is_set():
                self.seen += self.consumer.poll(0.05)
                self.owned = self.consumer.assignment()
        except BaseException as error:
            self.error = error

    def end(self) -> None:
        self.stop.set()
        self.join(DEADLINE)
        assert self.error is None, repr(self.error)


@contextlib.contextmanager
def polling(*consumers: Consumer) -> Iterator[list[Polling]]:
    threads = [Polling(consumer) for consumer in consumers]
    for thread in threads:
        thread.start()
    try:
        yield threads
    finally:
        for thread in threads:
            thread.stop.set()
        for thread in threads:
            thread.join(DEADLINE)
