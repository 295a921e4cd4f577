"""What ``uniform`` says when all members subscribe to the same, worked out from the present target.

A large group computes a target for every member that comes or goes. The assignor looks at every partition; here only
members that have too much or too little are touched, and the others keep what they have. The result is that of
:class:`~ottla.assignors.UniformAssignor`, which a test holds it to.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from itertools import groupby, repeat
from operator import itemgetter
from typing import TypeAlias
from uuid import UUID

from ottla.coordinator.consumer_member import NO_PARTITIONS, Partitions

Place: TypeAlias = tuple[int, int]
"""A topic's position among the topics, and a partition."""
_NONE: frozenset[int] = frozenset()


def even_shares(
    order: Sequence[str],
    target: Mapping[str, Partitions],
    topics: Sequence[tuple[UUID, int]],
    target_loads: Mapping[str, int],
    target_topics: Collection[UUID],
) -> dict[str, Partitions] | None:
    """Return the shares that change, of members in the assignors' order; None if it is not so simple.

    Topics are ids and numbers of partitions, sorted by name. Of the present target the caller knows how many
    partitions each member has in it, and all of its topics.
    """
    position = {topic_id: at for at, (topic_id, _) in enumerate(topics)}
    if not all(topic_id in position for topic_id in target_topics):
        return None  # A topic has gone.
    loads = list(map(target_loads.get, order, repeat(0)))
    each, more = divmod(sum(count for _, count in topics), len(order))
    free = _without_owner(order, target, topics, each * len(order) + more - sum(loads))
    shares: dict[str, Partitions] = {}
    # Who has more than an equal part keeps one more as long as there are such, in the order of the members.
    above = [at for at, load in enumerate(loads) if load > each]
    cuts = [(at, each + 1) for at in above[:more] if loads[at] > each + 1] + [(at, each) for at in above[more:]]
    for at, quota in cuts:
        shares[order[at]], given_up = _cut(target[order[at]], position, quota)
        free += given_up
        loads[at] = quota
    for at, places in _give(sorted(free), loads, each).items():
        member_id = order[at]
        share = shares[member_id] if member_id in shares else target.get(member_id, NO_PARTITIONS)
        shares[member_id] = _with(share, places, topics)
    return shares


def _without_owner(
    order: Sequence[str], target: Mapping[str, Partitions], topics: Sequence[tuple[UUID, int]], missing: int
) -> list[Place]:
    if not missing:
        return []
    shares = [target.get(member_id, NO_PARTITIONS) for member_id in order]
    return [
        (at, number)
        for at, (topic_id, count) in enumerate(topics)
        for number in set(range(count)).difference(*(share.get(topic_id, ()) for share in shares))
    ]


def _cut(share: Partitions, position: Mapping[UUID, int], quota: int) -> tuple[dict[UUID, frozenset[int]], list[Place]]:
    """Return the first places of a share, and those behind them."""
    kept: dict[UUID, frozenset[int]] = {}
    given_up: list[Place] = []
    for topic_id in sorted(share, key=position.__getitem__):
        numbers = sorted(share[topic_id])
        if quota > 0:
            kept[topic_id] = frozenset(numbers[:quota])
        given_up += zip(repeat(position[topic_id]), numbers[max(quota, 0) :])
        quota -= len(numbers)
    return kept, given_up


def _give(free: Sequence[Place], loads: Sequence[int], each: int) -> dict[int, list[Place]]:
    """Give what is free to those who have the fewest, of equals the first; nobody has more than one above `each`."""
    given: dict[int, list[Place]] = {}
    if not free:
        return given
    size = len(loads)
    heap = [load * size + at for at, load in enumerate(loads) if load <= each]
    heapify(heap)
    for place in free:
        given.setdefault(heap[0] % size, []).append(place)
        heapreplace(heap, heap[0] + size)
    return given


def _with(share: Partitions, places: Sequence[Place], topics: Sequence[tuple[UUID, int]]) -> dict[UUID, frozenset[int]]:
    grown = dict(share)
    for at, group in groupby(places, itemgetter(0)):
        topic_id = topics[at][0]
        grown[topic_id] = grown.get(topic_id, _NONE).union([number for _, number in group])
    return grown
