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


def topics_of(subscriptions: Mapping[str, Subscription]) -> frozenset[str]:
    return frozenset(topic for subscription in subscriptions.values() for topic in subscription.topics)


def assign(
    assignor: Assignor, partitions_per_topic: Mapping[str, int], subscriptions: Mapping[str, Subscription]
) -> list[Message]:
    """The assignments for SyncGroup, one per member."""
    wanted = topics_of(subscriptions)
    known = {topic: count for topic, count in partitions_per_topic.items() if topic in wanted and count > 0}
    assignments = assignor.assign(known, subscriptions)
    return [
        {"member_id": member_id, "assignment": encode_assignment(assignments.get(member_id, Assignment()))}
        for member_id in subscriptions
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
