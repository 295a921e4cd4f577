"""Changes that take several steps, such as a new topic in the metadata and then its logs on disk.

A request ends with its connection, wherever it is. Half of a change would be worse than all or nothing of it: so the
steps run as a task of their own, and the request only waits for that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class Changes:
    """The changes that are under way."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    async def run(self, change: Coroutine[Any, Any, Result]) -> Result:
        """Carry out a change to its end, even if nobody waits for it any more; return what it returns."""
        task = asyncio.ensure_future(change)
        self._running.add(task)
        task.add_done_callback(self._finished)
        await asyncio.wait([task])
        return task.result()

    def _finished(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # is told to who waits; if nobody does any more, it is nobody's

    async def finish(self) -> None:
        """Wait until none is under way."""
        await asyncio.gather(*self._running, return_exceptions=True)
