"""Classic groups: what a member may ask, and what it is answered in each state. Error for error as Kafka 4.2 does.

Where it differs from Kafka, on purpose: a request that is parked is always answered in the end, also when the member
asks again on another connection (Kafka forgets the first) or is removed while its sync waits; a static member that
comes back is described with the client id and host that it has now; a member to be that leaves before it joined makes
nobody rebalance.
"""

from __future__ import annotations

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic_rebalance import HISTORY, SYNC, ClassicRebalance
from ottla.coordinator.classic_state import Member, subscribed_to
from ottla.coordinator.effects import Effects
from ottla.coordinator.transitions import State
from ottla.machine import Parked

_HEARTBEAT_FINE = m.HeartbeatResponse()


class ClassicGroup(ClassicRebalance):
    """A group whose leader, one of the members, assigns the partitions."""

    # ── join ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def join(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked:
        """A member wants to be in the next generation."""
        if not self._has_room_for(request.member_id):
            return self._turn_away(request.member_id, fx)
        if not self.supports(request.protocol_type, request.protocols):
            return _join_error(errors.InconsistentGroupProtocol, request.member_id)
        if request.member_id == m.UNKNOWN_MEMBER_ID:
            return self._join_new(request, fx)
        if request.member_id in self.pending:
            return self._join_pending(request, fx)
        return self._join_known(request, fx)

    def _has_room_for(self, member_id: str) -> bool:
        limit = self.shard.config.group_max_size
        if self.state is State.EMPTY:
            return True
        if self.state is State.PREPARING_REBALANCE:
            # Counted by who waits: the group may be over a limit that was lowered, and the last to come must go.
            return member_id in self.joining or len(self.joining) < limit
        return member_id in self.members or len(self.members) < limit

    def _turn_away(self, member_id: str, fx: Effects) -> m.JoinResponse:
        member = self.members.get(member_id)
        if member is not None:
            self.remove(member, fx)
            self.after_removal(r.Trigger(history.GROUP_TOO_LARGE, fx.now, member.who), fx)
        elif member_id in self.pending:
            self.drop(member_id)
            self.forget_session(member_id, fx)
            self.maybe_complete_join(fx)
        return _join_error(errors.GroupMaxSizeReached, m.UNKNOWN_MEMBER_ID)

    def _join_new(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked:
        instance_id = request.group_instance_id
        member_id = f"{request.client_id if instance_id is None else instance_id}-{self.shard.new_id()}"
        if instance_id is not None and instance_id in self.static_members:
            return self._replace_static(request, member_id, fx)
        if instance_id is None and request.requires_known_member_id:
            member = self.pending[member_id] = _new_member(request, member_id)
            self.touch(member, fx)
            return _join_error(errors.MemberIdRequired, member_id)
        return self._add_and_rebalance(_new_member(request, member_id), request, fx)

    def _join_pending(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked:
        if request.group_instance_id is not None:
            # No static member was ever told to come back with an id.
            return _join_error(errors.UnknownServerError, request.member_id)
        member = _new_member(request, request.member_id)
        member.timer_at = self.pending[request.member_id].timer_at
        return self._add_and_rebalance(member, request, fx)

    def _add_and_rebalance(self, member: Member, request: m.JoinRequest, fx: Effects) -> Parked:
        if not self.members:
            self.protocol_type = request.protocol_type
        member.is_new = True
        self.newcomers = True
        self.add(member)
        parked = self._park_join(member, fx)
        # It cannot send heartbeats before it is answered; but if its connection is gone it must not stay for ever.
        self.touch(member, fx, self.shard.config.group_new_member_join_timeout_ms)
        self.rebalance(r.Trigger(history.MEMBER_JOINED, fx.now, member.who, request.reason), fx)
        return parked

    def _join_known(self, request: m.JoinRequest, fx: Effects) -> m.JoinResponse | Parked:
        try:
            self.check_member(request.member_id, request.group_instance_id)
        except errors.KafkaError as error:
            return _join_error(type(error), request.member_id)
        member = self.members[request.member_id]
        same = member.protocols == request.protocols
        if self.state is State.PREPARING_REBALANCE:
            return self._rejoin(member, request, None, fx)
        if self.state is State.COMPLETING_REBALANCE and same:
            return self.generation_response(member.member_id)  # It did not get the first answer.
        if self.state is State.STABLE and same and self.leader != member.member_id:
            return self.generation_response(member.member_id)
        kind = self._why_rejoined(member, request)
        return self._rejoin(member, request, r.Trigger(kind, fx.now, member.who, request.reason), fx)

    def _why_rejoined(self, member: Member, request: m.JoinRequest) -> str:
        """Name the change; what a member owns also travels with its subscription, and changes with every generation."""
        same = member.protocols == request.protocols
        if not same and self.uses_consumer_protocol:
            same = subscribed_to(member.protocols) == subscribed_to(request.protocols)
        if not same:
            return history.SUBSCRIPTION_CHANGED
        # The leader rejoins when something changed that only it can see, such as the number of partitions.
        return history.LEADER_REJOINED if self.leader == member.member_id else history.MEMBER_REJOINED

    def _rejoin(self, member: Member, request: m.JoinRequest, trigger: r.Trigger | None, fx: Effects) -> Parked:
        self._update(member, request)
        parked = self._park_join(member, fx)
        if trigger is not None:
            self.rebalance(trigger, fx)
        else:
            self.maybe_complete_join(fx)
        return parked

    def _update(self, member: Member, request: m.JoinRequest) -> None:
        self.set_protocols(member, request.protocols)
        member.rebalance_timeout = request.rebalance_timeout
        member.session_timeout = request.session_timeout

    def _park_join(self, member: Member, fx: Effects) -> Parked:
        # Whoever waits on an older connection is told to try again: there is one member, and one answer.
        retry = m.JoinResponse(error_code=errors.RebalanceInProgress.code, member_id=member.member_id)
        self.answer_join(member.member_id, retry, fx)
        parked = self.shard.park()
        self.joining[member.member_id] = parked.token
        self.arrivals[member.member_id] = fx.now
        return parked

    # ── static members that come back ─────────────────────────────────────────────────────────────────────────────

    def _replace_static(self, request: m.JoinRequest, member_id: str, fx: Effects) -> m.JoinResponse | Parked:
        """A static member came back without its id: it takes its old place under a new one, and fences the old."""
        assert request.group_instance_id is not None
        old = self.members[self.static_members[request.group_instance_id]]
        new = _new_member(request, member_id)
        new.assignment = old.assignment
        if self.state is State.STABLE and self._vote_with(old, new) == self.protocol_name:
            return self._replace_without_rebalance(old, new, request, fx)
        self._fence(old, fx)
        self._swap(old, new)
        self.touch(new, fx)
        parked = self._park_join(new, fx)
        self.rebalance(r.Trigger(history.STATIC_MEMBER_REPLACED, fx.now, new.who, request.reason), fx)
        return parked

    def _fence(self, old: Member, fx: Effects) -> None:
        fenced = errors.FencedInstanceId.code
        self.answer_join(old.member_id, m.JoinResponse(error_code=fenced, member_id=old.member_id), fx)
        self.answer_sync(old, fenced, fx)
        self.forget_session(old.member_id, fx)

    def _vote_with(self, old: Member, new: Member) -> str:
        before = old.protocols
        self.set_protocols(old, new.protocols)
        try:
            return self.vote()
        finally:
            self.set_protocols(old, before)

    def _swap(self, old: Member, new: Member) -> None:
        """Put the new member in the old one's place, also in the order of members and in the last assignment."""
        order = [new if member is old else member for member in self.members.values()]
        leader = new.member_id if self.leader == old.member_id else self.leader
        self.drop(old.member_id)
        self.members.clear()
        self._support.clear()
        for member in order:
            self.add(member)
        self.leader = leader
        if old.member_id in self.assignments:
            self.assignments[new.member_id] = self.assignments.pop(old.member_id)

    def _replace_without_rebalance(
        self, old: Member, new: Member, request: m.JoinRequest, fx: Effects
    ) -> m.JoinResponse:
        """Keep the generation and every assignment; the new id counts once it is in the log.

        Nothing waits in a stable group, and the timer of the old id finds nobody.
        """
        members = [new if member is old else member for member in self.members.values()]
        assignments = {member.member_id: member.assignment for member in members}
        value = self.record(assignments, members)
        if self.leader == old.member_id:
            value = value._replace(leader=new.member_id)
        self.replacing[new.member_id] = new
        self.touch(new, fx)
        fx.write(r.GroupMetadataKey(self.group_id), value)
        trigger = r.Trigger(history.STATIC_MEMBER_REPLACED, fx.now, new.who, request.reason)
        trace = self.shard.histories.trace(self.group_id, now=fx.now)
        trace.trigger(trigger)
        self.write_trace(trace, history.UNCHANGED, self.generation, assignments, history.owners(assignments), fx)
        return self._replaced_response(old, new, request, members)

    def _replaced_response(
        self, old: Member, new: Member, request: m.JoinRequest, members: list[Member]
    ) -> m.JoinResponse:
        assert self.protocol_name is not None
        leads = self.leader == old.member_id
        # An old client that is told it leads would assign anew in a stable group: it is told the old leader's id.
        knows_skipping = request.supports_skipping_assignment
        told = tuple(
            m.JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
            for member in members
        )
        return m.JoinResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=new.member_id if leads and knows_skipping else self.leader or "",
            skip_assignment=leads and knows_skipping,
            member_id=new.member_id,
            members=told if leads and knows_skipping else (),
        )

    # ── sync ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def sync(self, request: m.SyncRequest, fx: Effects) -> m.SyncResponse | Parked:
        """A member wants its assignment; the leader brings everybody's."""
        problem = self._sync_problem(request)
        if problem is not None:
            return m.SyncResponse(error_code=problem.code)
        member = self.members[request.member_id]
        self.pending_sync.discard(member.member_id)
        if self.state is State.STABLE:
            if not self.pending_sync:
                fx.cancel_timer((SYNC, self.group_id))
            return m.SyncResponse(
                protocol_type=self.protocol_type, protocol_name=self.protocol_name, assignment=member.assignment
            )
        parked = self._park_sync(member, fx)
        if self.leader == member.member_id:
            self._assign(request, fx)
        return parked

    def _sync_problem(self, request: m.SyncRequest) -> type[errors.KafkaError] | None:
        try:
            self.check_member(request.member_id, request.group_instance_id)
        except errors.KafkaError as error:
            return type(error)
        if request.generation_id != self.generation:
            return errors.IllegalGeneration
        if _differs(request.protocol_type, self.protocol_type) or _differs(request.protocol_name, self.protocol_name):
            return errors.InconsistentGroupProtocol
        return errors.RebalanceInProgress if self.state is State.PREPARING_REBALANCE else None

    def _park_sync(self, member: Member, fx: Effects) -> Parked:
        self.answer_sync(member, errors.RebalanceInProgress.code, fx)
        parked = self.shard.park()
        self.syncing[member.member_id] = parked.token
        return parked

    def _assign(self, request: m.SyncRequest, fx: Effects) -> None:
        """Write the assignment; everybody who waits gets theirs, which leaves once it is in the log."""
        given = dict(request.assignments)
        assignments = {member_id: given.get(member_id, b"") for member_id in self.members}
        fx.write(r.GroupMetadataKey(self.group_id), self.record(assignments))
        self.write_history(history.STABLE, self.generation, assignments, fx)
        for member in self.members.values():
            self.answer_sync(member, 0, fx, assignments[member.member_id])
        if not self.pending_sync:
            fx.cancel_timer((SYNC, self.group_id))

    # ── heartbeat ─────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, request: m.HeartbeatRequest, fx: Effects) -> m.HeartbeatResponse:
        """A member lives; it learns here that the group rebalances."""
        try:
            self.check_member(request.member_id, request.group_instance_id)
        except errors.KafkaError as error:
            return m.HeartbeatResponse(error_code=error.code)
        if request.generation_id != self.generation:
            return m.HeartbeatResponse(error_code=errors.IllegalGeneration.code)
        self.touch(self.members[request.member_id], fx)
        if self.state is State.PREPARING_REBALANCE:
            return m.HeartbeatResponse(error_code=errors.RebalanceInProgress.code)
        return _HEARTBEAT_FINE

    # ── leave ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def leave(self, request: m.LeaveRequest, fx: Effects) -> m.LeaveResponse:
        """Members go, by themselves or because an administrator says so."""
        triggers: list[r.Trigger] = []
        answers = tuple(self._leave_one(leaving, triggers, fx) for leaving in request.members)
        for trigger in triggers[:-1]:
            self.note(trigger)
        if triggers:
            self.after_removal(triggers[-1], fx)
        elif any(answer.error_code == 0 for answer in answers):
            self.maybe_complete_join(fx)
        return m.LeaveResponse(members=answers)

    def _leave_one(self, leaving: m.LeavingMember, triggers: list[r.Trigger], fx: Effects) -> m.LeftMember:
        member_id, instance_id = leaving.member_id, leaving.group_instance_id
        if member_id in self.pending:
            self.drop(member_id)
            self.forget_session(member_id, fx)
            return m.LeftMember(member_id, instance_id)
        if member_id == m.UNKNOWN_MEMBER_ID:
            # An administrator names a static member by its instance id alone.
            member_id = self.static_members.get(instance_id or "", m.UNKNOWN_MEMBER_ID)
        try:
            self.check_member(member_id, instance_id)
        except errors.KafkaError as error:
            return m.LeftMember(leaving.member_id, instance_id, error.code)
        member = self.members[member_id]
        triggers.append(r.Trigger(history.MEMBER_LEFT, fx.now, member.who, leaving.reason))
        self.remove(member, fx)
        return m.LeftMember(leaving.member_id, instance_id)

    # ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────

    def check_commit(self, request: m.CommitRequest | m.TransactionalCommitRequest, fx: Effects) -> None:
        """Raise unless a member of this generation commits, or somebody without a generation in an empty group."""
        transactional = isinstance(request, m.TransactionalCommitRequest)
        if request.generation_id < 0 and self.state is State.EMPTY:
            return
        if request.generation_id >= 0 or request.member_id or request.group_instance_id is not None:
            self.check_member(request.member_id, request.group_instance_id)
            if request.generation_id != self.generation:
                raise errors.IllegalGeneration(
                    f"Group {self.group_id} is in generation {self.generation}, not {request.generation_id}."
                )
        elif not transactional:
            raise errors.UnknownMemberId(f"Group {self.group_id} has members; only they may commit.")
        if transactional:
            return
        if self.state is State.COMPLETING_REBALANCE:
            raise errors.RebalanceInProgress()
        self.touch(self.members[request.member_id], fx)

    # ── the life of the group ─────────────────────────────────────────────────────────────────────────────────────

    def loaded(self, fx: Effects) -> None:
        """Every member has a session timeout to be heard of again."""
        for member in self.members.values():
            self.touch(member, fx)
        if len(self.members) > self.shard.config.group_max_size:
            self.prepare_rebalance(r.Trigger(history.GROUP_TOO_LARGE, fx.now), fx)
        elif self.members and self.leader is None and self.state is State.STABLE:
            # It was a consumer group, and the broker stopped before the members that are left had shared anew.
            self.prepare_rebalance(r.Trigger(history.PROTOCOL_CHANGED, fx.now), fx)
        elif self.trace is None and self.shard.histories.under_way(self.group_id) is not None:
            fx.set_timer((HISTORY, self.group_id), fx.now)

    def delete(self, fx: Effects) -> None:
        """Write the tombstone of the group. The timers of members to be find nobody."""
        fx.write(r.GroupMetadataKey(self.group_id), None)

    def unload(self, fx: Effects) -> None:
        """Send everybody who waits to the new coordinator."""
        code = errors.NotCoordinator.code
        for member in self.members.values():
            self.answer_join(member.member_id, m.JoinResponse(error_code=code, member_id=member.member_id), fx)
            self.answer_sync(member, code, fx)
        self.move_to(State.DEAD, now=fx.now)


def _new_member(request: m.JoinRequest, member_id: str) -> Member:
    return Member(
        member_id,
        request.group_instance_id,
        request.client_id,
        request.client_host,
        request.rebalance_timeout,
        request.session_timeout,
        request.protocols,
    )


def _join_error(error: type[errors.KafkaError], member_id: str) -> m.JoinResponse:
    return m.JoinResponse(error_code=error.code, member_id=member_id)


def _differs(told: str | None, known: str | None) -> bool:
    return told is not None and known is not None and told != known
