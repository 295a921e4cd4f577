"""What a consumer commits, and how long a call may take: commits, wakeups, timeouts.

Asynchronous commits are sent in the order of the calls, and their callbacks are `Chore`s in that order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar

from ottla.clients.consumer.core import Chore, log
from ottla.clients.consumer.group import Group, monotonic_ms
from ottla.clients.consumer.handing import Handing
from ottla.config.consumer import ConsumerConfig
from ottla.consuming.errors import GroupRequired, Wakeup
from ottla.consuming.values import (
    OffsetAndMetadata,
)
from ottla.errors import KafkaError, RequestTimedOut
from ottla.types import TopicPartition

T = TypeVar("T")
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], Any]
Committable = Mapping[TopicPartition, OffsetAndMetadata | int]
#: How long the last commit waits for a rebalance that is under way.
REBALANCE_PATIENCE = 3.0


def nothing() -> None:
    return


class Committing(Handing):
    """Commits what was handed out, or what the user says."""

    def __init__(self, config: ConsumerConfig, *, unpacks_aside: bool) -> None:
        super().__init__(config, unpacks_aside=unpacks_aside)
        self.on_commit = self.finisher.on_commit if self.finisher.intercepts else None
        self._woken = False
        self._waiting: asyncio.Future[None] | None = None
        self._commits: set[asyncio.Task[None]] = set()
        self._auto_committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def _group(self) -> Group:
        if self.engine.group is None:
            raise GroupRequired('group.id is missing: name the group, such as Consumer(group_id="my-group")')
        return self.engine.group

    def committable(self, offsets: Committable | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self.consumed()
        checked: dict[TopicPartition, OffsetAndMetadata] = {}
        key: Any
        for key, value in offsets.items():
            if not isinstance(key, TopicPartition):
                raise TypeError(f"offsets map TopicPartition to OffsetAndMetadata or int, not {key!r} to {value!r}")
            checked[key] = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
        return checked

    async def commit(self, offsets: Committable | None, timeout: float | None) -> list[Chore]:
        """Commit and wait; what has to be run then, the callbacks of earlier asynchronous commits first."""
        group, wanted = self._group(), self.committable(offsets)
        await self.within(group.commit(wanted), timeout, "commit")
        if self._commits:
            await asyncio.wait(self._commits, timeout=1.0)
        if self.on_commit is not None:
            self.engine.chores.append(Chore(partial(self.on_commit, wanted), nothing))
        return self._due_chores()

    def commit_async(self, offsets: Committable | None, callback: CommitCallback | None) -> None:
        self._group()
        self.engine.start()
        self._commit_soon(self.committable(offsets), callback)

    def _commit_soon(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        callback: CommitCallback | None,
        *,
        automatic: bool = False,
    ) -> None:
        task = self.engine.spawn(self._commit_once(offsets, callback, automatic))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def _commit_once(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None, automatic: bool
    ) -> None:
        error = await self._group().commit_once(offsets)
        if error is not None and automatic:
            log.log(logging.INFO if error.retriable else logging.WARNING, "an automatic commit failed: %s", error)
            self._auto_committed = {}
            if error.retriable and self.engine.auto_commit is not None:
                self.engine.auto_commit.again_after(self.config.retry_backoff_ms, now=monotonic_ms())
        if error is None and self.on_commit is not None:
            self.engine.chores.append(Chore(partial(self.on_commit, offsets), nothing))
        if callback is not None:
            self.engine.chores.append(Chore(partial(callback, offsets, error), nothing))
        if self.engine.chores:
            self.engine.attend()

    def _commit_automatically(self) -> None:
        engine = self.engine
        if engine.auto_commit is None or not engine.auto_commit.due(now=monotonic_ms()):
            return
        if engine.subscription.by_group and (engine.group is None or not engine.group.member.can_commit):
            return  # a rebalance is under way, and commits before it ends
        offsets = self.consumed()
        if offsets and offsets != self._auto_committed:
            self._auto_committed = offsets
            self._commit_soon(offsets, None, automatic=True)

    async def _commit_at_end(self, seconds: float) -> None:
        engine = self.engine
        if engine.group is None or engine.loop is None:
            return
        deadline = engine.loop.time() + min(seconds, self.config.default_api_timeout_ms / 1000)
        if self._commits:
            await asyncio.wait(self._commits, timeout=deadline - engine.loop.time())
        if engine.auto_commit is None or (engine.subscription.by_group and not engine.group.member.is_member):
            return
        if engine.subscription.by_group and not engine.group.member.can_commit:
            deadline = min(deadline, engine.loop.time() + REBALANCE_PATIENCE)
        try:
            async with asyncio.timeout_at(deadline):
                await engine.group.commit(self.consumed())
        except KafkaError as error:
            log.warning("the automatic commit at the end failed: %s", error)
        except TimeoutError:
            log.warning("the automatic commit at the end was not answered in time")

    def _due_chores(self) -> list[Chore]:
        chores = list(self.engine.chores)
        self.engine.chores.clear()
        return chores

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self.engine.trouble = None
        work = self._committed(self._group(), list(partitions))
        return await self.within(work, timeout, "committed", lambda: last_answer(self.engine.trouble))

    async def _committed(
        self, group: Group, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        attempts = self.engine.cluster.attempts()
        while True:
            try:
                return await group.committed(partitions)
            except KafkaError as error:
                self.engine.trouble = error
                if not error.retriable or not await attempts.pause():
                    raise

    # ── wakeup and timeouts ───────────────────────────────────────────────────────────────────────────────────────

    def wakeup(self) -> None:
        """May be called from anywhere."""
        self._woken = True
        loop = self.engine.loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self.engine._tell()
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _raise_wakeup(self) -> None:
        if self._woken:
            self._woken = False
            raise Wakeup("wakeup() was called")

    async def within(
        self, work: Awaitable[T], timeout: float | None, what: str, why: Callable[[], str | None] = nothing
    ) -> T:
        """The result of `work`, unless it takes too long or somebody calls `wakeup`.

        `why` may know better than that no broker answers why it took too long.
        """
        self.engine.start()
        seconds = self.config.default_api_timeout_ms / 1000 if timeout is None else timeout
        task: asyncio.Future[T] = asyncio.ensure_future(work)
        self._waiting = asyncio.get_running_loop().create_future()
        either: set[asyncio.Future[Any]] = {task, self._waiting}
        try:
            if not self._woken:
                await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            self._raise_wakeup()
            reason = why() or "is the broker running and reachable?"
            raise RequestTimedOut(f"{what} did not end within {seconds:g} s: {reason}")
        finally:
            self._waiting = None
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)


def last_answer(error: KafkaError | None) -> str | None:
    return None if error is None else f"the last answer was {error.name}: {error}"
