"""KIP-848 groups: the time from the trigger until the group is stable, and the pauses in consumption.

Each member has a connection. It sends a heartbeat, takes its partitions, acknowledges a change at once, and sends the
next heartbeat about `PAUSE` after a response without a change. Kafka's interval of 5 s would dominate the result and
is the same on every broker. The pauses are random, with the same values on every broker. With equal pauses all
members would be in step, and the order of two heartbeats would decide the result. A group is stable when all members
are in the new epoch and every partition has an owner. A partition has no owner from the time its member is told to
release it (or leaves, or its session ends) until another member gets it. A partition that does not move counts as 0.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from itertools import count
from random import Random

from benchmarks.groups_classic import NEVER_SLOWER, PARTITIONS_EACH, REBALANCE_TIMEOUT, Case
from benchmarks.groups_wire import PATIENCE, Connection, Cost, connect, create_topic, watch
from benchmarks.peer import Peer
from benchmarks.report import Report
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

SECTION = "Consumer groups (KIP-848), from the trigger until settled"
GAP_SECTION = "Consumer groups (KIP-848), time without consumption"
CPU_SECTION = "Consumer groups (KIP-848), broker CPU for each rebalance"
PAUSE = 0.01
SESSION = 20_000  # milliseconds, set on the broker
STAY_ALIVE = 1.0
LEAVE = -1
CONFIG = {
    "group.consumer.session.timeout.ms": SESSION,
    "group.consumer.min.session.timeout.ms": SESSION,
    "group.consumer.heartbeat.interval.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
}
_numbers = count()


def cases(*, quick: bool) -> list[Case]:
    """Return fewer repetitions than for classic groups, because every crash lasts a session."""
    if quick:
        return [Case(10, 2), Case(100, 1), Case(500, 1)]
    return [Case(10, 5), Case(100, 4), Case(500, 3)]


def topic_of(members: int) -> str:
    return f"consumers-{members}"


async def prepare(peer: Peer, cases: Iterable[Case]) -> None:
    for case in cases:
        await create_topic(peer, topic_of(case.members), case.members * PARTITIONS_EACH)


async def warm_up(peer: Peer, cases: Iterable[Case]) -> None:
    for case in list(cases)[:2]:
        group = await Group.of(peer, case.members)
        for trigger in (all_join, one_leaves, one_joins):
            await trigger(group)
        await group.close()


async def measure(peer: Peer, report: Report, case: Case) -> None:
    """Run all triggers once, in a new group."""
    group = await Group.of(peer, case.members)
    for name, trigger in TRIGGERS.items():
        seconds, cost = await trigger(group)
        label = f"{case.members} members, {name}"
        took = report.measure(SECTION, label, "ms", NEVER_SLOWER)
        took.add(peer.name, seconds * 1e3)
        took.notes[peer.name] = f"generator {cost.generator_share:.0%}, {len(group.gaps)} partitions moved"
        report.measure(CPU_SECTION, label, "ms").add(peer.name, cost.broker * 1e3)
        if trigger is not all_join:
            _note_gaps(report, peer, label, group)
        report.other_cores.append(cost.other_cores)
    await group.close()


def _note_gaps(report: Report, peer: Peer, label: str, group: Group) -> None:
    mean = sum(group.gaps) / group.partitions
    report.measure(GAP_SECTION, f"{label}, mean", "ms", NEVER_SLOWER).add(peer.name, mean * 1e3)
    report.measure(GAP_SECTION, f"{label}, most", "ms").add(peer.name, max(group.gaps, default=0.0) * 1e3)


# The triggers. Each waits until the group is stable and returns the time and the cost.


async def all_join(group: Group) -> tuple[float, Cost]:
    return await _timed(group, lambda: group.join(group.absent[:-1]))


async def one_leaves(group: Group) -> tuple[float, Cost]:
    return await _timed(group, lambda: group.leave(group.members[-1]))


async def one_joins(group: Group) -> tuple[float, Cost]:
    return await _timed(group, lambda: group.join(group.absent[-1:]))


async def one_crashes(group: Group) -> tuple[float, Cost]:
    """Close a connection without leaving. The time starts when the session ends."""
    crashing = group.members[-1]
    await crashing.heartbeat()
    expires = time.monotonic() + SESSION / 1e3
    crashing.connection.close()
    group.forget(crashing, expires)
    took = 0.0
    # Early enough that the session does not end before the measurement starts.
    while (left := expires - time.monotonic() - 2 * PAUSE - 2 * took) > 0:
        begin = time.monotonic()
        await asyncio.gather(*(member.heartbeat() for member in group.members))
        took = max(took, time.monotonic() - begin)
        await asyncio.sleep(min(STAY_ALIVE, max(0.0, left - took)))

    async def nothing() -> None:
        """Let the broker do it."""

    _, cost = await _timed(group, nothing)
    return group.settled_at - expires, cost


TRIGGERS: dict[str, Callable[[Group], Awaitable[tuple[float, Cost]]]] = {
    "all join": all_join,
    "one leaves": one_leaves,
    "one joins": one_joins,
    "one crashes": one_crashes,
}


async def _timed(group: Group, trigger: Callable[[], Awaitable[None]]) -> tuple[float, Cost]:
    with watch(group.peer) as cost:
        group.expect_rebalance()
        begin = time.monotonic()
        async with asyncio.timeout(PATIENCE):
            await trigger()
            await group.until_settled()
    return group.settled_at - begin, cost


class Member:
    """One member: sends heartbeats and follows the responses."""

    def __init__(self, group: Group, connection: Connection, seed: int) -> None:
        self.group = group
        self.connection = connection
        self._random = Random(seed)
        self.member_id = str(uuid.uuid4())
        self.epoch = 0
        self.owned: frozenset[int] = frozenset()
        self._acknowledge = False

    async def heartbeat(self) -> bool:
        """Return whether the response had a change."""
        answer = await self.connection.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, self._message())
        if answer.error_code:
            raise RuntimeError(f"a heartbeat failed with error code {answer.error_code}: {answer.error_message}")
        self._acknowledge = False
        if self not in self.group.epochs_of:
            return False  # It has left.
        self.group.in_epoch(self, answer.member_epoch)
        if answer.assignment is not None:
            self._take(answer.assignment)
        self.group.maybe_settled()
        return self._acknowledge

    def _message(self) -> Message:
        message: Message = {
            "group_id": self.group.group_id,
            "member_id": self.member_id,
            "member_epoch": self.epoch,
            "topic_partitions": None,
        }
        if self.epoch == 0:
            names = [self.group.topic]
            joining = {"rebalance_timeout": REBALANCE_TIMEOUT, "subscribed_topic_names": names, "topic_partitions": []}
            return {**message, **joining}
        if self._acknowledge:
            held = [{"topic_id": self.group.topic_id, "partitions": sorted(self.owned)}] if self.owned else []
            return {**message, "topic_partitions": held}
        return message

    def _take(self, assignment: Struct) -> None:
        now = time.monotonic()
        given = frozenset(index for topic in assignment.topic_partitions for index in topic.partitions)
        for index in self.owned - given:
            self.group.lost(index, now)
        for index in given - self.owned:
            self.group.taken(index, self, now)
        self._acknowledge = given != self.owned
        self.owned = given

    async def leave(self) -> None:
        message = {"group_id": self.group.group_id, "member_id": self.member_id, "member_epoch": LEAVE}
        await self.connection.call(ApiKey.CONSUMER_GROUP_HEARTBEAT, {**message, "topic_partitions": None})

    async def keep_going(self) -> None:
        """Send heartbeats until the group is stable."""
        while not self.group.is_settled and self in self.group.epochs_of:
            if not await self.heartbeat():
                await asyncio.sleep(PAUSE * self._random.uniform(0.5, 1.5))


class Group:
    """A group on one broker, with its members and its spare members."""

    def __init__(self, peer: Peer, topic: str, topic_id: uuid.UUID, connections: Iterable[Connection]) -> None:
        self.peer = peer
        self.group_id = f"consumer-{next(_numbers)}"
        self.topic, self.topic_id = topic, topic_id
        self.absent = [Member(self, connection, seed) for seed, connection in enumerate(connections)]
        self.partitions = (len(self.absent) - 1) * PARTITIONS_EACH
        self.members: list[Member] = []
        self.epochs_of: dict[Member, int] = {}
        self.gaps: list[float] = []  # of the partitions that moved
        self.settled_at = 0.0
        self.is_settled = True
        self._epochs: Counter[int] = Counter()
        self._owners: dict[int, Member] = {}
        self._lost_at: dict[int, float] = {}
        self._epoch_before = 0

    @classmethod
    async def of(cls, peer: Peer, members: int) -> Group:
        topic_id = await create_topic(peer, topic_of(members), members * PARTITIONS_EACH)
        return cls(peer, topic_of(members), topic_id, await connect(peer, members + 1))

    async def join(self, members: list[Member]) -> None:
        self.absent = [member for member in self.absent if member not in members]
        for member in members:
            self.members.append(member)
            self.epochs_of[member] = 0
            self._epochs[0] += 1

    async def leave(self, member: Member) -> None:
        self.forget(member, time.monotonic())
        await member.leave()

    def forget(self, member: Member, at: float) -> None:
        """Remove a member. Its partitions have no owner from now on."""
        self.members.remove(member)
        self._epochs[self.epochs_of.pop(member)] -= 1
        for index in member.owned:
            self.lost(index, at)

    async def close(self) -> None:
        """Let all members leave, so that no session ends during another measurement."""
        await asyncio.gather(*(member.leave() for member in self.members))
        for member in self.members + self.absent:
            member.connection.close()

    # Reports of members.

    def in_epoch(self, member: Member, epoch: int) -> None:
        self._epochs[member.epoch] -= 1
        self._epochs[epoch] += 1
        member.epoch = self.epochs_of[member] = epoch

    def lost(self, index: int, at: float) -> None:
        del self._owners[index]
        self._lost_at[index] = at

    def taken(self, index: int, by: Member, at: float) -> None:
        if index in self._owners:
            raise RuntimeError(f"{self.peer.name} gave partition {index} to two members")
        self._owners[index] = by
        if index in self._lost_at:
            self.gaps.append(max(0.0, at - self._lost_at.pop(index)))

    def expect_rebalance(self) -> None:
        self._epoch_before = max(self.epochs_of.values(), default=0)
        self.gaps.clear()
        self.is_settled = False

    def maybe_settled(self) -> None:
        if self.is_settled or len(self._owners) != self.partitions:
            return
        epochs = [epoch for epoch, members in self._epochs.items() if members]
        if len(epochs) == 1 and epochs[0] > self._epoch_before:
            self.is_settled = True
            self.settled_at = time.monotonic()

    async def until_settled(self) -> None:
        try:
            async with asyncio.TaskGroup() as tasks:
                for member in self.members:
                    tasks.create_task(member.keep_going())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
