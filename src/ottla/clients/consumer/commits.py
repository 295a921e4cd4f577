"""Commits of a consumer: on request, automatic, and the last one before it leaves the group.

Asynchronous commits are sent in the order of the calls, and their callbacks run as `Chore`s in the same order.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from ottla.clients.consumer.core import Chore, Engine, log, nothing
from ottla.clients.consumer.group import Group, monotonic_ms
from ottla.clients.consumer.handout import HandOut
from ottla.clients.consumer.waiting import Waiting, last_error
from ottla.consuming.values import ConsumerRecord, OffsetAndMetadata
from ottla.errors import KafkaError
from ottla.types import TopicPartition, partition_advice

CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], Any]
Committable = Mapping[TopicPartition, OffsetAndMetadata | int]
#: How long the last commit waits for a rebalance that is in progress.
REBALANCE_PATIENCE = 3.0


class Committer:
    """Commits what was handed out, or the offsets that the user gives."""

    def __init__(self, engine: Engine, handout: HandOut, waiting: Waiting) -> None:
        self._engine = engine
        self._handout = handout
        self._waiting = waiting
        self._on_commit = handout.finisher.on_commit if handout.finisher.intercepts else None
        self._commits: set[asyncio.Task[None]] = set()
        self._auto_committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def _committable(self, offsets: Committable | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self._handout.consumed()
        if not isinstance(offsets, Mapping):
            raise TypeError(_no_offsets(offsets))
        checked: dict[TopicPartition, OffsetAndMetadata] = {}
        key: Any
        for key, value in offsets.items():
            if not isinstance(key, TopicPartition):
                wrong = f"offsets map ottla.TopicPartition to OffsetAndMetadata or int, not {key!r} to {value!r}"
                raise TypeError(f"{wrong}{partition_advice(key)}")
            checked[key] = value if isinstance(value, OffsetAndMetadata) else OffsetAndMetadata(value)
        return checked

    async def commit(self, offsets: Committable | None, timeout: float | None) -> list[Chore]:
        """Commit and wait. Return the callbacks to run then, those of earlier asynchronous commits first."""
        group, wanted = self._engine.required_group(), self._committable(offsets)
        await self._waiting.within(group.commit(wanted), timeout, "commit")
        if self._commits:
            await asyncio.wait(self._commits, timeout=1.0)
        if self._on_commit is not None:
            self._engine.chores.append(Chore(partial(self._on_commit, wanted), nothing))
        return self._engine.take_chores()

    def commit_async(self, offsets: Committable | None, callback: CommitCallback | None) -> None:
        self._engine.required_group()
        self._engine.start()
        self._commit_soon(self._committable(offsets), callback)

    def _commit_soon(
        self,
        offsets: dict[TopicPartition, OffsetAndMetadata],
        callback: CommitCallback | None,
        *,
        automatic: bool = False,
    ) -> None:
        task = self._engine.spawn(self._commit_once(offsets, callback, automatic))
        self._commits.add(task)
        task.add_done_callback(self._commits.discard)

    async def _commit_once(
        self, offsets: dict[TopicPartition, OffsetAndMetadata], callback: CommitCallback | None, automatic: bool
    ) -> None:
        engine = self._engine
        error = await engine.required_group().commit_once(offsets)
        if error is not None and automatic:
            log.log(logging.INFO if error.retriable else logging.WARNING, "an automatic commit failed: %s", error)
            self._auto_committed = {}
            if error.retriable and engine.auto_commit is not None:
                engine.auto_commit.again_after(engine.config.retry_backoff_ms, now=monotonic_ms())
        if error is None and self._on_commit is not None:
            engine.chores.append(Chore(partial(self._on_commit, offsets), nothing))
        if callback is not None:
            engine.chores.append(Chore(partial(callback, offsets, error), nothing))
        if engine.chores:
            engine.attend()

    def commit_if_due(self) -> None:
        """Start an automatic commit if the interval is over and there is something new to commit."""
        engine = self._engine
        if engine.auto_commit is None or not engine.auto_commit.due(now=monotonic_ms()):
            return
        if engine.subscription.by_group and (engine.group is None or not engine.group.member.can_commit):
            return  # the rebalance in progress commits before it ends
        offsets = self._handout.consumed()
        if offsets and offsets != self._auto_committed:
            self._auto_committed = offsets
            self._commit_soon(offsets, None, automatic=True)

    async def commit_at_end(self, seconds: float) -> None:
        """Wait for the commits in progress and make the last automatic one."""
        engine = self._engine
        if engine.group is None or engine.loop is None:
            return
        deadline = engine.loop.time() + min(seconds, engine.config.default_api_timeout_ms / 1000)
        if self._commits:
            await asyncio.wait(self._commits, timeout=deadline - engine.loop.time())
        if engine.auto_commit is None or (engine.subscription.by_group and not engine.group.member.is_member):
            return
        if engine.subscription.by_group and not engine.group.member.can_commit:
            deadline = min(deadline, engine.loop.time() + REBALANCE_PATIENCE)
        try:
            async with asyncio.timeout_at(deadline):
                await engine.group.commit(self._handout.consumed())
        except KafkaError as error:
            log.warning("the last automatic commit failed: %s", error)
        except TimeoutError:
            log.warning("the last automatic commit got no response in time")

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        self._engine.trouble = None
        work = self._committed(self._engine.required_group(), several(partitions, "committed"))
        return await self._waiting.within(work, timeout, "committed", lambda: last_error(self._engine.trouble))

    async def _committed(
        self, group: Group, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        attempts = self._engine.cluster.attempts()
        while True:
            try:
                return await group.committed(partitions)
            except KafkaError as error:
                self._engine.trouble = error
                if not error.retriable or not await attempts.pause():
                    raise


def several(given: Any, method: str) -> list[TopicPartition]:
    """Check an argument that must be a list of partitions."""
    if isinstance(given, TopicPartition):
        raise TypeError(f"{method} takes a list of partitions: write {method}([{given!r}])")
    advice = partition_advice(given)
    if not isinstance(given, Iterable) or isinstance(given, str) or advice:
        wrong = f"{method} takes a list of ottla.TopicPartition objects, not {given!r}"
        raise TypeError(f"{wrong}{advice} in a list" if advice else wrong)
    for one in (found := list(given)):
        if not isinstance(one, TopicPartition):
            advice = partition_advice(one)
            raise TypeError(f"{method} takes a list of ottla.TopicPartition objects, but {one!r} is in it{advice}")
    return found


def _no_offsets(given: Any) -> str:
    example = "commit({TopicPartition(record.topic, record.partition): record.offset + 1})"
    if isinstance(given, ConsumerRecord):
        return f"commit takes offsets, not a record. To commit a record and all before it, write {example}"
    return f"commit takes a dict of the next offsets to read, not {type(given).__name__}: write {example}"
