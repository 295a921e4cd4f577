"""Classic groups: the requests of members, and the response in each state. Errors are those of Kafka 4.2.

Deliberate differences from Kafka: a parked request is always answered, also if the member asks again on another
connection or is removed while its sync waits. A static member that returns is described with its present client id and
host. A pending member that leaves does not make the others rebalance.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.history import HISTORY, RebalanceHistory
from ottla.coordinator.classic.logged import Logged, generation_record
from ottla.coordinator.classic.members import Member, Problem, Roster
from ottla.coordinator.classic.rebalance import JOIN, SYNC, Rebalance
from ottla.coordinator.classic.states import State, Status
from ottla.coordinator.classic.static import Return
from ottla.coordinator.classic.subscriptions import same_topics, topics_of_all
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import CLASSIC, Shard, retention_expiry
from ottla.coordinator.offsets import IsExpired
from ottla.coordinator.sessions import Sessions
from ottla.machine import Parked
from ottla.types import Millis

HEARTBEAT = "heartbeat"
"""The timer of a session."""
DOWNGRADED = "consumer-downgraded"
"""The timer of a group that has just been a consumer group: ``(DOWNGRADED, group, trigger)``."""
_HEARTBEAT_FINE = m.HeartbeatResponse()


class ClassicGroup:
    """A group whose leader, one of the members, assigns the partitions.

    `logged` is what the log says, everything else is soft state.
    """

    __slots__ = ("_rebalance", "group_id", "logged", "roster", "sessions", "shard", "status")

    def __init__(self, shard: Shard, group_id: str, *, now: Millis) -> None:
        self.shard = shard
        self.group_id = group_id
        self.logged = Logged()
        self.status = Status(now=now)
        self.roster = Roster()
        self.sessions = Sessions(HEARTBEAT, group_id)
        self._rebalance: Rebalance | None = None

    # ── what it is ────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def type(self) -> str:
        return CLASSIC

    @property
    def state(self) -> State:
        return self.status.state

    @property
    def generation(self) -> int:
        return self.status.generation

    @property
    def members(self) -> Mapping[str, Member]:
        return self.roster.members

    @property
    def pending(self) -> Collection[str]:
        return self.roster.pending.keys()

    @property
    def leader(self) -> str | None:
        return self.roster.leader

    @property
    def assignments(self) -> Mapping[str, bytes]:
        """What the log assigns to each member."""
        return self.logged.assignments

    @property
    def trace(self) -> history.Trace | None:
        """What has happened so far in the rebalance that is under way."""
        return None if self._rebalance is None else self._rebalance.history.trace

    @property
    def rebalance(self) -> Rebalance:
        """The rebalance that is under way. It is made when it is first needed, because most groups are stable."""
        if self._rebalance is None:
            told = RebalanceHistory(self.shard.histories, self.group_id, self.logged, self.status, self.roster)
            self._rebalance = Rebalance(self.shard, self.group_id, self.status, self.roster, self.sessions, told)
        return self._rebalance

    @property
    def is_empty(self) -> bool:
        return self.roster.is_empty

    def record(self, assignments: Mapping[str, bytes]) -> r.GroupMetadataValue:
        """Return the record of this generation with these assignments."""
        return generation_record(self.status, self.members.values(), self.leader, assignments)

    def listed(self) -> m.ListedGroup:
        return m.ListedGroup(self.group_id, self.status.protocol_type or "", str(self.state), CLASSIC)

    def described(self) -> m.DescribedGroup:
        """Return the response to DescribeGroups. As in Kafka, only a stable group tells its subscriptions."""
        protocol = self.status.protocol if self.state is State.STABLE else None
        return m.DescribedGroup(
            group_id=self.group_id,
            state=str(self.state),
            protocol_type=self.status.protocol_type or "",
            protocol_name=protocol or "",
            members=tuple(member.described(protocol) for member in self.members.values()),
        )

    def is_subscribed(self, topic: str) -> bool:
        """Return whether a member reads the topic. If subscriptions are unknown, every topic counts as read."""
        topics = self._subscribed_topics()
        return self.status.uses_consumer_protocol if topics is None else topic in topics

    def _subscribed_topics(self) -> set[str] | None:
        protocol = self.status.protocol
        if not self.status.uses_consumer_protocol:
            return None
        if not self.members:
            return set()
        return None if protocol is None else topics_of_all(each.metadata(protocol) for each in self.members.values())

    # ── join ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked:
        if not self._has_room_for(request.member_id):
            return self._turn_away(request.member_id, fx)
        if not self._supports(request):
            return _join_error(errors.InconsistentGroupProtocol, request.member_id)
        if request.member_id == m.UNKNOWN_MEMBER_ID:
            return self._join_new(request, fx)
        if request.member_id in self.roster.pending:
            return self._join_pending(request, fx)
        return self._join_known(request, fx)

    def _has_room_for(self, member_id: str) -> bool:
        limit = self.shard.config.group_max_size
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            # Only members that have joined count. If the limit was lowered, the last ones to join must go.
            joins = self.rebalance.joins
            return member_id in joins or len(joins) < limit
        return member_id in self.members or len(self.members) < limit

    def _turn_away(self, member_id: str, fx: Effects) -> m.JoinResponse:
        member = self.members.get(member_id)
        if member is not None:
            self.rebalance.remove(member, fx)
            self.rebalance.after_removal([r.Trigger(history.GROUP_TOO_LARGE, fx.now, member.who)], fx)
        elif member_id in self.roster.pending:
            self.rebalance.drop(member_id, fx)
            self.rebalance.maybe_complete(fx)
        return _join_error(errors.GroupMaxSizeReached, m.UNKNOWN_MEMBER_ID)

    def _supports(self, request: m.JoinRequest) -> bool:
        """Return whether a member with these protocols can be in the group with the others."""
        if self.state is State.EMPTY:
            return bool(request.protocol_type) and bool(request.protocols)
        return request.protocol_type == self.status.protocol_type and self.roster.supports_one_of(request.protocols)

    def _join_new(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked:
        instance_id = request.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{self.shard.new_id()}"
        if instance_id is not None and instance_id in self.roster.static:
            return self._replace_static(request, member_id, fx)
        if instance_id is None and request.requires_known_member_id:
            self.roster.pending[member_id] = None
            self.sessions.touch(member_id, request.session_timeout, fx)
            return _join_error(errors.MemberIdRequired, member_id)
        return self._add_and_rebalance(request, member_id, fx)

    def _join_pending(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked:
        if request.group_instance_id is not None:
            # Static members are never asked to join again with an id.
            return _join_error(errors.UnknownServerError, request.member_id)
        return self._add_and_rebalance(request, request.member_id, fx)

    def _add_and_rebalance(self, request: m.JoinRequest, member_id: str, fx: Effects) -> Parked:
        member = Member.joining(request, member_id)
        if not self.members:
            self.status.protocol_type = request.protocol_type
        member.is_new = True
        if self.rebalance.initial_delay is not None:
            self.rebalance.initial_delay.newcomers = True
        self.roster.add(member)
        parked = self.rebalance.park_join(member, fx)
        # It cannot send heartbeats while it waits. But if its connection is gone, it must not stay forever.
        self.sessions.touch(member_id, self.shard.config.group_new_member_join_timeout_ms, fx)
        self.rebalance.request(r.Trigger(history.MEMBER_JOINED, fx.now, member.who, request.reason), fx)
        return parked

    def _join_known(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked:
        problem = self.roster.problem(request.member_id, request.group_instance_id)
        if problem is not None:
            return _join_error(problem, request.member_id)
        member = self.members[request.member_id]
        if self.state is State.PREPARING_REBALANCE:
            parked = self._join_again(member, request, fx)
            self.rebalance.maybe_complete(fx)
            return parked
        # A member that changes nothing has missed the first response. But the leader may want to assign again.
        may_lead = self.state is State.STABLE and self.leader == member.member_id
        if member.protocols == request.protocols and not may_lead:
            return self.rebalance.joined_response(member.member_id)
        trigger = r.Trigger(self._why_joined_again(member, request), fx.now, member.who, request.reason)
        parked = self._join_again(member, request, fx)
        self.rebalance.request(trigger, fx)
        return parked

    def _why_joined_again(self, member: Member, request: m.JoinRequest) -> str:
        same = member.protocols == request.protocols
        if not same and self.status.uses_consumer_protocol:
            same = same_topics(member.protocols, request.protocols)
        if not same:
            return history.SUBSCRIPTION_CHANGED
        # The leader joins again when something changed that only it sees, such as the number of partitions.
        return history.LEADER_REJOINED if self.leader == member.member_id else history.MEMBER_REJOINED

    def _join_again(self, member: Member, request: m.JoinRequest, fx: Effects) -> Parked:
        self.roster.set_protocols(member, request.protocols)
        member.rebalance_timeout = request.rebalance_timeout
        member.session_timeout = request.session_timeout
        return self.rebalance.park_join(member, fx)

    # ── static members that return ────────────────────────────────────────────────────────────────────────────────

    def _replace_static(self, request: m.JoinRequest, member_id: str, fx: Effects) -> m.JoinResponse | Parked:
        """A static member has returned without its id. It gets its old place and a new id; the old id is fenced."""
        assert request.group_instance_id is not None
        old = self.members[self.roster.static[request.group_instance_id]]
        new = Member.joining(request, member_id)
        new.assignment = old.assignment
        trigger = r.Trigger(history.STATIC_MEMBER_REPLACED, fx.now, new.who, request.reason)
        if self.state is State.STABLE and self.roster.vote_with(old, new) == self.status.protocol:
            returned = Return(self.status, self.roster, old, new)
            self.roster.replacement = new
            self.rebalance.touch(new, fx)
            fx.write(r.GroupMetadataKey(self.group_id), returned.record())
            self.rebalance.history.unchanged(trigger, returned.assignments, fx)
            return returned.response(skips_assignment=request.supports_skipping_assignment)
        self.rebalance.fence(old, fx)
        self.roster.swap(old, new)
        self.rebalance.history.renamed(old.member_id, new.member_id)
        self.rebalance.touch(new, fx)
        parked = self.rebalance.park_join(new, fx)
        self.rebalance.request(trigger, fx)
        return parked

    # ── sync ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def sync(self, request: m.SyncRequest, fx: Effects) -> m.SyncResponse | Parked:
        problem = self._sync_problem(request)
        if problem is not None:
            return m.SyncResponse(error_code=problem.code)
        return self.rebalance.sync(self.members[request.member_id], request.assignments, fx)

    def _sync_problem(self, request: m.SyncRequest) -> Problem | None:
        status = self.status
        problem = self.roster.problem(request.member_id, request.group_instance_id)
        if problem is not None:
            return problem
        if request.generation_id != status.generation:
            return errors.IllegalGeneration
        if _differs(request.protocol_type, status.protocol_type) or _differs(request.protocol_name, status.protocol):
            return errors.InconsistentGroupProtocol
        return errors.RebalanceInProgress if status.state is State.PREPARING_REBALANCE else None

    # ── heartbeat ─────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, request: m.HeartbeatRequest, fx: Effects) -> m.HeartbeatResponse:
        problem = self.roster.problem(request.member_id, request.group_instance_id)
        if problem is None and request.generation_id != self.status.generation:
            problem = errors.IllegalGeneration
        if problem is not None:
            return m.HeartbeatResponse(error_code=problem.code)
        member_id = request.member_id
        self.sessions.touch(member_id, self.roster.members[member_id].session_timeout, fx)
        if self.status.state is State.PREPARING_REBALANCE:
            return m.HeartbeatResponse(error_code=errors.RebalanceInProgress.code)
        return _HEARTBEAT_FINE

    # ── leave ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, request: m.LeaveRequest, fx: Effects) -> m.LeaveResponse:
        """Remove members, at their own request or an administrator's."""
        triggers: list[r.Trigger] = []
        left = tuple(self._leave_one(leaving, triggers, fx) for leaving in request.members)
        if triggers:
            self.rebalance.after_removal(triggers, fx)
        elif any(member.error_code == 0 for member in left):
            self.rebalance.maybe_complete(fx)
        return m.LeaveResponse(members=left)

    def _leave_one(self, leaving: m.LeavingMember, triggers: list[r.Trigger], fx: Effects) -> m.LeftMember:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if member_id in self.roster.pending:
            self.rebalance.drop(member_id, fx)
            return m.LeftMember(member_id, instance_id)
        if member_id == m.UNKNOWN_MEMBER_ID:
            # An administrator names a static member by its instance id alone.
            member_id = self.roster.static.get(instance_id or "", m.UNKNOWN_MEMBER_ID)
        problem = self.roster.problem(member_id, instance_id)
        if problem is not None:
            return m.LeftMember(leaving.member_id, instance_id, problem.code)
        member = self.members[member_id]
        triggers.append(r.Trigger(history.MEMBER_LEFT, fx.now, member.who, leaving.reason))
        self.rebalance.remove(member, fx)
        return m.LeftMember(leaving.member_id, instance_id)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def check_commit(self, request: m.CommitRequest | m.TransactionalCommitRequest, fx: Effects) -> None:
        """Raise unless a member of this generation commits, or a client without a generation in an empty group."""
        status, member_id = self.status, request.member_id
        if request.generation_id < 0 and status.state is State.EMPTY:
            return
        transactional = isinstance(request, m.TransactionalCommitRequest)
        if request.generation_id >= 0 or member_id or request.group_instance_id is not None:
            problem = self.roster.problem(member_id, request.group_instance_id)
            if problem is not None:
                name = f"instance id {request.group_instance_id}" if request.group_instance_id else "no instance id"
                raise problem(f"Group {self.group_id} has no member {member_id!r} with {name}.")
            if request.generation_id != status.generation:
                raise errors.IllegalGeneration(
                    f"Group {self.group_id} is in generation {status.generation}, not {request.generation_id}."
                )
        elif not transactional:
            raise errors.UnknownMemberId(f"Group {self.group_id} has members; only they may commit.")
        if transactional:
            return
        if status.state is State.COMPLETING_REBALANCE:
            raise errors.RebalanceInProgress()
        self.sessions.touch(member_id, self.roster.members[member_id].session_timeout, fx)

    def check_fetch(self, request: m.FetchRequest) -> None:
        """Every client may fetch the offsets of a classic group."""

    def check_delete_offsets(self) -> None:
        if self.state is not State.EMPTY and not self.status.uses_consumer_protocol:
            raise errors.NonEmptyGroup(f"Group {self.group_id} has members.")

    def check_delete(self) -> None:
        if self.state is not State.EMPTY and not self.is_empty:
            raise errors.NonEmptyGroup(f"Group {self.group_id} has members.")

    def offset_expiry(self, fx: Effects) -> IsExpired | None:
        """In a stable group, offsets of topics that it does not read expire. In an empty group, all do."""
        since = -1
        if self.status.protocol_type is not None:
            if self.state is State.EMPTY:
                since = self.status.since
            elif self.state is not State.STABLE or self._subscribed_topics() is None:
                return None
        return retention_expiry(self.shard.config.offsets_retention_ms, since=since, now=fx.now)

    # ── timers ────────────────────────────────────────────────────────────────────────────────────────────────────

    def fire(self, key: tuple[Hashable, ...], fx: Effects) -> None:
        name = key[0]
        if name == HEARTBEAT:
            self._session_timer(str(key[2]), fx)
        elif name == HISTORY:
            self.rebalance.history.tell(self.rebalance.awaited(), fx)
        elif name == JOIN:
            self.rebalance.join_timer(fx)
        elif name == SYNC:
            self.rebalance.sync_timer(fx)
        elif name == DOWNGRADED and isinstance(key[2], r.Trigger):
            self.rebalance.request(key[2], fx)
            self.loaded(fx)

    def _session_timer(self, member_id: str, fx: Effects) -> None:
        member = self.members.get(member_id)
        is_pending = member_id in self.roster.pending
        if (member is None and not is_pending) or not self.sessions.is_over(member_id, fx):
            return
        if member is None:
            self.roster.drop(member_id)
            self.rebalance.maybe_complete(fx)
        elif member.is_new or (member_id not in self.rebalance.joins and member_id not in self.rebalance.syncs):
            # A member that waits cannot send heartbeats. A new member may have gone while its join waited.
            self.rebalance.remove(member, fx)
            self.rebalance.after_removal([r.Trigger(history.SESSION_EXPIRED, fx.now, member.who)], fx)

    @property
    def member_ids(self) -> tuple[str, ...]:
        return tuple(self.members)

    def force_rebalance(self, trigger: r.Trigger, fx: Effects) -> None:
        if self.members:
            self.rebalance.request(trigger, fx)

    def expire_session(self, member_id: str, fx: Effects) -> None:
        session = self.sessions.by_member.get(member_id)
        if session is not None:
            session.deadline = fx.now
            self._session_timer(member_id, fx)

    # ── the life of the group ─────────────────────────────────────────────────────────────────────────────────────

    def replay(self, value: r.GroupMetadataValue) -> None:
        """Take over what a record says. Soft state that was ahead of the log becomes what the log says."""
        self.logged.replay(value)
        if not value.members and self.state is not State.EMPTY and value.generation <= self.generation:
            return  # The first record of a group: members have joined since it was made.
        self.status.replay(value)
        self.roster.replay(value)
        self._forget_other_sessions()
        if self._rebalance is not None:
            self._rebalance.replay()
            if self._rebalance.is_over:
                self._rebalance = None

    def append_failed(self, keys: Collection[r.Key], fx: Effects) -> None:
        if all(isinstance(key, r.HistoryKey | r.OldHistoryKey) for key in keys):
            return  # The history's own timer writes it again. Waits must not start over because of it.
        self.roster.replacement = None
        self._forget_other_sessions()
        self.rebalance.set_timers(fx)
        if r.GroupMetadataKey(self.group_id) in keys and self.state is State.COMPLETING_REBALANCE:
            # The members that wait for this assignment will not get it.
            self.rebalance.prepare(r.Trigger(history.NOT_WRITTEN, fx.now), fx)

    def _forget_other_sessions(self) -> None:
        """A static member's old id, or its new id if that could not be written, may have one."""
        self.sessions.retain(self.members.keys() | self.roster.pending.keys())

    def loaded(self, fx: Effects) -> None:
        """Give every member a whole session."""
        for member in self.members.values():
            self.sessions.touch(member.member_id, member.session_timeout, fx)
        if len(self.members) > self.shard.config.group_max_size:
            self.rebalance.prepare(r.Trigger(history.GROUP_TOO_LARGE, fx.now), fx)
        elif self.members and self.leader is None and self.state is State.STABLE:
            # It was a consumer group, and the broker stopped before the remaining members had rebalanced.
            self.rebalance.prepare(r.Trigger(history.PROTOCOL_CHANGED, fx.now), fx)
        elif self.trace is None and self.shard.histories.under_way(self.group_id) is not None:
            fx.set_timer((HISTORY, self.group_id), fx.now)

    def delete(self, fx: Effects) -> None:
        """Write the tombstone of the group. The timers of pending members find no group."""
        fx.write(r.GroupMetadataKey(self.group_id), None)

    def send_away(self, fx: Effects) -> None:
        """The group becomes a consumer group: all parked members must join again. Stop the timers."""
        for member in self.members.values():
            self.rebalance.reject(member, errors.RebalanceInProgress, fx)
        self.sessions.cancel_timers(fx)
        for name in (JOIN, SYNC, HISTORY):
            fx.cancel_timer((name, self.group_id))


def _join_error(error: Problem, member_id: str) -> m.JoinResponse:
    return m.JoinResponse(error_code=error.code, member_id=member_id)


def _differs(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known
