"""The consumer's member machines in the simulation of the coordinator: virtual time, a failing network, churn.

`tests.simulation` tests the coordinator with models of members. These members have the real machines inside, so both
ends of the protocol are ours, and its invariants check that they work together.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.simulation.member import COMMIT, REQUEST_TIMEOUT, Member
from tests.simulation.world import TOPIC, TOPIC_ID, World

from ottla.assignors import CooperativeStickyAssignor, RangeAssignor, StickyAssignor
from ottla.consuming.classic import ClassicMember
from ottla.consuming.consumer import ConsumerMember
from ottla.consuming.membership import DutyKind, MemberSettings, Request, Topics
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.consumer_messages import ConsumerHeartbeatRequest
from ottla.errors import KafkaError, NetworkException
from ottla.protocol.apis import ApiKey

POLL = 400
METADATA = 4_000


class Simulated(Member):
    """A process with a member machine, a user that polls unless busy, and metadata that is refreshed sometimes."""

    def __init__(self, world: World, group_id: str, name: str, instance_id: str | None = None) -> None:
        super().__init__(world, group_id, name, instance_id)
        self.machine: Any = self._machine(
            MemberSettings(
                group_id,
                instance_id,
                session_timeout_ms=10_000,
                heartbeat_interval_ms=3_000,
                max_poll_interval_ms=self.rebalance_timeout,
                request_timeout_ms=REQUEST_TIMEOUT,
            )
        )
        self.topics = [TOPIC]
        self.machine.subscribe(self.topics)
        self._under_way: list[Request] = []
        self._serial = 0
        for interval, task in ((POLL, self._poll), (COMMIT, self._commit), (METADATA, self._look)):
            self._every(interval, task)

    def _machine(self, settings: MemberSettings) -> Any:
        raise NotImplementedError

    @property
    def is_stable(self) -> bool:
        return self.is_alive and self.machine.is_member and not self.machine.is_rebalancing

    def leave(self) -> None:
        if not self.is_alive or self.paused_until > self.world.now:
            return
        self.world.say(f"{self} leaves")
        request = self.machine.leave("closed")
        if request is not None:
            name, message = _translated(request, self.name)
            self.world.call(self.world.connect(lambda: None), name, message, REQUEST_TIMEOUT, lambda _: None)
        self._end()

    def change_subscription(self) -> None:
        self.topics = [TOPIC, f"other-{self.world.new_id()}"]
        self.machine.subscribe(self.topics)

    # ── the user's poll, and the ticks in the background ──────────────────────────────────────────────────────────

    def _poll(self) -> None:
        if self.busy_until > self.world.now:
            return
        self.machine.polled(now=self.world.now)
        while (duty := self.machine.due()) is not None:
            if duty.kind is DutyKind.REVOKE:
                self._commit()
            self.machine.done(duty)
            self._note()
        if (error := self.machine.rejection(now=self.world.now)) is not None:
            self._die(error)
            return
        self._tick()

    def _tick(self) -> None:
        if not self.is_alive:
            return
        self._serial += 1
        serial = self._serial
        step = self.machine.poll(now=self.world.now)
        self._note()
        for request in step.requests:
            self._send(request)
        if step.metadata is not None:
            self.world.after(20, self._when_awake(self._look))
        if step.wake_at is not None:
            again = self._when_awake(lambda: self._tick() if serial == self._serial else None)
            self.world.after(max(1, step.wake_at - self.world.now), again)

    def _look(self) -> None:
        self.machine.learned(Topics({TOPIC: self.world.partitions}, {TOPIC: TOPIC_ID}))
        self._tick()

    def _note(self) -> None:
        """What the machine believes, for the invariants."""
        who = self.machine.identity
        self.member_id, self.generation = who.member_id, who.generation
        owned = frozenset(one.partition for one in self.machine.owned if one.topic == TOPIC)
        gained = owned - self.owned
        self.positions = {number: offset for number, offset in self.positions.items() if number in owned}
        if self.machine.is_member and gained:
            self._own(owned)
            self._fetch_positions()
        self.owned = owned

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _send(self, request: Request) -> None:
        name, message = _translated(request, self.name)
        self._under_way.append(request)
        timeout = request.timeout_ms or REQUEST_TIMEOUT
        self._call(name, message, lambda answer: self._answered(request, answer), timeout)

    def _answered(self, request: Request, answer: Any) -> None:
        if request in self._under_way:
            self._under_way.remove(request)
        if isinstance(answer, KafkaError):
            answer = SimpleNamespace(error_code=answer.code, error_message=str(answer), member_id="")
        elif request.api is ApiKey.CONSUMER_GROUP_HEARTBEAT and answer.assignment is not None:
            answer = SimpleNamespace(
                error_code=answer.error_code,
                member_epoch=answer.member_epoch,
                heartbeat_interval=answer.heartbeat_interval,
                assignment=SimpleNamespace(topic_partitions=answer.assignment),
            )
        self.machine.answered(request, answer, now=self.world.now)
        self._note()
        self._tick()

    def _disconnected(self) -> None:
        lost, self._under_way = self._under_way, []
        for request in lost:
            self.machine.failed(request, NetworkException(), now=self.world.now)
        self._tick()


class SimulatedClassic(Simulated):
    def _machine(self, settings: MemberSettings) -> Any:
        kinds = ([RangeAssignor()], [StickyAssignor(), RangeAssignor()], [RangeAssignor(), CooperativeStickyAssignor()])
        return ClassicMember(settings, self.world.random.choice(kinds))


class SimulatedCooperative(Simulated):
    def _machine(self, settings: MemberSettings) -> Any:
        return ClassicMember(settings, [CooperativeStickyAssignor()])


class SimulatedConsumer(Simulated):
    def _machine(self, settings: MemberSettings) -> Any:
        return ConsumerMember(settings, f"{self.name}-{self.world.new_id()}")


def _translated(request: Request, client_id: str) -> tuple[str, Any]:
    """A request in the form that the broker's handlers pass to the coordinator."""
    message = dict(request.message)
    if request.api is ApiKey.JOIN_GROUP:
        message["protocols"] = tuple(m.MemberProtocol(one["name"], one["metadata"]) for one in message["protocols"])
        message["reason"] = message["reason"] or ""
        return "join", m.JoinRequest(**message, client_id=client_id, client_host="/127.0.0.1")
    if request.api is ApiKey.SYNC_GROUP:
        message["assignments"] = tuple(m.MemberAssignment(**one) for one in message["assignments"])
        return "sync", m.SyncRequest(**message)
    if request.api is ApiKey.HEARTBEAT:
        return "heartbeat", m.HeartbeatRequest(**message)
    if request.api is ApiKey.LEAVE_GROUP:
        members = tuple(m.LeavingMember(**one) for one in message["members"])
        return "leave", m.LeaveRequest(group_id=message["group_id"], members=members)
    for name, kind in (("subscribed_topic_names", tuple), ("topic_partitions", _owned)):
        if message.get(name) is not None:
            message[name] = kind(message[name])
    return "consumer_heartbeat", ConsumerHeartbeatRequest(**message, client_id=client_id, client_host="/127.0.0.1")


def _owned(parts: list[dict[str, Any]]) -> tuple[r.TopicPartitions, ...]:
    return tuple(r.TopicPartitions(one["topic_id"], tuple(one["partitions"])) for one in parts)
