"""A coordinator in virtual time, in words of members, generations and time.

Every call runs one operation with the broker's driver. It returns a :class:`Call` with the outcome, to be compared
exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

import pytest
from tests.virtual import AppendFailed, Log, VirtualJournal, VirtualReply, begin, manual_driver

from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.coordinator import EXPIRE_OFFSETS, Coordinator
from ottla.coordinator.history import UNDER_WAY
from ottla.coordinator.serde import decode, encode
from ottla.machine import Outcome
from ottla.protocol.codec import encode_data
from ottla.timers import TimerQueue
from ottla.types import Millis

START = 1_000_000
GROUP = "billing"
SESSION = 45_000
REBALANCE = 300_000


def subscription(*topics: str, version: int = 0) -> bytes:
    """What a consumer says when it joins."""
    body = encode_data("consumer_protocol_subscription", version, {"topics": topics, "owned_partitions": ()})
    return version.to_bytes(2) + body


def assignment(**partitions: Iterable[int]) -> bytes:
    """What a consumer is assigned: ``assignment(orders=[0, 1])``."""
    assigned = [{"topic": topic, "partitions": list(numbers)} for topic, numbers in partitions.items()]
    return b"\0\0" + encode_data("consumer_protocol_assignment", 0, {"assigned_partitions": assigned})


def protocols(*names: str, metadata: bytes | None = None) -> tuple[m.MemberProtocol, ...]:
    return tuple(m.MemberProtocol(name, subscription("orders") if metadata is None else metadata) for name in names)


@dataclass
class Call:
    """An operation that was run, and what has become of it."""

    outcome: Outcome[r.CoordinatorRecord, Any]
    begun: Any
    """The response, or a reply that will have it."""

    @property
    def is_parked(self) -> bool:
        return isinstance(self.begun, VirtualReply) and not self.begun.done()

    @property
    def response(self) -> Any:
        """The response, which may have come later; None while there is none."""
        if isinstance(self.begun, VirtualReply):
            return self.begun.result if self.begun.done() else None
        return self.begun

    @property
    def error_code(self) -> int:
        code: int = self.response.error_code
        return code

    @property
    def records(self) -> list[r.CoordinatorRecord]:
        """What was written, without the history, which has tests of its own."""
        return [record for record in self.outcome.records if not isinstance(record.key, r.HistoryKey)]

    @property
    def history(self) -> list[r.HistoryValue | None]:
        return [
            record.value
            for record in self.outcome.records
            if isinstance(record.key, r.HistoryKey)
            and (record.value is None or isinstance(record.value, r.HistoryValue))
        ]

    @property
    def timers(self) -> dict[Hashable, int | None]:
        """What was set (None: cancelled), again without the history."""
        return {timer.key: timer.at for timer in self.outcome.timers if timer.key != HISTORY_TIMER}


class Expired(NamedTuple):
    """A timer that ran out, and what that did."""

    at: int
    key: Hashable
    records: list[r.CoordinatorRecord]
    answers: dict[Hashable, Any]


class WatchedCoordinator(Coordinator):
    """Remembers what the timers did."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.fired: list[tuple[Hashable, Outcome[r.CoordinatorRecord, None]]] = []

    def fire(self, key: Hashable, /, *, now: Millis) -> Outcome[r.CoordinatorRecord, None]:
        outcome = super().fire(key, now=now)
        self.fired.append((key, outcome))
        return outcome


