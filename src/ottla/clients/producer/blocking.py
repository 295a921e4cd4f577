"""The blocking producer: `ottla.Producer`. Any number of threads may share one.

    with Producer(bootstrap_servers="localhost:9092") as producer:
        future = producer.send("orders", b"first", key=b"customer-1")
        print(future.result(timeout=10).offset)

`send` appends to the open batch of its partition on the caller's thread; the event loop in the producer's own
thread does the rest. send.py and core.py have the logic.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from ottla.clients import habits
from ottla.clients.blocking import LoopThread, copy_docs
from ottla.clients.columns import ColumnsFuture
from ottla.clients.producer.asynchronous import AsyncProducer, ProducerClosed
from ottla.clients.producer.batches import batch_maker
from ottla.clients.producer.core import ProducerCore
from ottla.clients.producer.send import Callback, SendPath, Steps, WaitForMemory, WaitForTopic, record_of, topic_name
from ottla.clients.producer.transactions import Offsets, TransactionCalls
from ottla.config.producer import ProducerConfig
from ottla.consuming.values import ConsumerGroupMetadata
from ottla.producing.values import EncodedBatch
from ottla.records.builder import FastSend, RecordFuture
from ottla.suggestions import missing_methods
from ottla.types import Millis

#: How long closing the connections may take.
_END_SECONDS = 5.0


@missing_methods(habits.PRODUCER)
class Producer(FastSend):
    """Writes records to a Kafka cluster.

    `send(topic, value=None, key=None, partition=None, timestamp=None, headers=None, callback=None)` returns a future
    at once (`result(timeout)` or `get(timeout)`, `add_callback`, `add_done_callback`). It waits only while the topic is
    unknown or the buffer is full, for at most max.block.ms. `callback` is called with the metadata and the error, one
    of them None, in the producer's thread and in the order of the records of a partition.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: object) -> None:
        super().__init__()
        self.config = ProducerConfig.given(config, options)
        self._thread = LoopThread("producer")
        try:
            make_batch = batch_maker(self.config.transactional_id, self._thread.check, self._wake)
            self._core = ProducerCore(self.config, self._lanes, make_batch)
            self._path = SendPath(self.config, self._core)
            self._transactions = TransactionCalls(self._core)
            self._thread.call(self._bind())
        except BaseException:
            self._thread.stop()
            raise
        self._hash_keys = not self.config.partitioner_ignore_keys
        self._is_fast = self._path.plain and self._core.transactions is None
        self._core.set_fast = self._set_fast
        self._process = os.getpid()
        _alive.add(self)

    def _set_fast(self, allowed: bool) -> None:
        self._is_fast = allowed and self._path.plain

    def _wake(self) -> None:
        self._core.wake()

    async def _bind(self) -> None:
        self._core.bind(asyncio.get_running_loop())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # Records that were sent before an exception are delivered too. A second Ctrl-C ends the wait.
        self.close()

    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        partition: int | None,
        timestamp: Millis | None,
        headers: Any,
        callback: Callback | None,
    ) -> RecordFuture:
        if self._is_fast and type(value) is bytes and key is None and partition is None and not headers:
            future = self._path.send_to_next_batch(topic, value, timestamp, callback)
            if future is not None:
                return future
        self._check()
        turn = _Turn()
        record = record_of(topic, value, key, partition, timestamp, headers)
        return self._done(Steps(self._path.steps(record, callback, turn)), topic, turn)

    def send_batch(self, encoded: EncodedBatch) -> RecordFuture:
        self._check()
        turn = _Turn()
        return self._done(Steps(self._path.batch_steps(encoded, turn)), encoded.topic_partition.topic, turn)

    def send_arrow(self, topic: str, data: Any) -> ColumnsFuture:
        self._check()
        topic = topic_name(topic)
        future = ColumnsFuture(topic)
        try:
            count = len(self.partitions_for(topic))
            for payload in self._path.columns(topic, data, count):
                future.add(payload, self.send_batch(payload))
                if not self._core.on_loop:
                    future.pace()
        except BaseException as error:
            self._path.table_failed(error, future)
            raise
        return future

    def _check(self) -> None:
        """A callback may send too, if that needs no wait."""
        self._core.check_open()
        if not self._core.on_loop:
            self._thread.check()

    def _done(self, steps: Steps, topic: str, turn: _Turn) -> RecordFuture:
        while steps.wait is not None:
            try:
                self._wait(steps.wait, topic, turn)
            except Exception as error:
                steps.fail(error)
            else:
                steps.go_on()
        return steps.future

    def _wait(self, wait: WaitForTopic | WaitForMemory, topic: str, turn: _Turn) -> None:
        left = max(wait.deadline - time.monotonic(), 0)
        if isinstance(wait, WaitForTopic):
            self._thread.call(self._core.topics.wait_for(wait.topic, left))
            return
        try:
            self._thread.check()
            in_time = turn.woken.wait(left)
        except BaseException:
            self._core.appender.give_up(wait.ticket)
            raise
        if not in_time:
            raise self._path.memory_ran_out(wait, topic)

    def flush(self, timeout: float | None = None) -> None:
        self._thread.call(self._flush(timeout))

    async def _flush(self, timeout: float | None) -> None:
        async with asyncio.timeout(timeout):
            await self._core.flush()

    def partitions_for(self, topic: str) -> set[int]:
        topic = topic_name(topic)
        if self._core.topics.lanes_of(topic) is None:
            self._thread.call(self._core.topics.wait_for(topic, self.config.max_block_ms / 1000))
        return self._core.topics.partitions_of(topic)

    def init_transactions(self) -> None:
        self._thread.call(self._transactions.init())

    def begin_transaction(self) -> None:
        """Start a transaction for the following records. `with producer.transaction():` also ends it."""
        self._thread.check()
        self._transactions.begin()

    def send_offsets_to_transaction(self, offsets: Offsets, group_metadata: ConsumerGroupMetadata) -> None:
        self._thread.call(self._transactions.send_offsets(offsets, group_metadata))

    def commit_transaction(self) -> None:
        self._thread.call(self._transactions.commit())

    def abort_transaction(self) -> None:
        self._thread.call(self._transactions.abort())

    @contextmanager
    def transaction(self) -> Iterator[Self]:
        self.begin_transaction()
        try:
            yield self
        except BaseException as error:
            self._thread.call(self._transactions.leave(error))
            raise
        self._thread.call(self._transactions.leave(None))

    def metrics(self) -> dict[str, float]:
        return self._core.metrics()

    def close(self, timeout: float | None = None) -> None:
        if self._core.closed or os.getpid() != self._process:
            return
        self._thread.check()
        self._is_fast = False
        ended = threading.Event()
        try:
            self._thread.call(self._close(timeout, ended))
        finally:
            # An interrupt ends the wait for records, but connections are always closed before the loop.
            ended.wait(_END_SECONDS)
            self._thread.stop()
            self._path.close()

    async def _close(self, timeout: float | None, ended: threading.Event) -> None:
        try:
            await self._transactions.close(timeout, ProducerClosed())
        finally:
            ended.set()


copy_docs(AsyncProducer, Producer)


class _Turn:
    """Wakes a thread that waits for memory."""

    woken: threading.Event

    def __call__(self) -> Callable[[], object]:
        self.woken = threading.Event()
        return self.woken.set


_alive: weakref.WeakSet[Producer] = weakref.WeakSet()


def _after_fork() -> None:
    """Disable the fast path in a child process, where the producer's thread does not exist: the slow path says so."""
    for producer in list(_alive):
        producer._is_fast = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
