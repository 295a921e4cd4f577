"""The asyncio producer: `ottla.aio.Producer`. The blocking one shares its core (blocking.py).

    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        future = await producer.send("orders", b"first")     # queued; waits only for metadata or memory
        metadata = await future                              # acknowledged
        metadata = await producer.send_and_wait("orders", b"second")

`send` and its future are two steps, as in aiokafka: the first holds a fast writer back while the buffer is full, the
second returns the outcome of the record. If you do not need it, ignore the future and call `flush` at the end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import TracebackType
from typing import Any, Self

from ottla.clients import habits
from ottla.clients.blocking import IllegalUse, same_loop
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.columns import ColumnsFuture
from ottla.clients.producer.batches import batch_maker
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.send import Callback, SendPath, Steps, WaitForMemory, WaitForTopic, record_of, topic_name
from ottla.clients.producer.transactions import Offsets, TransactionCalls
from ottla.config.producer import ProducerConfig
from ottla.consuming.values import ConsumerGroupMetadata
from ottla.errors import KafkaError
from ottla.producing.batch import Batch
from ottla.producing.values import EncodedBatch, RecordMetadata
from ottla.records._problems import habit_refusal
from ottla.records.builder import FastSend, RecordFuture
from ottla.suggestions import missing_methods
from ottla.types import Millis

#: How much is filled before the loop gets a turn: several batches in one turn cost little more than one.
TURN_BYTES = 128 * 1024
TURN_BATCHES = 8

HeadersLike = Mapping[str, bytes | None] | Iterable[tuple[str, bytes | None]] | None


class ProducerClosed(KafkaError):
    """The producer was closed before the record was acknowledged."""

    default_message = (
        "the producer was closed before the record was acknowledged, so it may not have been written: call "
        "flush() first, or close() without a timeout"
    )


@missing_methods(habits.PRODUCER)
class AsyncProducer:
    """Writes records to a Kafka cluster. Belongs to the event loop of its first call."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: object) -> None:
        self.config = ProducerConfig.given(config, options)
        self._fast = FastSend()
        make_batch = batch_maker(self.config.transactional_id, _must_not_block)
        self._core = ProducerCore(self.config, self._fast._lanes, make_batch)
        self._path = SendPath(self.config, self._core)
        self._transactions = TransactionCalls(self._core)
        self._fast._hash_keys = not self.config.partitioner_ignore_keys
        self._loop: asyncio.AbstractEventLoop | None = None
        self._filled = 0

    @property
    def cluster(self) -> Cluster:
        """The connection to the brokers, for requests that a producer has no method for."""
        return self._core.cluster

    async def start(self) -> None:
        """Connect to the cluster, and raise if no broker can be reached. A producer also works without it."""
        self._bind()
        await self._core.cluster.refresh(())

    def _bind(self) -> None:
        """Bind to the loop of the first call; IllegalUse on another one."""
        loop = same_loop(self._loop, "producer")
        if self._loop is None:
            self._loop = loop
            self._core.bind(loop)
            self._fast._is_fast = self._path.plain and self._core.transactions is None
            self._core.set_fast = self._set_fast

    def _set_fast(self, allowed: bool) -> None:
        self._fast._is_fast = allowed and self._path.plain

    async def __aenter__(self) -> Self:
        self._bind()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Records that were sent before an exception are delivered too. A second cancellation ends the wait.
        await self.close()

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: Millis | None = None,
        headers: HeadersLike = None,
        callback: Callback | None = None,
        # Not keyword-only, because that takes 15 % of the time of a send.
        on_delivery: object = None,
        timestamp_ms: object = None,
    ) -> RecordFuture:
        """Queue a record and return the future of its metadata.

        It waits only while the topic is unknown or the buffer is full, for at most max.block.ms. `callback` is called
        with the metadata and the error, one of them None, in the order of the records of a partition.
        """
        if on_delivery is not None or timestamp_ms is not None:
            raise TypeError(habit_refusal(on_delivery))
        future = self._fast._attempt_send(topic, value, key, partition, timestamp, headers, callback)
        if future is not None:
            return future
        self._bind()
        if self._fast._is_fast and type(value) is bytes and key is None and partition is None and not headers:
            future = self._path.send_to_next_batch(topic, value, timestamp, callback)
            if future is not None:
                await self._after_batch(future)
                return future
        self._core.check_open()
        turn = _Turn()
        steps = Steps(self._path.steps(record_of(topic, value, key, partition, timestamp, headers), callback, turn))
        if steps.wait is not None:
            await self._finish(steps, topic, turn)
        if steps.filled:
            await self._after_batch(steps.future)
        return steps.future

    async def _after_batch(self, future: RecordFuture) -> None:
        """A batch was started: if enough are full, let the loop send them before the next records."""
        batch: Batch = future.batch  # type: ignore[assignment]
        self._filled += max(batch.memory, TURN_BYTES // TURN_BATCHES)
        if self._filled >= TURN_BYTES:
            self._filled = 0
            await asyncio.sleep(0)

    async def _finish(self, steps: Steps, topic: str, turn: _Turn) -> None:
        while steps.wait is not None:
            try:
                await self._wait(steps.wait, topic, turn)
            except Exception as error:
                steps.fail(error)
            else:
                steps.go_on()

    async def _wait(self, wait: WaitForTopic | WaitForMemory, topic: str, turn: _Turn) -> None:
        left = max(wait.deadline - time.monotonic(), 0)
        if isinstance(wait, WaitForTopic):
            await self._core.topics.wait_for(wait.topic, left)
            return
        try:
            async with asyncio.timeout(left):
                await turn.woken
        except TimeoutError:
            raise self._path.memory_ran_out(wait, topic) from None
        except asyncio.CancelledError:
            self._core.appender.give_up(wait.ticket)
            raise

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        partition: int | None = None,
        timestamp: Millis | None = None,
        headers: HeadersLike = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged."""
        metadata: RecordMetadata = await (await self.send(topic, value, key, partition, timestamp, headers))
        return metadata

    async def send_batch(self, encoded: EncodedBatch) -> RecordFuture:
        """Queue a batch of encoded records; the future is that of its first record."""
        self._bind()
        turn = _Turn()
        steps = Steps(self._path.batch_steps(encoded, turn))
        await self._finish(steps, encoded.topic_partition.topic, turn)
        await asyncio.sleep(0)
        return steps.future

    async def send_arrow(self, topic: str, data: Any) -> ColumnsFuture:
        """Queue all rows of a table and return one future for them, with counts and offsets by partition.

        `data` is a pyarrow table, batch or reader, a pandas or polars frame, or anything else with
        ``__arrow_c_stream__``. It has a column `value` (bytes or text, null for a tombstone) and may have `key`,
        `timestamp` (a time, or milliseconds), `headers` (list<struct<key: string, value: binary>>) and `partition`.
        Rows with a key go where `send` sends them. Serializers and interceptors are not called. It waits while
        the buffer is full, and briefly when brokers are almost as fast. If a row cannot be sent, nothing of the table
        is sent. A later error has the future of what was queued as `sent`. In both cases an open transaction must be
        aborted. Needs ``ottla[arrow]``.
        """
        self._bind()
        self._core.check_open()
        topic = topic_name(topic)
        future = ColumnsFuture(topic)
        try:
            count = len(await self.partitions_for(topic))
            for payload in self._path.columns(topic, data, count):
                future.add(payload, await self.send_batch(payload))
                await future.pace_async()
        except BaseException as error:
            self._path.table_failed(error, future)
            raise
        return future

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything that waits, and return when all of it is acknowledged or has failed.

        TimeoutError after `timeout` seconds.
        """
        self._bind()
        async with asyncio.timeout(timeout):
            await self._core.flush()

    async def partitions_for(self, topic: str) -> set[int]:
        """The partitions of a topic, fetched from the cluster if they are not known yet."""
        topic = topic_name(topic)
        self._bind()
        if self._core.topics.lanes_of(topic) is None:
            await self._core.topics.wait_for(topic, self.config.max_block_ms / 1000)
        return self._core.topics.partitions_of(topic)

    async def init_transactions(self) -> None:
        """Take over the transactional.id: fence another producer that uses it, and abort what it left open.

        Call it once, before the first transaction. This and the methods below wait for at most max.block.ms. Their
        errors have a `remedy`, which is "retry", "abort" or "stop", and a message that says how.
        """
        self._bind()
        await self._transactions.init()

    def begin_transaction(self) -> None:
        """Start a transaction for the following records. `async with producer.transaction():` also ends it."""
        self._bind()
        self._transactions.begin()

    async def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: ConsumerGroupMetadata) -> None:
        """Commit offsets of a consumer's group (the next ones to read) if and only if the transaction is committed."""
        self._bind()
        await self._transactions.send_offsets(offsets, group_metadata)

    async def commit_transaction(self) -> None:
        """Send what waits, and commit. When this returns, the whole transaction is visible."""
        self._bind()
        await self._transactions.commit()

    async def abort_transaction(self) -> None:
        """Drop what waits, and abort. When this returns, nothing of the transaction is visible."""
        self._bind()
        await self._transactions.abort()

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Self]:
        """A transaction: committed at the end of the block, aborted after an exception."""
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            await self._transactions.leave(error)
            raise
        await self._transactions.leave(None)

    def metrics(self) -> dict[str, float]:
        """Metrics of the producer, with Kafka's names."""
        return self._core.metrics()

    async def close(self, timeout: float | None = None) -> None:
        """Wait until everything is sent, for at most `timeout` seconds; unacknowledged records fail then.

        Without a timeout that takes no longer than delivery.timeout.ms. An open transaction is aborted first. The end
        of a ``with`` block closes too, also after an exception.
        """
        self._bind()
        self._fast._is_fast = False
        try:
            await self._transactions.close(timeout, ProducerClosed())
        finally:
            self._path.close()

    stop = close


class _Turn:
    """Wakes a coroutine that waits for memory."""

    woken: asyncio.Future[None]

    def __call__(self) -> Callable[[], object]:
        loop = asyncio.get_running_loop()
        self.woken = loop.create_future()
        return partial(loop.call_soon_threadsafe, self._wake, self.woken)

    def _wake(self, woken: asyncio.Future[None]) -> None:
        if not woken.done():
            woken.set_result(None)


def _must_not_block() -> None:
    raise IllegalUse("the record is not acknowledged yet: await the future instead of calling result()")
