"""Run designs on a scenario, and what they cost.

results = [run(design, scenario("crash-loop", 10), members=10, seed=1) for design in DESIGNS]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from ottla.lab.broker import Broker, BrokerMember
from ottla.lab.member import Process
from ottla.lab.old import BROKERS, Assigner, ServedMember, Watcher
from ottla.lab.scenarios import Event, Scenario
from ottla.lab.world import World
from ottla.lab.zookeeper import ZooKeeper
from ottla.types import Millis

SESSION_TIMEOUT: Millis = 10_000
MAX_POLL_INTERVAL: Millis = 60_000
WARM_UP: Millis = 600_000
PARTITIONS_EACH = 2

DESIGNS = ("watchers", "server", "classic-eager", "classic-cooperative", "classic-static", "consumer")


@dataclass(frozen=True, slots=True)
class Result:
    """What one design cost in one scenario, from the first event on."""

    design: str
    scenario: str
    members: int
    partitions: int
    seed: int
    session_timeout_ms: Millis
    max_poll_interval_ms: Millis
    requests: int
    """Requests about the group, with heartbeats, without commits and fetches."""
    notifications: int
    """Watches of ZooKeeper that fired."""
    bytes: int
    burst: int
    """The most messages within a tenth of a second."""
    stable_after_ms: Millis | None
    """From the last event until partitions moved for the last time; None if not all partitions were read at the end."""
    without_ms: Millis
    """For how long nobody read a partition: the sum over partitions."""
    worst_without_ms: Millis
    moved: int
    split_brains: int
    read_twice: int
    unread: tuple[tuple[Millis, int], ...] = ()
    """How many partitions nobody read, at each change after the first event."""

    def as_dict(self) -> dict[str, Any]:
        """The figures, for JSON."""
        return {name: value for name, value in asdict(self).items() if name != "unread"}


class Group:
    """The members of a design, by number."""

    def __init__(self, world: World, design: str, session_timeout: Millis, max_poll_interval: Millis) -> None:
        self.world = world
        self._max_poll_interval = max_poll_interval
        self.members: dict[int, Process] = {}
        self._lives = 0
        self.start, self.fail = self._design(design, session_timeout)

    def _design(self, design: str, timeout: Millis) -> tuple[Callable[[int], Process], Callable[[Millis], None]]:
        world = self.world
        if design in ("watchers", "server"):
            zookeeper = ZooKeeper(world, session_timeout=timeout)
            zookeeper.write(f"{BROKERS}/0", "", None)

            def broker_fails(length: Millis) -> None:
                """The node of a broker goes and comes back."""
                zookeeper.write(f"{BROKERS}/0", None, None)
                world.after(length, lambda: zookeeper.write(f"{BROKERS}/0", "", None))

            if design == "watchers":
                world.on_partitions.append(lambda: zookeeper.write(f"{BROKERS}/topics", str(world.partitions), None))
                return lambda _: Watcher(world, zookeeper, self._name()), broker_fails
            coordinator = Assigner(world, zookeeper)
            return lambda _: ServedMember(world, zookeeper, self._name(), coordinator), coordinator.fail
        broker = Broker(world, timeout)
        protocol = "consumer" if design == "consumer" else "classic"
        assignor = "cooperative-sticky" if design == "classic-cooperative" else "range"

        def member(number: int) -> Process:
            return BrokerMember(
                world,
                broker,
                self._name(),
                protocol=protocol,
                assignor=assignor,
                session_timeout=timeout,
                max_poll_interval=self._max_poll_interval,
                instance_id=f"i-{number}" if design == "classic-static" else None,
            )

        return member, broker.fail

    def _name(self) -> str:
        self._lives += 1
        return f"m{self._lives:04}"

    def do(self, event: Event) -> None:
        """Let an event happen. One that is about a member that is not there does nothing."""
        if event.action == "failover":
            self.fail(event.length)
        elif event.action == "partitions":
            self.world.grow(event.count)
        elif event.action == "start":
            if event.member not in self.members or not self.members[event.member].is_alive:
                self.members[event.member] = self.start(event.member)
        elif event.member in self.members and (member := self.members[event.member]).is_alive:
            acts: dict[str, Callable[[], None]] = {
                "leave": member.leave,
                "crash": member.crash,
                "pause": lambda: member.pause(event.length),
                "slow": lambda: member.be_slow(event.length),
                "cut": lambda: member.be_cut_off(event.length),
            }
            acts[event.action]()


def run(
    design: str,
    scenario: Scenario,
    *,
    members: int,
    seed: int,
    session_timeout: Millis = SESSION_TIMEOUT,
    partitions: int | None = None,
    max_poll_interval: Millis = MAX_POLL_INTERVAL,
) -> Result:
    """Start a group, wait until it is stable, let the events happen, and count."""
    world = World(seed, members * PARTITIONS_EACH if partitions is None else partitions)
    group = Group(world, design, session_timeout, max_poll_interval)
    for number in range(members):
        world.after(number * 50, partial(group.do, Event(0, "start", number)))
    world.run_until(world.now + members * 50)
    world.run_until(world.now + WARM_UP, lambda: world.ledger.is_complete)
    world.run_until(world.now + 2 * session_timeout)
    begin = world.now
    world.ledger.start_over(now=begin)
    for event in scenario.events:
        world.after(event.at, partial(group.do, event))
    last = begin + max((event.at + event.length for event in scenario.events), default=0)
    world.run_until(last + scenario.settle)
    ledger = world.ledger
    ledger.finish(now=world.now)
    return Result(
        design=design,
        scenario=scenario.name,
        members=members,
        partitions=world.partitions,
        seed=seed,
        session_timeout_ms=session_timeout,
        max_poll_interval_ms=max_poll_interval,
        requests=ledger.requests,
        notifications=ledger.notifications,
        bytes=ledger.size,
        burst=ledger.burst,
        stable_after_ms=max(ledger.last_change - last, 0) if ledger.is_complete else None,
        without_ms=sum(ledger.without.values()),
        worst_without_ms=max(ledger.without.values(), default=0),
        moved=ledger.moves,
        split_brains=ledger.split_brains,
        read_twice=round(ledger.read_twice),
        unread=tuple((at - begin, count) for at, count in ledger.unread),
    )
