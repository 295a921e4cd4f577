"""The blocking consumer: every method of `AsyncConsumer`, with the same names and arguments, waits for its result.

    with Consumer(bootstrap_servers="localhost:9092", group_id="shop") as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            print(record.value)

Fetches and heartbeats run on an event loop in another thread. Fetched records are decoded on the caller's thread, and
listeners and callbacks run there too. A consumer is for one thread at a time; using it from two raises an error.
"""

from __future__ import annotations

import inspect
import math
import os
import threading
from collections.abc import Callable, Collection, Coroutine, Iterable, Iterator, Mapping
from functools import partial
from itertools import chain
from operator import length_hint
from re import Pattern
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from ottla.clients.blocking import IllegalUse, LoopThread, copy_docs
from ottla.clients.cluster.metadata import PartitionInfo
from ottla.clients.columns import Incoming
from ottla.clients.consumer.asynchronous import (
    DEFAULT_CLOSE_SECONDS,
    ITERATION_SECONDS,
    AsyncConsumer,
    deadline_after,
    deadline_in,
    left,
)
from ottla.clients.consumer.calls import UNSUBSCRIBED, Calls, listed, raise_first
from ottla.clients.consumer.commits import CommitCallback, Committable
from ottla.clients.consumer.core import Chore
from ottla.config.consumer import ConsumerConfig
from ottla.consuming.buffer import RawFetch
from ottla.consuming.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    RebalanceListener,
)
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class _OneThread:
    """Lets one thread in at a time, also repeatedly; others get an error instead of a wait."""

    __slots__ = ("_depth", "_lock", "_owner", "_process", "check")

    def __init__(self, check: Callable[[], None]) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._depth = 0
        self._process = os.getpid()
        self.check = check

    def __enter__(self) -> None:
        me = threading.get_ident()
        if self._owner != me:
            if os.getpid() != self._process:
                self.check()
            if not self._lock.acquire(blocking=False):
                raise IllegalUse(
                    "this Consumer is in use by another thread: a consumer is for one thread at a time. Give each "
                    "thread its own consumer (of the same group), or pass the records through a queue; only wakeup() "
                    "may be called from other threads"
                )
            self._owner = me
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = 0
            self._lock.release()


