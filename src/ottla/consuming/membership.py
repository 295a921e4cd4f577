"""What the members of both group protocols share: their requests, their duties on the user's thread, their identity.

A member machine is driven from two sides:

    poll(now) ─> Step: requests to the coordinator, and when to call again     in the background, at any time
    due() ─> Duty ─> done(duty)                                                inside the user's poll

Responses arrive by `answered(request, response)` or `failed(request, error)`. A duty changes the assignment: the
user's listener runs between `due` and `done`, so partitions are never taken away while the user works on them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from ottla.errors import (
    CoordinatorLoadInProgress,
    CoordinatorNotAvailable,
    FencedInstanceId,
    KafkaError,
    NotCoordinator,
    error_class,
)
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import Millis, TopicPartition

NO_GENERATION = -1
NO_MEMBER_ID = ""
NO_INCARNATION = -1
"""For requests whose responses do not matter, since the member has left."""

COORDINATOR_MOVED = (NotCoordinator, CoordinatorNotAvailable)
COORDINATOR_ERRORS = (*COORDINATOR_MOVED, CoordinatorLoadInProgress)


class Request(NamedTuple):
    """Something to send to the coordinator."""

    api: ApiKey
    message: Message
    incarnation: int
    """Responses to requests from before the member started over are ignored."""
    timeout_ms: Millis | None = None


class DutyKind(Enum):
    REVOKE = "revoke"
    """Commit, call the listener, revoke the partitions. With no partitions there is only the commit."""
    ASSIGN = "assign"
    """Assign the partitions, call the listener."""
    LOSE = "lose"
    """Drop the partitions, call the listener."""


class Duty(NamedTuple):
    """What has to be done on the user's thread before the member can continue."""

    kind: DutyKind
    partitions: tuple[TopicPartition, ...]


class Step(NamedTuple):
    """What a member wants now."""

    requests: tuple[Request, ...] = ()
    wake_at: Millis | None = None
    metadata: frozenset[str] | None = None
    """Topics whose metadata the member needs; empty means all subscribed topics."""
    rejected: bool = False
    """The user's poll has something to raise."""


@dataclass(frozen=True, slots=True)
class MemberSettings:
    """The configuration of a member."""

    group_id: str
    group_instance_id: str | None = None
    rack_id: str | None = None
    session_timeout_ms: Millis = 45_000
    heartbeat_interval_ms: Millis = 3_000
    max_poll_interval_ms: Millis = 300_000
    retry_backoff_ms: Millis = 100
    retry_backoff_max_ms: Millis = 1_000
    request_timeout_ms: Millis = 30_000
    server_assignor: str | None = None


class Identity(NamedTuple):
    """The member that commits."""

    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER_ID
    group_instance_id: str | None = None


class Topics(NamedTuple):
    """What a member needs to know of the cluster: partitions and ids of topics."""

    partitions: Mapping[str, int]
    ids: Mapping[str, UUID]
    asked: frozenset[str] | None = None
    """The topics that were requested; None means all."""


class Member(Protocol):
    """The interface of a member of either protocol."""

    has_epochs: bool
    """Whether it speaks the consumer protocol, where members have epochs instead of generations."""
    owned: frozenset[TopicPartition]

    @property
    def identity(self) -> Identity: ...

    @property
    def is_member(self) -> bool: ...

    @property
    def is_rebalancing(self) -> bool: ...

    @property
    def can_commit(self) -> bool:
        """Whether the coordinator accepts commits of this generation now; they wait during a join."""

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None: ...

    def polled(self, *, now: Millis) -> None: ...

    def learned(self, topics: Topics) -> None: ...

    def rejoin(self, reason: str) -> None: ...

    def poll(self, *, now: Millis) -> Step: ...

    def due(self) -> Duty | None: ...

    def done(self, duty: Duty) -> None: ...

    def rejection(self, *, now: Millis) -> KafkaError | None:
        """The error for the user's poll to raise when there is no duty. See `Rejections`."""

    def answered(self, request: Request, response: Struct, *, now: Millis) -> KafkaError | None: ...

    def failed(self, request: Request, error: KafkaError, *, now: Millis) -> None: ...

    def commit_rejected(self, error: KafkaError, who: Identity) -> None:
        """A commit may be the first to learn that the generation is over; an error of an earlier one proves nothing."""

    def leave(self, reason: str) -> Request | None: ...


def error_of(response: Struct) -> KafkaError | None:
    """The error of a whole response, with the broker's message if it has one."""
    if not response.error_code:
        return None
    return error_class(response.error_code)(getattr(response, "error_message", None) or "")


def in_order(partitions: Iterable[TopicPartition]) -> tuple[TopicPartition, ...]:
    return tuple(sorted(partitions))


def earliest(*times: Millis | None) -> Millis | None:
    """The earliest of several times, ignoring None."""
    return min((time for time in times if time is not None), default=None)


class Rejections:
    """Errors of the coordinator for the user's poll to raise: nothing is sent until it has.

    Each is raised once, and then the member tries again: the cause may be gone, or the user may have fixed it. The
    pauses grow while the error lasts, so that a loop of polls does no harm. Only a fenced instance id is final: a
    member that joined again would fence the other one.
    """

    __slots__ = ("_first_pause", "_last_pause", "_pause", "error")

    def __init__(self, settings: MemberSettings) -> None:
        self.error: KafkaError | None = None
        self._first_pause = self._pause = settings.retry_backoff_ms
        self._last_pause = max(settings.retry_backoff_ms, settings.retry_backoff_max_ms)

    def take(self) -> KafkaError | None:
        error = self.error
        if not isinstance(error, FencedInstanceId):
            self.error = None
        return error

    def next_try(self, *, now: Millis) -> Millis:
        """When to try again, now that the user knows."""
        pause, self._pause = self._pause, min(2 * self._pause, self._last_pause)
        return now + pause

    def over(self) -> None:
        self._pause = self._first_pause


class PollWatch:
    """When the user polled last: a member that is stuck for too long leaves by itself."""

    __slots__ = ("_interval", "_last")

    def __init__(self, max_poll_interval_ms: Millis) -> None:
        self._interval = max_poll_interval_ms
        self._last: Millis | None = None

    def polled(self, *, now: Millis) -> None:
        self._last = now

    @property
    def deadline(self) -> Millis | None:
        return None if self._last is None else self._last + self._interval

    def is_stuck(self, *, now: Millis) -> bool:
        return self.deadline is not None and now > self.deadline
