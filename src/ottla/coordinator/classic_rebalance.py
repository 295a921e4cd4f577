"""How a classic group rebalances: wait for joins, make a generation, wait for the leader's assignment, and all that can
run out of time meanwhile.

Timers: ``("heartbeat", group, member)`` ends a session, ``("join", group)`` the wait for joins, ``("sync", group)`` the
wait for syncs; ``("history", group)`` writes down whom the group waits for, if that takes its time. A session's timer
is not set again with every heartbeat: it fires at the old deadline, sees the new one and is set for that.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic_state import ClassicState, Member
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard
from ottla.coordinator.transitions import State, can_rebalance
from ottla.types import Millis

HEARTBEAT = "heartbeat"
JOIN = "join"
SYNC = "sync"
HISTORY = "history"


class ClassicRebalance(ClassicState):
    """A classic group that can rebalance."""

    initial_delay_left: Millis | None = None
    """In the first rebalance after Empty: how much longer it may still wait for more members."""
    newcomers = False
    """Whether somebody joined since that wait began."""

    def __init__(self, shard: Shard, group_id: str, *, now: Millis) -> None:
        super().__init__(shard, group_id, now=now)
        self.arrivals: dict[str, Millis] = {}
        """When each member joined the rebalance that is being prepared."""

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def touch(self, member: Member, fx: Effects, timeout: Millis | None = None) -> None:
        """The member was heard of: its session lasts for another session timeout, or for the given one."""
        member.deadline = fx.now + (member.session_timeout if timeout is None else timeout)
        if member.timer_at is None or member.timer_at > member.deadline:
            self._arm_session(member, fx)

    def _arm_session(self, member: Member, fx: Effects) -> None:
        member.timer_at = member.deadline
        fx.set_timer((HEARTBEAT, self.group_id, member.member_id), member.deadline)

    def forget_session(self, member_id: str, fx: Effects) -> None:
        fx.cancel_timer((HEARTBEAT, self.group_id, member_id))

    # ── answers ───────────────────────────────────────────────────────────────────────────────────────────────────

    def answer_join(self, member_id: str, response: m.JoinResponse, fx: Effects) -> None:
        token = self.joining.pop(member_id, None)
        if token is not None:
            fx.answer(token, response)

    def answer_sync(self, member: Member, error_code: int, fx: Effects, assignment: bytes = b"") -> None:
        token = self.syncing.pop(member.member_id, None)
        if token is None:
            return
        fine = error_code == 0
        response = m.SyncResponse(
            error_code=error_code,
            protocol_type=self.protocol_type if fine else None,
            protocol_name=self.protocol_name if fine else None,
            assignment=assignment,
        )
        fx.answer(token, response)
        # While it waited its session could not end, and its timer may be gone.
        self.touch(member, fx)

    def generation_response(self, member_id: str, *, skip_assignment: bool = False) -> m.JoinResponse:
        """Return the answer to a join: the generation, and for the leader the members."""
        assert self.protocol_name is not None
        members: tuple[m.JoinedMember, ...] = ()
        if self.leader == member_id:
            members = tuple(
                m.JoinedMember(member.member_id, member.group_instance_id, member.metadata(self.protocol_name))
                for member in self.members.values()
            )
        return m.JoinResponse(
            generation_id=self.generation,
            protocol_type=self.protocol_type,
            protocol_name=self.protocol_name,
            leader=self.leader or "",
            skip_assignment=skip_assignment,
            member_id=member_id,
            members=members,
        )

    # ── prepare ───────────────────────────────────────────────────────────────────────────────────────────────────

    def rebalance(self, trigger: r.Trigger, fx: Effects) -> None:
        """Begin a rebalance; if one is waiting for joins, see whether this completes it."""
        if can_rebalance(self.state):
            self.prepare_rebalance(trigger, fx)
        else:
            self.note(trigger)
            self.maybe_complete_join(fx)

    def note(self, trigger: r.Trigger) -> None:
        """Remember a trigger of the rebalance that is under way, or about to be."""
        if self.trace is None:
            self.trace = self.shard.histories.trace(self.group_id, now=trigger.at)
        self.trace.trigger(trigger)

    def prepare_rebalance(self, trigger: r.Trigger, fx: Effects) -> None:
        self.note(trigger)
        if self.state is State.COMPLETING_REBALANCE:
            self._take_back_generation(fx)
        initial = self.state is State.EMPTY
        if not initial:
            self.pending_sync.clear()
            fx.cancel_timer((SYNC, self.group_id))
        self.move_to(State.PREPARING_REBALANCE, now=fx.now)
        self.arrivals = dict.fromkeys(self.joining, fx.now)
        if initial:
            self._delay_first_rebalance(fx)
        elif self.everybody_joined:
            self.complete_join(fx)
        else:
            fx.set_timer((JOIN, self.group_id), fx.now + self.rebalance_timeout)
            fx.set_timer((HISTORY, self.group_id), fx.now + history.WORTH_NAMING)

    def _take_back_generation(self, fx: Effects) -> None:
        for member in self.members.values():
            member.assignment = b""
            self.answer_sync(member, errors.RebalanceInProgress.code, fx)

    def _delay_first_rebalance(self, fx: Effects) -> None:
        delay = self.shard.config.group_initial_rebalance_delay_ms
        self.initial_delay_left = max(self.rebalance_timeout - delay, 0)
        self.newcomers = False
        fx.set_timer((JOIN, self.group_id), fx.now + delay)

    def _initial_delay_over(self, fx: Effects) -> None:
        """Wait once more if members came meanwhile and there is time left; else go on."""
        left = self.initial_delay_left or 0
        if not self.newcomers or left == 0:
            self.complete_join(fx)
            return
        delay = min(self.shard.config.group_initial_rebalance_delay_ms, left)
        self.initial_delay_left = left - delay
        self.newcomers = False
        fx.set_timer((JOIN, self.group_id), fx.now + delay)

    # ── complete ──────────────────────────────────────────────────────────────────────────────────────────────────

    def maybe_complete_join(self, fx: Effects) -> None:
        """Make the generation if everybody has joined; the first one waits for its delay all the same."""
        if self.state is not State.PREPARING_REBALANCE or not self.everybody_joined:
            return
        if self.initial_delay_left is None or not self.members:
            self.complete_join(fx)

    def complete_join(self, fx: Effects) -> None:
        """The wait for joins is over."""
        self.initial_delay_left = None
        fx.cancel_timer((JOIN, self.group_id))
        self._remove_absent(fx)
        if not self.members:
            self._become_empty(fx)
        elif self.leader in self.joining or self._elect_leader():
            self._next_generation(fx)
        else:
            # Only static members are left, and none of them is here: their sessions decide.
            fx.set_timer((JOIN, self.group_id), fx.now + self.rebalance_timeout)

    def _remove_absent(self, fx: Effects) -> None:
        """Remove the members that did not join again. Static ones stay until their session ends."""
        absent = [member for member in self.members.values() if member.member_id not in self.joining]
        for member in absent:
            self._name_late(member, fx.now - self.state_since, removed=member.group_instance_id is None)
            if member.group_instance_id is None:
                self.drop(member.member_id)
                self.forget_session(member.member_id, fx)

    def _name_late(self, member: Member, waited: Millis, *, removed: bool) -> None:
        if self.trace is not None:
            self.trace.name_late(member.who, waited=waited, removed=removed)

    def _elect_leader(self) -> bool:
        self.leader = next((member_id for member_id in self.members if member_id in self.joining), self.leader)
        return self.leader in self.joining

    def _become_empty(self, fx: Effects) -> None:
        generation = self.generation + 1
        fx.write(r.GroupMetadataKey(self.group_id), self.empty_record(generation, now=fx.now))
        self.write_history(history.EMPTY, generation, {}, fx)

    def _next_generation(self, fx: Effects) -> None:
        self.generation += 1
        self.protocol_name = self.vote()
        self._note_joined(fx)
        self.move_to(State.COMPLETING_REBALANCE, now=fx.now)
        self.pending_sync = set(self.members)
        for member in self.members.values():
            self.answer_join(member.member_id, self.generation_response(member.member_id), fx)
            member.is_new = False
            self.touch(member, fx)
        fx.set_timer((SYNC, self.group_id), fx.now + self.rebalance_timeout)
        fx.set_timer((HISTORY, self.group_id), fx.now + history.WORTH_NAMING)

    def _note_joined(self, fx: Effects) -> None:
        """Remember who was the last to come, if the others waited for it."""
        if self.trace is None:
            return
        self.trace.joined_at = fx.now
        last = max(self.joining, key=lambda member_id: self.arrivals.get(member_id, -1))
        waited = self.arrivals.get(last, -1) - self.state_since
        if waited >= history.WORTH_NAMING:
            self._name_late(self.members[last], waited, removed=False)

    def write_history(self, outcome: str, generation: int, assignments: dict[str, bytes], fx: Effects) -> None:
        """Write what there is to tell of the rebalance that ends with these assignments."""
        before = history.owners(self.assignments)
        trace = self.trace or self.shard.histories.trace(self.group_id, now=fx.now)
        self.write_trace(trace, outcome, generation, assignments, before, fx)
        fx.cancel_timer((HISTORY, self.group_id))

    def write_trace(
        self,
        trace: history.Trace,
        outcome: str,
        generation: int,
        assignments: dict[str, bytes],
        before: history.Owners,
        fx: Effects,
    ) -> None:
        value = trace.finish(
            self.shard.histories.next_number(self.group_id),
            outcome=outcome,
            generation=generation,
            protocol=(self.protocol_name or "") if assignments else "",
            members=len(assignments),
            leader=self.leader or "",
            before=before,
            after=history.owners(assignments),
            now=fx.now,
        )
        self.shard.histories.write(self.group_id, value, fx)

    def _tell(self, fx: Effects) -> None:
        """Write whom the group waits for, as far as it does; or that a restart put an end to that."""
        known = self.shard.histories.under_way(self.group_id)
        if self.trace is not None:
            value = self._under_way(self.trace, fx)
            if known is None or replace(known, ended_at=value.ended_at) != value:
                self.shard.histories.write(self.group_id, value, fx)
            fx.set_timer((HISTORY, self.group_id), fx.now + history.TELL_AGAIN)
        elif known is not None:
            self.write_history(history.INTERRUPTED, self.generation, self.assignments, fx)

    def _under_way(self, trace: history.Trace, fx: Effects) -> r.HistoryValue:
        return trace.finish(
            self.shard.histories.next_number(self.group_id),
            outcome=history.UNDER_WAY,
            generation=self.generation,
            protocol=self.protocol_name or "",
            members=len(self.members),
            leader=self.leader or "",
            before={},
            after={},
            waiting_for=(member.who for member in self.awaited()),
            now=fx.now,
        )

    # ── members that go ───────────────────────────────────────────────────────────────────────────────────────────

    def remove(self, member: Member, fx: Effects) -> None:
        """Take a member out; what it had parked is answered. It will join anew if it still lives."""
        gone = errors.UnknownMemberId.code
        self.answer_join(member.member_id, m.JoinResponse(error_code=gone), fx)
        self.answer_sync(member, gone, fx)
        self.drop(member.member_id)
        self.forget_session(member.member_id, fx)

    def after_removal(self, trigger: r.Trigger, fx: Effects) -> None:
        """Rebalance without those who went; if others are being waited for, perhaps they were the last."""
        if self.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(trigger, fx)
        elif self.state is State.PREPARING_REBALANCE:
            self.note(trigger)
            self.maybe_complete_join(fx)

    # ── time ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def fire(self, key: tuple[Hashable, ...], fx: Effects) -> None:
        """A timer of the group has run out."""
        if key[0] == HEARTBEAT:
            self._session_timer(str(key[2]), fx)
        elif key[0] == HISTORY:
            self._tell(fx)
        elif key[0] == JOIN and self.state is State.PREPARING_REBALANCE:
            if self.initial_delay_left is not None:
                self._initial_delay_over(fx)
            else:
                self.complete_join(fx)
        elif key[0] == SYNC and self.state in (State.COMPLETING_REBALANCE, State.STABLE):
            self._sync_timer(fx)

    def rearm(self, fx: Effects) -> None:
        """Set every timer again: the last ones came with records that the log did not take."""
        for member in (*self.members.values(), *self.pending.values()):
            self._arm_session(member, fx)
        if self.trace is not None:
            fx.set_timer((HISTORY, self.group_id), fx.now + history.WORTH_NAMING)
        if self.state is State.PREPARING_REBALANCE:
            wait = self.rebalance_timeout
            if self.initial_delay_left is not None:
                wait = self.shard.config.group_initial_rebalance_delay_ms
            fx.set_timer((JOIN, self.group_id), fx.now + wait)
        elif self.pending_sync:
            fx.set_timer((SYNC, self.group_id), fx.now + self.rebalance_timeout)

    def generation_failed(self, fx: Effects) -> None:
        """The log did not take the group: members that wait for an assignment rebalance, since none will come."""
        if self.state is State.COMPLETING_REBALANCE:
            self.prepare_rebalance(r.Trigger(history.NOT_WRITTEN, fx.now), fx)

    def _session_timer(self, member_id: str, fx: Effects) -> None:
        member = self.members.get(member_id) or self.pending.get(member_id)
        if member is None:
            return
        member.timer_at = None
        if member.deadline > fx.now:
            self._arm_session(member, fx)
        elif member_id in self.pending:
            self.drop(member_id)
            self.maybe_complete_join(fx)
        elif member.is_new or (member_id not in self.joining and member_id not in self.syncing):
            # Who waits for us cannot send heartbeats. A new member may also have gone while its join waited.
            self.remove(member, fx)
            self.after_removal(r.Trigger(history.SESSION_EXPIRED, fx.now, member.who), fx)

    def _sync_timer(self, fx: Effects) -> None:
        late = [member for member in self.members.values() if member.member_id in self.pending_sync]
        for member in late:
            self.remove(member, fx)
        triggers = [r.Trigger(history.NEVER_SYNCED, fx.now, member.who) for member in late]
        for trigger in triggers[:-1]:
            self.note(trigger)
        if triggers:
            self.prepare_rebalance(triggers[-1], fx)
