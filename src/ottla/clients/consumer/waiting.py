"""Timeouts and wakeups of a consumer's calls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from ottla.clients.consumer.core import Engine
from ottla.consuming.errors import Wakeup
from ottla.errors import KafkaError, RequestTimedOut

T = TypeVar("T")


class Waiting:
    """Waits for the work of one call at a time, until `wakeup` interrupts it."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._interrupt: asyncio.Future[None] | None = None
        self.woken = False

    def wakeup(self) -> None:
        """May be called from any thread."""
        self.woken = True
        loop = self._engine.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._engine.notify()
        if self._interrupt is not None and not self._interrupt.done():
            self._interrupt.set_result(None)

    def raise_if_woken(self) -> None:
        if self.woken:
            self.woken = False
            raise Wakeup("wakeup() was called")

    async def within(
        self, work: Awaitable[T], timeout: float | None, what: str, why: Callable[[], str | None] = lambda: None
    ) -> T:
        """Return the result of `work`, unless it takes too long or `wakeup` is called.

        `why` may give a better reason for a timeout than an unreachable broker.
        """
        self._engine.start()
        seconds = self._engine.config.default_api_timeout_ms / 1000 if timeout is None else timeout
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        self._interrupt = asyncio.get_running_loop().create_future()
        either: set[asyncio.Future[Any]] = {task, self._interrupt}
        try:
            if not self.woken:
                await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self.raise_if_woken()
            reason = why() or self._engine.cluster.trouble or "is the broker running and reachable?"
            raise RequestTimedOut(f"{what} did not finish within {seconds:g} s: {reason}")
        finally:
            self._interrupt = None
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def last_error(error: KafkaError | None) -> str | None:
    return None if error is None else f"the last error was {error.name}: {error}"
