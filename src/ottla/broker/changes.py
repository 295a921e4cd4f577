"""Changes with several steps, such as a new topic in the metadata and then its logs on disk.

A request ends with its connection, at any point. To avoid half-finished changes, the steps run in a separate task and
the request only waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Changes:
    """The changes in progress."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, change: Coroutine[Any, Any, Result]) -> Result:
        """Run a change to its end, even if the caller stops waiting, and return its result."""
        task = self.begin(change)
        await asyncio.wait([task])
        return task.result()

    def begin(self, change: Coroutine[Any, Any, Result]) -> asyncio.Task[Result]:
        """Run something to its end that nobody waits for."""
        task = asyncio.ensure_future(change)
        self._running.add(task)
        task.add_done_callback(self._finished)
        return task

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # Mark it as retrieved: the caller may no longer wait for it.

    async def finish(self) -> None:
        """Wait until no change is in progress."""
        await asyncio.gather(*self._running, return_exceptions=True)
