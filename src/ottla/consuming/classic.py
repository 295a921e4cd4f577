"""A member of a classic group: it joins, the leader assigns, all members sync, heartbeats keep it alive.

    UNJOINED ─(poll: revoke)─> JOINING ─> [LEADING: assign] ─> SYNCING ─> COMPLETING ─(poll: assign)─> STABLE
        ^                                                                                                │
        └──────────── a rebalance, a new subscription, changed topics, a generation that is gone ────────┘

A join starts only inside the user's poll, and then continues in the background, as heartbeats do. With eager
assignors everything is revoked before a join. With cooperative ones the moving partitions are revoked after the sync,
and the member joins again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import Enum

from ottla.assignors import Assignment, Assignor, Subscription
from ottla.assignors.embedded import PROTOCOL_TYPE, MalformedProtocol, decode_assignment, encode_subscription
from ottla.consuming.errors import session_timeout_rejected
from ottla.consuming.leading import Leader, assignor_failed, by_name, is_cooperative, read_members
from ottla.consuming.membership import (
    COORDINATOR_ERRORS,
    NO_GENERATION,
    NO_INCARNATION,
    NO_MEMBER_ID,
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
    FencedInstanceId,
    IllegalGeneration,
    InconsistentGroupProtocol,
    InvalidSessionTimeout,
    KafkaError,
    MemberIdRequired,
    RebalanceInProgress,
    UnknownMemberId,
)
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import Millis, TopicPartition

JOIN_SLACK_MS: Millis = 5_000
_GONE = (UnknownMemberId, IllegalGeneration)


class State(Enum):
    """The state of a member."""

    UNJOINED = "unjoined"
    JOINING = "joining"
    LEADING = "leading"
    SYNCING = "syncing"
    COMPLETING = "completing"
    STABLE = "stable"


class ClassicMember:
    """One member. `membership.Member` explains how it is driven."""

    has_epochs = False

    def __init__(self, settings: MemberSettings, assignors: Sequence[Assignor]) -> None:
        self._settings = settings
        self._assignors = list(assignors)
        self._cooperative = is_cooperative(assignors)
        self._watch = PollWatch(settings.max_poll_interval_ms)
        self._rejections = Rejections(settings)
        self.state = State.UNJOINED
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        self.owned: frozenset[TopicPartition] = frozenset()
        self.reason: str | None = None
        """Why the member has to join (again); None if it does not."""
        self._topics: frozenset[str] = frozenset()
        self._incarnation = 0
        self._in_flight: set[ApiKey] = set()
        self._retry_at: Millis = 0
        self._heartbeat_at: Millis = 0
        self._lost = False
        self._protocol: str | None = None
        self._leader = Leader()
        self._known = Topics({}, {})
        self._assignments: list[Message] = []
        self._given: frozenset[TopicPartition] = frozenset()
        self._revoked_after_sync = False

    # ── who it is ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def identity(self) -> Identity:
        return Identity(self.generation, self.member_id, self._settings.group_instance_id)

    @property
    def is_member(self) -> bool:
        return self.generation != NO_GENERATION

    @property
    def is_rebalancing(self) -> bool:
        return self.state is not State.STABLE or self.reason is not None

    @property
    def can_commit(self) -> bool:
        return self.state in (State.COMPLETING, State.STABLE)

    @property
    def watched(self) -> frozenset[str]:
        """The topics whose change concerns the group: for the leader those of all members, else its own."""
        return self._topics | self._leader.topics

    # ── what happens to it ────────────────────────────────────────────────────────────────────────────────────────

    def subscribe(self, topics: Iterable[str], pattern: str | None = None) -> None:
        wanted = frozenset(topics)
        if wanted != self._topics or self.state is State.UNJOINED:
            self._topics = wanted
            self._rejections.take()
            self.rejoin("the subscription changed")

    def rejoin(self, reason: str) -> None:
        self.reason = self.reason or reason

    def polled(self, *, now: Millis) -> None:
        self._watch.polled(now=now)

    def learned(self, topics: Topics) -> None:
        if topics.asked is not None and not self.watched <= topics.asked:
            return  # requested before the members were known
        self._known = topics
        if self.state is State.LEADING:
            self._lead()
        elif self._leader.is_outdated(self._partitions()):
            self.rejoin("the partitions of a subscribed topic changed")

    def commit_rejected(self, error: KafkaError, who: Identity) -> None:
        if who != self.identity or not self.can_commit:
            return
        if isinstance(error, RebalanceInProgress):
            self.rejoin("a rebalance is in progress")
        elif isinstance(error, _GONE):
            self._start_over(str(error), keep_id=isinstance(error, IllegalGeneration))
        elif isinstance(error, FencedInstanceId):
            self._fail(error)

    # ── in the background ─────────────────────────────────────────────────────────────────────────────────────────

    def poll(self, *, now: Millis) -> Step:
        if self._rejections.error is not None:
            return Step(rejected=True)
        requests: list[Request] = []
        if self.is_member and self._watch.is_stuck(now=now):
            requests += self._leave_since_stuck()
        if self.state is State.JOINING and ApiKey.JOIN_GROUP not in self._in_flight and now >= self._retry_at:
            requests += self._join()
        if self.state is State.SYNCING and ApiKey.SYNC_GROUP not in self._in_flight and now >= self._retry_at:
            requests.append(self._sync())
        if self._beats and ApiKey.HEARTBEAT not in self._in_flight and now >= self._heartbeat_at:
            requests.append(self._heartbeat())
        metadata = self.watched if self.state is State.LEADING else None
        return Step(tuple(requests), self._wake_at(), metadata, self._rejections.error is not None)

    @property
    def _beats(self) -> bool:
        return self.state in (State.SYNCING, State.COMPLETING, State.STABLE, State.LEADING)

    def _wake_at(self) -> Millis | None:
        heartbeat = self._heartbeat_at if self._beats and ApiKey.HEARTBEAT not in self._in_flight else None
        sends = (State.JOINING, ApiKey.JOIN_GROUP), (State.SYNCING, ApiKey.SYNC_GROUP)
        waits = any(self.state is state and api not in self._in_flight for state, api in sends)
        stuck = self._watch.deadline
        return earliest(
            heartbeat, self._retry_at if waits else None, stuck + 1 if stuck is not None and self.is_member else None
        )

    def _join(self) -> list[Request]:
        settings, protocols = self._settings, []
        for one in self._assignors:
            try:
                protocols.append({"name": one.name, "metadata": encode_subscription(self._subscription(one))})
            except Exception as error:
                self._fail(assignor_failed(one, error))
                return []
        message = {
            "group_id": settings.group_id,
            "session_timeout": settings.session_timeout_ms,
            "rebalance_timeout": settings.max_poll_interval_ms,
            "member_id": self.member_id,
            "group_instance_id": settings.group_instance_id,
            "protocol_type": PROTOCOL_TYPE,
            "protocols": protocols,
            "reason": (self.reason or "")[:255] or None,
        }
        self.reason = None
        patience = max(settings.request_timeout_ms, settings.max_poll_interval_ms + JOIN_SLACK_MS)
        return [self._request(ApiKey.JOIN_GROUP, message, patience)]

    def _subscription(self, assignor: Assignor) -> Subscription:
        owned: dict[str, list[int]] = {}
        for partition in sorted(self.owned):
            owned.setdefault(partition.topic, []).append(partition.partition)
        topics = sorted(self._topics)
        data = assignor.subscription_user_data(topics)
        return Subscription(topics, data, owned, self.generation, None, self._settings.rack_id)

    def _sync(self) -> Request:
        return self._request(
            ApiKey.SYNC_GROUP,
            {
                **self._who(),
                "protocol_type": PROTOCOL_TYPE,
                "protocol_name": self._protocol,
                "assignments": self._assignments,
            },
            self._settings.max_poll_interval_ms + JOIN_SLACK_MS,
        )

    def _heartbeat(self) -> Request:
        return self._request(ApiKey.HEARTBEAT, self._who())

    def _who(self) -> Message:
        return {
            "group_id": self._settings.group_id,
            "generation_id": self.generation,
            "member_id": self.member_id,
            "group_instance_id": self._settings.group_instance_id,
        }

    def _request(self, api: ApiKey, message: Message, timeout_ms: Millis | None = None) -> Request:
        self._in_flight.add(api)
        return Request(api, message, self._incarnation, timeout_ms)

    # ── in the user's poll ────────────────────────────────────────────────────────────────────────────────────────

    def due(self) -> Duty | None:
        if self._lost and self.owned:
            return Duty(DutyKind.LOSE, in_order(self.owned))
        if self._rejections.error is not None:
            return None
        if self.state is State.COMPLETING:
            return self._completing()
        if self.state in (State.UNJOINED, State.STABLE) and self.reason is not None:
            return self._preparing()
        return None

    def _preparing(self) -> Duty | None:
        """Before a join: eager members revoke everything, cooperative ones what they no longer subscribe to."""
        if not self.owned:
            self._begin_join()
            return None
        gone = {one for one in self.owned if one.topic not in self._topics} if self._cooperative else self.owned
        return Duty(DutyKind.REVOKE, in_order(gone))

    def _completing(self) -> Duty:
        if revoked := self.owned - self._given:
            return Duty(DutyKind.REVOKE, in_order(revoked))
        return Duty(DutyKind.ASSIGN, in_order(self._given - self.owned))

    def done(self, duty: Duty) -> None:
        """The listener has run, and the partitions are revoked or assigned."""
        if duty.kind is DutyKind.LOSE:
            self.owned = frozenset()
            self._lost = False
        elif duty.kind is DutyKind.REVOKE:
            self.owned -= frozenset(duty.partitions)
            if self.state is State.COMPLETING:
                self._revoked_after_sync = True
            elif self.state in (State.STABLE, State.UNJOINED):
                self._begin_join()
        elif self.state is State.COMPLETING:
            self.owned = self._given
            self.state = State.STABLE
            if self._revoked_after_sync:
                self._revoked_after_sync = False
                self.rejoin("partitions were revoked that go to other members")

    def rejection(self, *, now: Millis) -> KafkaError | None:
        if (error := self._rejections.take()) is not None:
            self._retry_at = self._rejections.next_try(now=now)
        return error

    def _begin_join(self) -> None:
        # A member whose pattern no longer matches anything joins too, so that the others get its partitions.
        if self._topics or self.is_member:
            self.state = State.JOINING
            self._leader.resign()
        else:
            self.reason = None

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def answered(self, request: Request, response: Struct, *, now: Millis) -> KafkaError | None:
        """Handle a response; returns the error if the coordinator has moved or is not ready."""
        if request.incarnation != self._incarnation:
            return None
        self._in_flight.discard(request.api)
        error = error_of(response)
        if isinstance(error, COORDINATOR_ERRORS):
            self._later(request.api, now=now)
            return error
        if request.api is ApiKey.JOIN_GROUP:
            self._joined(response, error, now=now)
        elif request.api is ApiKey.SYNC_GROUP:
            self._synced(response, error, now=now)
        elif request.api is ApiKey.HEARTBEAT:
            self._beaten(error, now=now)
        return None

    def failed(self, request: Request, error: KafkaError, *, now: Millis) -> None:
        """There was no response: it is unknown whether the coordinator got the request."""
        if request.incarnation != self._incarnation:
            return
        self._in_flight.discard(request.api)
        if not error.retriable:
            self._fail(error)
            return
        self._later(request.api, now=now)

    def _later(self, api: ApiKey, *, now: Millis) -> None:
        at = now + self._settings.retry_backoff_ms
        if api is ApiKey.HEARTBEAT:
            self._heartbeat_at = at
            return
        self._retry_at = at
        # The lost sync may have been the one that counted: joining again finds out.
        if api is ApiKey.SYNC_GROUP and self.state is State.SYNCING:
            self.state = State.JOINING
            self.rejoin("the response to SyncGroup was lost")

    def _joined(self, response: Struct, error: KafkaError | None, *, now: Millis) -> None:
        if self.state is not State.JOINING:
            return
        if isinstance(error, MemberIdRequired):
            self.member_id = response.member_id
            return
        if isinstance(error, UnknownMemberId):
            self._start_over("the coordinator does not know this member", keep_id=False)
        elif isinstance(error, RebalanceInProgress):
            self._retry_at = now + self._settings.retry_backoff_ms
        elif isinstance(error, InvalidSessionTimeout):
            self._fail(session_timeout_rejected(self._settings.session_timeout_ms))
        elif error is not None:
            self._fail(error)
        else:
            self._enter(response, now=now)

    def _enter(self, response: Struct, *, now: Millis) -> None:
        self.member_id, self.generation = response.member_id, response.generation_id
        self._protocol = response.protocol_name
        self._heartbeat_at = now + self._settings.heartbeat_interval_ms
        self._assignments = []
        self._leader.resign()
        chosen = by_name(self._assignors, self._protocol)
        if isinstance(chosen, KafkaError):
            self._fail(chosen)
        elif response.leader == response.member_id:
            self._leader.elect(read_members(response.members), keeps_assignment=bool(response.skip_assignment))
            # The leader needs to know the topics of all members.
            self.state = State.LEADING
        else:
            self.state = State.SYNCING

    def _lead(self) -> None:
        assignor = by_name(self._assignors, self._protocol)
        if isinstance(assignor, KafkaError):
            return
        try:
            self._assignments = self._leader.assign(assignor, self._partitions(), self.generation)
        except Exception as error:
            self._fail(assignor_failed(assignor, error))
            return
        self.state = State.SYNCING

    def _partitions(self) -> dict[str, int]:
        watched = self.watched
        return {topic: count for topic, count in self._known.partitions.items() if topic in watched and count}

    def _synced(self, response: Struct, error: KafkaError | None, *, now: Millis) -> None:
        if self.state is not State.SYNCING:
            return
        if isinstance(error, RebalanceInProgress):
            self.state = State.JOINING
            self.rejoin("the group rebalanced again before the assignment arrived")
        elif isinstance(error, _GONE):
            self._start_over(str(error), keep_id=isinstance(error, IllegalGeneration))
        elif error is not None:
            self._fail(error)
        else:
            self._take(bytes(response.assignment))

    def _take(self, data: bytes) -> None:
        try:
            assignment = decode_assignment(data) if data else Assignment()
        except MalformedProtocol as problem:
            self._fail(InconsistentGroupProtocol(f"the leader sent an assignment that cannot be read: {problem}"))
            return
        assignor = by_name(self._assignors, self._protocol)
        if isinstance(assignor, Assignor):
            try:
                assignor.on_assignment(assignment, self.generation)
            except Exception as error:
                self._fail(assignor_failed(assignor, error))
                return
        self._given = frozenset(
            TopicPartition(topic, number) for topic, numbers in assignment.partitions.items() for number in numbers
        )
        self._revoked_after_sync = False
        self.state = State.COMPLETING
        self._rejections.over()
        if self._leader.is_outdated(self._partitions()):
            self.rejoin("the partitions of a subscribed topic changed during the assignment")

    def _beaten(self, error: KafkaError | None, *, now: Millis) -> None:
        self._heartbeat_at = now + self._settings.heartbeat_interval_ms
        if error is None:
            return
        if isinstance(error, RebalanceInProgress):
            if self.state in (State.STABLE, State.COMPLETING):
                self.rejoin("the group is rebalancing")
        elif isinstance(error, _GONE):
            self._start_over(str(error), keep_id=isinstance(error, IllegalGeneration))
        else:
            self._fail(error)

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _start_over(self, reason: str, *, keep_id: bool) -> None:
        self._incarnation += 1
        self._in_flight.clear()
        self.generation = NO_GENERATION
        if not keep_id:
            self.member_id = NO_MEMBER_ID
        self.state = State.UNJOINED
        self._leader.resign()
        self._retry_at = 0
        self._lost = bool(self.owned)
        self.reason = reason

    def _fail(self, error: KafkaError) -> None:
        """Report an error to the user. The id is kept, so that the member can leave or rejoin without a second one."""
        self._start_over(str(error), keep_id=True)
        self._rejections.error = error

    def _leave_since_stuck(self) -> list[Request]:
        interval = self._settings.max_poll_interval_ms
        reason = f"no poll for longer than max.poll.interval.ms ({interval})"
        member_id = self.member_id
        self._start_over(reason, keep_id=False)
        if self._settings.group_instance_id is not None:
            return []  # a static member stays until its session ends
        return [self._leaving(member_id, reason)]

    def leave(self, reason: str) -> Request | None:
        """Leave at once; None if there is nothing to leave. The caller revokes what was owned before."""
        member_id = self.member_id
        self._start_over(reason, keep_id=False)
        self._rejections.take()
        self.reason = None
        self.owned = frozenset()
        self._lost = False
        self._topics = frozenset()
        if member_id == NO_MEMBER_ID or self._settings.group_instance_id is not None:
            return None
        return self._leaving(member_id, reason)

    def _leaving(self, member_id: str, reason: str) -> Request:
        member = {"member_id": member_id, "group_instance_id": None, "reason": reason[:255]}
        message = {"group_id": self._settings.group_id, "member_id": member_id, "members": [member]}
        return Request(ApiKey.LEAVE_GROUP, message, NO_INCARNATION)
