"""A scenario from a seed, for the classic protocol, the consumer protocol, or a mix.

Members come, crash, pause, leave and return; the broker restarts; the topic grows; the network and the log fail. Then
the faults stop, and the groups must become stable.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.simulation.classic_member import ClassicMember
from tests.simulation.consumer_member import ConsumerMember
from tests.simulation.invariants import STABLE_AFTER_CHURN, Invariants
from tests.simulation.member import Member
from tests.simulation.world import START, Violation, Weather, World

CHURN = 90_000
#: After the last fault: sessions expire, absent members time out, and lost requests are sent again.
SETTLE = 240_000


#: The share of members with the consumer protocol.
CLASSIC, MIXED, CONSUMER = 0.0, 0.5, 1.0


@dataclass
class Scenario:
    """One seed."""

    seed: int
    modern: float | None = None
    """One of the above; by the seed if None."""
    members: list[Member] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.seed)
        self.random = self.world.random
        self.invariants = Invariants(self.world)
        self.groups = [f"group-{number}" for number in range(self.random.choice([1, 1, 2]))]
        self._names = 0
        chosen = self.random.choice([CLASSIC, CLASSIC, CONSUMER, MIXED])
        self.modern = chosen if self.modern is None else self.modern

    def run(self) -> None:
        """Run the scenario; raise Violation if an invariant does not hold."""
        self.world.weather = Weather(
            lost=self.random.choice([0, 0.01, 0.05]),
            slow=self.random.choice([0, 0.02, 0.1]),
            append_fails=self.random.choice([0, 0, 0.15]),
            late=self.random.choice([0, 0.02, 0.2]),
        )
        self.world.log_fails = self.world.weather.append_fails > 0
        for _ in range(self.random.randrange(2, 6)):
            self._start_member()
        self._schedule_churn()
        self.world.run_until(START + CHURN)
        self._end_churn()
        self._settle()
        self.invariants.check_log()

    # ── churn ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _schedule_churn(self) -> None:
        self.world.after(self.random.expovariate(1 / 5_000), self._something)

    def _something(self) -> None:
        if self.world.now >= START + CHURN:
            return
        choices = [
            (4, self._start_member),
            (4, self._crash),
            (3, self._pause),
            (3, self._be_busy),
            (3, self._leave),
            (2, self._restart_broker),
            (2, self._double),
            (2, self._grow),
            (1, self._change_subscription),
        ]
        weights, things = zip(*choices, strict=True)
        self.random.choices(things, weights)[0]()
        self._schedule_churn()

    def _start_member(self, group_id: str | None = None, instance_id: str | None = None) -> None:
        if len(self._alive()) >= 8:
            return
        self._names += 1
        if instance_id is None and self.random.random() < 0.35:
            instance_id = f"static-{self._names}"
        group_id = group_id or self.random.choice(self.groups)
        kind = ConsumerMember if self.random.random() < self.modern else ClassicMember
        member = kind(self.world, group_id, f"m{self._names}", instance_id)
        self.world.say(f"{member} starts in {group_id} {instance_id or ''}")
        member.observers.append(self.invariants.member_owns)
        self.members.append(member)

    def _crash(self) -> None:
        if not (member := self._anybody()):
            return
        member.crash()
        if self.random.random() < 0.6:
            group_id, instance_id = member.group_id, member.instance_id
            self.world.after(self.random.uniform(10, 15_000), lambda: self._start_member(group_id, instance_id))

    def _pause(self) -> None:
        if member := self._anybody():
            member.pause(self.random.choice([1_000, 5_000, 15_000, 40_000]))

    def _be_busy(self) -> None:
        if member := self._anybody():
            member.be_busy(self.random.choice([5_000, 15_000, 40_000]))

    def _leave(self) -> None:
        if member := self._anybody():
            member.leave()

    def _double(self) -> None:
        """Start a static member again while the first one still runs."""
        static = [member for member in self._alive() if member.instance_id is not None]
        if static:
            member = self.random.choice(static)
            self._start_member(member.group_id, member.instance_id)

    def _change_subscription(self) -> None:
        if member := self._anybody():
            member.change_subscription()

    def _grow(self) -> None:
        if self.world.partitions < 12:
            self.world.grow(self.random.choice([1, 2]))

    def _restart_broker(self) -> None:
        if self.world.is_up:
            self.invariants.check_log()
            self.world.stop_broker()
            self.world.after(self.random.uniform(100, 8_000), self._start_broker)

    def _start_broker(self) -> None:
        if not self.world.is_up:
            self.world.start_broker()

    def _alive(self) -> list[Member]:
        return [member for member in self.members if member.is_alive]

    def _anybody(self) -> Member | None:
        alive = self._alive()
        return self.random.choice(alive) if alive else None

    # ── quiet ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _end_churn(self) -> None:
        self.world.say("churn stops")
        self.world.weather = Weather()
        self._start_broker()
        for member in self._alive():
            member.paused_until = min(member.paused_until, self.world.now)
            member.busy_until = min(member.busy_until, self.world.now)
        for group_id in self.groups:
            if not any(member.group_id == group_id for member in self._alive()):
                self._start_member(group_id)

    def _settle(self) -> None:
        end = self.world.now + SETTLE
        self.world.run_until(end, lambda: self.invariants.unsettled(self._alive()) is None)
        if problem := self.invariants.unsettled(self._alive()):
            raise Violation(STABLE_AFTER_CHURN, problem)
