"""The load of ``ottla perf``: producers send numbered records, and a consumer group checks each one.

A record contains its producer, its number within that producer and partition, and its time. So the consumers detect
lost, duplicate and out-of-order records, and measure the latency.
"""

from __future__ import annotations

import asyncio
import os
import struct
import time
from collections import Counter
from collections.abc import Callable, Iterable

from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.consuming.values import ConsumerRecord
from ottla.producing.values import RecordMetadata

CHUNK = 100
BATCH_BYTES = 256 * 1024
BUFFER_BYTES = 8 * 1024 * 1024
_STAMP = struct.Struct(">HIQ")


class Ledger:
    """The produced and received records."""

    def __init__(self, record_bytes: int) -> None:
        self.record_bytes = record_bytes
        self.produced = 0
        self.consumed = 0
        self.problems: Counter[str] = Counter()
        self.latencies: list[int] | None = None
        self._next: dict[tuple[int, int], int] = {}

    @property
    def lag(self) -> int:
        return self.produced - self.consumed

    def received(self, partition: int, records: Iterable[ConsumerRecord], now_ns: int) -> None:
        expected, latencies = self._next, self.latencies
        for record in records:
            producer, number, sent_ns = _STAMP.unpack_from(record.value or b"")
            due = expected.get((partition, producer), 0)
            if number != due:
                self.problems["lost or late" if number > due else "duplicate or out of order"] += 1
            expected[partition, producer] = number + 1
            self.consumed += 1
            if latencies is not None:
                latencies.append(now_ns - sent_ns)


class NumberedProducer:
    """Write chunks of numbered records, round-robin over the partitions."""

    def __init__(self, number: int, topic: str, producer: AsyncProducer, partitions: int, ledger: Ledger) -> None:
        self._number = number
        self._topic = topic
        self._producer = producer
        self._partitions = partitions
        self._ledger = ledger
        self._chunks = number
        self._failure: Exception | None = None
        self._sent = [0] * partitions
        self._filler = os.urandom(max(0, ledger.record_bytes - _STAMP.size))

    async def chunk(self, records: int) -> None:
        partition = self._chunks % self._partitions
        self._chunks += 1
        now_ns = time.time_ns()
        first = self._sent[partition]
        for number in range(first, first + records):
            value = _STAMP.pack(self._number, number, now_ns) + self._filler
            await self._producer.send(self._topic, value, None, partition, now_ns // 1_000_000, None, self._on_delivery)
        self._sent[partition] = first + records
        self._ledger.produced += records
        self._raise_failure()

    async def flush(self) -> None:
        await self._producer.flush()
        self._raise_failure()

    def _on_delivery(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self._failure = self._failure or error

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


async def full_speed(producer: NumberedProducer, keep_going: Callable[[], bool]) -> None:
    """Send as fast as the broker accepts."""
    while keep_going():
        await producer.chunk(CHUNK)
    await producer.flush()


async def steady(producer: NumberedProducer, per_second: int, seconds: float) -> None:
    """Send single records at an even rate; catch up when behind."""
    begin = time.monotonic()
    for number in range(int(per_second * seconds)):
        await asyncio.sleep(max(0.0, begin + number / per_second - time.monotonic()))
        await producer.chunk(1)
    await producer.flush()


class Member:
    """A consumer of the group."""

    def __init__(self, consumer: AsyncConsumer, ledger: Ledger) -> None:
        self._consumer = consumer
        self._ledger = ledger

    @property
    def partitions(self) -> int:
        return len(self._consumer.assignment())

    async def run(self, topic: str) -> None:
        """Read the assigned partitions until cancelled."""
        await self._consumer.subscribe([topic])
        while True:
            for key, records in (await self._consumer.poll(1.0, max_records=10_000)).by_partition().items():
                self._ledger.received(key.partition, records, time.time_ns())
            await asyncio.sleep(0)
