"""How callers wait for the future of a sent record: in a thread, in a coroutine, or with `concurrent.futures.wait`.

`concurrent.futures.wait` takes a lock of each future, reads all states and leaves a waiter with each, while nothing may
finish. One lock for all batches is enough for that, because it is held only while a batch finishes.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from ottla.producing.batch import Batch
from ottla.records.builder import RecordFuture

_finishing = threading.RLock()


@dataclass(frozen=True, slots=True)
class _Notify:
    """Notifies a waiter of `concurrent.futures`; two for the same waiter are equal."""

    waiter: Any

    def __call__(self, future: RecordFuture) -> None:
        if future.failed():
            self.waiter.add_exception(future)
        else:
            self.waiter.add_result(future)


@dataclass(frozen=True, slots=True)
class _Waiters:
    """What `concurrent.futures` uses as the list of a future's waiters."""

    future: RecordFuture

    def append(self, waiter: Any) -> None:
        # For a future that is done nothing is called: `concurrent.futures` has seen its state.
        self.future.batch.watch(self.future, _Notify(waiter))

    def remove(self, waiter: Any) -> None:
        self.future.remove_done_callback(_Notify(waiter))


class BatchWaiting:
    """Waits for the futures of batches. `check` raises if the caller must not block.

    A thread that waits sends nothing meanwhile. So its batch does not wait for linger.ms: `wake` sends it.
    """

    finishing = _finishing

    def __init__(self, check: Callable[[], None], wake: Callable[[], None]) -> None:
        self._check = check
        self._wake = wake

    def wait(self, batch: Batch, future: RecordFuture, timeout: float | None) -> None:
        self._check()
        if not batch.closed:
            batch.wanted = True
            self._wake()
        done = threading.Lock()
        done.acquire()
        if batch.watch(future, lambda _: done.release()) and not _acquired(done, timeout):
            raise TimeoutError(
                f"a record for {batch.topic_partition} was not acknowledged within {timeout:g} s; it may still be"
            )

    async def wait_async(self, batch: Batch, future: RecordFuture) -> Any:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not waiter.done():
                waiter.set_result(None)

        def notify(_: RecordFuture) -> None:
            if threading.get_ident() == thread:
                wake()
            else:
                loop.call_soon_threadsafe(wake)

        thread = threading.get_ident()
        if batch.watch(future, notify):
            await waiter
        return future.result()

    def waiters(self, future: RecordFuture) -> _Waiters:
        if not future.done():
            self._check()
        return _Waiters(future)


def _acquired(lock: threading.Lock, timeout: float | None) -> bool:
    """Whether the lock was acquired within so many seconds; None and more than a lock can count mean forever."""
    if timeout is None or timeout > threading.TIMEOUT_MAX:
        return lock.acquire()
    return lock.acquire(timeout=max(timeout, 0))


def batch_maker(
    transactional_id: str | None, check: Callable[[], None], wake: Callable[[], None] = lambda: None
) -> Callable[..., Batch]:
    """Return what makes the batches of a producer."""
    return partial(Batch, waiting=BatchWaiting(check, wake), transactional=transactional_id is not None)
