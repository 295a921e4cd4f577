"""Batches whose futures know how to wait: in a thread, or in a coroutine."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

from ottla.producing.batch import Batch
from ottla.records.builder import RecordFuture
from ottla.types import Millis, TopicPartition


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
        done = threading.Event()
        if self.watch(future, lambda _: done.set()) and not done.wait(timeout):
            raise TimeoutError(
                f"a record for {self.topic_partition} was not acknowledged within {timeout:g} s; it may still be"
            )

    async def wait_async(self, future: RecordFuture) -> Any:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        if self.watch(future, lambda _: loop.call_soon_threadsafe(wake)):
            await waiter
        return future.result()


class TransactionalBatch(WaitableBatch):
    """A batch of a producer with a transactional id."""

    transactional = True


def batch_class(transactional_id: str | None) -> type[WaitableBatch]:
    return WaitableBatch if transactional_id is None else TransactionalBatch
