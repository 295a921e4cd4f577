"""Sharing partitions as evenly as possible, then with the fewest moves: what sticky, cooperative-sticky and uniform do.

Ownership is flat: for each topic a list that says, partition by partition, which member has it, as the member's
position in the sorted list of members. ``balance`` picks the way: members with equal topics need one pass, others the
search of ``uneven.py``. Both are deterministic and do not depend on the order in which members and topics are given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from heapq import heapify, heapreplace
from typing import TypeAlias

from ottla.assignors.base import Partitions, java_order
from ottla.assignors.uneven import balance_unequal

Owners: TypeAlias = dict[str, list[int]]
"""By topic, the position of each partition's owner among the sorted members, or one of the two below."""

NOBODY = -1
CONTESTED = -2


def sorted_members(members: Collection[str]) -> list[str]:
    """Return the member ids in the order that decides between equals."""
    is_plain = all(map(str.isascii, members))
    return sorted(members) if is_plain else sorted(members, key=java_order)


def settle_claims(partitions_per_topic: Mapping[str, int], claims: Sequence[tuple[int, Partitions]]) -> Owners:
    """Return who owns what, from each member's last generation and the partitions that it claims.

    Of two claims the one of the newer generation counts; two of the same generation make the partition contested.
    """
    owners = {topic: [NOBODY] * count for topic, count in partitions_per_topic.items()}
    generations = {topic: [NOBODY] * count for topic, count in partitions_per_topic.items()}
    for member, (generation, partitions) in enumerate(claims):
        for topic, numbers in partitions.items():
            if topic in owners:
                _claim(owners[topic], generations[topic], member, generation, numbers)
    return owners


def _claim(owners: list[int], generations: list[int], member: int, generation: int, numbers: Collection[int]) -> None:
    for number in numbers:
        if not 0 <= number < len(owners) or owners[number] == member:
            continue
        if owners[number] == NOBODY or generation > generations[number]:
            owners[number], generations[number] = member, generation
        elif generation == generations[number]:
            owners[number] = CONTESTED


def balance(
    partitions_per_topic: Mapping[str, int], topics_of: Sequence[Collection[str]], owners: Owners
) -> list[dict[str, list[int]]]:
    """Return the partitions of each member, in the order that ``topics_of`` and ``owners`` have."""
    if not topics_of:
        return []
    subscribed = _existing(partitions_per_topic, topics_of)
    topics = sorted(topic for topic in frozenset().union(*set(subscribed)) if partitions_per_topic[topic])
    counts = [partitions_per_topic[topic] for topic in topics]
    flat = [owners.get(topic) or [NOBODY] * count for topic, count in zip(topics, counts, strict=True)]
    if all(each == subscribed[0] for each in subscribed):
        given = _balance_equal(len(topics_of), flat)
    else:
        number = {topic: position for position, topic in enumerate(topics)}
        wanted = [sorted(number[topic] for topic in each if topic in number) for each in subscribed]
        given = balance_unequal(wanted, flat)
    return [{topics[topic]: sorted(numbers) for topic, numbers in each.items()} for each in given]


def _existing(partitions_per_topic: Mapping[str, int], topics_of: Sequence[Collection[str]]) -> list[frozenset[str]]:
    """Return what each member subscribes to of what there is. Members often share one and the same list."""
    known: dict[int, frozenset[str]] = {}
    for topics in topics_of:
        if id(topics) not in known:
            known[id(topics)] = frozenset(topic for topic in topics if topic in partitions_per_topic)
    return [known[id(topics)] for topics in topics_of]


def _balance_equal(members: int, owners: Sequence[Sequence[int]]) -> list[dict[int, list[int]]]:
    """Each member keeps what fits into its quota; the rest goes one by one to the member with the fewest."""
    given: list[dict[int, list[int]]] = [{} for _ in range(members)]
    room = _quotas(members, owners)
    loads = [0] * members
    free: list[tuple[int, int]] = []
    for topic, owned_by in enumerate(owners):
        for number, owner in enumerate(owned_by):
            if owner >= 0 and loads[owner] < room[owner]:
                loads[owner] += 1
                given[owner].setdefault(topic, []).append(number)
            else:
                free.append((topic, number))
    # Load and position in one number: the smallest is the member with the fewest, then the first by name.
    heap = [load * members + member for member, load in enumerate(loads)]
    heapify(heap)
    for topic, number in free:
        least = heap[0]
        given[least % members].setdefault(topic, []).append(number)
        heapreplace(heap, least + members)
    return given


def _quotas(members: int, owners: Sequence[Sequence[int]]) -> list[int]:
    """Return how many partitions each member may keep: one more than the even share for some that have it."""
    each, more = divmod(sum(map(len, owners)), members)
    owned: Counter[int] = Counter()
    for owned_by in owners:
        owned.update(owned_by)
    quotas = [each] * members
    for member in range(members):
        if more and owned[member] > each:
            quotas[member] += 1
            more -= 1
    return quotas