class Consumer:
    """Reads topics, alone or as a member of a group. For one thread at a time."""

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: object) -> None:
        self.config = ConsumerConfig.given(config, options)
        self._calls = Calls(self.config, unpacks_aside=False)
        self._handout, self._poller = self._calls.handout, self._calls.poller
        self._thread = LoopThread("Consumer")
        self._use = _OneThread(self._thread.check)
        self._incoming: Incoming | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ── the two threads ───────────────────────────────────────────────────────────────────────────────────────────

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the loop's thread and wait for it."""
        return self._thread.call(work)

    def _do(self, function: Callable[..., T], *arguments: Any) -> T:
        """Call a function on the loop's thread, where nothing else runs at the same time."""

        async def call() -> T:
            self._calls.engine.start()
            return function(*arguments)

        return self._thread.call(call())

    def _run(self, chore: Chore) -> None:
        try:
            result = chore.call()
            if inspect.iscoroutine(result):
                result.close()
                raise IllegalUse("a listener or callback of the blocking Consumer is a coroutine: write a function")
        finally:
            self._do(chore.finish)

    # ── what to read ──────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(
        self,
        topics: Collection[str] | None = None,
        *,
        pattern: str | Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        with self._use:
            topics = listed(topics)
            if topics == [] and pattern is None:
                self._end(UNSUBSCRIBED)
            else:
                self._do(self._calls.subscribe, topics, pattern, listener)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        with self._use:
            if wanted := listed(partitions):
                self._do(self._calls.assign, wanted)
            else:
                self._end(UNSUBSCRIBED)

    def unsubscribe(self) -> None:
        with self._use:
            self._end(UNSUBSCRIBED)

    def _end(self, reason: str, deadline: float = math.inf) -> None:
        errors: list[Exception] = []
        seconds = 0.0  # if interrupted, notify the coordinator without waiting
        try:
            for chore in self._wait(self._calls.unsubscribing(left(deadline))):
                try:
                    self._run(chore)
                except Exception as error:
                    errors.append(error)
            seconds = left(deadline)
        finally:
            self._wait(self._calls.unsubscribed(reason, seconds))
        raise_first(errors)

    def subscription(self) -> set[str]:
        with self._use:
            return self._do(self._calls.subscription)

    def assignment(self) -> set[TopicPartition]:
        with self._use:
            return self._do(self._calls.assignment)

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> ConsumerRecords:
        with self._use:
            self._thread.check()
            limit = self._handout.limit(max_records)
            records = self._poller.take_now(limit)
            if records is None:
                records = self._next(deadline_after(timeout), partial(self._handout.take, limit))
            return self._handout.finished(records)

    def _next(self, deadline: float, take: Callable[[], list[T]]) -> list[T]:
        while True:
            step = self._wait(self._poller.advance(deadline))
            if isinstance(step, Chore):
                self._run(step)
            elif not step or (found := take()):
                return found if step else []

    def __iter__(self) -> Iterator[ConsumerRecord]:
        # A chain returns records without running Python code for each.
        return chain.from_iterable(self._polls())

    def _polls(self) -> Iterator[Iterator[ConsumerRecord]]:
        handout = self._handout
        while True:
            while length_hint(handout.iterator):
                yield handout.iterator
            if records := self.poll(ITERATION_SECONDS):
                handout.iterate(records)

    def __next__(self) -> ConsumerRecord:
        """Wait for the next record; ``for record in consumer`` is faster."""
        return next(iter(self))

    def poll_arrow(self, timeout: float = 1.0, *, max_records: int | None = None) -> pa.Table:
        if self._incoming is None:
            self._incoming = Incoming()
        with self._use:
            fetched = self._take_raw(timeout, self._incoming.limit(max_records))
            table = self._incoming.table(fetched, max_records, self._calls.engine.buffer.put_back)
            self._handout.total += table.num_rows
            return table

    def _take_raw(self, timeout: float, limit: int = 0) -> list[RawFetch]:
        with self._use:
            self._thread.check()
            if (found := self._poller.take_raw_now(limit)) is not None:
                return found
            self._do(self._handout.put_back)
            return self._next(deadline_after(timeout), partial(self._handout.take_raw, limit))

    # ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, offsets: Committable | None = None, *, timeout: float | None = None) -> None:
        with self._use:
            for chore in self._wait(self._calls.committer.commit(offsets, timeout)):
                self._run(chore)

    def commit_async(self, offsets: Committable | None = None, callback: CommitCallback | None = None) -> None:
        with self._use:
            self._do(self._calls.committer.commit_async, offsets, callback)

    def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        with self._use:
            return self._wait(self._calls.committer.committed(partitions, timeout))

    # ── positions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        with self._use:
            return self._wait(self._calls.position(partition, timeout))

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        with self._use:
            self._do(self._calls.seek, partition, offset)

    def seek_to_beginning(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        with self._use:
            self._do(self._calls.seek_to_beginning, partitions)

    def seek_to_end(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        with self._use:
            self._do(self._calls.seek_to_end, partitions)

    def pause(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        with self._use:
            self._do(self._calls.pause, partitions)

    def resume(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        with self._use:
            self._do(self._calls.resume, partitions)

    def fetch_until(self, partition: TopicPartition, offset: int | None) -> None:
        """Fetch nothing from this offset on, to read a range; None removes the limit.

        Records after it that the last fetch contains are still returned:
        ``consumer.fetch_until(TopicPartition("orders", 0), 500)``.
        """
        with self._use:
            self._do(self._calls.fetch_until, partition, offset)

    def paused(self) -> set[TopicPartition]:
        with self._use:
            return self._do(self._calls.paused)

    def current_lag(self, partition: TopicPartition) -> int | None:
        with self._use:
            return self._do(self._calls.current_lag, partition)

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        with self._use:
            return self._wait(self._calls.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        with self._use:
            return self._wait(self._calls.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, Millis], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        with self._use:
            return self._wait(self._calls.offsets_for_times(timestamps, timeout))

    def partitions_for(self, topic: str, *, timeout: float | None = None) -> list[PartitionInfo]:
        with self._use:
            return self._wait(self._calls.partitions_for(topic, timeout))

    def list_topics(self, *, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        with self._use:
            return self._wait(self._calls.list_topics(timeout))

    def group_metadata(self) -> ConsumerGroupMetadata:
        with self._use:
            return self._do(self._calls.group_metadata)

    def metrics(self) -> dict[str, float]:
        with self._use:
            return self._do(self._calls.metrics)

    def enforce_rebalance(self, reason: str = "the user asked for it") -> None:
        with self._use:
            self._do(self._calls.enforce_rebalance, reason)

    def wakeup(self) -> None:
        self._calls.waiting.wakeup()

    def close(self, timeout: float | None = DEFAULT_CLOSE_SECONDS) -> None:
        if self._thread.stopped or self._calls.engine.is_forked:
            return
        with self._use:
            try:
                self._end("the consumer closed", deadline_in(timeout))
            finally:
                self._wait(self._calls.engine.close())
                self._thread.stop()
                self._handout.finisher.close()


copy_docs(AsyncConsumer, Consumer)
