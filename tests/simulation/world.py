"""The world of a simulation: virtual time, a network that loses and delays, and a broker that restarts.

Everything that happens follows from the seed. The broker is the real coordinator, driven as the runner does it:
operation, append, replay, answer. Its log is all that survives a restart. A connection is closed by whoever gives up
first; what was sent on it before is lost from then on, as with TCP.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from itertools import count
from random import Random
from typing import Any, TypeAlias
from uuid import UUID

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.group import TopicInfo
from ottla.coordinator.serde import decode, encode
from ottla.machine import Outcome, Parked
from ottla.records import PackedCommits
from ottla.runtime.runner import RETRY_AFTER
from ottla.runtime.timers import TimerQueue

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


class AppendFailed(Exception):
    """The log did not take the records, and says so."""


@dataclass(eq=False)
class Connection:
    """From one client to the broker. Requests arrive in the order in which they were sent."""

    is_open: bool = True
    last_arrival: int = 0


@dataclass
class Waiting:
    """A request that the broker has parked."""

    reply: OnAnswer
    since: int
    what: str


@dataclass
class Weather:
    """How badly the network and the disk behave; all zero once churn has stopped."""

    lost: float = 0.0
    slow: float = 0.0
    append_fails: float = 0.0


class World:
    """Time, network and broker."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.now = START
        self.weather = Weather()
        self.log_fails = False
        self.log: list[tuple[bytes, bytes | None]] = []
        self.partitions = 4
        self.trace: deque[str] = deque(maxlen=400)
        self.observers: list[Callable[[str, Any, Outcome[Any, Any]], None]] = []
        self.steps = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._order = count()
        self._ids = count(1)
        self._on_close: dict[Connection, Callable[[], None]] = {}
        self.is_up = False
        self.start_broker()

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def after(self, delay: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (self.now + max(0, int(delay)), next(self._order), event))

    def run_until(self, end: int, stop: Callable[[], bool] | None = None) -> None:
        """Let things happen until a time, or until the world is as wanted."""
        while (at := self._next_time()) is not None and at <= end:
            self.now = max(self.now, at)
            deadline = self.timers.next_deadline() if self.is_up else None
            if deadline is not None and deadline <= self.now:
                self._fire(next(self.timers.due(now=self.now)))
            else:
                heapq.heappop(self._events)[2]()
            if stop is not None and stop():
                return
        self.now = end

    def _next_time(self) -> int | None:
        times = [self._events[0][0]] if self._events else []
        deadline = self.timers.next_deadline() if self.is_up else None
        return min([*times, deadline] if deadline is not None else times, default=None)

    def say(self, text: str) -> None:
        self.trace.append(f"{(self.now - START) / 1000:9.3f}  {text}")

    # ── the broker ────────────────────────────────────────────────────────────────────────────────────────────────

    def topics(self) -> dict[str, TopicInfo]:
        return {TOPIC: TopicInfo(TOPIC_ID, self.partitions)}

    def new_id(self) -> str:
        return str(next(self._ids))

    def grow(self, partitions: int) -> None:
        """Give the topic more partitions; the broker is told if it runs."""
        self.partitions += partitions
        self.say(f"the topic has {self.partitions} partitions")
        if self.is_up:
            self._apply("topics", None, self.coordinator.topics_changed((TOPIC,), created=False, now=self.now))

    def start_broker(self) -> None:
        """Load everything from the log."""
        self.say("the broker starts")
        self.coordinator = Coordinator(CONFIG, new_id=self.new_id, topics=self.topics)
        self.timers = TimerQueue()
        self.parked: dict[Hashable, Waiting] = {}
        for key, value in self.log:
            self.coordinator.replay(decode(key, value))
        self.is_up = True
        self._apply("loaded", None, self.coordinator.loaded(now=self.now), may_fail=False)

    def stop_broker(self) -> None:
        """Kill it: connections break, what was parked is never answered."""
        self.say("the broker is killed")
        self.is_up = False
        self.parked.clear()
        for connection in list(self._on_close):
            self.close(connection)

    def _apply(self, name: str, request: Any, outcome: Outcome[Any, Any], *, may_fail: bool = True) -> None:
        records = outcome.records
        if records and may_fail and self.random.random() < self.weather.append_fails:
            if self.random.random() < 0.5:  # A runner may have set the timers by then, or not.
                self._set_timers(outcome)
            for token in outcome.answers:
                self._answer(token, errors.CoordinatorNotAvailable())
            self._set_and_answer(self.coordinator.append_failed(outcome, now=self.now))
            if name == "fire":
                self.timers.set(request, self.now + RETRY_AFTER)
            raise AppendFailed
        self.log += map(encode, records)
        if isinstance(records, PackedCommits):
            self.coordinator.replay_commit(records)
        else:
            for record in records:
                self.coordinator.replay(record)
        self._set_and_answer(outcome)
        self.steps += 1
        for observe in self.observers:
            observe(name, request, outcome)

    def _set_and_answer(self, outcome: Outcome[Any, Any]) -> None:
        self._set_timers(outcome)
        for token, answer in outcome.answers.items():
            self._answer(token, answer)

    def _set_timers(self, outcome: Outcome[Any, Any]) -> None:
        for timer in outcome.timers:
            if timer.at is None:
                self.timers.cancel(timer.key)
            else:
                self.timers.set(timer.key, timer.at)

    def _answer(self, token: Hashable, answer: Any) -> None:
        waiting = self.parked.pop(token, None)
        if waiting is not None:
            waiting.reply(answer)

    def _fire(self, key: Hashable) -> None:
        try:
            self._apply("fire", key, self.coordinator.fire(key, now=self.now))
        except AppendFailed:
            self.say(f"the log did not take what came of {key}")

    # ── the network ───────────────────────────────────────────────────────────────────────────────────────────────

    def connect(self, on_close: Callable[[], None]) -> Connection:
        connection = Connection()
        self._on_close[connection] = on_close
        return connection

    def close(self, connection: Connection, *, tell: bool = True) -> None:
        """Close a connection; its client learns of it a little later, unless it was the one who closed it."""
        on_close = self._on_close.pop(connection, None)
        connection.is_open = False
        if tell and on_close is not None:
            self.after(self.random.uniform(1, 50), on_close)

    def _latency(self) -> float:
        if self.random.random() < self.weather.slow:
            return self.random.uniform(500, 15_000)
        return self.random.uniform(1, 20)

    def call(self, connection: Connection, name: str, request: Any, timeout: int, on_answer: OnAnswer) -> None:
        """Send a request. The answer is a response or an error; if none comes in time the connection is closed."""
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

    def _decide(self, name: str, request: Any) -> Outcome[r.CoordinatorRecord, Any]:
        """Run an operation. Heartbeats of consumers take the quick way where there is one, as in the broker."""
        if name == "consumer_heartbeat":
            followed = self.coordinator.follow(request, now=self.now)
            if followed.response is not None:
                return followed
        decided: Outcome[r.CoordinatorRecord, Any] = getattr(self.coordinator, name)(request, now=self.now)
        return decided

    def _arrive(self, connection: Connection, name: str, request: Any, reply: OnAnswer) -> None:
        if not self.is_up:
            self.close(connection)
        if not connection.is_open:
            return
        try:
            outcome = self._decide(name, request)
            if isinstance(outcome.response, Parked):
                self.parked[outcome.response.token] = Waiting(reply, self.now, f"{name} {request}")
            self._apply(name, request, outcome)
        except errors.KafkaError as error:
            reply(error)
        except AppendFailed:
            self.say(f"the log did not take what came of {name}")
            if isinstance(outcome.response, Parked):
                self.parked.pop(outcome.response.token, None)
            reply(errors.CoordinatorNotAvailable())
        else:
            if not isinstance(outcome.response, Parked):
                reply(outcome.response)
