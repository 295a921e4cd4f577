"""Why a group rebalanced: what a person is told by ``ottla groups explain``.

While a group rebalances its :class:`Trace` collects what happened; when the group has a new assignment, or nobody left,
the trace becomes one record. A group keeps the last `KEPT` of them, in slots that are written over in turn. Long lists
are cut, and the record says how much was cut: a rebalance of a thousand members must not be a record of a megabyte.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from ottla.coordinator import records as r
from ottla.coordinator.effects import Effects
from ottla.protocol.codec import DecodeError, decode_data
from ottla.types import Millis

Owners: TypeAlias = Mapping[tuple[str, int], str]
"""Which member has a partition."""

KEPT = 50
"""Rebalances a group."""
MAX_TRIGGERS = 20
MAX_LATE = 20
MAX_MOVES = 100
#: How long the others must have waited for the last member before it is called late.
WORTH_NAMING: Millis = 1_000

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

# ── the outcomes ──────────────────────────────────────────────────────────────────────────────────────────────────
STABLE = "stable"
EMPTY = "empty"
UNCHANGED = "unchanged"
"""There was a reason to rebalance, and it was not needed: a static member came back."""


@dataclass(slots=True)
class Trace:
    """A rebalance that is under way."""

    started_at: Millis
    triggers: list[r.Trigger] = field(default_factory=list)
    left_out: int = 0
    joined_at: Millis = -1
    late: list[r.Latecomer] = field(default_factory=list)

    def trigger(self, trigger: r.Trigger) -> None:
        if len(self.triggers) < MAX_TRIGGERS:
            self.triggers.append(trigger)
        else:
            self.left_out += 1

    def name_late(self, who: r.Who, *, waited: Millis, removed: bool) -> None:
        if len(self.late) < MAX_LATE:
            self.late.append(r.Latecomer(who, waited, removed))

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
        now: Millis,
    ) -> r.HistoryValue:
        """Return the record of the rebalance, now that it is over.

        Owners that keep all that they have may be left out, if it is said how many partitions that are.
        """
        moves = moved(before, after)
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
            partitions_kept=kept_elsewhere + sum(before.get(place) == owner for place, owner in after.items()),
            partitions_moved=len(moves),
            moves=tuple(moves[:MAX_MOVES]),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """What is known of the rebalances of a group."""

    group_id: str
    state: str
    rebalances: tuple[r.HistoryValue, ...]
    """The oldest first."""
    since: Millis | None = None
    """When the rebalance began that is under way, if one is."""
    triggers: tuple[r.Trigger, ...] = ()
    waiting_for: tuple[r.Who, ...] = ()
    """Members whose join, or whose assignment, the others wait for."""


class Histories:
    """The rebalances of all groups of a shard, as far as they are kept."""

    def __init__(self) -> None:
        self._slots: dict[str, dict[int, r.HistoryValue]] = {}

    def next_number(self, group_id: str) -> int:
        """Return the number of the rebalance that the group will record next."""
        return 1 + max((value.number for value in self._slots.get(group_id, {}).values()), default=-1)

    def write(self, group_id: str, value: r.HistoryValue, fx: Effects) -> None:
        fx.write(r.HistoryKey(group_id, value.number % KEPT), value)

    def delete_group(self, group_id: str, fx: Effects) -> None:
        for slot in self._slots.get(group_id, {}):
            fx.write(r.HistoryKey(group_id, slot), None)

    def of_group(self, group_id: str) -> tuple[r.HistoryValue, ...]:
        """Return what is kept, the oldest first."""
        return tuple(sorted(self._slots.get(group_id, {}).values(), key=lambda value: value.number))

    def replay(self, key: r.HistoryKey, value: r.HistoryValue | None) -> None:
        if value is not None:
            self._slots.setdefault(key.group_id, {})[key.slot] = value
            return
        slots = self._slots.get(key.group_id, {})
        slots.pop(key.slot, None)
        if not slots:
            self._slots.pop(key.group_id, None)


def moved(before: Owners, after: Owners) -> list[r.PartitionMove]:
    """Return the partitions that have another owner than before, in order.

    >>> [(move.partition, move.source, move.target) for move in moved({("t", 0): "a", ("t", 1): "a"}, {("t", 1): "b"})]
    [(0, 'a', None), (1, 'a', 'b')]
    """
    places = sorted(before.keys() | after.keys())
    return [
        r.PartitionMove(*place, before.get(place), after.get(place))
        for place in places
        if before.get(place) != after.get(place)
    ]


def owners(assignments: Mapping[str, bytes]) -> dict[tuple[str, int], str]:
    """Return who has what by assignments in the consumer's format; others, such as Connect's, count as none."""
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
