"""Batches whose futures know how to wait: in a thread, in a coroutine, or by `wait` of concurrent.futures.

The latter takes a lock of each future, looks at the states of all, and leaves a waiter with each, while nothing may
finish. One lock for all batches is enough for that: whoever finishes a batch holds it, and for that only.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ottla.producing.batch import Batch
from ottla.records.builder import RecordFuture
from ottla.types import Millis, TopicPartition

_finishing = threading.RLock()


@dataclass(frozen=True, slots=True)
class _Tell:
    """Tells a waiter of concurrent.futures; two for the same one are equal."""

    waiter: Any

    def __call__(self, future: RecordFuture) -> None:
        if future.failed():
            self.waiter.add_exception(future)
        else:
            self.waiter.add_result(future)


@dataclass(frozen=True, slots=True)
class _Waiters:
    """What concurrent.futures takes for the list of those who wait for a future."""

    future: RecordFuture

    def append(self, waiter: Any) -> None:
        # One that is done already is not told of: it was seen to be.
        self.future.batch.watch(self.future, _Tell(waiter))

    def remove(self, waiter: Any) -> None:
        self.future.remove_done_callback(_Tell(waiter))


class WaitableBatch(Batch):
    """`check` raises if whoever calls it must not block."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        buffer: bytearray,
        *,
        memory: int,
        now: Millis,
        check: Callable[[], None],
    ) -> None:
        super().__init__(topic_partition, buffer, memory=memory, now=now)
        self._check = check

    def wait(self, future: RecordFuture, timeout: float | None) -> None:
        self._check()
        done = threading.Lock()
        done.acquire()
        if self.watch(future, lambda _: done.release()) and not _acquired(done, timeout):
            raise TimeoutError(
                f"a record for {self.topic_partition} was not acknowledged within {timeout:g} s; it may still be"
            )

    async def wait_async(self, future: RecordFuture) -> Any:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def tell(_: RecordFuture) -> None:
            if threading.get_ident() == thread:
                wake()
            else:
                loop.call_soon_threadsafe(wake)

        thread = threading.get_ident()
        if self.watch(future, tell):
            await waiter
        return future.result()

    def finish(self, base_offset: int, log_append_time: int, error: Exception | None) -> Any:
        with _finishing:
            return super().finish(base_offset, log_append_time, error)

    def finishing(self) -> Any:
        return _finishing

    def waiters(self, future: RecordFuture) -> _Waiters:
        if not future.done():
            self._check()
        return _Waiters(future)


def _acquired(lock: threading.Lock, timeout: float | None) -> bool:
    """Whether the lock was given within so many seconds; None is for ever, as is what a lock cannot count."""
    if timeout is None or timeout > threading.TIMEOUT_MAX:
        return lock.acquire()
    return lock.acquire(timeout=max(timeout, 0))


class TransactionalBatch(WaitableBatch):
    """A batch of a producer with a transactional id."""

    transactional = True


def batch_class(transactional_id: str | None) -> type[WaitableBatch]:
    return WaitableBatch if transactional_id is None else TransactionalBatch
