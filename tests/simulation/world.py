"""The world of a simulation: virtual time, a network that loses and delays, and a broker that restarts.

Everything follows from the seed. The broker is the real coordinator with the real driver. Its ports are simulated:

- The journal may reject records. In some lives of the broker it commits late, as with several replicas; uncommitted
  records may be lost when the broker is killed.
- Wake-ups come late, as from a busy event loop.
- Responses to gathered requests leave at the end of a turn, after the write.

A connection is closed by the side that gives up first. Messages still in flight on it are lost, as with TCP.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any, NamedTuple, TypeAlias
from uuid import UUID

from tests.virtual import AppendFailed, Log, Timeline, VirtualClock, VirtualJournal, VirtualReply

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.group import TopicInfo
from ottla.coordinator.serde import decode, encode
from ottla.driver import Driver
from ottla.machine import Outcome, Parked
from ottla.timers import TimerQueue
from ottla.types import Millis

START = 1_700_000_000_000
TOPIC = "orders"
TOPIC_ID = UUID(int=1)
CONFIG = GroupConfig(
    group_min_session_timeout_ms=6_000,
    group_initial_rebalance_delay_ms=500,
    group_new_member_join_timeout_ms=60_000,
    group_consumer_session_timeout_ms=10_000,
    group_consumer_heartbeat_interval_ms=3_000,
)
OnAnswer: TypeAlias = "Callable[[Any], None]"


class Violation(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


@dataclass(eq=False)
class Connection:
    """A connection from a client to the broker. Requests arrive in the order in which they were sent."""

    is_open: bool = True
    last_arrival: int = 0


@dataclass
class Waiting:
    """A request without a response so far."""

    step: Step | None
    since: int

    @property
    def is_parked(self) -> bool:
        """Whether it waits for other members, and not only for the commit of its records."""
        return self.step is not None and isinstance(self.step.outcome.response, Parked)


@dataclass
class Weather:
    """The fault rates of the network and the disk; all zero after churn."""

    lost: float = 0.0
    slow: float = 0.0
    append_fails: float = 0.0
    late: float = 0.0
    """How often the event loop is noticeably late."""


class Step(NamedTuple):
    """An operation of the coordinator, for the invariants."""

    name: str
    request: Any
    outcome: Outcome[r.CoordinatorRecord, Any]


class Provisional:
    """The response to a gathered request. It leaves at the end of the turn."""

    def __init__(self) -> None:
        self.response: Any = None

    def refuse(self, error: Exception) -> None:
        self.response = _told(error)


class WatchedCoordinator(Coordinator):
    """Reports its decisions to the world, and when they are in the log."""

    world: World

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[r.CoordinatorRecord, None]:
        return self.world.decided("fire", key, super().fire(key, now=now))

    def replay_batch(self, records: Sequence[r.CoordinatorRecord], /) -> None:
        super().replay_batch(records)
        self.world.replayed(records)


class World(Timeline):
    """Time, network and broker."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, START)
        self.weather = Weather()
        self.log_fails = False
        self.log: Log = []
        self.partitions = 4
        self.observers: list[Callable[[Step], None]] = []
        """Called for every step once it is committed."""
        self.on_decided: list[Callable[[], None]] = []
        """Called for every step once the coordinator has accepted it."""
        self.on_acknowledged: list[Callable[[Step], None]] = []
        """Called for every step whose response is sent."""
        self.on_start: list[Callable[[], None]] = []
        self.steps = 0
        self._decided: list[Step] = []
        """Steps whose records are not in the log yet."""
        self._uncommitted: deque[tuple[int, Step]] = deque()
        """Steps in the log that are not committed yet, with the position after each."""
        self._unwritten: list[Callable[[], None]] = []
        self._provisional: list[tuple[Step, Provisional, OnAnswer]] = []
        self._ids = count(1)
        self._on_close: dict[Connection, Callable[[], None]] = {}
        self.is_up = False
        self.start_broker()

    # ── the broker ────────────────────────────────────────────────────────────────────────────────────────────────

    def topics(self) -> dict[str, TopicInfo]:
        return {TOPIC: TopicInfo(TOPIC_ID, self.partitions)}

    def new_id(self) -> str:
        return str(next(self._ids))

    def grow(self, partitions: int) -> None:
        """Add partitions to the topic, and tell the broker if it runs."""
        self.partitions += partitions
        self.say(f"the topic has {self.partitions} partitions")
        if self.is_up:
            self._begin("topics_changed", (TOPIC,), created=False)

    def start_broker(self) -> None:
        """Load everything from the log."""
        lags = self.random.random() < 0.4
        self.say(f"the broker starts{', and commits late' if lags else ''}")
        self.next_life()
        self.coordinator = WatchedCoordinator(CONFIG, new_id=self.new_id, topics=self.topics)
        self.coordinator.world = self
        self.journal = VirtualJournal(
            self.log,
            encode,
            rejects=lambda: self.is_up and self.random.random() < self.weather.append_fails,
            commit_later=self.commit_later if lags else None,
            on_commit=self.observe_up_to,
        )
        self.driver: Driver[r.CoordinatorRecord] = Driver(
            self.coordinator,
            self.journal,
            VirtualClock(self),
            call_later=lambda delay, callback: self.call_later(delay, callback, late=self.weather.late),
            new_reply=VirtualReply,
            before_send=self._unwritten.append,
        )
        self.waiting: dict[VirtualReply, Waiting] = {}
        for key, value in self.log:
            self.coordinator.replay(decode(key, value))
        self._begin("loaded")
        self.is_up = True
        for observe in self.on_start:
            observe()

    def stop_broker(self) -> None:
        """Kill the broker: connections break, parked requests get no response, uncommitted records may be lost."""
        self.next_life()
        self.is_up = False
        self.waiting.clear()
        self._decided.clear()
        self._unwritten.clear()
        self._provisional.clear()
        ends = [self.journal.committed_end, *(position for position, _ in self._uncommitted)]
        end = self.random.choice(ends)
        self.say(f"the broker is killed and loses {len(self.log) - end} records")
        del self.log[end:]
        self.observe_up_to(end)
        self._uncommitted.clear()
        for connection in list(self._on_close):
            self.close(connection)

    @property
    def timers(self) -> TimerQueue:
        return self.driver.timers

    # ── steps of the coordinator ──────────────────────────────────────────────────────────────────────────────────

    def decided(self, name: str, request: Any, outcome: Outcome[Any, Any]) -> Outcome[Any, Any]:
        """The coordinator has decided something."""
        step = Step(name, request, outcome)
        if outcome.records:
            self._decided.append(step)
        else:
            self._in_log(step)
        return outcome

    def replayed(self, records: Sequence[r.CoordinatorRecord]) -> None:
        """The records of an outcome are in the log. Missing records of earlier outcomes will never be."""
        while self._decided:
            step = self._decided.pop(0)
            if step.outcome.records is records:
                self._in_log(step)
                return

    def _in_log(self, step: Step) -> None:
        self._uncommitted.append((len(self.log), step))
        for look in self.on_decided:
            look()
        self.observe_up_to(self.journal.committed_end)

    def observe_up_to(self, position: int) -> None:
        """Report what is committed now to the observers."""
        while self._uncommitted and self._uncommitted[0][0] <= position:
            self.steps += 1
            _, step = self._uncommitted.popleft()
            for observe in self.observers:
                observe(step)

    def _begin(self, name: str, *args: Any, **kwargs: Any) -> tuple[Step | None, Any]:
        """Run an operation; return the step and its response, its reply, or the error."""
        steps: list[Step] = []

        def operation(*args: Any, now: Millis, **kwargs: Any) -> Outcome[Any, Any]:
            outcome = getattr(self.coordinator, name)(*args, now=now, **kwargs)
            steps.append(Step(name, args[0] if args else None, outcome))
            return self.decided(name, args[0] if args else None, outcome)

        try:
            begun = self.driver.begin(operation, *args, **kwargs)
        except (errors.KafkaError, AppendFailed) as error:
            begun = error
        return (steps[0] if steps else None), begun

    # ── the network ───────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, on_close: Callable[[], None]) -> Connection:
        connection = Connection()
        self._on_close[connection] = on_close
        return connection

    def close(self, connection: Connection, *, tell: bool = True) -> None:
        """Close a connection. With `tell`, its client learns of it a little later."""
        on_close = self._on_close.pop(connection, None)
        connection.is_open = False
        if tell and on_close is not None:
            self.after(self.random.uniform(1, 50), on_close)

    def _latency(self) -> float:
        if self.random.random() < self.weather.slow:
            return self.random.uniform(500, 15_000)
        return self.random.uniform(1, 20)

    def call(self, connection: Connection, name: str, request: Any, timeout: int, on_answer: OnAnswer) -> None:
        """Send a request. It gets a response or an error; if none comes in time the connection is closed."""
        answered: list[bool] = []

        def deliver(answer: Any) -> None:
            if connection.is_open and not answered:
                answered.append(True)
                on_answer(answer)

        def reply(answer: Any) -> None:
            if self.random.random() >= self.weather.lost:
                self.after(self._latency(), lambda: deliver(answer))

        def give_up() -> None:
            if not answered:
                self.close(connection)

        self.after(timeout, give_up)
        if self.random.random() >= self.weather.lost:
            connection.last_arrival = max(connection.last_arrival, self.now + int(self._latency()))
            delay = connection.last_arrival - self.now
            self.after(delay, lambda: self._arrive(connection, name, request, reply))

    def _arrive(self, connection: Connection, name: str, request: Any, reply: OnAnswer) -> None:
        if not self.is_up:
            self.close(connection)
        if not connection.is_open or self._gather(name, request, reply):
            return
        step, begun = self._begin(name, request)

        def finish(response: Any) -> None:
            self.waiting.pop(begun, None)
            self._send(step, response, reply)

        if isinstance(begun, VirtualReply) and not begun.done():
            self.waiting[begun] = Waiting(step, self.now)
            begun.callbacks.append(finish)
        else:
            self._send(step, begun.result if isinstance(begun, VirtualReply) else begun, reply)

    def _gather(self, name: str, request: Any, reply: OnAnswer) -> bool:
        """Accept ordinary commits and heartbeats like the broker: written together, answered after the write."""
        if name == "consumer_heartbeat":
            name = "follow"
        elif name != "commit" or not isinstance(request.offsets, bytes):
            return False
        driver = self.driver
        if not driver.gathered and (self.journal.lags or not driver.is_committed):
            return False
        provisional, steps = Provisional(), []

        def operation(request: Any, *, now: Millis) -> Outcome[Any, Any]:
            outcome = getattr(self.coordinator, name)(request, now=now)
            if outcome.response is not None:
                steps.append(Step(name, request, outcome))
                self.decided(name, request, outcome)
            return outcome

        try:
            provisional.response = driver.gather(operation, request, provisional.refuse)
        except errors.KafkaError as error:
            reply(error)
            return True
        if not steps:
            return False
        if not self._provisional:
            self.after_unless_killed(self.random.choice([0, 0, 1, 5]), self._end_turn)
        self._provisional.append((steps[0], provisional, reply))
        return True

    def _end_turn(self) -> None:
        while self._unwritten:
            self._unwritten.pop()()
        provisional, self._provisional = self._provisional, []
        for step, each, reply in provisional:
            self._send(step, each.response, reply)

    def _send(self, step: Step | None, response: Any, reply: OnAnswer) -> None:
        response = _told(response) if isinstance(response, Exception) else response
        if step is not None and not isinstance(response, errors.KafkaError):
            for observe in self.on_acknowledged:
                observe(Step(step.name, step.request, step.outcome._replace(response=response)))
        reply(response)


def _told(error: Exception) -> errors.KafkaError:
    return error if isinstance(error, errors.KafkaError) else errors.CoordinatorNotAvailable()
