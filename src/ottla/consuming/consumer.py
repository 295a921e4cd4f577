"""A member of the consumer protocol (KIP-848): the broker assigns, and heartbeats carry everything.

    UNSUBSCRIBED ─(poll)─> JOINING (epoch 0) ─> STABLE (epoch n) ─── target ≠ owned: revoke, assign, acknowledge
                              ^                    │
                              └── FENCED, STUCK <──┘   what was owned is lost first

The member creates its id itself. A heartbeat contains only what changed since the last one with a response, and
everything after a failed one. A partition that the member must revoke stays owned, and its heartbeats say so, until
the user's poll has revoked it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum
from typing import Any
from uuid import UUID

from ottla.consuming.membership import (
    COORDINATOR_ERRORS,
    NO_INCARNATION,
    Duty,
    DutyKind,
    Identity,
    MemberSettings,
    PollWatch,
    Rejections,
    Request,
    Step,
    Topics,
    earliest,
    error_of,
    in_order,
)
from ottla.errors import (
    FencedMemberEpoch,
    KafkaError,
    UnknownMemberId,
    UnreleasedInstanceId,
    UnsupportedVersion,
)
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import Millis, TopicPartition

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
_FENCED = (FencedMemberEpoch, UnknownMemberId)


class State(Enum):
    """The state of a member."""

    UNSUBSCRIBED = "unsubscribed"
    JOINING = "joining"
    STABLE = "stable"
    FENCED = "fenced"
    """The broker has removed this member: it loses its partitions, then joins again."""
    STUCK = "stuck"
    """The member left because the user does not poll; the next poll loses its partitions and joins again."""


class ConsumerMember:
    """One member. `membership.Member` explains how it is driven."""

    has_epochs = True

    def __init__(self, settings: MemberSettings, member_id: str) -> None:
        self._settings = settings
        self._watch = PollWatch(settings.max_poll_interval_ms)
        self._rejections = Rejections(settings)
        self.member_id = member_id
        self.epoch = JOIN_EPOCH
        self.state = State.UNSUBSCRIBED
        self.owned: frozenset[TopicPartition] = frozenset()
        self._topics: frozenset[str] = frozenset()
        self._pattern: str | None = None
        self._subscribed = False
        """The first poll after a subscription joins the group."""
        self._incarnation = 0
        self._asking = False
        self._next_at: Millis = 0
        self._interval: Millis = settings.heartbeat_interval_ms
        self._told: Message = {}
        self._telling: Message = {}
        self._target: Mapping[UUID, tuple[int, ...]] | None = None
        self._assigned = False
        """Whether the listener was called for the present target, even if it is empty."""
        self._names: dict[UUID, str] = {}

    # ── who it is ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def identity(self) -> Identity:
        epoch = self.epoch if self.state is State.STABLE else LEAVE_EPOCH
        return Identity(epoch, self.member_id, self._settings.group_instance_id)

    @property
    def is_member(self) -> bool:
        return self.state is State.STABLE and self.epoch > JOIN_EPOCH

    @property
    def is_rebalancing(self) -> bool:
        return self.state is not State.STABLE or not self._assigned

    @property
    def can_commit(self) -> bool:
        return self.is_member

    # ── what happens to it ────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None:
        self._topics, self._pattern = frozenset(topics), pattern
        self._subscribed = True
        self._rejections.take()
        self._next_at = 0

    def rejoin(self, reason: str) -> None:
        """The broker decides when to rebalance; the member can only send a heartbeat now."""
        self._next_at = 0

    def polled(self, *, now: Millis) -> None:
        self._watch.polled(now=now)
        if self.state is State.UNSUBSCRIBED and self._subscribed:
            self.state = State.JOINING
        if self.state is State.STUCK and not self.owned:
            self._join_again()

    def learned(self, topics: Topics) -> None:
        self._names.update({topic_id: name for name, topic_id in topics.ids.items()})

    def commit_rejected(self, error: KafkaError, who: Identity) -> None:
        if isinstance(error, _FENCED):
            if who == self.identity:
                self._fence()
        else:
            self._next_at = 0  # an epoch that is too old is renewed by a heartbeat

    # ── in the background ─────────────────────────────────────────────────────────────────────────────────────────

    def poll(self, *, now: Millis) -> Step:
        if self._rejections.error is not None or self.state in (State.UNSUBSCRIBED, State.FENCED, State.STUCK):
            return Step(rejected=self._rejections.error is not None)
        if self.is_member and self._watch.is_stuck(now=now):
            return Step((self._leave_since_stuck(),))
        metadata = frozenset[str]() if self._unnamed else None
        stuck = self._watch.deadline
        stuck = stuck + 1 if stuck is not None and self.is_member else None
        if self._asking:
            return Step((), stuck, metadata)
        if now < self._next_at:
            return Step((), earliest(self._next_at, stuck), metadata)
        return Step((self._heartbeat(),), stuck, metadata)

    @property
    def _unnamed(self) -> bool:
        """Whether the name of a topic in the target is not known yet."""
        return self._target is not None and any(topic_id not in self._names for topic_id in self._target)

    def _heartbeat(self) -> Request:
        self._asking = True
        self._telling = self._facts()
        news = {name: value for name, value in self._telling.items() if self._told.get(name, _UNTOLD) != value}
        return self._request({"topic_partitions": None, **news, "member_epoch": self.epoch}, self._incarnation)

    def _facts(self) -> Message:
        """The complete state for the broker. The heartbeat leaves out what the broker knows already."""
        facts: Message = {
            "rebalance_timeout": self._settings.max_poll_interval_ms,
            "subscribed_topic_names": None if self._pattern is not None else sorted(self._topics),
            "server_assignor": self._settings.server_assignor,
            "rack_id": self._settings.rack_id,
            "topic_partitions": self._owned_by_id() if self.epoch != JOIN_EPOCH else [],
        }
        if self._pattern is not None:
            facts["subscribed_topic_names"] = []
            facts["subscribed_topic_regex"] = self._pattern
        return facts

    def _owned_by_id(self) -> list[Message]:
        ids = {name: topic_id for topic_id, name in self._names.items()}
        found: dict[UUID, list[int]] = {}
        for partition in sorted(self.owned):
            if partition.topic in ids:
                found.setdefault(ids[partition.topic], []).append(partition.partition)
        return [{"topic_id": topic_id, "partitions": numbers} for topic_id, numbers in found.items()]

    def _request(self, message: Message, incarnation: int) -> Request:
        who = {
            "group_id": self._settings.group_id,
            "member_id": self.member_id,
            "instance_id": self._settings.group_instance_id,
        }
        return Request(ApiKey.CONSUMER_GROUP_HEARTBEAT, {**who, **message}, incarnation)

    # ── in the user's poll ────────────────────────────────────────────────────────────────────────────────────────

    def due(self) -> Duty | None:
        if self.state in (State.FENCED, State.STUCK) and self.owned:
            return Duty(DutyKind.LOSE, in_order(self.owned))
        if self.state is not State.STABLE or self._target is None or self._unnamed or self._assigned:
            return None
        wanted = self._wanted()
        if gone := self.owned - wanted:
            return Duty(DutyKind.REVOKE, in_order(gone))
        return Duty(DutyKind.ASSIGN, in_order(wanted - self.owned))

    def _wanted(self) -> frozenset[TopicPartition]:
        target = self._target or {}
        return frozenset(
            TopicPartition(self._names[topic_id], number) for topic_id, numbers in target.items() for number in numbers
        )

    def done(self, duty: Duty) -> None:
        partitions = frozenset(duty.partitions)
        if duty.kind is DutyKind.ASSIGN:
            if self.state is not State.STABLE:
                return  # fenced while the listener ran
            self.owned |= partitions
            self._assigned = self._unnamed is False and self.owned == self._wanted()
            self._next_at = 0  # acknowledge
        elif duty.kind is DutyKind.REVOKE:
            self.owned -= partitions
            self._next_at = 0
        else:
            self.owned = frozenset()
            self._join_again()

    def rejection(self, *, now: Millis) -> KafkaError | None:
        if (error := self._rejections.take()) is not None:
            self._next_at = self._rejections.next_try(now=now)
        return error

    def _join_again(self) -> None:
        self.state = State.JOINING
        self.epoch = JOIN_EPOCH
        self._next_at = 0

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def answered(self, request: Request, response: Struct, *, now: Millis) -> KafkaError | None:
        """Handle a response; returns the error if the coordinator has moved or is not ready."""
        if request.incarnation != self._incarnation:
            return None
        self._asking = False
        error = error_of(response)
        if error is None:
            self._taken(response, now=now)
            return None
        self._told = {}
        if isinstance(error, COORDINATOR_ERRORS):
            self._next_at = now + self._settings.retry_backoff_ms
            return error
        if isinstance(error, _FENCED):
            self._fence()
        else:
            self._rejections.error = _explained(error, self._settings)
        return None

    def failed(self, request: Request, error: KafkaError, *, now: Millis) -> None:
        """There was no response: send everything again, since it is unknown what the broker got."""
        if request.incarnation != self._incarnation:
            return
        self._asking = False
        self._told = {}
        self._next_at = now + self._settings.retry_backoff_ms
        if not error.retriable:
            self._rejections.error = _explained(error, self._settings)

    def _taken(self, response: Struct, *, now: Millis) -> None:
        self.epoch = response.member_epoch
        self.state = State.STABLE
        self._rejections.over()
        self._interval = response.heartbeat_interval
        self._told = self._telling
        # A subscription or an acknowledgement that came in the meantime is sent at once.
        self._next_at = now + self._interval if self._facts() == self._told else 0
        if response.assignment is not None:
            target = {one.topic_id: tuple(one.partitions) for one in response.assignment.topic_partitions}
            self._target = target
            self._assigned = False

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _fence(self) -> None:
        self._forget()
        self.state = State.FENCED
        if not self.owned:
            self._join_again()

    def _forget(self) -> None:
        self._incarnation += 1
        self._asking = self._assigned = False
        self._told = {}
        self._target = None
        self.epoch = JOIN_EPOCH

    def _leave_since_stuck(self) -> Request:
        self._forget()
        self.state = State.STUCK
        return self._leaving()

    def leave(self, reason: str) -> Request | None:
        """Leave at once; None if there is nothing to leave. The caller revokes what was owned before."""
        joined = self.state in (State.STABLE, State.JOINING) and (self.epoch > JOIN_EPOCH or self._asking)
        self._forget()
        self._rejections.take()
        self.state = State.UNSUBSCRIBED
        self.owned = frozenset()
        self._subscribed = False
        self._topics, self._pattern = frozenset(), None
        return self._leaving() if joined else None

    def _leaving(self) -> Request:
        static = self._settings.group_instance_id is not None
        message = {"member_epoch": LEAVE_STATIC_EPOCH if static else LEAVE_EPOCH, "topic_partitions": None}
        return self._request(message, NO_INCARNATION)


_UNTOLD: Any = object()


def _explained(error: KafkaError, settings: MemberSettings) -> KafkaError:
    if isinstance(error, UnreleasedInstanceId):
        return UnreleasedInstanceId(
            f"another member of group {settings.group_id} uses group.instance.id {settings.group_instance_id}: give "
            "each member its own, or wait until the session of one that crashed has ended"
        )
    if isinstance(error, UnsupportedVersion):
        return UnsupportedVersion(
            f"{error}. group.protocol=consumer needs Kafka 4.0 or newer: set group.protocol=classic for older brokers"
        )
    return error
