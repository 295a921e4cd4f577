"""The target assignment of a consumer group: asks the server-side assignor, and checks what it says.

Also the hash by which a group sees that its topics have changed. It is a number of this broker's own: Kafka hashes the
same things in another way, and a group that moves between the two is assigned once more, that is all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b
from uuid import UUID

from ottla import errors
from ottla.assignors import Assignment, Assignor, RangeAssignor, Subscription, UniformAssignor
from ottla.coordinator.consumer_member import Member, Partitions
from ottla.coordinator.group import TopicInfo

_OUR_OWN = (UniformAssignor, RangeAssignor)
"""Their results need no check: tests have seen to that."""


def metadata_hash(names: Iterable[str], topics: Mapping[str, TopicInfo]) -> int:
    """Return a number that changes when a topic of these comes, goes, or gets partitions; 0 for none."""
    hasher = blake2b(digest_size=8)
    found = sorted(name for name in names if name in topics)
    for name in found:
        info = topics[name]
        hasher.update(b"%s\0%s%d\0" % (name.encode(), info.topic_id.bytes, info.partitions))
    return int.from_bytes(hasher.digest(), "big", signed=True) if found else 0


def compute_target(
    assignor: Assignor,
    members: Mapping[str, Member],
    topics_of: Mapping[str, frozenset[str]],
    target: Mapping[str, Partitions],
    topics: Mapping[str, TopicInfo],
    epoch: int,
) -> dict[str, Partitions]:
    """Return the new target of each member, from their subscriptions and their present targets."""
    # Most members subscribe to the same: what follows from a subscription is made once.
    existing = {names: sorted(name for name in names if name in topics) for names in set(topics_of.values())}
    names = sorted(frozenset().union(*existing.values()))
    name_of = {topics[name].topic_id: name for name in names}
    subscriptions = {
        member_id: Subscription(
            topics=existing[topics_of[member_id]],
            owned_partitions=_by_name(target.get(member_id, {}), name_of),
            generation=epoch - 1,
            group_instance_id=member.instance_id,
            rack_id=member.rack_id,
        )
        for member_id, member in members.items()
    }
    partitions_per_topic = {name: topics[name].partitions for name in names}
    try:
        assignments = assignor.assign(partitions_per_topic, subscriptions)
        if type(assignor) not in _OUR_OWN:
            _check(assignments, partitions_per_topic, topics_of)
    except Exception as error:
        # The assignor may be anybody's code: its mistakes are told to the member, and the group keeps its target.
        raise errors.UnknownServerError(
            f"Failed to compute a new target assignment for epoch {epoch} with '{assignor.name}': {error}"
        ) from error
    return {member_id: _by_id(assignments.get(member_id), topics) for member_id in members}


def _by_name(partitions: Partitions, name_of: Mapping[UUID, str]) -> dict[str, frozenset[int]]:
    return {name_of[topic_id]: numbers for topic_id, numbers in partitions.items() if topic_id in name_of}


def _by_id(assignment: Assignment | None, topics: Mapping[str, TopicInfo]) -> dict[UUID, frozenset[int]]:
    if assignment is None:
        return {}
    return {topics[name].topic_id: frozenset(numbers) for name, numbers in assignment.partitions.items() if numbers}


def _check(
    assignments: Mapping[str, Assignment],
    partitions_per_topic: Mapping[str, int],
    topics_of: Mapping[str, frozenset[str]],
) -> None:
    """Raise ValueError if an assignment gives what is not there, or was not asked for, or gives it twice."""
    given: dict[str, set[int]] = {name: set() for name in partitions_per_topic}
    for member_id, assignment in assignments.items():
        if member_id not in topics_of:
            raise ValueError(f"it gives partitions to {member_id}, which is not a member")
        for name, numbers in assignment.partitions.items():
            if name not in partitions_per_topic or name not in topics_of[member_id]:
                raise ValueError(f"it gives partitions of {name} to {member_id}, which does not subscribe to it")
            _check_topic(name, numbers, partitions_per_topic[name], given[name])


def _check_topic(name: str, numbers: Iterable[int], count: int, given: set[int]) -> None:
    for number in numbers:
        if not 0 <= number < count:
            raise ValueError(f"it gives partition {number} of {name}, which has {count}")
        if number in given:
            raise ValueError(f"it gives {name}-{number} twice")
        given.add(number)
