"""What the records of a consumer group say, with the indexes that are derived from it.

Only `LoggedGroup.replay` changes it, for a live request and after a restart alike. The rest of a group is soft state.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.consumer.member import NO_PARTITIONS, Member, Partitions, to_partitions
from ottla.coordinator.consumer.messages import LEAVE_EPOCH
from ottla.coordinator.consumer.shares import Loads
from ottla.coordinator.consumer.subscriptions import Subscriptions, subtract

NO_EPOCH = -1
NO_OWNERS: Mapping[int, str] = {}


class LoggedGroup:
    """The logged state of a consumer group."""

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.group_epoch = 0
        self.metadata_hash = 0
        """The hash of the subscribed topics when the epoch was last raised."""
        self.assignment_epoch = 0
        """The group epoch that the target was computed for."""
        self.target: dict[str, Partitions] = {}
        self.members: dict[str, Member] = {}
        self.has_partition_metadata = False
        """The log still has a record of a broker older than Kafka 4.1."""

        self.subscriptions = Subscriptions()
        self.static_members: dict[str, str] = {}
        """The member id of each instance id."""
        self.settled: dict[int | None, set[str]] = {}
        """The members that are stable in an epoch; those that are reconciling are under None."""
        self.loads = Loads()
        """How many partitions the target gives to each member."""
        self.target_topics: Counter[UUID] = Counter()
        """How many members have partitions of a topic in the target."""
        self._owners: dict[UUID, dict[int, str]] = {}

    # ── queries ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def state(self) -> str:
        """The state by Kafka's name."""
        if not self.members:
            return "Empty"
        if self.group_epoch > self.assignment_epoch:
            return "Assigning"
        return "Reconciling" if self.behind(self.assignment_epoch) else "Stable"

    def behind(self, epoch: int) -> int:
        """Return how many members are not stable in an epoch."""
        return len(self.members) - len(self.settled.get(epoch, ()))

    def member(self, member_id: str) -> Member:
        """Return a member, or raise UnknownMemberId."""
        member = self.members.get(member_id)
        if member is None:
            raise errors.UnknownMemberId(f"Member {member_id} is not a member of group {self.group_id}.")
        return member

    def static_member(self, instance_id: str | None) -> Member | None:
        member_id = None if instance_id is None else self.static_members.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def member_of(self, instance_id: str | None, member_id: str) -> Member:
        """Return a member, static if there is an instance id. Raise if it is unknown or replaced by another."""
        if instance_id is None:
            return self.member(member_id)
        member = self.static_member(instance_id)
        if member is None:
            raise errors.UnknownMemberId(f"Instance id {instance_id} is unknown.")
        if member.member_id != member_id:
            raise errors.FencedInstanceId(
                f"Static member {member_id} with instance id {instance_id} was fenced by member {member.member_id}."
            )
        return member

    def owners_of(self, topic_id: UUID) -> Mapping[int, str]:
        """Return which member owns each partition of a topic. A member owns what it still has to give up."""
        return self._owners.get(topic_id, NO_OWNERS)

    def target_of(self, member: Member) -> Partitions:
        """Return the target of a member. A static member that has just returned has that of its predecessor."""
        member_id = member.member_id if member.instance_id is None else self.static_members.get(member.instance_id)
        return self.target.get(member_id, {}) if member_id is not None else {}

    # ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────

    def replay(self, key: Any, value: Any) -> None:
        """Change the state by one record."""
        _REPLAYERS[type(key)](self, key, value)

    def _replay_metadata(self, _: r.ConsumerGroupMetadataKey, value: r.ConsumerGroupMetadataValue | None) -> None:
        if value is not None:
            self.group_epoch = value.epoch
            self.metadata_hash = value.metadata_hash

    def _replay_partition_metadata(self, _: r.ConsumerGroupPartitionMetadataKey, value: object) -> None:
        self.has_partition_metadata = value is not None

    def _replay_member(
        self, key: r.ConsumerGroupMemberMetadataKey, value: r.ConsumerGroupMemberMetadataValue | None
    ) -> None:
        old = self.members.get(key.member_id)
        if value is not None:
            self._put(old, (old or Member(key.member_id)).with_metadata(value))
        elif old is not None:
            self._forget(old)
            del self.members[key.member_id]
            self.loads.drop(key.member_id)

    def _replay_current(
        self, key: r.ConsumerGroupCurrentMemberAssignmentKey, value: r.ConsumerGroupCurrentMemberAssignmentValue | None
    ) -> None:
        old = self.members.get(key.member_id)
        if old is None:
            if value is not None:
                self._put(None, Member(key.member_id).with_current(value))
        elif value is not None:
            self._move(old, old.with_current(value))
        else:
            gone = old._replace(
                member_epoch=LEAVE_EPOCH,
                previous_member_epoch=LEAVE_EPOCH,
                assigned=NO_PARTITIONS,
                pending_revocation=NO_PARTITIONS,
            )
            self._move(old, gone)

    def _replay_target(
        self, key: r.ConsumerGroupTargetAssignmentMemberKey, value: r.ConsumerGroupTargetAssignmentMemberValue | None
    ) -> None:
        member_id, before = key.member_id, self.target.get(key.member_id, NO_PARTITIONS)
        after = NO_PARTITIONS
        if value is not None:
            after = self.target[member_id] = to_partitions(value.topic_partitions)
        else:
            self.target.pop(member_id, None)
        if after.keys() != before.keys():
            subtract(self.target_topics, before)
            self.target_topics.update(after.keys())
        if member_id in self.members:
            self.loads.set(member_id, _load(after))

    def _replay_target_metadata(
        self,
        _: r.ConsumerGroupTargetAssignmentMetadataKey,
        value: r.ConsumerGroupTargetAssignmentMetadataValue | None,
    ) -> None:
        self.assignment_epoch = NO_EPOCH if value is None else value.assignment_epoch

    def _replay_regex(
        self, key: r.ConsumerGroupRegularExpressionKey, value: r.ConsumerGroupRegularExpressionValue | None
    ) -> None:
        self.subscriptions.resolve(key.regular_expression, value)

    # ── indexes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, old: Member | None, new: Member) -> None:
        if old is not None:
            self._forget(old)
        else:
            self.loads.set(new.member_id, _load(self.target.get(new.member_id, NO_PARTITIONS)))
        self.members[new.member_id] = new
        self._settle(new)
        self._own(new)
        self.subscriptions.add(new)
        if new.instance_id is not None:
            self.static_members[new.instance_id] = new.member_id

    def _forget(self, member: Member) -> None:
        self._unsettle(member)
        self._disown(member)
        self.subscriptions.remove(member)
        if member.instance_id is not None and self.static_members.get(member.instance_id) == member.member_id:
            del self.static_members[member.instance_id]

    def _move(self, old: Member, new: Member) -> None:
        """Put a member in place whose metadata are the same."""
        self._unsettle(old)
        if new.assigned != old.assigned or new.pending_revocation != old.pending_revocation:
            self._disown(old)
        self.members[new.member_id] = new
        self._settle(new)
        self._own(new)

    def _settle(self, member: Member) -> None:
        self.settled.setdefault(member.settled_in, set()).add(member.member_id)

    def _unsettle(self, member: Member) -> None:
        settled = self.settled[member.settled_in]
        settled.discard(member.member_id)
        if not settled:
            del self.settled[member.settled_in]

    def _own(self, member: Member) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                self._owners.setdefault(topic_id, {}).update(dict.fromkeys(numbers, member.member_id))

    def _disown(self, member: Member) -> None:
        for partitions in (member.assigned, member.pending_revocation):
            for topic_id, numbers in partitions.items():
                owners = self._owners.get(topic_id, {})
                for number in numbers:
                    if owners.get(number) == member.member_id:
                        del owners[number]


def _load(partitions: Partitions) -> int:
    return sum(map(len, partitions.values()))


_REPLAYERS: dict[type[Any], Callable[[LoggedGroup, Any, Any], None]] = {
    r.ConsumerGroupMetadataKey: LoggedGroup._replay_metadata,
    r.ConsumerGroupPartitionMetadataKey: LoggedGroup._replay_partition_metadata,
    r.ConsumerGroupMemberMetadataKey: LoggedGroup._replay_member,
    r.ConsumerGroupTargetAssignmentMetadataKey: LoggedGroup._replay_target_metadata,
    r.ConsumerGroupTargetAssignmentMemberKey: LoggedGroup._replay_target,
    r.ConsumerGroupCurrentMemberAssignmentKey: LoggedGroup._replay_current,
    r.ConsumerGroupRegularExpressionKey: LoggedGroup._replay_regex,
}
KEYS = tuple(_REPLAYERS)
"""The types of the keys of a consumer group's records."""
