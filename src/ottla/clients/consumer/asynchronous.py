"""The asyncio consumer. Its methods have Kafka's names in snake case; `blocking.py` has the same for threads.

    async with AsyncConsumer(bootstrap_servers="localhost:9092", group_id="shop") as consumer:
        await consumer.subscribe(["orders"])
        async for record in consumer:
            print(record.value)

`calls.py` and its parts do the work. This module checks that one task uses the consumer at a time, and runs user code.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import math
import time
import warnings
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping
from functools import partial
from numbers import Real
from operator import length_hint
from re import Pattern
from types import TracebackType
from typing import TYPE_CHECKING, Any, Never, Self, TypeVar

from ottla.clients import habits
from ottla.clients.blocking import IllegalUse
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.metadata import PartitionInfo
from ottla.clients.columns import Incoming
from ottla.clients.consumer.calls import ASKED, UNSUBSCRIBED, Calls, listed, raise_first
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
from ottla.suggestions import missing_methods
from ottla.types import Millis, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
DEFAULT_CLOSE_SECONDS = 30.0
#: How long one poll of an iteration waits before it raises that no broker was ever reached.
ITERATION_SECONDS = 5.0
DEFAULT_POLL_SECONDS = 1.0
#: A longer poll is probably meant in milliseconds.
LONG_POLL_SECONDS = 60.0


def deadline_in(seconds: float | None) -> float:
    return math.inf if seconds is None else deadline_after(seconds)


def deadline_after(seconds: Any) -> float:
    """The time of the monotonic clock in so many seconds."""
    if not isinstance(seconds, Real) or math.isnan(seconds):
        raise TypeError(
            f"the timeout must be a number of seconds, not {seconds!r} (`for record in consumer` waits without a limit)"
        )
    return time.monotonic() + float(seconds)


def poll_seconds(timeout: Any, timeout_ms: Any, method: str = "poll") -> Any:
    """The timeout of a poll in seconds. It is checked later; here are the habits from clients with milliseconds."""
    if timeout_ms is not None:
        if timeout != DEFAULT_POLL_SECONDS:
            raise TypeError(f"{method} takes timeout (in seconds) or timeout_ms, not both")
        return millis_to_seconds(timeout_ms)
    if isinstance(timeout, Real) and LONG_POLL_SECONDS < float(timeout) < math.inf:
        warnings.warn(
            f"{method}({timeout!r}) waits up to {timeout!r} seconds: write {method}({float(timeout) / 1000:g}) or "
            f"{method}(timeout_ms={timeout!r}) if you mean milliseconds",
            stacklevel=3,
        )
    return timeout


def millis_to_seconds(given: Any) -> float:
    if not isinstance(given, Real) or math.isnan(given):
        raise TypeError(f"timeout_ms must be a number of milliseconds, not {given!r}")
    return float(given) / 1000


def left(deadline: float) -> float:
    return max(0.0, deadline - time.monotonic())


class _OneTask:
    """Lets one task in at a time, also repeatedly; others get an error."""

    __slots__ = ("_calls", "_depth", "_task", "closed")

    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._task: asyncio.Task[Any] | None = None
        self._depth = 0
        self.closed = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if self.closed:
            raise IllegalUse("this AsyncConsumer is closed: create a new one")
        if self._depth and self._task is not task:
            raise IllegalUse(
                "this AsyncConsumer is in use by another task: a consumer is for one task at a time. To end the call "
                "that waits there, cancel that task or call wakeup(), which makes it raise Wakeup. To share the work, "
                "give each task its own consumer (of the same group), or pass the records through a queue"
            )
        self._calls.engine.start()
        self._task = task
        self._depth += 1

    def __exit__(self, *_: object) -> None:
        self._depth -= 1


@missing_methods(habits.CONSUMER)
class AsyncConsumer:
    """Reads topics, alone or as a member of a group. For one task at a time.

    Configs are Kafka's, as ``AsyncConsumer({"group.id": "shop"})`` or ``AsyncConsumer(group_id="shop")``. Times are in
    seconds. Nothing is sent before the first call.
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: object) -> None:
        self.config = ConsumerConfig.given(config, options)
        self._calls = Calls(self.config, unpacks_aside=True)
        self._handout, self._poller = self._calls.handout, self._calls.poller
        self._use = _OneTask(self._calls)
        self._incoming: Incoming | None = None

    @property
    def cluster(self) -> Cluster:
        """The connection to the brokers, for requests that a consumer has no method for."""
        return self._calls.engine.cluster

    async def start(self) -> None:
        """Connect to the cluster, and raise if no broker can be reached. A consumer also works without it."""
        with self._use:
            await self._calls.waiting.within(self._calls.engine.cluster.refresh(()), None, "start")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _run(self, chore: Chore) -> None:
        """Run user code: a function or a coroutine."""
        try:
            result = chore.call()
            if inspect.isawaitable(result):
                await result
        finally:
            chore.finish()

    # ── what to read ──────────────────────────────────────────────────────────────────────────────────────────────

    async def subscribe(
        self,
        topics: Collection[str] | None = None,
        *,
        pattern: str | Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
        **others: Never,
    ) -> None:
        """Read topics, or all that match a pattern, as a member of the group; replaces the previous subscription.

        A pattern matches whole names. With group.protocol=consumer the broker matches a pattern that is text (in RE2
        syntax); a compiled one is matched here. An empty list of topics means `unsubscribe`.
        """
        habits.refuse_callbacks(others)
        with self._use:
            topics = listed(topics)
            if topics == [] and pattern is None:
                await self._end(UNSUBSCRIBED)
            else:
                self._calls.subscribe(topics, pattern, listener)

    async def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions, without a group; partitions that stay keep their positions.

        An empty list means `unsubscribe`.
        """
        with self._use:
            if wanted := listed(partitions):
                self._calls.assign(wanted)
            else:
                await self._end(UNSUBSCRIBED)

    async def unsubscribe(self) -> None:
        """Read nothing, and leave the group at once. An automatic commit is made before."""
        with self._use:
            await self._end(UNSUBSCRIBED)

    async def _end(self, reason: str, deadline: float = math.inf) -> None:
        errors: list[Exception] = []
        seconds = 0.0  # if interrupted, notify the coordinator without waiting
        try:
            chores = await self._calls.unsubscribing(left(deadline))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(None if deadline == math.inf else left(deadline)):
                    for chore in chores:
                        try:
                            await self._run(chore)
                        except Exception as error:
                            errors.append(error)
            seconds = left(deadline)
        finally:
            await self._calls.unsubscribed(reason, seconds)
        raise_first(errors)

    def subscription(self) -> set[str]:
        """The subscribed topics; with a pattern that is matched here, the matching ones."""
        return self._calls.subscription()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that this consumer reads now."""
        return self._calls.assignment()

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def poll(
        self, timeout: float = DEFAULT_POLL_SECONDS, *, max_records: int | None = None, timeout_ms: Millis | None = None
    ) -> ConsumerRecords:
        """Return the next records, at most `max_records` (max.poll.records); empty if none came in `timeout` seconds.

        The result is a list; ``.records(topic_partition)`` and ``.by_partition()`` group it by partition. Rebalance
        listeners and commit callbacks run during this call. The first poll of a member also joins the group, so it may
        return nothing although there are records.
        """
        seconds = poll_seconds(timeout, timeout_ms)
        with self._use:
            limit = self._handout.limit(max_records)
            if self._calls.engine.turns_owed:
                # Buffered records need no wait, but the next fetch should be on its way meanwhile.
                self._calls.engine.turns_owed -= 1
                await asyncio.sleep(0)
            records = self._poller.take_now(limit)
            if records is None:
                records = await self._next(deadline_after(seconds), partial(self._handout.take, limit))
            return self._handout.finished(records)

    async def _next(self, deadline: float, take: Callable[[], list[T]]) -> list[T]:
        """Do the work of a poll until there is something to take, or the time is over."""
        while True:
            step = await self._poller.advance(deadline)
            if isinstance(step, Chore):
                await self._run(step)
            elif not step or (found := take()):
                return found if step else []

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord]:
        while True:
            # A generator is several times as fast as `__anext__`.
            while length_hint(self._handout.iterator):
                for record in self._handout.iterator:
                    yield record
            if records := await self.poll(ITERATION_SECONDS):
                self._handout.iterate(records)

    async def __anext__(self) -> ConsumerRecord:
        """Wait for the next record; ``async for record in consumer`` is faster."""
        for record in self._handout.iterator:
            return record  # type: ignore[no-any-return]
        while True:
            if records := await self.poll(ITERATION_SECONDS):
                iterator = self._handout.iterate(records)
                return next(iterator)  # type: ignore[no-any-return]

    async def poll_arrow(
        self, timeout: float = DEFAULT_POLL_SECONDS, *, max_records: int | None = None, timeout_ms: Millis | None = None
    ) -> pa.Table:
        """Return the next records as a pyarrow table; it has no rows if none came in `timeout` seconds.

        The columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType
        and headers. Without `max_records`, everything buffered is returned; each chunk of the table has records of one
        partition, in order. Deserializers and interceptors are not called. Needs ``ottla[arrow]``.
        """
        seconds = poll_seconds(timeout, timeout_ms, "poll_arrow")
        if self._incoming is None:
            self._incoming = Incoming()
        with self._use:
            fetched = await self._take_raw(seconds, self._incoming.limit(max_records))
            table = self._incoming.table(fetched, max_records, self._calls.engine.buffer.put_back)
            self._handout.total += table.num_rows
            return table

    async def _take_raw(self, timeout: float, limit: int = 0) -> list[RawFetch]:
        """Return what was fetched, undecoded, to read whole batches; an empty list after `timeout` seconds.

        Returns everything buffered and moves the positions past it, as `poll` does; listeners, callbacks and automatic
        commits run too. A `RawFetch` has the fetched bytes, the batches in them to read (without control batches and,
        with read_committed, without aborted transactions; CRCs are checked), and the position from which their records
        are new. The bytes stay valid as long as they are referenced.
        """
        with self._use:
            self._handout.put_back()
            return await self._next(deadline_after(timeout), partial(self._handout.take_raw, limit))

    # ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def commit(
        self, offsets: Committable | None = None, *, timeout: float | None = None, **others: Never
    ) -> None:
        """Commit what was polled, or these offsets (of the next record to read), and wait until it is done.

        Retriable errors are retried. `CommitFailed` means that the partitions belong to other members now.
        """
        habits.refuse_of_commit(others)
        with self._use:
            for chore in await self._calls.committer.commit(offsets, timeout):
                await self._run(chore)

    def commit_async(self, offsets: Committable | None = None, callback: CommitCallback | None = None) -> None:
        """Commit without waiting. ``callback(offsets, error)`` runs in a later poll or commit, in order of the calls.

        A failed commit is not retried, since a later one may have succeeded.
        """
        with self._use:
            self._calls.committer.commit_async(offsets, callback)

    async def committed(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """The committed offsets of the group; None for a partition without one."""
        with self._use:
            return await self._calls.committer.committed(partitions, timeout)

    # ── positions ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        """The offset of the next record that poll will return."""
        with self._use:
            return await self._calls.position(partition, timeout=timeout)

    async def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Continue reading at this offset."""
        with self._use:
            self._calls.seek(partition, offset)

    async def seek_to_beginning(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Continue with the first available record, in these or all assigned partitions."""
        with self._use:
            self._calls.seek_to_beginning(*partitions)

    async def seek_to_end(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Continue with the next record to be written, in these or all assigned partitions."""
        with self._use:
            self._calls.seek_to_end(*partitions)

    async def pause(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`; they stay assigned."""
        with self._use:
            self._calls.pause(*partitions)

    async def resume(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again."""
        with self._use:
            self._calls.resume(*partitions)

    def fetch_until(self, partition: TopicPartition, offset: int | None) -> None:
        """Fetch nothing from this offset on, to read a range; None removes the limit.

        Records after it that the last fetch contains are still returned:
        ``consumer.fetch_until(TopicPartition("orders", 0), 500)``.
        """
        self._calls.fetch_until(partition, offset)

    def paused(self) -> set[TopicPartition]:
        return self._calls.paused()

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many records there are after the position; None while unknown."""
        return self._calls.current_lag(partition)

    # ── questions ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first available offset of each partition."""
        with self._use:
            return await self._calls.beginning_offsets(partitions, timeout=timeout)

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset of the next record to be written; with read_committed that of the first open transaction."""
        with self._use:
            return await self._calls.end_offsets(partitions, timeout=timeout)

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, Millis], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time (ms since 1970); None if there is none."""
        with self._use:
            return await self._calls.offsets_for_times(timestamps, timeout=timeout)

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> list[PartitionInfo]:
        """The partitions of a topic, with their leaders and replicas."""
        with self._use:
            return await self._calls.partitions_for(topic, timeout=timeout)

    async def list_topics(self, *, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        """All topics and their partitions."""
        with self._use:
            return await self._calls.list_topics(timeout=timeout)

    def group_metadata(self) -> ConsumerGroupMetadata:
        """The identity of this consumer in its group."""
        return self._calls.group_metadata()

    def metrics(self) -> dict[str, float]:
        """Metrics of this consumer, with Kafka's names."""
        return self._calls.metrics()

    def enforce_rebalance(self, reason: str = ASKED) -> None:
        """Make the group rebalance; it starts in the next poll."""
        self._calls.enforce_rebalance(reason)

    def wakeup(self) -> None:
        """Make the present or next waiting call raise `Wakeup`. May be called from any thread."""
        self._calls.waiting.wakeup()

    async def close(self, timeout: float | None = DEFAULT_CLOSE_SECONDS) -> None:
        """Make an automatic commit, leave the group, close; within `timeout` seconds. Closing again does nothing.

        Errors of listeners and callbacks are raised at the end, when everything is done. With a timeout of 0 the
        consumer still leaves the group, but does not wait for the coordinator's response.
        """
        if self._use.closed or self._calls.engine.is_forked:
            return
        with self._use:
            try:
                await self._end("the consumer closed", deadline_in(timeout))
            finally:
                self._use.closed = True
                await self._calls.engine.close()
                self._handout.finisher.close()

    stop = close
