"""Periodic work on the logs, as two tasks on the event loop. No partition has its own timer.

Everything that may block (fsync, file removal, compaction) runs in threads or in another process.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla.errors import KafkaStorageError
from ottla.storage import retention
from ottla.storage.compaction.cleaner import Cleaner
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.storage.log import Log
    from ottla.storage.manager import LogManager

_LOGGER = logging.getLogger(__name__)
_TICK: Millis = 1000
_SHORTEST_TICK: Millis = 20
_LOGS_A_TURN = 100


class _Chore:
    """Periodic work."""

    __slots__ = ("due", "interval", "run")

    def __init__(self, interval: Callable[[], Millis], run: Callable[[Millis], Awaitable[None]], first: Millis) -> None:
        self.interval = interval
        self.run = run
        self.due = first


class Background:
    """The chores of a `LogManager`."""

    def __init__(self, manager: LogManager) -> None:
        self._manager = manager
        self._woken = asyncio.Event()
        self._turning = asyncio.Lock()
        self._cleaner = Cleaner(manager)
        self._tasks: list[asyncio.Task[None]] = []
        config = manager.broker_config
        now = manager.clock.now()
        first = now + config.log_initial_task_delay_ms
        self._chores = [
            _Chore(lambda: manager.broker_config.log_retention_check_interval_ms, self._retention, first),
            _Chore(
                lambda: manager.broker_config.log_flush_offset_checkpoint_interval_ms,
                self._checkpoints,
                first,
            ),
            _Chore(
                lambda: manager.broker_config.replica_high_watermark_checkpoint_interval_ms,
                self._high_watermarks,
                first,
            ),
            _Chore(lambda: manager.broker_config.producer_id_expiration_check_interval_ms, self._producers, first),
        ]

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self._tasks.append(loop.create_task(self._run(), name="ottla-storage"))
        self._tasks.append(loop.create_task(self._compact(), name="ottla-compaction"))

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def wake(self) -> None:
        self._woken.set()

    async def _run(self) -> None:
        while True:
            try:
                await self.turn()
            except Exception:
                _LOGGER.exception("background work on the logs failed; retrying")
            await self._wait()

    async def _compact(self) -> None:
        while True:
            config = self._manager.broker_config
            await asyncio.sleep(config.log_cleaner_backoff_ms / 1000)
            if config.log_cleaner_enable:
                try:
                    await self._cleaner.run()
                except Exception:
                    _LOGGER.exception("compaction failed; retrying")

    async def turn(self) -> None:
        """Do what is due now."""
        async with self._turning:
            await self._turn()

    async def _turn(self) -> None:
        now = self._manager.clock.now()
        await self._flush(now)
        for chore in self._chores:
            if chore.due <= now:
                chore.due = now + chore.interval()
                await chore.run(now)
        due = self._manager.due_deletions(now=now)
        if due:
            await self._in_thread(retention.remove_paths, due)

    async def _wait(self) -> None:
        shortest = min((log.config.flush_ms for log in self._manager.logs.values()), default=_TICK)
        tick = max(_SHORTEST_TICK, min(_TICK, shortest))
        try:
            async with asyncio.timeout(tick / 1000):
                await self._woken.wait()
        except TimeoutError:
            return
        self._woken.clear()

    async def _in_thread(self, function: Callable[..., object], *args: object) -> None:
        await asyncio.get_running_loop().run_in_executor(self._manager.executor, function, *args)

    async def _each_log(self, visit: Callable[[Log], object]) -> None:
        """Visit all logs, a few at a time."""
        for number, log in enumerate(list(self._manager.logs.values())):
            if number % _LOGS_A_TURN == _LOGS_A_TURN - 1:
                await asyncio.sleep(0)
            try:
                if not log.closed:
                    visit(log)
            except (OSError, KafkaStorageError):
                _LOGGER.exception("background work on %s failed; retrying", log.topic_partition)

    async def _flush(self, now: Millis) -> None:
        """Flush complete segments, and logs whose flush.ms has passed."""
        manager = self._manager
        for log in list(manager.rolled_logs):
            if not log.closed:
                await manager.flusher.complete_segments_flushed(log)
            # Not earlier: a failed flush is retried.
            if log.recovery_point >= log.segments.active.base_offset or log.closed:
                manager.rolled_logs.pop(log, None)
        for log in list(manager.logs.values()):
            if log.dirty_since >= 0 and now - log.dirty_since >= log.config.flush_ms and not log.closed:
                await manager.flusher.flushed(log, log.log_end_offset)

    async def _retention(self, now: Millis) -> None:
        manager = self._manager
        await self._each_log(lambda log: retention.apply(log, manager.high_watermark(log), now=now))

    async def _checkpoints(self, now: Millis) -> None:
        self._manager.write_recovery_points()
        self._manager.write_start_offsets()

    async def _high_watermarks(self, now: Millis) -> None:
        self._manager.write_high_watermarks()

    async def _producers(self, now: Millis) -> None:
        after = self._manager.broker_config.producer_id_expiration_ms
        await self._each_log(lambda log: log.producers.expire(now=now, after=after))
