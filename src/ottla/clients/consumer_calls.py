"""What a consumer's methods do, for both faces: asyncio (`consumer.py`) and blocking (`blocking_consumer.py`).

Everything here runs on the event loop, except `take_now`, which the blocking face calls on the user's thread. Code of
the user's is never called here: `advance` gives it out as a `Chore`, and goes on when it is called again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from functools import partial
from operator import length_hint
from re import Pattern
from typing import Any, TypeVar

from ottla.clients.blocking import IllegalUse
from ottla.clients.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FoundOffset, with_partition
from ottla.clients.consumer_core import Chore, Engine, log
from ottla.clients.consumer_group import Group, monotonic_ms
from ottla.clients.consumer_records import Finisher
from ottla.clients.metadata import PartitionInfo
from ottla.config.consumer import CONSUMER, ConsumerConfig
from ottla.consuming.buffer import RawFetch
from ottla.consuming.errors import GroupRequired, Wakeup
from ottla.consuming.membership import Duty, DutyKind
from ottla.consuming.positions import EARLIEST, LATEST
from ottla.consuming.subscription import Mode
from ottla.consuming.values import (
    ConsumerGroupMetadata,
    ConsumerRecord,
    ConsumerRecords,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from ottla.errors import KafkaError, RequestTimedOut
from ottla.types import Millis, TopicPartition

T = TypeVar("T")
#: How long the last commit waits for a rebalance that is under way.
REBALANCE_PATIENCE = 3.0
CommitCallback = Callable[[Mapping[TopicPartition, OffsetAndMetadata], KafkaError | None], Any]
Committable = Mapping[TopicPartition, OffsetAndMetadata | int]


class Calls:
    """The methods of a consumer, on its engine."""

    def __init__(self, config: ConsumerConfig, *, unpacks_aside: bool) -> None:
        self.config = config
        self.engine = Engine(config, unpacks_aside=unpacks_aside)
        self.finisher = Finisher(config)
        self.listener: Any = None
        self.ahead: list[ConsumerRecord] = []
        """Records that an iteration took and did not hand out yet; see `ahead_of`."""
        self.iterator: Any = iter(())
        self.leftover: list[ConsumerRecord] = []
        """Records that were taken but could not be made into the user's objects yet."""
        self.on_commit = self.finisher.on_commit if self.finisher.intercepts else None
        self.records = 0
        self._finished_already = False
        self._woken = False
        self._waiting: asyncio.Future[None] | None = None
        self._duty: Duty | None = None
        self._revoking: asyncio.Task[None] | None = None
        self._commits: set[asyncio.Task[None]] = set()
        self._auto_committed: dict[TopicPartition, OffsetAndMetadata] = {}

    def _group(self) -> Group:
        if self.engine.group is None:
            raise GroupRequired('group.id is missing: name the group, such as Consumer(group_id="my-group")')
        return self.engine.group

    # ── what to read ──────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, topics: Collection[str] | None, pattern: str | Pattern[str] | None, listener: Any) -> None:
        if (topics is None) == (pattern is None):
            raise ValueError("subscribe takes topics or a pattern, one of the two")
        self._group()
        self.put_back()
        if pattern is not None:
            on_server = self.config.group_protocol == CONSUMER and isinstance(pattern, str)
            self.engine.subscription.subscribe_pattern(pattern, on_server=on_server)
        elif topics is not None:
            self.engine.subscription.subscribe(topics)
        self.listener = listener
        self._look()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        self.put_back()
        self.engine.subscription.assign(partitions)
        if self.engine.group is not None:
            self.engine.group.subscribed = False
        self.engine.positions.assign(partitions)
        self._look()

    def _look(self) -> None:
        """There is something new to know of the cluster."""
        self.engine.attention = True
        self.engine._refresh_at = 0
        self.engine.tick()

    async def unsubscribing(self, reason: str) -> list[Chore]:
        """The first half of unsubscribe and close: commit what was read; what the user has to run then."""
        await self._commit_at_end()
        chores = self._due_chores()
        owned = tuple(sorted(self.engine.positions.assigned)) if self.engine.subscription.by_group else ()
        if owned and self.listener is not None and self.engine.group is not None:
            lost = not self.engine.group.member.is_member
            chores.append(Chore(partial(_tell, self.listener, "lost" if lost else "revoked", owned), _nothing))
        return chores

    async def unsubscribed(self, reason: str) -> None:
        """The second half."""
        self.put_back()
        self.engine.positions.assign(())
        self.engine.subscription.unsubscribe()
        self.listener, self._duty = None, None
        await self.engine.leave(reason)

    async def _commit_at_end(self) -> None:
        engine = self.engine
        if engine.group is None or engine.loop is None:
            return
        if self._commits:
            await asyncio.wait(self._commits)
        if engine.auto_commit is None or (engine.subscription.by_group and not engine.group.member.is_member):
            return
        waits = not engine.subscription.by_group or engine.group.member.can_commit
        seconds = self.config.default_api_timeout_ms / 1000 if waits else REBALANCE_PATIENCE
        try:
            async with asyncio.timeout(seconds):
                await engine.group.commit(self.consumed())
        except KafkaError as error:
            log.warning("the automatic commit at the end failed: %s", error)
        except TimeoutError:
            log.warning("the automatic commit at the end did not succeed within %g s", seconds)

    # ── poll ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def take_now(self, limit: int) -> list[ConsumerRecord] | None:
        """Records that can be had without any wait or other work; None when poll has more to do than that.

        It, `take`, `take_raw` and `finished` may run on another thread than the event loop's.
        """
        engine = self.engine
        if self.leftover or (self.ahead and length_hint(self.iterator)):
            return self._rest(limit)
        if engine.attention or self._woken or self._revoking is not None or not engine.buffer:
            return None
        now = monotonic_ms()
        if engine.auto_commit is not None and engine.auto_commit.is_due(now=now):
            return None
        if engine.group is not None:
            engine.group.polled(now=now)
        return engine.buffer.take(limit) or None

    def take(self, limit: int) -> list[ConsumerRecord]:
        return self.engine.buffer.take(limit)

    def take_raw(self, limit: int) -> list[RawFetch]:
        """As `take`, undecoded; 0 is no limit."""
        return self.engine.buffer.take_raw(limit or None)

    def _rest(self, limit: int) -> list[ConsumerRecord]:
        """What an iteration left, or what could not be deserialized before."""
        if waiting := self.not_iterated():
            self.iterate(waiting[limit:])
            self._finished_already = True
            return waiting[:limit]
        records, self.leftover = self.leftover[:limit], self.leftover[limit:]
        return records

    def finished(self, records: list[ConsumerRecord]) -> ConsumerRecords:
        """What was taken, as the user wants it. Runs on the user's thread."""
        if self._finished_already:
            self._finished_already = False
            return ConsumerRecords(records)
        before = self.leftover
        try:
            finished, leftover = self.finisher.finish(records)
        except Exception:
            self.leftover = [*records, *before]
            raise
        if leftover or before:
            self.leftover = [*leftover, *before]
        self.records += len(finished)
        return finished

    def limit(self, max_records: int | None) -> int:
        if max_records is None:
            return self.config.max_poll_records
        if max_records < 1:
            raise ValueError(f"max_records is at least 1, not {max_records}")
        return max_records

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
            await engine.news(left)

    def _attend(self) -> Chore | None:
        engine = self.engine
        while engine.attention:
            engine.attention = False
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
            if group.member.fatal is not None:
                self.engine.attention = True
                raise group.member.fatal
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
        return Chore(partial(_tell, self.listener, told, duty.partitions), partial(self._done, duty))

    def _done(self, duty: Duty) -> None:
        self._duty = None
        if duty.kind is not DutyKind.ASSIGN:
            self.engine.positions.remove(duty.partitions)
        if self.engine.group is not None:
            self.engine.group.member.done(duty)
        self._look()

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

    def _due_chores(self) -> list[Chore]:
        chores = list(self.engine.chores)
        self.engine.chores.clear()
        return chores

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

    async def within(self, work: Awaitable[T], timeout: float | None, what: str) -> T:
        """The result of `work`, unless it takes too long or somebody calls `wakeup`."""
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
            raise RequestTimedOut(f"{what} did not end within {seconds:g} s: is the broker running and reachable?")
        finally:
            self._waiting = None
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    # ── commits ───────────────────────────────────────────────────────────────────────────────────────────────────

    def consumed(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything that was handed out."""
        offsets = self.engine.positions.consumed()
        for key, offset in self._held_back().items():
            if key in offsets:
                offsets[key] = OffsetAndMetadata(offset, "", offsets[key].leader_epoch)
        return offsets

    def _held_back(self) -> dict[TopicPartition, int]:
        """The first offset of each partition that was taken but not handed out."""
        first: dict[TopicPartition, int] = {}
        for record in (*self.not_iterated(), *self.leftover):
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        return first

    def not_iterated(self) -> list[ConsumerRecord]:
        return self.ahead[len(self.ahead) - length_hint(self.iterator) :]

    def iterate(self, records: list[ConsumerRecord]) -> Any:
        """Records to hand out one by one."""
        self.ahead = records
        self.iterator = iter(records)
        return self.iterator

    def put_back(self) -> None:
        """Give back what was taken and not handed out: it is fetched again if it is still wanted."""
        for key, offset in self._held_back().items():
            if key in self.engine.positions:
                self.engine.positions.seek(key, offset)
        self.iterate([])
        self.leftover = []

    def committable(self, offsets: Committable | None) -> dict[TopicPartition, OffsetAndMetadata]:
        if offsets is None:
            return self.consumed()
        checked: dict[TopicPartition, OffsetAndMetadata] = {}
        key: Any
        for key, value in offsets.items():
            one = OffsetAndMetadata(value) if isinstance(value, int) else value
            if not isinstance(key, TopicPartition) or not isinstance(one, OffsetAndMetadata):
                raise TypeError(f"offsets map TopicPartition to OffsetAndMetadata or int, not {key!r} to {value!r}")
            if one.offset < 0:
                raise ValueError(f"the offset to commit for {key} is at least 0, not {one.offset}")
            checked[key] = one
        return checked

    async def commit(self, offsets: Committable | None, timeout: float | None) -> list[Chore]:
        """Commit and wait; what has to be run then, the callbacks of earlier asynchronous commits first."""
        group, wanted = self._group(), self.committable(offsets)
        await self.within(group.commit(wanted), timeout, "commit")
        if self._commits:
            await asyncio.wait(self._commits, timeout=1.0)
        if self.on_commit is not None:
            self.engine.chores.append(Chore(partial(self.on_commit, wanted), _nothing))
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
            self.engine.chores.append(Chore(partial(self.on_commit, offsets), _nothing))
        if callback is not None:
            self.engine.chores.append(Chore(partial(callback, offsets, error), _nothing))
        if self.engine.chores:
            self.engine.attend()

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        return await self.within(self._committed(self._group(), list(partitions)), timeout, "committed")

    async def _committed(
        self, group: Group, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        attempts = self.engine.cluster.attempts()
        while True:
            try:
                return await group.committed(partitions)
            except KafkaError as error:
                if not error.retriable or not await attempts.pause():
                    raise

    # ── positions ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def position(self, partition: TopicPartition, timeout: float | None) -> int:
        self._assigned(partition)
        return await self.within(self._position(partition), timeout, f"position of {partition}")

    async def _position(self, partition: TopicPartition) -> int:
        held = self._held_back()
        if partition in held:
            return held[partition]
        while True:
            state = self.engine.positions.get(partition)
            if state is None:
                raise self._not_assigned(partition)
            if state.position is not None:
                return state.position
            if (error := self.engine.positions.without_start()) is not None:
                raise error
            if self.engine.errors:
                raise self.engine.errors.popleft()
            self.engine.tick()
            await self.engine.news(0.1)

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self._assigned(partition)
        self.put_back()
        if isinstance(offset, OffsetAndMetadata):
            self.engine.positions.seek(partition, offset.offset, offset.leader_epoch)
        else:
            self.engine.positions.seek(partition, offset)
        self._look()

    def seek_to(self, partitions: Collection[TopicPartition], where: str) -> None:
        wanted = list(partitions) or sorted(self.engine.positions.assigned)
        for partition in wanted:
            self._assigned(partition)
        self.put_back()
        for partition in wanted:
            self.engine.positions.seek_to(partition, where)
        self._look()

    def seek_to_beginning(self, partitions: Collection[TopicPartition]) -> None:
        self.seek_to(partitions, EARLIEST)

    def seek_to_end(self, partitions: Collection[TopicPartition]) -> None:
        self.seek_to(partitions, LATEST)

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._pause(partitions, True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._pause(partitions, False)

    def _pause(self, partitions: Iterable[TopicPartition], paused: bool) -> None:
        wanted = list(partitions)
        for partition in wanted:
            self._assigned(partition)
        self.put_back()
        for partition in wanted:
            if (state := self.engine.positions.get(partition)) is not None:
                state.paused = paused
        self.engine._tell()
        self.engine.tick()

    def paused(self) -> set[TopicPartition]:
        return {state.partition for state in self.engine.positions.states() if state.paused}

    def current_lag(self, partition: TopicPartition) -> int | None:
        self._assigned(partition)
        return self.engine.positions.lag(partition, read_committed=self.config.read_committed)

    def _assigned(self, partition: TopicPartition) -> None:
        if partition not in self.engine.positions:
            raise self._not_assigned(partition)

    @staticmethod
    def _not_assigned(partition: TopicPartition) -> IllegalUse:
        return IllegalUse(
            f"partition {partition} is not assigned to this consumer: assign it, or poll until the group has given it "
            "(on_partitions_assigned of a RebalanceListener says when)"
        )

    # ── questions about the cluster ───────────────────────────────────────────────────────────────────────────────

    async def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: Millis, timeout: float | None, what: str
    ) -> dict[TopicPartition, int]:
        found = await self._lookup(dict.fromkeys(partitions, timestamp), timeout, what)
        return {key: one.offset for key, one in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, int]:
        return await self.offsets(partitions, EARLIEST_TIMESTAMP, timeout, "beginning_offsets")

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None
    ) -> dict[TopicPartition, int]:
        return await self.offsets(partitions, LATEST_TIMESTAMP, timeout, "end_offsets")

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, Millis], timeout: float | None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        for key, timestamp in timestamps.items():
            if timestamp < 0:
                raise ValueError(f"the time for {key} is at least 0 (ms since 1970), not {timestamp}")
        found = await self._lookup(timestamps, timeout, "offsets_for_times")
        return {
            key: None
            if one.offset < 0
            else OffsetAndTimestamp(one.offset, one.timestamp, one.leader_epoch if one.leader_epoch >= 0 else None)
            for key, one in found.items()
        }

    async def _lookup(
        self, timestamps: Mapping[TopicPartition, Millis], timeout: float | None, what: str
    ) -> dict[TopicPartition, FoundOffset]:
        outcomes = await self.within(self.engine.lookup.offsets(timestamps), timeout, what)
        found = {}
        for key, one in outcomes.items():
            if isinstance(one, KafkaError):
                raise with_partition(one, key)
            found[key] = one
        return found

    async def partitions_for(self, topic: str, timeout: float | None) -> list[PartitionInfo]:
        info = await self.within(self.engine.cluster.topic(topic), timeout, "partitions_for")
        return list(info.partitions.values())

    async def list_topics(self, timeout: float | None) -> dict[str, list[PartitionInfo]]:
        answer = await self.within(self.engine.cluster.refresh(None), timeout, "list_topics")
        return {
            name: list(topic.partitions.values())
            for name, topic in sorted(answer.topics.items())
            if topic.error is None and not (topic.internal and self.config.exclude_internal_topics)
        }

    def group_metadata(self) -> ConsumerGroupMetadata:
        group = self._group()
        who = group.member.identity
        return ConsumerGroupMetadata(group.group_id, who.generation, who.member_id, who.group_instance_id)

    def enforce_rebalance(self, reason: str) -> None:
        self._group()
        if not self.engine.subscription.by_group or self.engine.group is None:
            raise IllegalUse("enforce_rebalance needs a subscription: this consumer chose its partitions itself")
        self.engine.group.member.rejoin(reason)
        self.engine.attend()

    def subscription(self) -> set[str]:
        return set(self.engine.subscription.topics) if self.engine.subscription.mode is not Mode.PARTITIONS else set()

    def assignment(self) -> set[TopicPartition]:
        return self.engine.positions.assigned

    def metrics(self) -> dict[str, float]:
        engine = self.engine
        lags = [engine.positions.lag(key, read_committed=self.config.read_committed) for key in self.assignment()]
        return {
            "records-consumed-total": self.records,
            "bytes-consumed-total": engine.fetched_bytes,
            "fetch-total": engine.fetches,
            "commit-total": engine.group.commits if engine.group is not None else 0,
            "rebalance-total": engine.rebalances,
            "assigned-partitions": len(lags),
            "records-lag-max": max((lag for lag in lags if lag is not None), default=0),
        }


def _tell(listener: Any, what: str, partitions: tuple[TopicPartition, ...]) -> Any:
    """Call a listener, which may be of another library and not know of lost partitions."""
    method = getattr(listener, f"on_partitions_{what}", None)
    if method is None and what == "lost":
        method = getattr(listener, "on_partitions_revoked", None)
    return None if method is None else method(list(partitions))


def _nothing() -> None:
    return
