"""Answers that several pages use for a few seconds: who asks first, asks for all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")


class Shared:
    """Remembers answers for a short time. A failure is not remembered.

    found = await shared.get("transactions", 3.0, read_all)
    """

    def __init__(self) -> None:
        self._tasks: dict[Hashable, asyncio.Task[Any]] = {}
        self._until: dict[Hashable, float] = {}

    async def get(self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]]) -> T:
        """The answer of `ask`, or one that is at most `seconds` old."""
        loop = asyncio.get_running_loop()
        task = self._tasks.get(key)
        if task is None or (task.done() and (loop.time() >= self._until.get(key, 0) or task.exception() is not None)):
            self._forget_old(loop.time())
            task = self._tasks[key] = loop.create_task(self._answer(key, seconds, ask))
        # Who goes away must not take the answer from others.
        return await asyncio.shield(task)

    async def _answer(self, key: Hashable, seconds: float, ask: Callable[[], Awaitable[T]]) -> T:
        found = await ask()
        self._until[key] = asyncio.get_running_loop().time() + seconds
        return found

    def _forget_old(self, now: float) -> None:
        for key, task in list(self._tasks.items()):
            if task.done() and now >= self._until.get(key, 0):
                del self._tasks[key]
                self._until.pop(key, None)

    def forget(self, key: Hashable) -> None:
        """Ask again the next time, because something was changed."""
        self._until.pop(key, None)

    def forget_all(self) -> None:
        """Ask for everything again."""
        self._until.clear()

    async def close(self) -> None:
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
