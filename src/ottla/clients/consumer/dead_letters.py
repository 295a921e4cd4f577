"""Dead letters: a record whose handler keeps failing goes to another topic, and the group continues.

    with Consumer(group_id="billing", enable_auto_commit=False, ...) as consumer, Producer(...) as producer:
        consumer.subscribe(["orders"])
        DeadLetters(consumer, producer, topic="orders.dead", attempts=5).run(bill)

Records of a partition are handled in order, each at least once. A failed one is retried with back-off; then it is
written to the dead-letter topic, with the error in its headers, and its offset is committed only after the
acknowledgement. A letter that is too large is made smaller, in the end without the record's value, so that the group
continues. The producer's `max.request.size` counts bytes before compression: set it for the largest record.
`dead_letter_steps.py` decides; this module carries out the steps, for threads and for asyncio.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from ottla.clients.blocking import IllegalUse
from ottla.clients.cluster.connections import Backoff
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.consumer.dead_letter_steps import (
    Commit,
    DeadLetter,
    Handle,
    Letter,
    Policy,
    Processed,
    Send,
    Step,
    Steps,
    Wait,
    Waited,
)
from ottla.clients.consumer.records import DeserializationError
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.clients.producer.blocking import Producer
from ottla.clients.serializers import deserializer, serializer
from ottla.consuming.errors import CommitFailed, Wakeup
from ottla.consuming.values import ConsumerRecord
from ottla.errors import ConfigError
from ottla.types import Millis, TopicPartition

__all__ = ["AsyncDeadLetters", "DeadLetter", "DeadLetters"]

log = logging.getLogger(__name__)
#: A longer wait is spent polling, so that the member stays in the group.
LONGEST_SLEEP_MS: Millis = 1_000
POLL_SECONDS = 1.0
JOIN_SECONDS = 60.0

T = TypeVar("T")
Handler = Callable[[ConsumerRecord], Any]
Select = Callable[[DeadLetter], bool]


def _chance() -> float:
    return random.uniform(-1, 1)


class _Helper(ABC):
    """Shared by the blocking and the asyncio helper: carries out the steps of the policy."""

    def __init__(
        self,
        consumer: Any,
        producer: Any,
        *,
        topic: str = "{topic}.dead-letters",
        attempts: int = 3,
        backoff_ms: Millis = 100,
        backoff_max_ms: Millis = 10_000,
        retry_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        key_serializer: Any = None,
        value_serializer: Any = None,
    ) -> None:
        """`topic` may contain that of the record: ``"{topic}.dead"``. Errors that are not `retry_on` are not retried.

        `key_serializer` and `value_serializer` reverse the consumer's deserializers.
        """
        self.consumer = consumer
        self.producer = producer
        self._consumer, self._producer = self._awaitable(consumer), self._awaitable(producer)
        self.policy = Policy(
            topic,
            consumer.config.group_id or "",
            attempts,
            Backoff(backoff_ms, backoff_max_ms),
            retry_on if isinstance(retry_on, tuple) else (retry_on,),
            serializer(key_serializer, "key_serializer"),
            serializer(value_serializer, "value_serializer"),
        )
        self._check_clients()
        self._backlog: deque[ConsumerRecord] = deque()
        self._stopping = threading.Event()

    @staticmethod
    @abstractmethod
    def _awaitable(client: Any) -> Any:
        """The client with methods that can be awaited."""

    @abstractmethod
    async def _awaited(self, result: Awaitable[object]) -> Exception | None:
        """What a coroutine of the handler raised."""

    @staticmethod
    @abstractmethod
    async def _acknowledged(futures: Iterable[Any]) -> None:
        """Wait for the futures of sent records."""

    @abstractmethod
    async def _sleep(self, seconds: float) -> None: ...

    def _check_clients(self) -> None:
        ours, theirs = self.consumer.config, self.producer.config
        if ours.enable_auto_commit:
            raise ConfigError(
                "enable.auto.commit must be false for a consumer with dead letters: offsets are committed when records "
                "are handled, not when they are polled."
            )
        for name, mine in (("key", self.policy.key), ("value", self.policy.value)):
            if serializer(getattr(theirs, f"{name}_serializer"), f"{name}.serializer") is not None:
                raise ConfigError(
                    f"{name}.serializer must not be set for the producer of dead letters, which gets bytes: pass it to "
                    f"DeadLetters as {name}_serializer."
                )
            if deserializer(getattr(ours, f"{name}_deserializer"), f"{name}.deserializer") and mine is None:
                raise ConfigError(
                    f"{name}_serializer is missing: dead letters are bytes, and the consumer has a {name}.deserializer."
                )

    async def _run(self, handler: Handler) -> Processed:
        total = Processed()
        while not self._stopping.is_set():
            try:
                records = list(self._backlog)
                self._backlog.clear()
                done = await self._process(records or await self._consumer.poll(POLL_SECONDS), handler)
            except Wakeup:
                if not self._stopping.is_set():
                    raise
                break
            except DeserializationError as error:
                done = await self._drive(self.policy.undecodable(error.record, error), handler)
                await self._consumer.seek(error.topic_partition, error.offset + 1)
            total.handled += done.handled
            total.dead += done.dead
        total.stopped = True
        return total

    async def _process(self, records: Iterable[ConsumerRecord], handler: Handler) -> Processed:
        return await self._drive(self.policy.steps(records, chance=_chance, stopping=self._stopping.is_set), handler)

    def stop(self) -> None:
        """Make `run` return soon; what it has handled is committed."""
        self._stopping.set()
        self.consumer.wakeup()

    async def _drive(self, steps: Steps, handler: Handler) -> Processed:
        try:
            step = next(steps)
            while True:
                try:
                    outcome = await self._do(step, handler)
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(outcome)
        except StopIteration as end:
            done: Processed = end.value
            return done

    async def _do(self, step: Step, handler: Handler) -> Any:
        match step:
            case Handle(record):
                try:
                    result = handler(record)
                except Exception as error:
                    return error
                return await self._awaited(result) if inspect.isawaitable(result) else None
            case Wait(ms, pending):
                return await self._wait(ms, pending)
            case Send(letter):
                await self._acknowledged([await _sent(self._producer, letter)])
                return log.warning("giving up a record: %s", letter)
            case Commit(offsets):
                return await self._commit(offsets)

    async def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        try:
            try:
                await self._consumer.commit(offsets)
            except Wakeup:
                # The handler called `stop`: that is no reason to handle the records again.
                await self._consumer.commit(offsets)
        except CommitFailed as error:
            log.warning("%s; the member that has them now handles the records again", error)

    async def _wait(self, ms: Millis, pending: dict[TopicPartition, int]) -> Waited:
        if ms <= LONGEST_SLEEP_MS:
            await self._sleep(ms / 1000)
            return Waited(stopped=self._stopping.is_set())
        held, deadline = self.consumer.assignment(), time.monotonic() + ms / 1000
        await self._consumer.pause(*held)
        while (left := deadline - time.monotonic()) > 0:
            try:
                self._backlog.extend(await self._consumer.poll(min(left, POLL_SECONDS)))
            except DeserializationError:
                await self._sleep(min(left, POLL_SECONDS))
            except Wakeup:
                if not self._stopping.is_set():
                    raise
                return Waited(stopped=True)
        ours = self.consumer.assignment()
        await self._consumer.resume(*(held & ours))
        # A partition that was revoked and assigned again starts at the committed offset.
        still = {key for key, offset in pending.items() if key in ours and await self._consumer.position(key) > offset}
        return Waited(lost=frozenset(pending.keys() - still))

    @classmethod
    async def _replay(cls, consumer: Any, producer: Any, select: Select | None, timeout: float) -> int:
        count, patience = 0, _Patience()
        reader, writer = cls._awaitable(consumer), cls._awaitable(producer)
        while True:
            patience.see(consumer.assignment())
            records = await reader.poll(timeout)
            if not records and patience.ends:
                return count
            chosen = _chosen(records, select)
            await cls._acknowledged([await _sent(writer, letter) for letter in chosen])
            if records:
                await reader.commit()
            count += len(chosen)


class DeadLetters(_Helper):
    """Handles records with a blocking `Consumer` and `Producer`."""

    consumer: Consumer
    producer: Producer

    def run(self, handler: Handler) -> Processed:
        """Poll and handle until `stop`, which another thread or the handler may call."""
        _check_handler(handler)
        return _finish(self._run(handler))

    def process(self, records: Iterable[ConsumerRecord], handler: Handler) -> Processed:
        """Handle the records of one poll, for programs with their own poll loop."""
        _check_handler(handler)
        return _finish(self._process(records, handler))

    @classmethod
    def replay(
        cls, consumer: Consumer, producer: Producer, *, select: Select | None = None, timeout: float = 5.0
    ) -> int:
        """Send dead letters back to their original topics; returns how many were sent.

        The consumer reads dead-letter topics in its own group. Letters that `select` rejects are skipped, and so are
        those without their value, with a warning that says where the record is. It ends when no more letters came for
        `timeout` seconds, and commits what it has sent.
        """
        return _finish(cls._replay(consumer, producer, select, timeout))

    @staticmethod
    def _awaitable(client: Any) -> Any:
        return _Awaitable(client)

    async def _awaited(self, result: Awaitable[object]) -> Exception | None:
        raise _never_awaited(result)

    @staticmethod
    async def _acknowledged(futures: Iterable[Any]) -> None:
        for future in futures:
            future.result()

    async def _sleep(self, seconds: float) -> None:
        self._stopping.wait(seconds)


class AsyncDeadLetters(_Helper):
    """The same with the asyncio clients; the handler may be a coroutine function."""

    consumer: AsyncConsumer
    producer: AsyncProducer

    async def run(self, handler: Handler) -> Processed:
        """Poll and handle until `stop`."""
        return await self._run(handler)

    async def process(self, records: Iterable[ConsumerRecord], handler: Handler) -> Processed:
        """Handle the records of one poll, for programs with their own poll loop."""
        return await self._process(records, handler)

    @classmethod
    async def replay(
        cls, consumer: AsyncConsumer, producer: AsyncProducer, *, select: Select | None = None, timeout: float = 5.0
    ) -> int:
        """See `DeadLetters.replay`."""
        return await cls._replay(consumer, producer, select, timeout)

    @staticmethod
    def _awaitable(client: Any) -> Any:
        return client

    async def _awaited(self, result: Awaitable[object]) -> Exception | None:
        try:
            await result
        except Exception as error:
            return error
        return None

    @staticmethod
    async def _acknowledged(futures: Iterable[Any]) -> None:
        await asyncio.gather(*futures)

    async def _sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _Awaitable:
    """A blocking client with the methods of an asyncio one: its coroutines never suspend."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            return method(*arguments, **options)

        return call


