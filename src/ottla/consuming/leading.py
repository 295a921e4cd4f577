"""What the leader of a classic group does: assign the partitions, and watch the topics of all members.

The leader remembers the partition counts that it assigned; when the metadata changes, the group has to rebalance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ottla.assignors import Assignment, Assignor, Subscription
from ottla.assignors.embedded import MalformedProtocol, decode_subscription, encode_assignment
from ottla.errors import InconsistentGroupProtocol, KafkaError
from ottla.protocol.codec import Message, Struct


def read_members(members: Iterable[Struct]) -> dict[str, Subscription]:
    """What the members sent when they joined; one that cannot be read subscribes to nothing."""
    return {member.member_id: _read_member(member) for member in members}


def _read_member(member: Struct) -> Subscription:
    try:
        subscription = decode_subscription(bytes(member.metadata))
    except MalformedProtocol:
        return Subscription((), group_instance_id=member.group_instance_id)
    return replace(subscription, group_instance_id=member.group_instance_id)


class Leader:
    """The state of a leader; one that is not elected has no members."""

    def __init__(self) -> None:
        self._members: dict[str, Subscription] = {}
        self._keeps_assignment = False
        self._assigned_for: Mapping[str, int] | None = None
        self._last: tuple[int, Mapping[str, int]] | None = None
        """The generation of the last assignment, and its partition counts."""

    @property
    def topics(self) -> frozenset[str]:
        return frozenset(topic for subscription in self._members.values() for topic in subscription.topics)

    def elect(self, members: dict[str, Subscription], *, keeps_assignment: bool) -> None:
        self._members, self._keeps_assignment = members, keeps_assignment

    def resign(self) -> None:
        self._members, self._assigned_for = {}, None

    def is_outdated(self, partitions: Mapping[str, int]) -> bool:
        """Whether the partition counts have changed since the assignment."""
        return self._assigned_for is not None and self._assigned_for != partitions

    def assign(self, assignor: Assignor, partitions: Mapping[str, int], generation: int) -> list[Message]:
        """The assignments for SyncGroup, one per member."""
        # A static leader that returns is told to keep the existing assignment. If it made it, it remembers for which
        # partitions. As in Kafka, a new process cannot know whether a topic grew: the next change corrects it.
        self._assigned_for = partitions
        if self._keeps_assignment and self._last is not None and self._last[0] == generation:
            self._assigned_for = self._last[1]
        self._last = (generation, self._assigned_for)
        if self._keeps_assignment:
            return []
        topics = self.topics
        known = {topic: count for topic, count in partitions.items() if topic in topics}
        assignments = assignor.assign(known, self._members)
        return [
            {"member_id": member_id, "assignment": encode_assignment(assignments.get(member_id, Assignment()))}
            for member_id in self._members
        ]


def is_cooperative(assignors: Sequence[Assignor]) -> bool:
    """Whether this member keeps its partitions during a rebalance: only if all of its assignors do."""
    return all(assignor.cooperative for assignor in assignors)


def assignor_failed(assignor: Assignor, error: Exception) -> InconsistentGroupProtocol:
    """Wrap the error of an assignor, which may be the user's, with its traceback."""
    problem = InconsistentGroupProtocol(f"the assignor {assignor.name} failed: {error!r}")
    problem.__cause__ = error
    return problem


def by_name(assignors: Sequence[Assignor], name: str | None) -> Assignor | KafkaError:
    for assignor in assignors:
        if assignor.name == name:
            return assignor
    return InconsistentGroupProtocol(f"the group chose the assignor {name!r}, which this member does not have")
