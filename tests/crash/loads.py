"""Producers of three client libraries that survive every death of the broker, and a consumer that watches.

Each load is a thread. A rejected record, or a producer that gives up, is a problem in the ledger: with these timeouts,
a client must survive whatever the broker does.
"""

from __future__ import annotations

import abc
import asyncio
import logging
import random
import threading
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaProducer

from ottla.types import TopicPartition

from .ledger import UNKNOWN_OFFSET, Ledger

PATIENCE_MS = 120_000
OUTSTANDING = 400
PAUSE = 0.03
JOIN_SECONDS = 90.0


for _library in ("kafka", "aiokafka"):
    # They log every refused connection while the broker is down.
    logging.getLogger(_library).setLevel(logging.CRITICAL)


class Load(threading.Thread, abc.ABC):
    """A producer that sends bursts of numbered records to its partitions until it is stopped."""

    exactly_once = True
    """Whether every record must be in the log once. Otherwise it may be there several times."""

    def __init__(
        self, name: str, servers: str, partitions: Sequence[TopicPartition], ledger: Ledger, seed: int
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.servers = servers
        self.partitions = list(partitions)
        self.ledger = ledger
        self.rng = random.Random(f"{seed} {name}")
        self.halt = threading.Event()
        self.may_send = threading.Event()
        """Cleared while the logs are read, which would otherwise never end."""

    def run(self) -> None:
        try:
            self.produce()
        except Exception as error:
            self.ledger.problem(f"{self.name} gave up: {type(error).__name__}: {error}")

    @abc.abstractmethod
    def produce(self) -> None:
        """Send bursts until `halt` is set, then wait for the records in flight."""

    def finish(self) -> None:
        """Stop sending and wait until everything is acknowledged."""
        self.halt.set()
        self.join(JOIN_SECONDS)
        if self.is_alive():
            self.ledger.problem(f"{self.name} is not through after {JOIN_SECONDS:g} s")

    def burst(self) -> list[tuple[TopicPartition, bytes, bytes]]:
        where = self.rng.choice(self.partitions)
        return [(where, *self.ledger.next_record(self.name, where, self.rng)) for _ in range(self.rng.randint(1, 40))]

    def rest(self) -> None:
        self.halt.wait(self.rng.random() * PAUSE)

    def wants_to_send(self) -> bool:
        """Wait briefly for permission to send. Acknowledgements arrive meanwhile."""
        return not self.halt.is_set() and self.may_send.wait(PAUSE)


class ConfluentLoad(Load):
    """librdkafka, idempotent."""

    config: dict[str, Any] = {"enable.idempotence": True, "max.in.flight.requests.per.connection": 5}

    def produce(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self.servers,
                "acks": "all",
                "message.timeout.ms": PATIENCE_MS,
                "retry.backoff.ms": 20,
                "retry.backoff.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "linger.ms": 2,
                "batch.size": 4_000,
                "compression.type": self.rng.choice(["none", "lz4", "zstd", "snappy", "gzip"]),
                "log_level": 0,
                **self.config,
            }
        )
        while not self.halt.is_set():
            for where, key, value in self.burst() if self.wants_to_send() else ():
                producer.produce(where.topic, value, key, where.partition, on_delivery=self._delivered)
            producer.poll(0)
            while len(producer) > OUTSTANDING and not self.halt.is_set():
                producer.poll(0.05)
            self.rest()
        if left := producer.flush(JOIN_SECONDS):
            self.ledger.problem(f"{self.name}: {left} records are still under way")

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.ledger.problem(f"{self.name}: a record was not delivered: {error}")
            return
        where = TopicPartition(str(message.topic()), int(message.partition() or 0))
        # It has no offset if librdkafka concludes from the answer to a later batch that this one was written.
        offset = message.offset()
        self.ledger.acknowledge(message.value() or b"", where, UNKNOWN_OFFSET if offset is None else int(offset))


class PlainConfluentLoad(ConfluentLoad):
    """librdkafka without idempotence: a retry may write a record twice, but one request in flight keeps the order."""

    config = {"enable.idempotence": False, "max.in.flight.requests.per.connection": 1}
    exactly_once = False


#: The settings of kafka-python and of our own producer.
PATIENT: dict[str, Any] = {
    "acks": "all",
    "delivery_timeout_ms": PATIENCE_MS,
    "max_block_ms": PATIENCE_MS,
    "retry_backoff_ms": 20,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
    "linger_ms": 2,
    "batch_size": 4_000,
}