@dataclass
class GroupContext:
    """One shard, its log and its clock."""

    config: GroupConfig = field(default_factory=GroupConfig)
    now: int = START
    log: Log = field(default_factory=list)
    append_fails: bool = False
    failures: int = 0
    """How often the log did not take records."""

    def __post_init__(self) -> None:
        self._ids = count(1)
        self._start()

    def new_coordinator(self) -> WatchedCoordinator:
        return WatchedCoordinator(self.config, new_id=lambda: str(next(self._ids)))

    def _start(self) -> None:
        self.coordinator = self.new_coordinator()
        self.driver = manual_driver(self.coordinator, VirtualJournal(self.log, encode, rejects=self._rejects), self)

    def _rejects(self) -> bool:
        self.failures += self.append_fails
        return self.append_fails

    @property
    def timers(self) -> TimerQueue:
        return self.driver.timers

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self, operation: Callable[..., Outcome[r.CoordinatorRecord, Any]], *args: Any, **kwargs: Any) -> Call:
        return Call(*begin(self.driver, operation, *args, **kwargs))

    @contextmanager
    def losing(self) -> Iterator[None]:
        """The log does not take the records of what is done here."""
        self.append_fails = True
        with pytest.raises(AppendFailed):
            yield
        self.append_fails = False

    def sleep(self, duration: int) -> list[Expired]:
        """Let time pass; return the timers that fired and did something, in order, without those of the history."""
        end, expired = self.now + duration, []
        while (deadline := self.timers.next_deadline()) is not None and deadline <= end:
            self.now, failures = max(self.now, deadline), self.failures
            self.driver.fire_due(self.now)
            if self.failures > failures:
                raise AppendFailed
            fired, self.coordinator.fired = self.coordinator.fired, []
            for key, outcome in fired:
                call = Call(outcome, None)
                rearmed = not outcome.records and not outcome.answers and set(call.timers) == {key}
                if key != HISTORY_TIMER and (not rearmed or key[0] in ("join",)):  # type: ignore[index]
                    expired.append(Expired(self.now, key, call.records, dict(outcome.answers)))
        self.now = end
        return expired

    def restart(self) -> Call:
        """Stop as if killed, and load everything from the log."""
        self._start()
        for key, value in self.log:
            self.coordinator.replay(decode(key, value))
        return self.run(self.coordinator.loaded)

    # ── members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, member_id: str = "", **changes: Any) -> Call:
        """Send one JoinGroup."""
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member_id,
            "client_id": member_id.partition("-")[0] or "client",
            "client_host": "/127.0.0.1",
            "session_timeout": SESSION,
            "rebalance_timeout": REBALANCE,
            "protocol_type": "consumer",
            "protocols": protocols("range"),
        }
        return self.run(self.coordinator.join, m.JoinRequest(**{**fields, **changes}))

    def enter(self, client_id: str, **changes: Any) -> tuple[str, Call]:
        """Join as a new dynamic member does: ask for an id, then join with it. Return the id and the second call."""
        member_id = self.join(client_id=client_id, **changes).response.member_id
        return member_id, self.join(member_id, client_id=client_id, **changes)

    def sync(self, member_id: str, generation_id: int | None = None, **changes: Any) -> Call:
        """Send one SyncGroup, of the present generation unless another is given."""
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "generation_id": self.group.generation if generation_id is None else generation_id,
            "member_id": member_id,
        }
        return self.run(self.coordinator.sync, m.SyncRequest(**{**fields, **changes}))

    def heartbeat(self, member_id: str, generation_id: int | None = None, **changes: Any) -> Call:
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "generation_id": self.group.generation if generation_id is None else generation_id,
            "member_id": member_id,
        }
        return self.run(self.coordinator.heartbeat, m.HeartbeatRequest(**{**fields, **changes}))

    def leave(self, *members: str | m.LeavingMember, group_id: str = GROUP) -> Call:
        leaving = tuple(m.LeavingMember(member) if isinstance(member, str) else member for member in members)
        return self.run(self.coordinator.leave, m.LeaveRequest(group_id=group_id, members=leaving))

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, topic: str = "orders", partition: int = 0, offset: int = 100, **changes: Any) -> Call:
        """Commit one offset, as somebody without a generation unless told otherwise."""
        place = {name: changes.pop(name) for name in ("metadata", "leader_epoch", "topic_id") if name in changes}
        to_commit = m.OffsetToCommit(topic, partition, offset, **place)
        fields: dict[str, Any] = {"group_id": GROUP, "offsets": (to_commit,)}
        return self.run(self.coordinator.commit, m.CommitRequest(**{**fields, **changes}))

    def committed(self, topic: str = "orders", partition: int = 0, group_id: str = GROUP, **changes: Any) -> Any:
        """Fetch one offset."""
        wanted = (m.TopicToFetch(topic, (partition,)),)
        call = self.run(self.coordinator.fetch, m.FetchRequest(group_id=group_id, topics=wanted, **changes))
        return call.response.partitions[0]

    # ── whole groups ──────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def group(self) -> ClassicGroup:
        group = self.coordinator.groups[GROUP]
        assert isinstance(group, ClassicGroup)
        return group

    @property
    def state(self) -> str:
        return str(self.group.state)

    def rebalances(self) -> list[r.HistoryValue]:
        """What ``ottla groups explain`` tells of the rebalances that are over, the oldest first: it reads the log."""
        return [value for value in self._told() if value.outcome != UNDER_WAY]

    def under_way(self) -> r.HistoryValue:
        """What it tells of the one that is not; in a classic group it does so after a second."""
        (value,) = self.all_under_way()
        return value

    def all_under_way(self) -> list[r.HistoryValue]:
        return [value for value in self._told() if value.outcome == UNDER_WAY]

    def _told(self) -> list[r.HistoryValue]:
        records = (decode(key, value) for key, value in dict(self.log).items())
        told = [value for key, value in records if isinstance(value, r.HistoryValue)]
        return sorted(told, key=lambda value: value.number)

    def stable(self, *clients: str, **changes: Any) -> list[str]:
        """Make a stable group of these clients, each with one partition of orders; return their member ids."""
        calls = [self.enter(client, **changes) for client in clients]
        self.wait_for_generation()
        member_ids = [member_id for member_id, _ in calls]
        self.settle(member_ids)
        return member_ids

    def stable_static(self, *instances: str, **changes: Any) -> list[str]:
        """Make a stable group of static members; return their member ids."""
        calls = [self.join(group_instance_id=instance, client_id=instance, **changes) for instance in instances]
        self.wait_for_generation()
        member_ids = [call.response.member_id for call in calls]
        self.settle(member_ids)
        return member_ids

    def wait_for_generation(self) -> None:
        """Let time pass until the wait for joins is over."""
        while self.state == "PreparingRebalance":
            deadline = self.timers.next_deadline()
            assert deadline is not None
            self.sleep(deadline - self.now)

    def settle(self, member_ids: list[str]) -> None:
        """Let everybody sync; member number n gets partition n of orders."""
        given = tuple(m.MemberAssignment(member, assignment(orders=[n])) for n, member in enumerate(member_ids))
        leader = self.group.leader
        for member_id in member_ids:
            self.sync(member_id, assignments=given if member_id == leader else ())
        assert self.state == "Stable"


def heartbeat_timer(member_id: str) -> Hashable:
    return ("heartbeat", GROUP, member_id)


JOIN_TIMER: Hashable = ("join", GROUP)
SYNC_TIMER: Hashable = ("sync", GROUP)
HISTORY_TIMER: Hashable = ("history", GROUP)
EXPIRY_TIMER: Hashable = EXPIRE_OFFSETS
