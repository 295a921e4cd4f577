"""What Kafka's own records of a group say about its rebalances: who came, who went, what moved.

Apache Kafka does not record why a group rebalanced. Its records have the members of each generation, so the difference
of two tells part of it. What cannot be known: whether a member left or its session expired, who was slow, and how long
the rebalance took. Compaction removes all but the last records of a group after a while.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from ottla.coordinator import records as r
from ottla.coordinator.history import MAX_MOVES, MEMBER_JOINED, STATIC_MEMBER_REPLACED, moved, owners
from ottla.types import Millis

MEMBER_GONE = "member left or session expired"
UNKNOWN_CAUSE = "unknown"


@dataclass(frozen=True, slots=True)
class Derived:
    """A rebalance, as far as the records show it."""

    at: Millis
    generation: int
    """The generation, or the group epoch."""
    missing: int
    """How many generations before it have no records."""
    members: int
    joined: tuple[r.Who, ...] = ()
    gone: tuple[r.Who, ...] = ()
    replaced: tuple[r.Who, ...] = ()
    """Static members that came back with a new member id."""
    leader: str | None = None
    assignor: str | None = None
    partitions_moved: int | None = None
    partitions_kept: int | None = None
    """None if the records do not show it."""
    moves: tuple[r.PartitionMove, ...] = ()
    """The first of the partitions that moved."""

    @property
    def causes(self) -> tuple[str, ...]:
        """What made the group rebalance, in the words of `ottla.coordinator.history` where they apply."""
        found = [(MEMBER_JOINED, self.joined), (MEMBER_GONE, self.gone), (STATIC_MEMBER_REPLACED, self.replaced)]
        return tuple(cause for cause, who in found if who) or (UNKNOWN_CAUSE,)


@dataclass(slots=True)
class GroupView:
    """Follows the records of one group.

    >>> view = GroupView()
    >>> value = r.GroupMetadataValue("consumer", 1, "range", "a", 0, ())
    >>> view.feed(r.CoordinatorRecord(r.GroupMetadataKey("billing"), value), 1_000).causes
    ('unknown',)
    """

    generation: int | None = None
    _members: dict[str, r.Who] = field(default_factory=dict)
    _owners: dict[tuple[str, int], str] = field(default_factory=dict)
    _before: dict[str, r.Who] = field(default_factory=dict)
    """The members at the last epoch of a consumer group."""

    def feed(self, record: r.CoordinatorRecord, at: Millis) -> Derived | None:
        """Take a record; returns the rebalance that it completes."""
        key, value = record
        if isinstance(key, r.GroupMetadataKey | r.ConsumerGroupMetadataKey) and value is None:
            self.generation, self._members, self._owners, self._before = None, {}, {}, {}
        elif isinstance(value, r.GroupMetadataValue):
            return self._classic(value, at)
        elif isinstance(key, r.ConsumerGroupMemberMetadataKey):
            self._member(key, value)
        elif isinstance(value, r.ConsumerGroupMetadataValue):
            return self._epoch(value, at)
        return None

    def _classic(self, value: r.GroupMetadataValue, at: Millis) -> Derived | None:
        if self.generation is not None and value.generation <= self.generation:
            return None
        if value.generation == 0:  # Kafka writes a group when it is created, before anybody has joined.
            self.generation = 0
            return None
        before, known = self._members, self._owners
        self._members = {
            one.member_id: r.Who(one.member_id, one.group_instance_id, one.client_id, one.client_host)
            for one in value.members
        }
        self._owners = owners({one.member_id: one.assignment for one in value.members})
        is_first = self.generation is None and value.generation > 1
        places = [] if is_first else moved(known, self._owners)
        kept = None if is_first else sum(known.get(place) == one for place, one in self._owners.items())
        found = self._derived(
            value.generation, at, before, None if is_first else len(places), kept, value.leader, value.protocol
        )
        moves = (r.PartitionMove(*one, known.get(one), self._owners.get(one)) for one in places[:MAX_MOVES])
        return replace(found, moves=tuple(moves))

    def _member(self, key: r.ConsumerGroupMemberMetadataKey, value: r.Value | None) -> None:
        if isinstance(value, r.ConsumerGroupMemberMetadataValue):
            who = r.Who(key.member_id, value.instance_id, value.client_id, value.client_host)
            self._members[key.member_id] = who
        else:
            self._members.pop(key.member_id, None)

    def _epoch(self, value: r.ConsumerGroupMetadataValue, at: Millis) -> Derived | None:
        if self.generation is not None and value.epoch <= self.generation:
            return None
        before, self._before = self._before, dict(self._members)
        return self._derived(value.epoch, at, before, None, None, None, None)

    def _derived(
        self,
        generation: int,
        at: Millis,
        before: dict[str, r.Who],
        partitions_moved: int | None,
        partitions_kept: int | None,
        leader: str | None,
        assignor: str | None,
    ) -> Derived:
        # The first generation that is left after compaction has nothing to be compared with.
        is_known = self.generation is not None or generation <= 1
        joined = [who for name, who in self._members.items() if is_known and name not in before]
        gone = [who for name, who in before.items() if name not in self._members]
        instances = {who.group_instance_id for who in gone if who.group_instance_id}
        replaced = [who for who in joined if who.group_instance_id in instances]
        again = {who.group_instance_id for who in replaced}
        missing = generation - (self.generation or 0) - 1
        self.generation = generation
        return Derived(
            at=at,
            generation=generation,
            missing=max(missing, 0),
            members=len(self._members),
            joined=tuple(who for who in joined if who not in replaced),
            gone=tuple(who for who in gone if who.group_instance_id not in again or not who.group_instance_id),
            replaced=tuple(replaced),
            leader=leader,
            assignor=assignor,
            partitions_moved=partitions_moved,
            partitions_kept=partitions_kept,
        )
