"""The cluster of ``ottla demo --cluster``: three brokers, and the death of the leader that has most to do.

With ``--unsafe`` the settings allow a loss, and the faults make it certain: the leader acknowledges records while both
followers are dead, then it dies too, and a follower leads.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self, TypeVar

from ottla.cli.cluster.explain import explained
from ottla.cli.demo.ledger import Kept, Ledger, compare, lines
from ottla.cli.terminal import plural
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.partition_history import read_changes
from ottla.clients.admin.values import NewTopic, PartitionDescription
from ottla.cluster.cluster import Cluster
from ottla.errors import KafkaError, OttlaError
from ottla.producing.values import RecordMetadata
from ottla.runtime.clock import SystemClock
from ottla.types import TopicPartition

T = TypeVar("T")
BROKERS = 3
RECOVERY_SECONDS = 60.0
#: How long the leader goes on alone in the unsafe story.
ALONE_SECONDS = 2.0
_TICK = 0.02
_CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "zookeeper.session.timeout.ms": "2000",
}
Say = Callable[[str], None]
UNSAFE = (
    "",
    "The lost records were acknowledged by a leader that was alone (acks=1). It died, and the new leader lacks them.",
    "Without --unsafe the producers wait for two brokers (acks=all, min.insync.replicas=2), and only a broker with all",
    "of these records can lead (unclean.leader.election.enable=false). So nothing is lost.",
)


def check_cluster() -> None:
    if importlib.util.find_spec("kazoo") is None:
        raise OttlaError("ottla demo --cluster requires kazoo: install it with  pip install 'ottla[cluster,spark]'")


@dataclass(slots=True)
class Pulse:
    """When the brokers acknowledged records of each partition, and the longest time without one."""

    _last: dict[int, float] = field(default_factory=dict)
    _longest: dict[int, float] = field(default_factory=dict)

    def beat(self, partition: int, now: float) -> None:
        """
        >>> pulse = Pulse()
        >>> for now in (1.0, 1.1, 1.9, 2.0):
        ...     pulse.beat(0, now)
        >>> round(pulse.pause(0), 3)
        0.8
        """
        gap = now - self._last.get(partition, now)
        self._longest[partition] = max(gap, self._longest.get(partition, 0.0))
        self._last[partition] = now

    def pause(self, partition: int) -> float:
        return self._longest.get(partition, 0.0)

    def reset(self) -> None:
        """Forget pauses, but not the last acknowledgements."""
        self._longest.clear()

    def last(self, partition: int) -> float:
        return self._last.get(partition, 0.0)


class DemoCluster:
    """The brokers, what they acknowledged, and the faults. An async context manager."""

    def __init__(self, directory: Path, say: Say, *, unsafe: bool) -> None:
        self._cluster = Cluster(BROKERS, directory, config=_CONFIG, isolation=False)
        self._say = say
        self._unsafe = unsafe
        self._pool = ThreadPoolExecutor(1, "cluster")
        self._ledger = Ledger()
        self._pulse = Pulse()
        self._busiest: TopicPartition | None = None
        self.servers = ""

    async def __aenter__(self) -> Self:
        begin = asyncio.get_running_loop().time()
        try:
            await self._call(self._cluster.start)
        except BaseException:
            await self.__aexit__()
            raise
        self.servers = self._cluster.bootstrap_servers
        took = asyncio.get_running_loop().time() - begin
        self._say(f"cluster     {BROKERS} brokers on {self.servers}, and ZooKeeper, ready after {took:.2f} s")
        return self

    async def __aexit__(self, *_: object) -> None:
        # A cancelled start still runs in its thread, and the stop comes after it.
        await self._call(self._cluster.stop)
        self._pool.shutdown()

    async def _call(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # ── settings ──────────────────────────────────────────────────────────────────────────────────────────────────

    def new_topic(self, name: str, partitions: int) -> NewTopic:
        configs = {"min.insync.replicas": 2, "unclean.leader.election.enable": self._unsafe}
        return NewTopic(name, partitions, BROKERS, configs)

    @property
    def producer_config(self) -> dict[str, object]:
        return {"acks": 1, "enable_idempotence": False} if self._unsafe else {"acks": "all"}

    def describe(self) -> str:
        acks = "acks=1, unclean elections" if self._unsafe else "acks=all, no unclean elections"
        return f"replication factor {BROKERS}, min.insync.replicas=2, {acks}"

    # ── what happens ──────────────────────────────────────────────────────────────────────────────────────────────

    def acknowledged(self, metadata: RecordMetadata, value: bytes, now: float) -> None:
        self._ledger.acknowledged(metadata.partition, value)
        self._pulse.beat(metadata.partition, now)

    async def fail(self, admin: AsyncAdmin, key: TopicPartition, is_over: Callable[[], bool]) -> None:
        """Kill the leader of a partition, the busiest one, and tell what follows. `is_over`: nobody writes any more."""
        self._busiest = key
        leader = await self._until(lambda: self._other_leader(admin, key, 0), f"{key} has a leader")
        if self._unsafe:
            await self._leave_alone(key, leader, is_over)
        self._pulse.reset()
        killed_at = asyncio.get_running_loop().time()
        await self._call(self._cluster.broker(leader).kill)
        if self._unsafe:
            await self._start_followers(leader)
        now_leads = await self._until(lambda: self._other_leader(admin, key, leader), f"{key} gets another leader")
        changed_at = asyncio.get_running_loop().time()
        await self._until(lambda: self._has_beaten(key.partition, changed_at, is_over), f"writes to {key} go on")
        paused = f"; writing paused for {self._pulse.pause(key.partition):.2f} s"
        self._say(
            f"cluster     killed broker {leader} (kill -9), which led {key}, the busiest partition; broker {now_leads} "
            f"leads it, {changed_at - killed_at:.2f} s later{'' if is_over() else paused}"
        )
        await self._recover(leader)

    async def _leave_alone(self, key: TopicPartition, leader: int, is_over: Callable[[], bool]) -> None:
        others = self._others(leader)
        for broker_id in others:
            await self._call(self._cluster.broker(broker_id).kill)
        self._say(f"cluster     killed brokers {_listed(others)} (kill -9); broker {leader} goes on alone")
        until = asyncio.get_running_loop().time() + ALONE_SECONDS
        await self._until(
            lambda: self._has_beaten(key.partition, until, is_over), f"broker {leader} acknowledges records"
        )

    async def _start_followers(self, leader: int) -> None:
        # The last one that died was in sync for longest.
        for broker_id in reversed(self._others(leader)):
            await self._call(self._cluster.broker(broker_id).start)

    async def _recover(self, broker_id: int) -> None:
        begin = asyncio.get_running_loop().time()
        await self._call(self._cluster.broker(broker_id).start)
        await self._call(lambda: self._cluster.wait_until_replicated(timeout=RECOVERY_SECONDS))
        took = asyncio.get_running_loop().time() - begin
        self._say(f"cluster     broker {broker_id} is back: all replicas are in sync {took:.1f} s after its start")

    def _others(self, leader: int) -> list[int]:
        return [broker_id for broker_id in self._cluster.brokers if broker_id != leader]

    async def _until(self, ask: Callable[[], Awaitable[T | None]], what: str) -> T:
        """Ask until the answer is something."""
        try:
            async with asyncio.timeout(RECOVERY_SECONDS):
                while not (found := await ask()):
                    await asyncio.sleep(_TICK)
                return found
        except TimeoutError:
            raise OttlaError(f"waited {RECOVERY_SECONDS:g} s until {what}, in vain") from None

    async def _has_beaten(self, partition: int, since: float, is_over: Callable[[], bool]) -> bool:
        return self._pulse.last(partition) > since or is_over()

    async def _other_leader(self, admin: AsyncAdmin, key: TopicPartition, before: int) -> int | None:
        """The leader of a partition if it is another one. Ids begin with 1."""
        try:
            leader = (await _described(admin, key)).leader
        except KafkaError:
            return None
        return None if leader is None or leader.id == before else leader.id

    # ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def audit(self, topic: str, ends: dict[int, int]) -> list[Kept]:
        """Compare what was acknowledged with what the topic has."""
        return await compare(self._ledger, self.servers, topic, ends)

    async def history(self, admin: AsyncAdmin) -> list[str]:
        """The history of the busiest partition, as shown by ``ottla cluster explain``."""
        if self._busiest is None:
            return []
        changes = await read_changes(admin.cluster, self._busiest) or []
        described = await _described(admin, self._busiest)
        return list(explained(self._busiest, described, changes, now=SystemClock().now()))


async def _described(admin: AsyncAdmin, key: TopicPartition) -> PartitionDescription:
    (topic,) = (await admin.describe_topics([key.topic])).values()
    return next(one for one in topic.partitions if one.partition == key.partition)


def _listed(ids: Sequence[int]) -> str:
    return " and ".join(map(str, ids))


def summary_lines(kept: Sequence[Kept], history: Sequence[str]) -> list[str]:
    """What the summary shows in addition."""
    return [
        "",
        "The acknowledged records, and what the topic has of them",
        *lines(kept),
        *(["", "Who led the busiest partition (ottla cluster explain)", *history] if history else []),
    ]


def problems(kept: Sequence[Kept], *, unsafe: bool) -> list[str]:
    """What should not have happened. Without the safe settings a loss is what should."""
    lost, repeated = sum(one.lost for one in kept), sum(one.repeated for one in kept)
    if unsafe:
        return [] if lost else ["nothing was lost: send for longer (--seconds), so that more happens during the faults"]
    found = [f"{plural(lost, 'acknowledged record')} lost"] if lost else []
    return found + ([f"{plural(repeated, 'record')} repeated in the topic"] if repeated else [])
