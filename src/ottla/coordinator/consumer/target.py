"""The target assignment of a consumer group: asks a server-side assignor, and checks its answer."""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Iterable, Mapping
from typing import NamedTuple
from uuid import UUID

from ottla import errors
from ottla.assignors import Assignment, Assignor, RangeAssignor, Subscription, UniformAssignor
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Change, Member, Partitions
from ottla.coordinator.consumer.shares import even_shares
from ottla.coordinator.group import TopicInfo

Target = Mapping[str, Partitions]
"""The partitions of each member."""
_OUR_OWN = (UniformAssignor, RangeAssignor)
"""Their results need no check, because tests check them."""


class NewTarget(NamedTuple):
    shares: Target
    """The shares of all members,"""
    changed: Target
    """and those that are new, in the order in which they are written."""


class TargetBuilder:
    """Computes targets with the assignors of a broker. The first one is the default."""

    __slots__ = ("_assignors", "default")

    def __init__(self, assignors: Mapping[str, Assignor]) -> None:
        self._assignors = assignors
        self.default = next(iter(assignors))

    def build(self, logged: LoggedGroup, change: Change, topics: Mapping[str, TopicInfo], epoch: int) -> NewTarget:
        """Return the target of a group for an epoch after a member joined or changed."""
        name = logged.subscriptions.preferred_assignor(change.leaving, change.after)
        # A member may still ask for an assignor that the broker had before.
        assignor = self._assignors.get(name or "") or self._assignors[self.default]
        even = _even_shares(assignor, logged, change, topics)
        if even is not None:
            return NewTarget(ChainMap(even, logged.target), even)
        shares = _assign(assignor, logged, change, topics, epoch)
        return NewTarget(shares, {each: share for each, share in shares.items() if logged.target.get(each) != share})


def _even_shares(
    assignor: Assignor, logged: LoggedGroup, change: Change, topics: Mapping[str, TopicInfo]
) -> dict[str, Partitions] | None:
    """Return the changed shares if ``uniform`` assigns and all members subscribe to the same topics, else None."""
    subscriptions = logged.subscriptions
    if type(assignor) is not UniformAssignor or not subscriptions.all_like(change.after, change.leaving):
        return None
    if change.replaces is not None or len(logged.target) != len(logged.members):
        return None
    infos = [topics[name] for name in sorted(subscriptions.topics_of(change.after)) if name in topics]
    wanted = [(info.topic_id, info.partitions) for info in infos]
    joining = change.after.member_id if change.is_new else None
    shares = even_shares(logged.loads, joining, logged.target, wanted, logged.target_topics.keys())
    if shares is None:
        return None
    order = [*filter(shares.__contains__, logged.members), *([] if joining is None else [joining])]
    return {member_id: shares[member_id] for member_id in order}


def _assign(
    assignor: Assignor, logged: LoggedGroup, change: Change, topics: Mapping[str, TopicInfo], epoch: int
) -> dict[str, Partitions]:
    members, target = dict(logged.members), dict(logged.target)
    if change.replaces is not None:  # It may have the same id.
        del members[change.replaces.member_id]
        target[change.after.member_id] = target.pop(change.replaces.member_id, {})
    members[change.after.member_id] = change.after
    return compute_target(assignor, members, logged.subscriptions.topics_of_all(members), target, topics, epoch)


def compute_target(
    assignor: Assignor,
    members: Mapping[str, Member],
    topics_of: Mapping[str, frozenset[str]],
    target: Target,
    topics: Mapping[str, TopicInfo],
    epoch: int,
) -> dict[str, Partitions]:
    """Return the new target of each member, from the subscriptions and the present target."""
    # Most members have the same subscription: what follows from one is computed once.
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
        # A user may have written the assignor. Its errors go to the member, and the group keeps its target.
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
    """Raise ValueError if a partition does not exist, is assigned twice, or its member did not subscribe to it."""
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
