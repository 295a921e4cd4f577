"""What ``uniform`` says when all members subscribe to the same, worked out from the present target.

A large group computes a target for every member that comes or goes. The assignor looks at every partition; here only
members that have too much or too little are touched, and the others keep the very object that they had. The result is
that of :class:`~ottla.assignors.UniformAssignor`, which a test holds it to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TypeAlias
from uuid import UUID

from ottla.assignors.balance import sorted_members
from ottla.coordinator.consumer_member import NO_PARTITIONS, Partitions

Place: TypeAlias = tuple[int, int]
"""A topic's position among the topics, and a partition."""


def even_shares(
    members: Sequence[str],
    target: Mapping[str, Partitions],
    topics: Sequence[tuple[UUID, int]],
    target_loads: Mapping[str, int],
    target_topics: Collection[UUID],
) -> dict[str, Partitions] | None:
    """Return the new target; topics are ids and numbers of partitions, sorted by name. None if it is not so simple.

    Of the present target the caller knows how many partitions each member has in it, and all of its topics.
    """
    position = {topic_id: at for at, (topic_id, _) in enumerate(topics)}
    if not all(topic_id in position for topic_id in target_topics):
        return None  # A topic has gone.
    order = sorted_members(members)
    shares: dict[str, Partitions] = {member_id: target.get(member_id, NO_PARTITIONS) for member_id in order}
    loads = [target_loads.get(member_id, 0) for member_id in order]
    free = _without_owner(shares, topics, sum(loads))
    kept = _cut_to_quotas(order, shares, loads, position, sum(count for _, count in topics), free)
    if free:
        _give(free, order, shares, loads, kept, topics)
    return {member_id: shares[member_id] for member_id in members}


def _without_owner(shares: Mapping[str, Partitions], topics: Sequence[tuple[UUID, int]], owned: int) -> list[Place]:
    if owned == sum(count for _, count in topics):
        return []
    return [
        (at, number)
        for at, (topic_id, count) in enumerate(topics)
        for number in set(range(count)).difference(*(share.get(topic_id, ()) for share in shares.values()))
    ]


def _cut_to_quotas(
    order: Sequence[str],
    shares: Mapping[str, Partitions],
    loads: list[int],
    position: Mapping[UUID, int],
    total: int,
    free: list[Place],
) -> dict[int, list[Place]]:
    """Let those who have more than their quota keep the first of it, and return what they keep."""
    each, more = divmod(total, len(order))
    kept: dict[int, list[Place]] = {}
    for at, load in enumerate(loads):
        if load <= each:
            continue
        quota = each
        if more:
            quota, more = each + 1, more - 1
        if load > quota:
            places = _places(shares[order[at]], position)
            kept[at], loads[at] = places[:quota], quota
            free += places[quota:]
    return kept


def _give(
    free: list[Place],
    order: Sequence[str],
    shares: dict[str, Partitions],
    loads: Sequence[int],
    kept: dict[int, list[Place]],
    topics: Sequence[tuple[UUID, int]],
) -> None:
    """Give what is free to those who have the fewest, of equals the first by name."""
    position = {topic_id: at for at, (topic_id, _) in enumerate(topics)}
    heap = [load * len(order) + at for at, load in enumerate(loads)]
    heapify(heap)
    for place in sorted(free):
        at = heap[0] % len(order)
        if at not in kept:
            kept[at] = _places(shares[order[at]], position)
        kept[at].append(place)
        heapreplace(heap, heap[0] + len(order))
    for at, places in kept.items():
        numbers: dict[UUID, set[int]] = {}
        for topic, number in places:
            numbers.setdefault(topics[topic][0], set()).add(number)
        shares[order[at]] = {topic_id: frozenset(each) for topic_id, each in numbers.items()}


def _places(share: Partitions, position: Mapping[UUID, int]) -> list[Place]:
    return sorted((position[topic_id], number) for topic_id, numbers in share.items() for number in numbers)
