"""Run a design for real: processes, signals, and the time of this machine."""

from __future__ import annotations

import asyncio
import importlib.util
from collections import Counter
from collections.abc import Callable

from ottla.errors import ConfigError, OttlaError
from ottla.lab.real.processes import RealMember, Worker, now
from ottla.lab.real.servers import Servers, broker_servers, zookeeper_servers
from ottla.lab.runs import MAX_POLL_INTERVAL, PARTITIONS_EACH, Result
from ottla.lab.scenarios import Event, Scenario
from ottla.lab.world import Ledger
from ottla.spark.java import find_java
from ottla.types import Millis

MOST_MEMBERS = 20
STABLE_SECONDS = 90.0
QUIET_SECONDS = 5.0
MEASURED = (
    "design",
    "scenario",
    "members",
    "partitions",
    "session_timeout_ms",
    "requests",
    "notifications",
    "stable_after_ms",
    "without_ms",
    "worst_without_ms",
    "moved",
)
"""What a real run measures of a `Result`."""


def check(scenario: Scenario, members: int) -> None:
    """Raises ConfigError for what cannot be done with real processes."""
    if members > MOST_MEMBERS:
        raise ConfigError(f"--real: at most {MOST_MEMBERS} members, because each is a process")
    if any(one.action == "cut" for one in scenario.events):
        raise ConfigError(f"--real: {scenario.name} cuts members off the network, which only the simulation can do")


def check_installed() -> None:
    """Raises OttlaError if there is no ZooKeeper to start."""
    missing = [name for name in ("kazoo", "pyspark") if importlib.util.find_spec(name) is None]
    try:
        find_java()
    except OttlaError:
        missing.append("Java")
    if missing:
        what = " and ".join(missing)
        raise OttlaError(f"--real needs ZooKeeper, and {what} is missing: run  pip install 'ottla[cluster,spark]'")


def seconds(scenario: Scenario) -> float:
    """How long a run of a scenario takes, about."""
    last = max((one.at + one.length for one in scenario.events), default=0)
    return (last + scenario.settle) / 1000 + 20


async def run_real(
    design: str, scenario: Scenario, *, members: int, session_timeout: Millis, progress: Callable[[str], None]
) -> Result:
    """Run a scenario with real processes."""
    check(scenario, members)
    start = zookeeper_servers if design in ("watchers", "server") else broker_servers
    partitions = members * PARTITIONS_EACH
    async with start(design, partitions, session_timeout) as servers:
        group = _Group(design, servers, partitions)
        try:
            progress(f"{design}: starting {members} members")
            await group.begin(members, scenario)
            progress(f"{design}: {scenario.name}, about {seconds(scenario):.0f} s")
            return await _measured(group, design, scenario, members, session_timeout)
        finally:
            await group.end()


async def _measured(group: _Group, design: str, scenario: Scenario, members: int, session_timeout: Millis) -> Result:
    ledger, servers = group.ledger, group.servers
    before = await servers.requests()
    group.counts.clear()
    notified = getattr(servers, "counts", {}).get("notified", 0)
    begin = now()
    ledger.start_over(now=begin)
    for event in scenario.events:
        await asyncio.sleep(max(begin + event.at - now(), 0) / 1000)
        await group.do(event)
    last = begin + max((event.at + event.length for event in scenario.events), default=0)
    await asyncio.sleep(max(last + scenario.settle - now(), 0) / 1000)
    ledger.finish(now=now())
    return Result(
        design=design,
        scenario=scenario.name,
        members=members,
        partitions=group.partitions,
        seed=0,
        session_timeout_ms=session_timeout,
        max_poll_interval_ms=MAX_POLL_INTERVAL,
        requests=await servers.requests() - before,
        notifications=group.counts["notified"] + getattr(servers, "counts", {}).get("notified", 0) - notified,
        bytes=0,
        burst=0,
        stable_after_ms=max(ledger.last_change - last, 0) if ledger.is_complete else None,
        without_ms=sum(ledger.without.values()),
        worst_without_ms=max(ledger.without.values(), default=0),
        moved=ledger.moves,
        split_brains=0,
        read_twice=0,
        unread=tuple((at - begin, count) for at, count in ledger.unread),
    )


class _Group:
    """The members by number, and processes that wait for a member."""

    def __init__(self, design: str, servers: Servers, partitions: int) -> None:
        self._design, self.servers = design, servers
        self.ledger = Ledger()
        self.counts: Counter[str] = Counter()
        self.partitions = 0
        self._members: dict[int, RealMember] = {}
        self._spares: list[Worker] = []
        self._all: list[Worker] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._lives = 0
        self._grow(partitions)

    def _grow(self, count: int) -> None:
        self.ledger.add_partitions(self.partitions, self.partitions + count, now=now())
        self.partitions += count

    async def begin(self, members: int, scenario: Scenario) -> None:
        """Start the members, and processes for those that come later; wait until all partitions are read."""
        later = sum(one.action == "start" for one in scenario.events)
        crashes = sum(one.action == "crash" for one in scenario.events)
        leaves = sum(one.action == "leave" for one in scenario.events)
        # The process of a member that left serves the next one.
        count = members + max(later - leaves, crashes, 1 if later else 0)
        for _ in range(count):
            self._all.append(await Worker.spawn(self.servers.module, self.servers.spec))
        for worker in self._all:
            await worker.await_ready()
        self._spares = list(self._all)
        for number in range(members):
            await self.do(Event(0, "start", number))
            await asyncio.sleep(0.05)
        deadline = now() + STABLE_SECONDS * 1000
        while not self.ledger.is_complete:
            if now() > deadline:
                raise OttlaError(f"{self._design}: not all partitions were read after {STABLE_SECONDS:.0f} s")
            await asyncio.sleep(0.1)
        await asyncio.sleep(QUIET_SECONDS)

    async def do(self, event: Event) -> None:
        """Let an event happen, without waiting for what follows."""
        member = self._members.get(event.member)
        if event.action == "failover":
            self._later(self.servers.fail(event.length))
        elif event.action == "partitions":
            self._grow(event.count)
            await self.servers.grow(self.partitions)
        elif event.action == "start":
            if member is None or not member.is_alive:
                self._start(event.member)
        elif member is not None and member.is_alive:
            if event.action == "leave":
                member.worker.tell("leave")
                member.is_gone()
                self._later(self._left(member))
            elif event.action == "crash":
                await member.worker.end()
                member.is_gone()
                self._later(self._respawn())
            elif event.action == "pause":
                self._later(member.pause(event.length))
            elif event.action == "slow":
                member.worker.tell("slow", ms=event.length)

    def _start(self, number: int) -> None:
        if not self._spares:
            raise OttlaError("no process is ready for a new member: give the events more time between them")
        self._lives += 1
        name = f"m{self._lives:04}"
        instance = f"i-{number}" if self._design == "classic-static" else None
        worker = self._spares.pop(0)
        self._members[number] = RealMember(worker, name, instance or name, self.ledger, self.counts)
        worker.tell("start", name=name, instance=instance)

    async def _left(self, member: RealMember) -> None:
        await member.left.wait()
        self._spares.append(member.worker)

    async def _respawn(self) -> None:
        worker = await Worker.spawn(self.servers.module, self.servers.spec)
        self._all.append(worker)
        await worker.await_ready()
        self._spares.append(worker)

    def _later(self, work: object) -> None:
        self._tasks.append(asyncio.ensure_future(work))  # type: ignore[call-overload]

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await asyncio.gather(*(worker.end() for worker in self._all))
