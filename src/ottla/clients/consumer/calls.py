"""The methods shared by the asyncio consumer (`asynchronous.py`) and the blocking one (`blocking.py`).

`Calls` builds a consumer from its parts: the engine, and what hands out records, commits and polls. Everything runs on
the event loop, except `handout.py` and `Poller.take_now`: the blocking consumer calls these on the user's thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import partial
from re import Pattern
from typing import Any, TypeVar

from ottla.clients.blocking import IllegalUse
from ottla.clients.cluster.cluster import MISSING_GRACE_MS
from ottla.clients.cluster.leaders import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, FoundOffset, with_partition
from ottla.clients.cluster.metadata import PartitionInfo
from ottla.clients.consumer.commits import Committer, several
from ottla.clients.consumer.core import Chore, Engine, log, nothing
from ottla.clients.consumer.handout import HandOut
from ottla.clients.consumer.polling import Poller, call_listener
from ottla.clients.consumer.waiting import Waiting, last_error
from ottla.config.consumer import CONSUMER, ConsumerConfig
from ottla.consuming.positions import EARLIEST, LATEST
from ottla.consuming.subscription import Mode
from ottla.consuming.values import (
    ConsumerGroupMetadata,
    OffsetAndMetadata,
    OffsetAndTimestamp,
)
from ottla.errors import KafkaError, UnknownTopicOrPartition
from ottla.types import Millis, TopicPartition, millis, partition_advice, topic_partition, whole

T = TypeVar("T")
Partitions = Iterable[TopicPartition | Iterable[TopicPartition]]
UNSUBSCRIBED = "the consumer unsubscribed"
ASKED = "the user called enforce_rebalance()"


def raise_first(errors: list[Exception]) -> None:
    """Raise the first error of user code while the consumer closed, after everything else was done."""
    for error in errors[1:]:
        log.error("a listener or callback raised while the consumer closed, after an earlier error", exc_info=error)
    if errors:
        raise errors[0]


def listed(given: Iterable[T] | None) -> list[T] | None:
    """Return the argument as a list, which may be empty; text is left for `Subscription` to reject."""
    return given if given is None or isinstance(given, str) else list(given)


class Calls:
    """The parts of a consumer, and its methods on positions and metadata."""

    def __init__(self, config: ConsumerConfig, *, unpacks_aside: bool) -> None:
        self.config = config
        self.engine = Engine(config, unpacks_aside=unpacks_aside)
        self.waiting = Waiting(self.engine)
        self.handout = HandOut(self.engine)
        self.committer = Committer(self.engine, self.handout, self.waiting)
        self.poller = Poller(self.engine, self.handout, self.committer, self.waiting)

    # ── what to read ──────────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, topics: Collection[str] | None, pattern: str | Pattern[str] | None, listener: Any) -> None:
        if (topics is None) == (pattern is None):
            raise ValueError("subscribe takes either topics or a pattern")
        self.engine.required_group()
        self.handout.put_back()
        if pattern is not None:
            on_server = self.config.group_protocol == CONSUMER and isinstance(pattern, str)
            self.engine.subscription.subscribe_pattern(pattern, on_server=on_server)
        elif topics is not None:
            self.engine.subscription.subscribe(topics)
        self.poller.listener = listener
        self.engine.look_again()

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        self.handout.put_back()
        wanted = self.engine.subscription.assign(partitions)
        if self.engine.group is not None:
            self.engine.group.subscribed = False
        self.engine.positions.assign(wanted)
        self.engine.look_again()

    async def unsubscribing(self, seconds: float) -> list[Chore]:
        """The first half of unsubscribe and close: commit what was read; returns the callbacks to run then.

        The second half must follow even if they raise.
        """
        await self.committer.commit_at_end(seconds)
        chores = self.engine.take_chores()
        owned = tuple(sorted(self.engine.positions.assigned)) if self.engine.subscription.by_group else ()
        listener = self.poller.listener
        if owned and listener is not None and self.engine.group is not None:
            event = "revoked" if self.engine.group.member.is_member else "lost"
            chores.append(Chore(partial(call_listener, listener, event, owned), nothing))
        return chores

    async def unsubscribed(self, reason: str, seconds: float) -> None:
        """The second half; waits at most so long for the coordinator's response."""
        self.handout.put_back()
        self.engine.positions.assign(())
        self.engine.subscription.unsubscribe()
        self.poller.forget()
        await self.engine.leave(reason, seconds)

    def subscription(self) -> set[str]:
        return set(self.engine.subscription.topics) if self.engine.subscription.mode is not Mode.PARTITIONS else set()

    def assignment(self) -> set[TopicPartition]:
        return self.engine.positions.assigned

    # ── positions ─────────────────────────────────────────────────────────────────────────────────────────────────

    async def position(self, partition: TopicPartition, *, timeout: float | None = None) -> int:
        self._assigned(partition)
        self.engine.trouble = None
        why = partial(self._why_no_position, partition)
        return await self.waiting.within(self._position(partition), timeout, f"position of {partition}", why)

    def _why_no_position(self, partition: TopicPartition) -> str | None:
        topic = self.engine.cluster.metadata.topics.get(partition.topic)
        if topic is not None and topic.error is not None:
            return f"topic {topic.name}: {topic.error}"
        if topic is not None and partition.partition not in topic.partitions:
            return f"topic {topic.name} has only {len(topic.partitions)} partitions"
        return last_error(self.engine.trouble)

    async def _position(self, partition: TopicPartition) -> int:
        held = self.handout.held_back()
        if partition in held:
            return held[partition]
        waited = self.engine.cluster.attempts()
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
            if waited.elapsed_ms >= MISSING_GRACE_MS and (missing := self._missing(partition)) is not None:
                raise missing
            self.engine.tick()
            await self.engine.news(0.1)

    def _missing(self, partition: TopicPartition) -> UnknownTopicOrPartition | None:
        """The error of a partition that an existing topic does not have."""
        topic = self.engine.cluster.metadata.topics.get(partition.topic)
        if topic is None or topic.error is not None or not topic.partitions or partition.partition in topic.partitions:
            return None
        return UnknownTopicOrPartition(
            f"topic {topic.name} has no partition {partition.partition}: it has 0 to {len(topic.partitions) - 1}"
        )

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        self._assigned(partition)
        target = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        self.handout.put_back()
        self.engine.positions.seek(partition, target.offset, target.leader_epoch)
        self.engine.look_again()

    def seek_to(self, partitions: Partitions, where: str) -> None:
        wanted = self._all_assigned(partitions) or sorted(self.engine.positions.assigned)
        self.handout.put_back()
        for partition in wanted:
            self.engine.positions.seek_to(partition, where)
        self.engine.look_again()

    def seek_to_beginning(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        self.seek_to(partitions, EARLIEST)

    def seek_to_end(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        self.seek_to(partitions, LATEST)

    def pause(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        self._pause(partitions, True)

    def resume(self, *partitions: TopicPartition | Iterable[TopicPartition]) -> None:
        self._pause(partitions, False)

    def _pause(self, partitions: Partitions, paused: bool) -> None:
        wanted = self._all_assigned(partitions)
        self.handout.put_back()
        for partition in wanted:
            if (state := self.engine.positions.get(partition)) is not None:
                state.paused = paused
        self.engine.notify()
        self.engine.tick()

    def fetch_until(self, partition: TopicPartition, offset: int | None) -> None:
        self._assigned(partition)
        if offset is not None and whole(offset, f"the offset to fetch {partition} until") < 0:
            raise ValueError(f"offset {offset} is negative: give the first offset not to fetch, or None")
        if (state := self.engine.positions.get(partition)) is not None:
            state.until = offset
        self.engine.tick()

    def paused(self) -> set[TopicPartition]:
        return {state.partition for state in self.engine.positions.states() if state.paused}

    def current_lag(self, partition: TopicPartition) -> int | None:
        self._assigned(partition)
        return self.engine.positions.lag(partition, read_committed=self.config.read_committed)

    def _all_assigned(self, partitions: Partitions) -> list[TopicPartition]:
        """Return partitions that were given one by one, or as a list, as with Java and librdkafka."""
        wanted: list[TopicPartition] = []
        one: Any
        for one in partitions:
            alone = not isinstance(one, Iterable) or isinstance(one, str) or partition_advice(one)
            wanted += [one] if alone else one
        for partition in wanted:
            self._assigned(partition)
        return wanted

    def _assigned(self, partition: TopicPartition) -> None:
        if topic_partition(partition) not in self.engine.positions:
            raise self._not_assigned(partition)

    @staticmethod
    def _not_assigned(partition: TopicPartition) -> IllegalUse:
        return IllegalUse(
            f"partition {partition} is not assigned to this consumer: assign it, or poll until the group has assigned "
            "it (on_partitions_assigned of a RebalanceListener says when)"
        )

    # ── questions about the cluster ───────────────────────────────────────────────────────────────────────────────

    async def offsets(
        self, partitions: Iterable[TopicPartition], timestamp: Millis, timeout: float | None, what: str
    ) -> dict[TopicPartition, int]:
        found = await self._lookup(dict.fromkeys(several(partitions, what), timestamp), timeout, what)
        return {key: one.offset for key, one in found.items()}

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self.offsets(partitions, EARLIEST_TIMESTAMP, timeout, "beginning_offsets")

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        return await self.offsets(partitions, LATEST_TIMESTAMP, timeout, "end_offsets")

    async def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, Millis], *, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        if not isinstance(timestamps, Mapping):
            raise TypeError("offsets_for_times takes a dict of times: {TopicPartition('orders', 0): 1700000000000}")
        for key, timestamp in timestamps.items():
            millis(timestamp, f"the time for {key}")
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
        outcomes = await self.waiting.within(self.engine.lookup.offsets(timestamps), timeout, what)
        found = {}
        for key, one in outcomes.items():
            if isinstance(one, KafkaError):
                raise with_partition(one, key)
            found[key] = one
        return found

    async def partitions_for(self, topic: str, *, timeout: float | None = None) -> list[PartitionInfo]:
        info = await self.waiting.within(self.engine.cluster.topic(topic), timeout, "partitions_for")
        return list(info.partitions.values())

    async def list_topics(self, *, timeout: float | None = None) -> dict[str, list[PartitionInfo]]:
        answer = await self.waiting.within(self.engine.cluster.refresh(None), timeout, "list_topics")
        return {
            name: list(topic.partitions.values())
            for name, topic in sorted(answer.topics.items())
            if topic.error is None and not (topic.internal and self.config.exclude_internal_topics)
        }

    def group_metadata(self) -> ConsumerGroupMetadata:
        group = self.engine.required_group()
        who = group.member.identity
        return ConsumerGroupMetadata(group.group_id, who.generation, who.member_id, who.group_instance_id)

    def enforce_rebalance(self, reason: str = ASKED) -> None:
        self.engine.required_group()
        if not self.engine.subscription.by_group or self.engine.group is None:
            raise IllegalUse("enforce_rebalance needs a subscription, but this consumer uses assign()")
        self.engine.group.member.rejoin(reason)
        self.engine.attend()

    def metrics(self) -> dict[str, float]:
        engine = self.engine
        lags = [engine.positions.lag(key, read_committed=self.config.read_committed) for key in self.assignment()]
        return {
            "records-consumed-total": self.handout.total,
            "bytes-consumed-total": engine.fetched_bytes,
            "fetch-total": engine.fetches,
            "commit-total": engine.group.commits if engine.group is not None else 0,
            "rebalance-total": engine.rebalances,
            "assigned-partitions": len(lags),
            "records-lag-max": max((lag for lag in lags if lag is not None), default=0),
        }
