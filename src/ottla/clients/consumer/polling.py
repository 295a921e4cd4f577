"""What poll does before it hands out records: errors, callbacks, rebalances, automatic commits, waiting.

Code of the user's is never called here: `advance` gives it out as a `Chore`, and goes on when it is called again.
"""

from __future__ import annotations

import asyncio
import time
from functools import partial
from operator import length_hint
from typing import Any

from ottla.clients.blocking import IllegalUse
from ottla.clients.consumer.commits import Committing
from ottla.clients.consumer.core import Chore, log
from ottla.clients.consumer.group import Group, monotonic_ms
from ottla.config.consumer import ConsumerConfig
from ottla.consuming.buffer import RawFetch
from ottla.consuming.membership import Duty, DutyKind
from ottla.consuming.subscription import Mode
from ottla.consuming.values import (
    ConsumerRecord,
)
from ottla.errors import KafkaError
from ottla.types import TopicPartition


class Polling(Committing):
    """Goes on until there is something to take."""

    def __init__(self, config: ConsumerConfig, *, unpacks_aside: bool) -> None:
        super().__init__(config, unpacks_aside=unpacks_aside)
        self.listener: Any = None
        self._duty: Duty | None = None
        self._revoking: asyncio.Task[None] | None = None
        """The commit that a rebalance waits for."""

    def take_now(self, limit: int) -> list[ConsumerRecord] | None:
        """Records that can be had without any wait or other work; None when poll has more to do than that.

        It, `take_raw_now`, `take`, `take_raw` and `finished` may run on another thread than the event loop's.
        """
        if self.leftover or (self.ahead and length_hint(self.iterator)):
            return self._rest(limit)
        return (self.engine.buffer.take(limit) or None) if self._is_at_hand() else None

    def take_raw_now(self, limit: int) -> list[RawFetch] | None:
        """The same undecoded; None also while there are records to put back."""
        if self.leftover or (self.ahead and length_hint(self.iterator)):
            return None
        return (self.take_raw(limit) or None) if self._is_at_hand() else None

    def _is_at_hand(self) -> bool:
        """Whether the buffer has something, and nothing else is to be done first."""
        engine = self.engine
        if engine.attention or self._woken or self._revoking is not None or not engine.buffer:
            return False
        now = monotonic_ms()
        if engine.auto_commit is not None and engine.auto_commit.is_due(now=now):
            return False
        if engine.group is not None:
            engine.group.polled(now=now)
        return True

    async def advance(self, deadline: float) -> Chore | bool:
        """The next chore, True when something can be taken from the buffer, False at the deadline (`time.monotonic`).

        Nothing is taken here: whoever is interrupted while he waits loses no record.
        """
        if self.engine.subscription.mode is Mode.NONE:
            raise IllegalUse("there is nothing to read: call subscribe() or assign() before poll()")
        engine = self.engine
        engine.start()
        while True:
            if engine.group is not None:
                engine.group.polled(now=monotonic_ms())
            engine.tick()
            self._raise_wakeup()
            chore = self._attend()
            if chore is not None:
                return chore
            self._commit_automatically()
            # What is handed out now would not be in the commit before the rebalance.
            if self._revoking is None and engine.buffer.is_ready:
                return True
            left = deadline - time.monotonic()
            if left <= 0:
                if engine.unreachable is not None:
                    raise engine.unreachable
                return False
            # Who waits here is not stuck, however seldom something comes.
            await engine.news(min(left, self.config.max_poll_interval_ms / 2000))

    def _attend(self) -> Chore | None:
        engine = self.engine
        while engine.attention:
            engine.attention = False
            engine.positions.start_anew()
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
        group = self.engine.group
        if group is None or not group.subscribed:
            return None
        if self._revoking is not None:
            return None
        duty = group.member.due()
        if duty is None:
            if (error := group.member.refusal(now=monotonic_ms())) is not None:
                self.engine.attention = True
                raise error
            self.engine.tick()
            return None
        if duty.kind is DutyKind.REVOKE and self._commits_before(duty):
            return None
        return self._chore_of(duty)

    def _commits_before(self, duty: Duty) -> bool:
        """Start the commit that a rebalance waits for; whether it is still under way."""
        if self._duty == duty or self.engine.auto_commit is None or self.engine.group is None:
            return False
        self._duty = duty
        self._revoking = self.engine.spawn(self._commit_before_rebalance(self.engine.group))
        return True

    async def _commit_before_rebalance(self, group: Group) -> None:
        try:
            async with asyncio.timeout(self.config.request_timeout_ms / 1000):
                await group.commit(self.consumed())
        except (KafkaError, TimeoutError) as error:
            log.warning("the automatic commit before a rebalance failed: %s", error)
        self._revoking = None
        self.engine.attend()

    def _chore_of(self, duty: Duty) -> Chore | None:
        if duty.kind is DutyKind.ASSIGN:
            self.engine.positions.add(duty.partitions)
            self.engine.rebalances += 1
        told = {DutyKind.ASSIGN: "assigned", DutyKind.REVOKE: "revoked", DutyKind.LOSE: "lost"}[duty.kind]
        if self.listener is None or (not duty.partitions and duty.kind is not DutyKind.ASSIGN):
            self._done(duty)
            return None
        # The partitions of a cooperative rebalance that is under way are still ours while the listener runs.
        return Chore(partial(tell, self.listener, told, duty.partitions), partial(self._done, duty))

    def _done(self, duty: Duty) -> None:
        self._duty = None
        if duty.kind is not DutyKind.ASSIGN:
            self.engine.positions.remove(duty.partitions)
        if self.engine.group is not None:
            self.engine.group.member.done(duty)
        self._look()

    def _look(self) -> None:
        """There is something new to know of the cluster."""
        self.engine.attention = True
        self.engine._refresh_at = 0
        self.engine.tick()


def tell(listener: Any, what: str, partitions: tuple[TopicPartition, ...]) -> Any:
    """Call a listener, which may be of another library and not know of lost partitions."""
    method = getattr(listener, f"on_partitions_{what}", None)
    if method is None and what == "lost":
        method = getattr(listener, "on_partitions_revoked", None)
    return None if method is None else method(list(partitions))
