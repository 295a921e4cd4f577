"""Waiting until an offset is safely on disk. All who wait for a log share the next fsync of it."""

from __future__ import annotations

import asyncio
import weakref
from concurrent.futures import ThreadPoolExecutor

from ottla.storage.log import Log


class Flusher:
    """Runs the flushes of logs in threads, one at a time for each log."""

    def __init__(self, executor: ThreadPoolExecutor | None = None) -> None:
        self._executor = executor
        self._running: weakref.WeakKeyDictionary[Log, asyncio.Task[None]] = weakref.WeakKeyDictionary()

    async def flushed(self, log: Log, offset: int) -> None:
        """Return once everything below `offset` is on disk, or deleted; KafkaStorageError if the disk refuses."""
        while log.recovery_point < min(offset, log.log_end_offset) and not log.closed:
            await self._join(log, complete_only=False)

    async def complete_segments_flushed(self, log: Log) -> None:
        """Return once the segments are on disk that are no longer written to."""
        end_offset = log.segments.active.base_offset
        while log.recovery_point < min(end_offset, log.log_end_offset) and not log.closed:
            await self._join(log, complete_only=True)

    async def _join(self, log: Log, *, complete_only: bool) -> None:
        """Wait for the flush that is running, or for one that starts now."""
        running = self._running.get(log)
        if running is None:
            running = self._running[log] = asyncio.ensure_future(self._flush(log, complete_only))
        # Several wait for it: who gives up must not take it away from the others.
        await asyncio.shield(running)

    async def _flush(self, log: Log, complete_only: bool) -> None:
        # The rest of what this turn of the loop appends should be in it as well.
        await asyncio.sleep(0)
        try:
            if log.closed:
                return
            job = log.begin_flush(complete_only=complete_only)
            await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
            log.complete_flush(job)
        finally:
            self._running.pop(log, None)
