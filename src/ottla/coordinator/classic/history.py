"""What ``ottla groups explain`` tells about the rebalances of a classic group.

Soft state until the rebalance is over, or until it has lasted for `WORTH_NAMING`: then a record tells who the group
waits for. The timer ``("history", group)`` writes it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from ottla.coordinator import history
from ottla.coordinator import records as r
from ottla.coordinator.classic.logged import Logged
from ottla.coordinator.classic.members import Member, Roster
from ottla.coordinator.classic.states import Status
from ottla.coordinator.effects import Effects
from ottla.types import Millis

HISTORY = "history"


class RebalanceHistory:
    """Collects what happens during a rebalance, and writes it down."""

    __slots__ = ("_arrivals", "_group_id", "_histories", "_logged", "_renamed", "_roster", "_status", "trace")

    def __init__(
        self, histories: history.Histories, group_id: str, logged: Logged, status: Status, roster: Roster
    ) -> None:
        self._histories = histories
        self._group_id = group_id
        self._logged = logged
        self._status = status
        self._roster = roster
        self.reset()

    def reset(self) -> None:
        """Forget the rebalance: the log has it."""
        self.trace: history.Trace | None = None
        self._arrivals: dict[str, Millis] | None = None
        self._renamed: dict[str, str] | None = None

    # ── during the rebalance ──────────────────────────────────────────────────────────────────────────────────────

    def note(self, trigger: r.Trigger) -> None:
        """Remember why the group rebalances."""
        if self.trace is None:
            self.trace = self._new_trace(now=trigger.at)
        self.trace.trigger(trigger)

    def start(self, joined: Iterable[str], *, now: Millis) -> None:
        """The wait for joins starts. Some members may have joined already."""
        self._arrivals = dict.fromkeys(joined, now)

    def arrived(self, member_id: str, *, now: Millis) -> None:
        if self._arrivals is not None:
            self._arrivals[member_id] = now

    def renamed(self, old: str, new: str) -> None:
        """A static member has a new id. What the log assigned to the old id is not taken away from it."""
        self._renamed = {
            **{first: new if last == old else last for first, last in (self._renamed or {}).items()},
            old: new,
        }

    def late(self, member: Member, waited: Millis, *, removed: bool) -> None:
        """Remember a member that the others waited for."""
        if self.trace is not None:
            self.trace.name_late(member.who, waited=waited, removed=removed)

    def all_joined(self, joined: Iterable[str], *, now: Millis) -> None:
        """The wait for joins is over. If it was long, remember the last member."""
        if self.trace is None:
            return
        self.trace.joined_at = now
        arrivals = self._arrivals or {}
        last = max(joined, key=lambda member_id: arrivals.get(member_id, -1))
        waited = arrivals.get(last, -1) - self._status.since
        if waited >= history.WORTH_NAMING:
            self.late(self._roster.members[last], waited, removed=False)

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def set_timer(self, fx: Effects) -> None:
        fx.set_timer((HISTORY, self._group_id), fx.now + history.WORTH_NAMING)

    def finish(self, outcome: str, generation: int, assignments: Mapping[str, bytes], fx: Effects) -> None:
        """Write what happened in the rebalance that ends with these assignments."""
        renamed = self._renamed or {}
        before = {renamed.get(member_id, member_id): share for member_id, share in self._logged.assignments.items()}
        trace = self.trace or self._new_trace(now=fx.now)
        self._write(trace, outcome, generation, assignments, history.owners(before), fx)
        fx.cancel_timer((HISTORY, self._group_id))

    def unchanged(self, trigger: r.Trigger, assignments: Mapping[str, bytes], fx: Effects) -> None:
        """Write that something happened which did not need a rebalance."""
        trace = self._new_trace(now=fx.now)
        trace.trigger(trigger)
        owners = history.owners(assignments)
        self._write(trace, history.UNCHANGED, self._status.generation, assignments, owners, fx)

    def tell(self, awaited: Iterable[Member], fx: Effects) -> None:
        """Write who the group waits for, or that a restart has interrupted the rebalance."""
        known = self._histories.under_way(self._group_id)
        if self.trace is not None:
            value = self._so_far(self.trace, awaited, fx)
            if known is None or replace(known, ended_at=value.ended_at) != value:
                self._histories.write(self._group_id, value, fx)
            fx.set_timer((HISTORY, self._group_id), fx.now + history.TELL_AGAIN)
        elif known is not None:
            self.finish(history.INTERRUPTED, self._status.generation, self._logged.assignments, fx)

    def _new_trace(self, *, now: Millis) -> history.Trace:
        return self._histories.trace(self._group_id, now=now)

    def _write(
        self,
        trace: history.Trace,
        outcome: str,
        generation: int,
        assignments: Mapping[str, bytes],
        before: history.Owners,
        fx: Effects,
    ) -> None:
        value = trace.finish(
            self._histories.next_number(self._group_id),
            outcome=outcome,
            generation=generation,
            protocol=(self._status.protocol or "") if assignments else "",
            members=len(assignments),
            leader=self._roster.leader or "",
            before=before,
            after=history.owners(assignments),
            now=fx.now,
        )
        self._histories.write(self._group_id, value, fx)

    def _so_far(self, trace: history.Trace, awaited: Iterable[Member], fx: Effects) -> r.HistoryValue:
        return trace.finish(
            self._histories.next_number(self._group_id),
            outcome=history.UNDER_WAY,
            generation=self._status.generation,
            protocol=self._status.protocol or "",
            members=len(self._roster.members),
            leader=self._roster.leader or "",
            before={},
            after={},
            waiting_for=(member.who for member in awaited),
            now=fx.now,
        )
