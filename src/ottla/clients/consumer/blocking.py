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
from functools import partial, wraps
from itertools import chain
from operator import length_hint
from re import Pattern
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, Never, ParamSpec, Self, TypeVar, cast

from ottla.clients import habits
from ottla.clients.blocking import IllegalUse, LoopThread, copy_docs
from ottla.clients.columns import Incoming
from ottla.clients.consumer.asynchronous import (
    DEFAULT_CLOSE_SECONDS,
    DEFAULT_POLL_SECONDS,
    ITERATION_SECONDS,
    AsyncConsumer,
    deadline_after,
    deadline_in,
    left,
    poll_seconds,
)
from ottla.clients.consumer.calls import UNSUBSCRIBED, Calls, listed, raise_first
from ottla.clients.consumer.commits import CommitCallback, Committable
from ottla.clients.consumer.core import Chore
from ottla.config.consumer import ConsumerConfig
from ottla.consuming.buffer import RawFetch
from ottla.consuming.values import (
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    RebalanceListener,
)
from ottla.suggestions import missing_methods
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

P = ParamSpec("P")
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


def _blocking(
    method: Callable[Concatenate[AsyncConsumer, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[Consumer, P], T]:
    """A method of `AsyncConsumer` that waits for its result."""
    return cast("Callable[Concatenate[Consumer, P], T]", _on_loop(method))


def _on_loop(method: Callable[Concatenate[AsyncConsumer, P], T]) -> Callable[Concatenate[Consumer, P], T]:
    """A method of `AsyncConsumer`: that of `Calls` with the same name, called on the loop's thread."""
    name = method.__name__

    @wraps(method)
    def call(self: Consumer, *arguments: P.args, **options: P.kwargs) -> T:
        try:
            with self._use:
                return self._do(getattr(self._calls, name), *arguments, **options)  # type: ignore[no-any-return]
        except TypeError as error:
            if not str(error).startswith(f"Calls.{name}()"):
                raise
            raise TypeError(str(error).replace("Calls.", "Consumer.", 1)) from None

    return cast("Callable[Concatenate[Consumer, P], T]", call)


@missing_methods(habits.CONSUMER)
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

    def _do(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """Call a function or coroutine function on the loop's thread, where nothing else runs at the same time."""

        async def call() -> Any:
            self._calls.engine.start()
            result = function(*arguments, **options)
            return await result if inspect.iscoroutine(result) else result

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
        **others: Never,
    ) -> None:
        habits.refuse_callbacks(others)
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

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def poll(
        self, timeout: float = DEFAULT_POLL_SECONDS, *, max_records: int | None = None, timeout_ms: Millis | None = None
    ) -> ConsumerRecords:
        seconds = poll_seconds(timeout, timeout_ms)
        with self._use:
            self._thread.check()
            limit = self._handout.limit(max_records)
            records = self._poller.take_now(limit)
            if records is None:
                records = self._next(deadline_after(seconds), partial(self._handout.take, limit))
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

    def poll_arrow(
        self, timeout: float = DEFAULT_POLL_SECONDS, *, max_records: int | None = None, timeout_ms: Millis | None = None
    ) -> pa.Table:
        seconds = poll_seconds(timeout, timeout_ms, "poll_arrow")
        if self._incoming is None:
            self._incoming = Incoming()
        with self._use:
            fetched = self._take_raw(seconds, self._incoming.limit(max_records))
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

    def commit(self, offsets: Committable | None = None, *, timeout: float | None = None, **others: Never) -> None:
        habits.refuse_of_commit(others)
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

    # ── the methods that `Calls` shares with the asyncio consumer ─────────────────────────────────────────────────

    position = _blocking(AsyncConsumer.position)
    seek = _blocking(AsyncConsumer.seek)
    seek_to_beginning = _blocking(AsyncConsumer.seek_to_beginning)
    seek_to_end = _blocking(AsyncConsumer.seek_to_end)
    pause = _blocking(AsyncConsumer.pause)
    resume = _blocking(AsyncConsumer.resume)
    beginning_offsets = _blocking(AsyncConsumer.beginning_offsets)
    end_offsets = _blocking(AsyncConsumer.end_offsets)
    offsets_for_times = _blocking(AsyncConsumer.offsets_for_times)
    partitions_for = _blocking(AsyncConsumer.partitions_for)
    list_topics = _blocking(AsyncConsumer.list_topics)
    subscription = _on_loop(AsyncConsumer.subscription)
    assignment = _on_loop(AsyncConsumer.assignment)
    fetch_until = _on_loop(AsyncConsumer.fetch_until)
    paused = _on_loop(AsyncConsumer.paused)
    current_lag = _on_loop(AsyncConsumer.current_lag)
    group_metadata = _on_loop(AsyncConsumer.group_metadata)
    metrics = _on_loop(AsyncConsumer.metrics)
    enforce_rebalance = _on_loop(AsyncConsumer.enforce_rebalance)

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