def _finish(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        work.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    raise RuntimeError("a coroutine of the blocking DeadLetters suspended")


async def _sent(producer: Any, letter: Letter | DeadLetter) -> Any:
    return await producer.send(letter.topic, value=letter.value, key=letter.key, headers=letter.headers)


class _Patience:
    """Decides when an empty poll means the end: not while the group has not assigned partitions yet."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + JOIN_SECONDS
        self._assigned = False

    def see(self, assignment: set[TopicPartition]) -> None:
        self._assigned = bool(assignment)

    @property
    def ends(self) -> bool:
        return self._assigned or time.monotonic() > self._deadline


def _check_handler(handler: Handler) -> None:
    # A partial or an object may be a coroutine function too.
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        raise _never_awaited(None)


def _never_awaited(result: object) -> IllegalUse:
    if inspect.iscoroutine(result):
        result.close()
    return IllegalUse(
        "the handler of the blocking DeadLetters is a coroutine, which is never awaited: write a function, or use "
        "ottla.aio.DeadLetters with the clients of ottla.aio"
    )


def _chosen(records: Iterable[ConsumerRecord], select: Select | None) -> list[DeadLetter]:
    chosen = [letter for letter in map(DeadLetter.of, records) if select is None or select(letter)]
    for letter in chosen:
        if letter.omitted:
            place = f"{letter.topic}-{letter.partition} at offset {letter.offset}"
            log.warning("skipping a dead letter without its %s: the record is %s", " and ".join(letter.omitted), place)
    return [letter for letter in chosen if not letter.omitted]
