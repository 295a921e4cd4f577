"""What `poll` does before it hands out records: raise errors, run callbacks, rebalance, commit automatically, wait.

User code is never called here. `advance` returns it as a `Chore`, and continues when it is called again.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from operator import length_hint
from typing import Any

from ottla.clients.blocking import IllegalUse
from ottla.clients.consumer.commits import Committer
from ottla.clients.consumer.core import Chore, Engine, log
from ottla.clients.consumer.group import Group, monotonic_ms
from ottla.clients.consumer.handout import HandOut
from ottla.clients.consumer.waiting import Waiting
from ottla.consuming.buffer import RawFetch
from ottla.consuming.membership import Duty, DutyKind
from ottla.consuming.subscription import Mode
from ottla.consuming.values import ConsumerRecord
from ottla.errors import KafkaError
from ottla.types import TopicPartition


class Poller:
    """Does the work of a poll until there are records to take."""

    def __init__(self, engine: Engine, handout: HandOut, committer: Committer, waiting: Waiting) -> None:
        self._engine = engine
        self._handout = handout
        self._committer = committer
        self._waiting = waiting
        self.listener: Any = None
        self._duty: Duty | None = None
        self._revoking: asyncio.Task[None] | None = None
        """The commit that a rebalance waits for."""

    def forget(self) -> None:
        """Drop the listener and the duty in progress."""
        self.listener, self._duty = None, None

    def take_now(self, limit: int) -> list[ConsumerRecord] | None:
        """Return records that need no wait and no other work; None when poll has more to do.

        It, `take_raw_now` and the `take` methods and `finished` of `HandOut` may run on the user's thread.
        """
        handout = self._handout
        if handout.leftover or (handout.ahead and length_hint(handout.iterator)):
            return handout.take_rest(limit)
        return (self._engine.buffer.take(limit) or None) if self._is_ready() else None

    def take_raw_now(self, limit: int) -> list[RawFetch] | None:
        """Like `take_now`, but undecoded; None also while there are records to put back."""
        handout = self._handout
        if handout.leftover or (handout.ahead and length_hint(handout.iterator)):
            return None
        return (handout.take_raw(limit) or None) if self._is_ready() else None

    def _is_ready(self) -> bool:
        """Whether the buffer has something and no other work comes first."""
        engine = self._engine
        if engine.attention or self._waiting.woken or self._revoking is not None or not engine.buffer:
            return False
        now = monotonic_ms()
        if engine.auto_commit is not None and engine.auto_commit.is_due(now=now):
            return False
        if engine.group is not None:
            engine.group.polled(now=now)
        return True

    async def advance(self, deadline: float) -> Chore | bool:
        """Return the next chore, True when the buffer has records, or False at the deadline (`time.monotonic`).

        Nothing is taken here, so an interrupted wait loses no record.
        """
        engine = self._engine
        if engine.subscription.mode is Mode.NONE:
            raise IllegalUse("there is nothing to read: call subscribe() or assign() before poll()")
        engine.start()
        while True:
            if engine.group is not None:
                engine.group.polled(now=monotonic_ms())
            engine.tick()
            self._waiting.raise_if_woken()
            chore = self._attend()
            if chore is not None:
                return chore
            self._committer.commit_if_due()
            # Records handed out now would be missing in the commit before the rebalance.
            if self._revoking is None and engine.buffer.is_ready:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                if engine.unreachable is not None:
                    raise engine.unreachable
                return False
            # A user that waits here is not stuck, so max.poll.interval.ms must not expire.
            await engine.news(min(left, engine.config.max_poll_interval_ms / 2000))

    def _attend(self) -> Chore | None:
        engine = self._engine
        while engine.attention:
            engine.attention = False
            engine.positions.restart_recreated()
            if engine.errors:
                engine.attention = True
                raise engine.errors.popleft()
            if engine.chores:
                engine.attention = True
                return engine.chores.popleft()
            if (error := engine.positions.without_start()) is not None:
                engine.attention = True
                raise error
            chore = self._rebalance()
            if chore is not None:
                return chore
        return None

    def _rebalance(self) -> Chore | None:
        group = self._engine.group
        if group is None or not group.subscribed or self._revoking is not None:
            return None
        duty = group.member.due()
        if duty is None:
            if (error := group.member.rejection(now=monotonic_ms())) is not None:
                self._engine.attention = True
                raise error
            self._engine.tick()
            return None
        if duty.kind is DutyKind.REVOKE and self._commits_before(duty):
            return None
        return self._chore_of(duty)

    def _commits_before(self, duty: Duty) -> bool:
        """Start the commit that a rebalance waits for; whether one was started."""
        if self._duty == duty or self._engine.auto_commit is None or self._engine.group is None:
            return False
        self._duty = duty
        self._revoking = self._engine.spawn(self._commit_before_rebalance(self._engine.group))
        return True

    async def _commit_before_rebalance(self, group: Group) -> None:
        try:
            async with asyncio.timeout(self._engine.config.request_timeout_ms / 1000):
                await group.commit(self._handout.consumed())
        except (KafkaError, TimeoutError) as error:
            log.warning("the automatic commit before a rebalance failed: %s", error)
        self._revoking = None
        self._engine.attend()

    def _chore_of(self, duty: Duty) -> Chore | None:
        if duty.kind is DutyKind.ASSIGN:
            self._engine.positions.add(duty.partitions)
            self._engine.rebalances += 1
        event = {DutyKind.ASSIGN: "assigned", DutyKind.REVOKE: "revoked", DutyKind.LOSE: "lost"}[duty.kind]
        if self.listener is None or (not duty.partitions and duty.kind is not DutyKind.ASSIGN):
            self._done(duty)
            return None
        # While the listener runs, this member still owns the partitions that a cooperative rebalance revokes.
        return Chore(partial(call_listener, self.listener, event, duty.partitions), partial(self._done, duty))

    def _done(self, duty: Duty) -> None:
        self._duty = None
        if duty.kind is not DutyKind.ASSIGN:
            self._engine.positions.remove(duty.partitions)
        if self._engine.group is not None:
            self._engine.group.member.done(duty)
        self._engine.look_again()


def call_listener(listener: Any, event: str, partitions: tuple[TopicPartition, ...]) -> Any:
    """Call a listener, which may be written for another library and have no method for lost partitions."""
    method = getattr(listener, f"on_partitions_{event}", None)
    if method is None and event == "lost":
        method = getattr(listener, "on_partitions_revoked", None)
    return None if method is None else method(list(partitions))