def send_bursts(load: Load, producer: Any) -> None:
    """Send with one of these producers, until the load is stopped."""
    slots = threading.Semaphore(OUTSTANDING)

    def delivered(value: bytes, metadata: Any) -> None:
        load.ledger.acknowledge(value, TopicPartition(metadata.topic, metadata.partition), metadata.offset)
        slots.release()

    def failed(error: BaseException) -> None:
        load.ledger.problem(f"{load.name}: a record was not delivered: {error!r}")
        slots.release()

    while not load.halt.is_set():
        for where, key, value in load.burst() if load.wants_to_send() else ():
            slots.acquire(timeout=1.0)
            future = producer.send(where.topic, value, key, partition=where.partition)
            future.add_callback(delivered, value)
            future.add_errback(failed)
        load.rest()
    producer.flush(JOIN_SECONDS)


class KafkaPythonLoad(Load):
    """kafka-python, idempotent."""

    def produce(self) -> None:
        producer = KafkaProducer(
            bootstrap_servers=self.servers,
            enable_idempotence=True,
            **PATIENT,
        )
        send_bursts(self, producer)
        producer.close(JOIN_SECONDS)


class AioKafkaLoad(Load):
    """aiokafka, idempotent."""

    def produce(self) -> None:
        asyncio.run(self._produce())

    async def _produce(self) -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=self.servers,
            acks="all",
            enable_idempotence=True,
            request_timeout_ms=PATIENCE_MS,
            retry_backoff_ms=20,
            linger_ms=2,
            max_batch_size=4_000,
        )
        await producer.start()
        under_way: set[asyncio.Task[None]] = set()
        try:
            while not self.halt.is_set():
                for where, key, value in self.burst() if self.may_send.is_set() else ():
                    future = await producer.send(where.topic, value, key, partition=where.partition)
                    task = asyncio.ensure_future(self._delivered(value, where, future))
                    under_way.add(task)
                    task.add_done_callback(under_way.discard)
                while len(under_way) > OUTSTANDING:
                    await asyncio.wait(under_way, return_when=asyncio.FIRST_COMPLETED)
                await asyncio.sleep(self.rng.random() * PAUSE)
            await asyncio.gather(*under_way)
        finally:
            await producer.stop()

    async def _delivered(self, value: bytes, where: TopicPartition, future: asyncio.Future[Any]) -> None:
        try:
            metadata = await future
        except AioKafkaError as error:
            self.ledger.problem(f"{self.name}: a record was not delivered: {error!r}")
            return
        self.ledger.acknowledge(value, where, metadata.offset)


class Watcher(threading.Thread):
    """A consumer with manual assignment that reads everything from the start, through all restarts.

    `seen` has the values of each partition by offset. A gap or a step back is a problem.
    """

    def __init__(self, servers: str, partitions: Sequence[TopicPartition], ledger: Ledger) -> None:
        super().__init__(name="watcher", daemon=True)
        self.seen: dict[TopicPartition, list[bytes]] = {where: [] for where in partitions}
        self._servers = servers
        self._ledger = ledger
        self._halt = threading.Event()

    def run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": "watcher",
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                "reconnect.backoff.ms": 10,
                "reconnect.backoff.max.ms": 100,
                "log_level": 0,
            }
        )
        consumer.assign([ConfluentPartition(where.topic, where.partition, 0) for where in self.seen])
        try:
            while not self._halt.is_set():
                for message in consumer.consume(500, 0.2):
                    self._take(message)
        except KafkaException as error:
            self._ledger.problem(f"the consumer failed: {error}")
        finally:
            consumer.close()

    def _take(self, message: Message) -> None:
        error = message.error()
        if error is not None:
            if not error.retriable() and error.code() != KafkaError._ALL_BROKERS_DOWN and error.code() > 0:
                self._ledger.problem(f"the consumer was told: {error}")
            return
        where = TopicPartition(str(message.topic()), int(message.partition() or 0))
        values = self.seen[where]
        if message.offset() != len(values):
            self._ledger.problem(f"the consumer of {where} got {message.offset()} after {len(values) - 1}")
        values.append(message.value() or b"")

    def finish(self) -> None:
        self._halt.set()
        self.join(JOIN_SECONDS)
