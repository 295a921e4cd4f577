"""Classic groups: the time from a trigger until the last member has its assignment.

Each member has a connection, which is opened before. After the trigger one member sends heartbeats a millisecond
apart. When it learns about the rebalance, all members send a heartbeat, join and sync. This measures the work of the
broker, and not the wait of up to `heartbeat.interval.ms`, which is the same on every broker. The leader is one of the
members.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from functools import cache
from itertools import count

from benchmarks.groups_wire import PATIENCE, Connection, Cost, connect, watch
from benchmarks.peer import Peer
from benchmarks.report import Report, Target
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct, encode_data

SECTION = "Classic groups, from the trigger until all have their assignment"
CPU_SECTION = "Classic groups, broker CPU for each rebalance"
GAP_SECTION = "Classic groups, time without consumption, mean of the members"
NEVER_SLOWER = Target("<=", 1.0)
TOPIC = "groups"
PARTITIONS_EACH = 2
LONG_SESSION, SHORT_SESSION = 300_000, 2_000  # milliseconds
REBALANCE_TIMEOUT = 60_000
BETWEEN_HEARTBEATS = 0.001
ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, REBALANCE_IN_PROGRESS, MEMBER_ID_REQUIRED = 22, 25, 27, 79
PROTOCOLS = ("range", "cooperative-sticky")  # the defaults of Kafka's consumer
_numbers = count()


@dataclass(frozen=True)
class Case:
    members: int
    repetitions: int


def cases(*, quick: bool) -> list[Case]:
    if quick:
        return [Case(10, 3), Case(100, 2), Case(500, 1)]
    return [Case(10, 10), Case(100, 6), Case(500, 4)]


async def warm_up(peer: Peer, *, quick: bool) -> None:
    """Warm up just-in-time compilers before the first repetition."""
    for members in [10, 100] if quick else [10, 100, 500, 100, 10] * 2:
        group = await Group.of(peer, members + 1)
        for trigger in (all_join, one_leaves, one_joins):
            await trigger(group)
        await group.close()


async def measure(peer: Peer, report: Report, case: Case) -> None:
    """Run all triggers once, in a new group."""
    group = await Group.of(peer, case.members + 1)
    for name, trigger in TRIGGERS.items():
        seconds, cost = await trigger(group)
        _note(report, peer, f"{case.members} members, {name}", seconds, cost, group.gaps)
    await group.close()


def _note(report: Report, peer: Peer, name: str, seconds: float, cost: Cost, gaps: list[float]) -> None:
    measure = report.measure(SECTION, name, "ms", NEVER_SLOWER)
    measure.add(peer.name, seconds * 1e3)
    measure.notes[peer.name] = f"generator {cost.generator_share:.0%}"
    report.measure(CPU_SECTION, name, "ms").add(peer.name, cost.broker * 1e3)
    if gaps:
        report.measure(GAP_SECTION, name, "ms").add(peer.name, statistics.fmean(gaps) * 1e3)
    report.other_cores.append(cost.other_cores)


# The triggers. Each waits until the group is stable and returns the time and the cost.


async def all_join(group: Group) -> tuple[float, Cost]:
    """Let all members but the last join a new group at once."""
    first = group.absent[:-1]
    return await _timed(group, lambda: group.join(first))


async def one_leaves(group: Group) -> tuple[float, Cost]:
    return await _timed(group, lambda: group.leave([group.members[-1]]))


async def one_joins(group: Group) -> tuple[float, Cost]:
    """Join with a short session, to be the member that crashes."""
    newcomer = group.absent[-1]
    newcomer.session_timeout = SHORT_SESSION
    return await _timed(group, lambda: group.join([newcomer]))


async def one_crashes(group: Group) -> tuple[float, Cost]:
    """Close a connection without leaving. The time starts when the session ends."""
    crashing = group.members[-1]
    code = await crashing.heartbeat()
    if code:
        raise RuntimeError(f"a member that should crash was not one any more: error code {code}")
    expires = time.monotonic() + crashing.session_timeout / 1e3
    group.forget(crashing)
    crashing.connection.close()
    await asyncio.sleep(expires - time.monotonic() - 2 * BETWEEN_HEARTBEATS)

    async def nothing() -> None:
        """Let the broker do it."""

    _, cost = await _timed(group, nothing)
    return group.whole_at - expires, cost


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
            await group.until_whole()
    return group.whole_at - begin, cost


class Member:
    """One member: joins, syncs and sends heartbeats on command."""

    def __init__(self, group: Group, connection: Connection) -> None:
        self.group = group
        self.connection = connection
        self.session_timeout = LONG_SESSION
        self.member_id = ""
        self.generation = -1
        self.is_stable = False  # it has an assignment and knows of no rebalance
        self.stopped_at: float | None = None  # when it gave up its partitions to join

    async def join(self) -> None:
        """Join until the member has its assignment."""
        self.is_stable = False
        while True:
            joined = await self.connection.call(ApiKey.JOIN_GROUP, self._join_message())
            if joined.error_code == MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
            elif joined.error_code == 0 and await self._sync(joined):
                return
            elif joined.error_code not in (0, REBALANCE_IN_PROGRESS):
                raise RuntimeError(f"a member could not join: error code {joined.error_code}")

    def _join_message(self) -> Message:
        return {
            "group_id": self.group.group_id,
            "session_timeout": self.session_timeout,
            "rebalance_timeout": REBALANCE_TIMEOUT,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": name, "metadata": _subscription()} for name in PROTOCOLS],
        }

    async def _sync(self, joined: Struct) -> bool:
        self.member_id, self.generation = joined.member_id, joined.generation_id
        assignments: list[Message] = []
        if joined.leader == self.member_id:
            self.group.sizes[joined.generation_id] = len(joined.members)
            assignments = [
                {"member_id": each.member_id, "assignment": assignment(number)}
                for number, each in enumerate(joined.members)
            ]
        message = {
            "group_id": self.group.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocol_name": joined.protocol_name,
            "assignments": assignments,
        }
        synced = await self.connection.call(ApiKey.SYNC_GROUP, message)
        if synced.error_code == REBALANCE_IN_PROGRESS:
            return False
        if synced.error_code or not synced.assignment:
            raise RuntimeError(f"a member got no assignment: error code {synced.error_code}")
        self.is_stable = True
        self.group.assigned(self)
        return True

    async def heartbeat(self) -> int:
        message = {"group_id": self.group.group_id, "generation_id": self.generation, "member_id": self.member_id}
        code: int = (await self.connection.call(ApiKey.HEARTBEAT, message)).error_code
        if code not in (0, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS):
            raise RuntimeError(f"a heartbeat was answered with error code {code}")
        return code

    async def notice(self) -> None:
        """Learn about the rebalance from a heartbeat, and join."""
        self.is_stable = False
        if await self.heartbeat():
            self.stopped_at = time.monotonic()
            await self.join()
        else:
            self.is_stable = True


class Group:
    """A group on one broker, with its members and its spare members."""

    def __init__(self, peer: Peer, connections: Iterable[Connection]) -> None:
        self.peer = peer
        self.group_id = f"classic-{next(_numbers)}"
        self.members: list[Member] = []
        self.absent = [Member(self, connection) for connection in connections]
        self.sizes: dict[int, int] = {}  # by generation, as seen by the leader
        self.gaps: list[float] = []  # time without partitions of each member
        self.whole_at = 0.0
        self._assigned: dict[int, set[Member]] = {}
        self._whole: asyncio.Future[None] | None = None
        self._before = -1
        self._failed: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def of(cls, peer: Peer, members: int) -> Group:
        return cls(peer, await connect(peer, members))

    async def join(self, members: list[Member]) -> None:
        self.absent = [member for member in self.absent if member not in members]
        self.members += members
        for member in members:
            self._begin(member.join())

    async def leave(self, members: list[Member]) -> None:
        gone = [{"member_id": member.member_id} for member in members]
        for member in members:
            self.forget(member)
        message = {"group_id": self.group_id, "members": gone}
        left = await members[0].connection.call(ApiKey.LEAVE_GROUP, message)
        if left.error_code or any(each.error_code for each in left.members):
            raise RuntimeError(f"{len(members)} members could not leave: {left}")

    def forget(self, member: Member) -> None:
        self.members.remove(member)

    async def close(self) -> None:
        """Let all members leave, so that no session ends during another measurement."""
        connections = [member.connection for member in self.members + self.absent]
        await self.leave(list(self.members))
        for connection in connections:
            connection.close()

    def expect_rebalance(self) -> None:
        self._whole = asyncio.get_running_loop().create_future()
        self._before = max(self.sizes, default=-1)
        self.gaps.clear()

    def assigned(self, member: Member) -> None:
        """Handle a new assignment, which may be the last."""
        now, generation = time.monotonic(), member.generation
        if member.stopped_at is not None:
            self.gaps.append(now - member.stopped_at)
            member.stopped_at = None
        have = self._assigned.setdefault(generation, set())
        have.add(member)
        whole = len(have) == len(self.members) == self.sizes.get(generation)
        if whole and generation > self._before and self._whole is not None and not self._whole.done():
            self.whole_at = now
            self._whole.set_result(None)

    async def until_whole(self) -> None:
        """Wait while one member with an assignment checks for a rebalance."""
        assert self._whole is not None
        while not self._whole.done():
            scout = next((member for member in self.members if member.is_stable), None)
            if scout is not None and await scout.heartbeat():
                for member in self.members:
                    if member.is_stable:
                        self._begin(member.notice())
            if self._failed is not None:
                raise self._failed
            await asyncio.wait([self._whole], timeout=BETWEEN_HEARTBEATS)

    def _begin(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        assert isinstance(task, asyncio.Task)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._failed = task.exception()


@cache
def _subscription() -> bytes:
    message: Message = {"topics": [TOPIC], "user_data": None, "owned_partitions": []}
    return b"\0\1" + encode_data("consumer_protocol_subscription", 1, message)


@cache
def assignment(number: int) -> bytes:
    """Return the assignment of the member with this number."""
    partitions = [number * PARTITIONS_EACH + each for each in range(PARTITIONS_EACH)]
    message: Message = {"assigned_partitions": [{"topic": TOPIC, "partitions": partitions}], "user_data": None}
    return b"\0\1" + encode_data("consumer_protocol_assignment", 1, message)
