"""Wait until an offset is on disk. All callers that wait for the same log share its next fsync."""

from __future__ import annotations

import asyncio
import weakref
from concurrent.futures import ThreadPoolExecutor

from ottla.errors import KafkaStorageError
from ottla.storage.log import Log


class Flusher:
    """Flushes logs in threads, one flush at a time per log."""

    def __init__(self, executor: ThreadPoolExecutor | None = None) -> None:
        self._executor = executor
        self._running: weakref.WeakKeyDictionary[Log, asyncio.Task[None]] = weakref.WeakKeyDictionary()

    async def flushed(self, log: Log, offset: int) -> None:
        """Return when everything below `offset` is on disk or deleted; KafkaStorageError if the disk fails."""
        while log.recovery_point < min(offset, log.log_end_offset) and not log.closed:
            await self._join(log, complete_only=False)
        if log.failure is not None:
            raise log.failure

    async def complete_segments_flushed(self, log: Log) -> None:
        """Return when all inactive segments are on disk."""
        end_offset = log.segments.active.base_offset
        while log.recovery_point < min(end_offset, log.log_end_offset) and not log.closed:
            await self._join(log, complete_only=True)

    async def _join(self, log: Log, *, complete_only: bool) -> None:
        """Wait for the running flush, or start one."""
        running = self._running.get(log)
        if running is None:
            running = self._running[log] = asyncio.ensure_future(self._flush(log, complete_only))
        # Other callers wait for it too: a cancelled caller must not cancel it.
        await asyncio.shield(running)

    async def _flush(self, log: Log, complete_only: bool) -> None:
        # Include what this turn of the event loop still appends.
        await asyncio.sleep(0)
        try:
            if log.closed:
                return
            job = log.begin_flush(complete_only=complete_only)
            await asyncio.get_running_loop().run_in_executor(self._executor, job.run)
            log.complete_flush(job)
        except KafkaStorageError as error:
            log.host.failed(log, error)
            raise
        finally:
            self._running.pop(log, None)
