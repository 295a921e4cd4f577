"""How a classic group gets from one generation to the next: wait for joins, then for the leader's assignment.

Timers: ``("join", group)`` ends the wait for joins, ``("sync", group)`` the wait for syncs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.history import RebalanceHistory
from ottla.coordinator.classic.logged import empty_record, generation_record
from ottla.coordinator.classic.members import Member, Problem, Roster
from ottla.coordinator.classic.states import State, Status
from ottla.coordinator.classic.waiting import Waiting
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import Shard
from ottla.coordinator.sessions import Sessions
from ottla.machine import Parked
from ottla.types import Millis

JOIN = "join"
SYNC = "sync"


class InitialDelay:
    """The wait before the first generation of a group. It gets longer while members keep joining.

    >>> delay = InitialDelay(3_000, longest=5_000)
    >>> delay.newcomers = True
    >>> delay.extend()
    2000
    >>> delay.extend() is None
    True
    """

    __slots__ = ("_left", "newcomers", "once")

    def __init__(self, once: Millis, *, longest: Millis) -> None:
        self.once = once
        self._left = max(longest - once, 0)
        self.newcomers = False
        """Whether a member has joined since the wait started."""

    def extend(self) -> Millis | None:
        """The wait is over: return how long to wait again, or None if there is no reason or no time left."""
        if not self.newcomers or self._left == 0:
            return None
        more = min(self.once, self._left)
        self._left -= more
        self.newcomers = False
        return more


class Rebalance:
    """Makes the generations of one group. All of its state is soft."""

    __slots__ = (
        "_group_id", "_shard", "history", "initial_delay", "joins", "roster", "sessions", "status", "syncs", "unsynced",
    )  # fmt: skip

    def __init__(
        self,
        shard: Shard,
        group_id: str,
        status: Status,
        roster: Roster,
        sessions: Sessions,
        history: RebalanceHistory,
    ) -> None:
        self._shard = shard
        self._group_id = group_id
        self.status = status
        self.roster = roster
        self.sessions = sessions
        self.history = history
        self.joins = Waiting()
        self.syncs = Waiting()
        self.unsynced: dict[str, None] = {}
        """Members that know of the generation and have not synced yet."""
        self.initial_delay: InitialDelay | None = None
        """Set during the first rebalance after Empty."""

    @property
    def everybody_joined(self) -> bool:
        return len(self.joins) == len(self.roster.members) and not self.roster.pending

    def awaited(self) -> Iterable[Member]:
        """Return the members whose join, or whose assignment, the others wait for."""
        members, leader = self.roster.members, self.roster.leader
        if self.status.state is State.PREPARING_REBALANCE:
            return [member for member in members.values() if member.member_id not in self.joins]
        if self.status.state is State.COMPLETING_REBALANCE and leader in members:
            return [members[leader]]
        return []

    def touch(self, member: Member, fx: Effects) -> None:
        self.sessions.touch(member.member_id, member.session_timeout, fx)

    def park_join(self, member: Member, fx: Effects) -> Parked:
        """Let a join wait until the generation is made."""
        # There is one member and one response: a request on an older connection must try again.
        retry = m.JoinResponse(error_code=errors.RebalanceInProgress.code, member_id=member.member_id)
        self.joins.answer(member.member_id, retry, fx)
        self.history.arrived(member.member_id, now=fx.now)
        return self.joins.park(member.member_id, self._shard.park())

    # ── the wait for joins ────────────────────────────────────────────────────────────────────────────────────────

    def request(self, trigger: r.Trigger, fx: Effects) -> None:
        """Start a rebalance. If one is waiting for joins, check whether that wait is over."""
        if self.status.can_rebalance:
            self.prepare(trigger, fx)
        else:
            self.history.note(trigger)
            self.maybe_complete(fx)

    def prepare(self, trigger: r.Trigger, fx: Effects) -> None:
        """Start to wait for joins."""
        self.history.note(trigger)
        if self.status.state is State.COMPLETING_REBALANCE:
            self._take_back_generation(fx)
        initial = self.status.state is State.EMPTY
        if not initial:
            self.unsynced.clear()
            fx.cancel_timer((SYNC, self._group_id))
        self.status.move_to(State.PREPARING_REBALANCE, now=fx.now)
        self.history.start(self.joins, now=fx.now)
        if initial:
            delay = self._shard.config.group_initial_rebalance_delay_ms
            self.initial_delay = InitialDelay(delay, longest=self.roster.rebalance_timeout)
            fx.set_timer((JOIN, self._group_id), fx.now + delay)
        elif self.everybody_joined:
            self._complete(fx)
        else:
            self._wait_for_joins(fx)
            self.history.set_timer(fx)

    def _take_back_generation(self, fx: Effects) -> None:
        for member in self.roster.members.values():
            member.assignment = b""
            self._reject_sync(member, errors.RebalanceInProgress, fx)

    def _wait_for_joins(self, fx: Effects) -> None:
        # A client may ask for no time at all; waiting must not become a busy loop.
        fx.set_timer((JOIN, self._group_id), fx.now + max(1, self.roster.rebalance_timeout))

    def join_timer(self, fx: Effects) -> None:
        """The wait for joins is over. The first one is extended while members keep joining."""
        if self.status.state is not State.PREPARING_REBALANCE:
            return
        more = None if self.initial_delay is None else self.initial_delay.extend()
        if more is None:
            self._complete(fx)
        else:
            fx.set_timer((JOIN, self._group_id), fx.now + more)

    def maybe_complete(self, fx: Effects) -> None:
        """Make the generation if everybody has joined. The first generation waits for its delay all the same."""
        if self.status.state is not State.PREPARING_REBALANCE or not self.everybody_joined:
            return
        if self.initial_delay is None or not self.roster.members:
            self._complete(fx)

    def _complete(self, fx: Effects) -> None:
        """End the wait for joins."""
        self.initial_delay = None
        fx.cancel_timer((JOIN, self._group_id))
        self._remove_absent(fx)
        if not self.roster.members:
            self._become_empty(fx)
        elif self.roster.elect(self.joins):
            self._next_generation(fx)
        else:
            # Only static members are left, and none has joined. Their sessions decide.
            self._wait_for_joins(fx)

    def _remove_absent(self, fx: Effects) -> None:
        """Remove the members that did not join again. Static members stay until their sessions end."""
        for member in [each for each in self.roster.members.values() if each.member_id not in self.joins]:
            is_dynamic = member.group_instance_id is None
            self.history.late(member, fx.now - self.status.since, removed=is_dynamic)
            if is_dynamic:
                self.drop(member.member_id, fx)

    def _become_empty(self, fx: Effects) -> None:
        generation = self.status.generation + 1
        fx.write(r.GroupMetadataKey(self._group_id), empty_record(self.status, generation, now=fx.now))
        self.history.finish(history.EMPTY, generation, {}, fx)

    # ── the wait for the assignment ───────────────────────────────────────────────────────────────────────────────

    def _next_generation(self, fx: Effects) -> None:
        status, members = self.status, self.roster.members
        status.generation += 1
        status.protocol = self.roster.vote()
        self.history.all_joined(self.joins, now=fx.now)
        status.move_to(State.COMPLETING_REBALANCE, now=fx.now)
        self.unsynced = dict.fromkeys(members)
        for member in members.values():
            self.joins.answer(member.member_id, self.joined_response(member.member_id), fx)
            member.is_new = False
            self.touch(member, fx)
        fx.set_timer((SYNC, self._group_id), fx.now + self.roster.rebalance_timeout)
        self.history.set_timer(fx)

    def joined_response(self, member_id: str) -> m.JoinResponse:
        """Return the response to a join: the generation, and for the leader all members."""
        protocol, leader = self.status.protocol, self.roster.leader
        assert protocol is not None
        members: tuple[m.JoinedMember, ...] = ()
        if leader == member_id:
            members = tuple(member.joined(protocol) for member in self.roster.members.values())
        return m.JoinResponse(
            generation_id=self.status.generation,
            protocol_type=self.status.protocol_type,
            protocol_name=protocol,
            leader=leader or "",
            member_id=member_id,
            members=members,
        )

    def sync(self, member: Member, given: Sequence[m.MemberAssignment], fx: Effects) -> m.SyncResponse | Parked:
        """Return a member's assignment, or let it wait for the leader, who brings everybody's."""
        self.unsynced.pop(member.member_id, None)
        if self.status.state is State.STABLE:
            self._stop_if_all_synced(fx)
            return self._synced_response(member.assignment)
        self._reject_sync(member, errors.RebalanceInProgress, fx)  # One on an older connection.
        parked = self.syncs.park(member.member_id, self._shard.park())
        if self.roster.leader == member.member_id:
            self._assign(given, fx)
        return parked

    def _assign(self, given: Sequence[m.MemberAssignment], fx: Effects) -> None:
        """Write the leader's assignment. The responses to all syncs leave once it is in the log."""
        by_member = dict(given)
        members = self.roster.members
        assignments = {member_id: by_member.get(member_id, b"") for member_id in members}
        value = generation_record(self.status, members.values(), self.roster.leader, assignments)
        fx.write(r.GroupMetadataKey(self._group_id), value)
        self.history.finish(history.STABLE, self.status.generation, assignments, fx)
        for member in members.values():
            self._answer_sync(member, self._synced_response(assignments[member.member_id]), fx)
        self._stop_if_all_synced(fx)

    def _synced_response(self, assignment: bytes) -> m.SyncResponse:
        return m.SyncResponse(
            protocol_type=self.status.protocol_type, protocol_name=self.status.protocol, assignment=assignment
        )

    def _stop_if_all_synced(self, fx: Effects) -> None:
        if not self.unsynced:
            fx.cancel_timer((SYNC, self._group_id))

    def _reject_sync(self, member: Member, error: Problem, fx: Effects) -> None:
        self._answer_sync(member, m.SyncResponse(error_code=error.code), fx)

    def _answer_sync(self, member: Member, response: m.SyncResponse, fx: Effects) -> None:
        if self.syncs.answer(member.member_id, response, fx):
            # While it waited its session could not end, and the timer may have fired.
            self.touch(member, fx)

    def sync_timer(self, fx: Effects) -> None:
        """The wait for syncs is over: remove the members that have not synced."""
        if self.status.state not in (State.COMPLETING_REBALANCE, State.STABLE):
            return
        late = [member for member in self.roster.members.values() if member.member_id in self.unsynced]
        for member in late:
            self.remove(member, fx)
        self.after_removal([r.Trigger(history.NEVER_SYNCED, fx.now, member.who) for member in late], fx)

    # ── members that go ───────────────────────────────────────────────────────────────────────────────────────────

    def remove(self, member: Member, fx: Effects) -> None:
        """Remove a member and reject the requests it has parked. If it is alive, it joins again."""
        gone = errors.UnknownMemberId
        self.joins.answer(member.member_id, m.JoinResponse(error_code=gone.code), fx)
        self._reject_sync(member, gone, fx)
        self.drop(member.member_id, fx)

    def fence(self, old: Member, fx: Effects) -> None:
        """Reject the requests that a static member has parked under an id that is replaced."""
        self.reject(old, errors.FencedInstanceId, fx)
        self.sessions.forget(old.member_id, fx)

    def reject(self, member: Member, error: Problem, fx: Effects) -> None:
        """Reject the requests that a member has parked."""
        self.joins.answer(member.member_id, m.JoinResponse(error_code=error.code, member_id=member.member_id), fx)
        self._reject_sync(member, error, fx)

    def drop(self, member_id: str, fx: Effects) -> None:
        """Forget a member, pending or not, that has no parked requests."""
        self.unsynced.pop(member_id, None)
        self.roster.drop(member_id)
        self.sessions.forget(member_id, fx)

    def after_removal(self, triggers: Sequence[r.Trigger], fx: Effects) -> None:
        """Rebalance without the members that have gone. If the group waited only for them, that is over."""
        for trigger in triggers[:-1]:
            self.history.note(trigger)
        if not triggers:
            return
        if self.status.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare(triggers[-1], fx)
        elif self.status.state is State.PREPARING_REBALANCE:
            self.history.note(triggers[-1])
            self.maybe_complete(fx)

    # ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self) -> None:
        """The group is what the log says: nobody has to join for this generation any more."""
        self.unsynced = {member_id: None for member_id in self.unsynced if member_id in self.roster.members}
        self.history.reset()

    @property
    def is_over(self) -> bool:
        """Whether nothing is left to wait for."""
        return not (self.history.trace or self.unsynced or self.joins or self.syncs)

    def set_timers(self, fx: Effects) -> None:
        """Set every timer again, because the last ones may have been lost with records that were not written."""
        self.sessions.set_timers(fx)
        if self.history.trace is not None:
            self.history.set_timer(fx)
        if self.status.state is State.PREPARING_REBALANCE:
            wait = self.roster.rebalance_timeout if self.initial_delay is None else self.initial_delay.once
            fx.set_timer((JOIN, self._group_id), fx.now + wait)
        elif self.unsynced:
            fx.set_timer((SYNC, self._group_id), fx.now + self.roster.rebalance_timeout)
