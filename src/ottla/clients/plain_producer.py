"""A plain producer for the command line: batches fill while earlier ones are on their way.

    add ──> one queue a partition ──> one batch in flight a partition ──> by_leader ──> next batch

One batch of a partition in flight keeps order through retries. It is not idempotent: a retry after a lost
connection may write a batch twice. The full producer (accumulator, linger, idempotence) takes over later.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ottla.clients import calls
from ottla.clients.calls import Appended
from ottla.clients.cluster import Cluster
from ottla.clients.partitioner import StickyPartitioner
from ottla.errors import InvalidPartitions, KafkaError, MessageTooLarge, RecordListTooLarge
from ottla.net.client import Connection
from ottla.records import BATCH_OVERHEAD, Compression, Headers, Record, encode_batch
from ottla.types import Millis, TopicPartition

ALL_REPLICAS = -1
STICKY_BYTES = 16 * 1024
DEFAULT_BATCH_BYTES = 512 * 1024
DEFAULT_BUFFER_BYTES = 32 * 1024 * 1024
_RECORD_OVERHEAD = 12


@dataclass(slots=True)
class _Batch:
    records: list[Record] = field(default_factory=list)
    size: int = BATCH_OVERHEAD


@dataclass(slots=True)
class _Queue:
    """What waits for one partition: batches, of which the last still grows."""

    batches: deque[_Batch] = field(default_factory=deque)
    in_flight: bool = False


class PlainProducer:
    """Writes to one topic: `add` as fast as `ready` allows, then `flush`; both raise what went wrong."""

    def __init__(
        self,
        cluster: Cluster,
        topic: str,
        *,
        acks: int = ALL_REPLICAS,
        compression: Compression = Compression.NONE,
        batch_bytes: int = DEFAULT_BATCH_BYTES,
        buffer_bytes: int = DEFAULT_BUFFER_BYTES,
        timeout_ms: Millis = 30_000,
    ) -> None:
        info = cluster.metadata.topics[topic]
        self.topic = topic
        self.acknowledged = 0
        self.partitions_used: set[int] = set()
        self._cluster = cluster
        self._acks = acks
        self._compression = compression
        self._batch_bytes = batch_bytes
        self._buffer_bytes = buffer_bytes
        self._timeout_ms = timeout_ms
        self._partitioner = StickyPartitioner(len(info.partitions), sticky_bytes=STICKY_BYTES, choose=random.choice)
        self._queues = {key.partition: _Queue() for key in info.topic_partitions}
        self._buffered = 0
        self._moved = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        timestamp: Millis,
        headers: Headers = (),
        partition: int | None = None,
    ) -> None:
        """Queue one record; nothing is sent before the next `ready` or `flush`."""
        size = _size_of(key, value, headers)
        chosen = self._partitioner.partition(key, size) if partition is None else partition
        queue = self._queues.get(chosen)
        if queue is None:
            raise InvalidPartitions(
                f"topic {self.topic} has no partition {chosen}: it has 0 to {len(self._queues) - 1}"
            )
        batch = queue.batches[-1] if queue.batches else self._next_batch(queue)
        if batch.records and batch.size + size > self._batch_bytes:
            batch = self._next_batch(queue)
        batch.records.append(Record(len(batch.records), timestamp, key, value, headers))
        batch.size += size
        self._buffered += size

    def _next_batch(self, queue: _Queue) -> _Batch:
        queue.batches.append(_Batch())
        self._buffered += BATCH_OVERHEAD
        return queue.batches[-1]

    async def ready(self) -> None:
        """Send what waits, and come back when there is room for more."""
        self._send_waiting()
        # Others get their turn even while there is room.
        await asyncio.sleep(0)
        while self._buffered > self._buffer_bytes and self._failure is None:
            await self._progress()
        self._raise_failure()

    async def flush(self) -> None:
        """Come back when every record is acknowledged."""
        self._send_waiting()
        while self._tasks and self._failure is None:
            await self._progress()
        self._raise_failure()

    async def close(self) -> None:
        """Drop what is not sent yet."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _progress(self) -> None:
        self._moved.clear()
        await self._moved.wait()

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _send_waiting(self) -> None:
        """One request a leader, with one batch of each of its partitions that has none in flight."""
        shares: dict[object, dict[TopicPartition, _Batch]] = {}
        for partition, queue in self._queues.items():
            if queue.batches and not queue.in_flight and self._failure is None:
                key = TopicPartition(self.topic, partition)
                shares.setdefault(self._cluster.leader(key), {})[key] = queue.batches.popleft()
                queue.in_flight = True
        for share in shares.values():
            task = asyncio.create_task(self._deliver(share))
            self._tasks.add(task)
            task.add_done_callback(self._delivered)

    def _delivered(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failure = self._failure or task.exception()
        if self._failure is None and not task.cancelled():
            self._send_waiting()
        self._moved.set()

    async def _deliver(self, batches: Mapping[TopicPartition, _Batch]) -> None:
        encoded = {key: encode_batch(one.records, compression=self._compression) for key, one in batches.items()}
        outcomes = await self._cluster.by_leader(encoded, self._send)
        for key, one in batches.items():
            outcome = outcomes[key]
            if isinstance(outcome, KafkaError):
                await self._refused(key, one.records, outcome)
            else:
                self.acknowledged += len(one.records)
                self.partitions_used.add(key.partition)
            self._buffered -= one.size
            self._queues[key.partition].in_flight = False

    async def _send(
        self, connection: Connection, batches: Mapping[TopicPartition, bytes]
    ) -> Mapping[TopicPartition, Appended | KafkaError]:
        return await calls.produce(self._cluster, connection, batches, acks=self._acks, timeout_ms=self._timeout_ms)

    async def _refused(self, key: TopicPartition, records: list[Record], error: KafkaError) -> None:
        """A batch that is too large for the topic goes in halves, in order, down to the record that is."""
        if not isinstance(error, MessageTooLarge | RecordListTooLarge):
            raise calls.with_partition(error, key)
        if len(records) == 1:
            size = _size_of(records[0].key, records[0].value, records[0].headers)
            raise type(error)(
                f"a record of {size:,} bytes is larger than topic {self.topic} accepts: "
                "raise max.message.bytes of the topic"
            )
        middle = len(records) // 2
        for half in (records[:middle], records[middle:]):
            renumbered = [replace(record, offset=offset) for offset, record in enumerate(half)]
            await self._deliver({key: _Batch(renumbered, 0)})


def _size_of(key: bytes | None, value: bytes | None, headers: Headers) -> int:
    size = _RECORD_OVERHEAD + len(key or b"") + len(value or b"")
    for name, content in headers:
        size += len(name) + len(content or b"") + 4
    return size
