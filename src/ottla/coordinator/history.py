"""Why a group rebalanced, for ``ottla groups explain``.

While a group rebalances, its :class:`Trace` collects what happens. When the group has a new assignment, or no members,
the trace becomes one record. A group keeps the last `KEPT` records, in slots that are overwritten in turn. Long lists
are cut, and the record says by how much, so that a rebalance of a thousand members is not a record of a megabyte.

A rebalance that is under way has its slot already. In a consumer group it has one from the first trigger on, because
the epoch is logged too. A classic group loses its rebalance at a restart, so it gets one after `WORTH_NAMING`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

from ottla.coordinator import records as r
from ottla.coordinator.effects import Effects
from ottla.protocol.codec import DecodeError, decode_data
from ottla.types import Millis

Owners: TypeAlias = Mapping[tuple[str, int], str]
"""The member that has a partition."""

KEPT = 50
"""Rebalances per group."""
MAX_TRIGGERS = 20
MAX_LATE = 20
MAX_MOVES = 100
#: How long the others must have waited for a member before it is reported.
WORTH_NAMING: Millis = 1_000
#: How often a classic group reports the members that it waits for, if they have changed.
TELL_AGAIN: Millis = 5_000

# ── the kinds of triggers ─────────────────────────────────────────────────────────────────────────────────────────
MEMBER_JOINED = "member joined"
MEMBER_LEFT = "member left"
SESSION_EXPIRED = "session expired"
NEVER_SYNCED = "member never synced"
SUBSCRIPTION_CHANGED = "subscription changed"
LEADER_REJOINED = "leader rejoined"
MEMBER_REJOINED = "member rejoined"
STATIC_MEMBER_REPLACED = "static member replaced"
GROUP_TOO_LARGE = "group too large"
TOPIC_METADATA_CHANGED = "topic metadata changed"
PARTITIONS_ADDED = "partitions added"
PROTOCOL_CHANGED = "group protocol changed"
NOT_WRITTEN = "assignment could not be written"
CAUSE_LOST = "cause lost at a restart"
"""Members are moving to a new epoch, and the log does not say why: another broker wrote it."""

# ── the outcomes ──────────────────────────────────────────────────────────────────────────────────────────────────
STABLE = "stable"
EMPTY = "empty"
UNCHANGED = "unchanged"
"""There was a trigger, but no rebalance was needed: a static member returned."""
INTERRUPTED = "interrupted"
"""The broker stopped. The classic group is in its last generation again, and members start another rebalance."""
UNDER_WAY = "under way"


@dataclass(slots=True)
class Trace:
    """A rebalance that is under way."""

    started_at: Millis
    triggers: list[r.Trigger] = field(default_factory=list)
    left_out: int = 0
    joined_at: Millis = -1
    revoked_at: Millis = -1
    late: list[r.Latecomer] = field(default_factory=list)
    unnamed_moves: int = 0
    """How many partitions had moved before a restart, in addition to those in the record."""

    @classmethod
    def of(cls, value: r.HistoryValue) -> Trace:
        """Return the trace of a rebalance that is under way according to the log."""
        triggers, late = list(value.triggers), list(value.late)
        return cls(value.started_at, triggers, value.triggers_left_out, revoked_at=value.revoked_at, late=late)

    def copy(self) -> Trace:
        return replace(self, triggers=list(self.triggers), late=list(self.late))

    def trigger(self, trigger: r.Trigger) -> None:
        if self.triggers and self.triggers[-1] == trigger:
            return  # A group that changed its kind has noted it already.
        if len(self.triggers) < MAX_TRIGGERS:
            self.triggers.append(trigger)
        else:
            self.left_out += 1

    def name_late(self, who: r.Who, *, waited: Millis, removed: bool, did: str = "") -> None:
        if len(self.late) < MAX_LATE:
            self.late.append(r.Latecomer(who, waited, removed, did))

    def finish(
        self,
        number: int,
        *,
        outcome: str,
        generation: int,
        protocol: str,
        members: int,
        leader: str,
        before: Owners,
        after: Owners,
        kept_elsewhere: int = 0,
        waiting_for: Iterable[r.Who] = (),
        now: Millis,
    ) -> r.HistoryValue:
        """Return the record of the rebalance, whether it is over or under way.

        Owners that keep all their partitions may be left out, if `kept_elsewhere` has the number of these partitions.
        """
        places = moved(before, after)
        moves = [r.PartitionMove(*place, before.get(place), after.get(place)) for place in places[:MAX_MOVES]]
        kept = kept_elsewhere + sum(before.get(place) == owner for place, owner in after.items())
        return r.HistoryValue(
            number=number,
            generation=generation,
            outcome=outcome,
            protocol=protocol,
            started_at=self.started_at,
            joined_at=self.joined_at,
            ended_at=now,
            members=members,
            leader=leader,
            triggers=tuple(self.triggers),
            triggers_left_out=self.left_out,
            late=tuple(self.late),
            partitions_kept=max(kept - self.unnamed_moves, 0),
            partitions_moved=len(places) + self.unnamed_moves,
            moves=tuple(moves),
            revoked_at=self.revoked_at,
            waiting_for=tuple(islice(waiting_for, MAX_LATE)),
        )


class Histories:
    """What the coordinator must know about past rebalances. The rest is in the log only."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        """The number of the last rebalance of a group, which determines its slots."""
        self._under_way: dict[str, r.HistoryValue] = {}
        self._old: dict[str, set[int]] = {}
        """The slots that have a record with the key of older versions."""

    def next_number(self, group_id: str) -> int:
        """Return the number of the next rebalance of a group, or of the one that is under way."""
        return self._last.get(group_id, -1) + (group_id not in self._under_way)

    def under_way(self, group_id: str) -> r.HistoryValue | None:
        """Return what the log says about the rebalance that is under way."""
        return self._under_way.get(group_id)

    def trace(self, group_id: str, *, now: Millis) -> Trace:
        """Return the trace of the rebalance that is under way according to the log, or a new one."""
        value = self._under_way.get(group_id)
        return Trace(started_at=now) if value is None else Trace.of(value)

    def write(self, group_id: str, value: r.HistoryValue, fx: Effects) -> None:
        slot = value.number % KEPT
        fx.write(r.HistoryKey(group_id, slot), value)
        if slot in self._old.get(group_id, ()):
            fx.write(r.OldHistoryKey(group_id, slot), None)

    def delete_group(self, group_id: str, fx: Effects) -> None:
        for slot in range(min(self._last.get(group_id, -1) + 1, KEPT)):
            fx.write(r.HistoryKey(group_id, slot), None)
        for slot in sorted(self._old.get(group_id, ())):
            fx.write(r.OldHistoryKey(group_id, slot), None)

    def replay_old(self, key: r.OldHistoryKey, value: r.HistoryValue | None) -> None:
        """Take in a record with the key of older versions."""
        slots = self._old.setdefault(key.group_id, set())
        if value is not None:
            slots.add(key.slot)
            self.replay(r.HistoryKey(key.group_id, key.slot), value)
            return
        slots.discard(key.slot)
        if not slots:
            del self._old[key.group_id]

    def replay(self, key: r.HistoryKey, value: r.HistoryValue | None) -> None:
        last = self._last.get(key.group_id, -1)
        if value is None:
            if last % KEPT == key.slot:  # All slots are deleted together.
                self._last.pop(key.group_id, None)
                self._under_way.pop(key.group_id, None)
            return
        self._last[key.group_id] = max(last, value.number)
        if value.outcome == UNDER_WAY:
            self._under_way[key.group_id] = value
        elif value.number >= last:
            self._under_way.pop(key.group_id, None)


def moved(before: Owners, after: Owners) -> list[tuple[str, int]]:
    """Return the partitions whose owner has changed, in order.

    >>> moved({("t", 0): "a", ("t", 1): "a", ("t", 2): "a"}, {("t", 1): "b", ("t", 2): "a"})
    [('t', 0), ('t', 1)]
    """
    return sorted(place for place in before.keys() | after.keys() if before.get(place) != after.get(place))


def owners(assignments: Mapping[str, bytes]) -> dict[tuple[str, int], str]:
    """Return the owners by assignments in the consumer's format. Others, such as Connect's, have no partitions."""
    found: dict[tuple[str, int], str] = {}
    for member_id, assignment in assignments.items():
        for place in _partitions(assignment):
            found[place] = member_id
    return found


def _partitions(assignment: bytes) -> list[tuple[str, int]]:
    if len(assignment) < 2:
        return []
    try:
        # Every version begins with the fields of version 0.
        message = decode_data("consumer_protocol_assignment", 0, assignment, 2)
    except DecodeError:
        return []
    return [(entry.topic, number) for entry in message.assigned_partitions for number in entry.partitions]
