"""Retries: exponential back-off with jitter, up to a deadline."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from ottla.types import Millis

JITTER = 0.2


class Attempts:
    """The pauses between the attempts of one call."""

    def __init__(
        self,
        timeout_ms: Millis,
        backoff_ms: Millis,
        backoff_max_ms: Millis,
        *,
        jitter: Callable[[float, float], float],
        retries: int | None = None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._timeout_ms = timeout_ms
        self._backoff_ms: float = backoff_ms
        self._backoff_max_ms = backoff_max_ms
        self._jitter = jitter
        self._left: float = math.inf if retries is None else retries

    @property
    def elapsed_ms(self) -> Millis:
        return int((self._loop.time() - self._start) * 1000)

    async def pause(self) -> bool:
        """Wait for the next attempt; False if there is no time or no retry left."""
        if self._left <= 0:
            return False
        self._left -= 1
        wait = self._backoff_ms * self._jitter(1 - JITTER, 1 + JITTER)
        self._backoff_ms = min(self._backoff_ms * 2, self._backoff_max_ms)
        if self.elapsed_ms + wait > self._timeout_ms:
            return False
        await asyncio.sleep(wait / 1000)
        return True
