"""The result of ``uniform`` when all members have the same subscription, computed from the present target.

A large group computes a target for every member that joins or leaves. The assignor looks at every partition; this looks
only at members that have too many or too few, which `Loads` finds. The result is the same as that of
:class:`~ottla.assignors.UniformAssignor`, as a test checks.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Mapping, Sequence, Set
from heapq import heapify, heapreplace
from itertools import islice, repeat
from typing import TypeAlias
from uuid import UUID

from ottla.assignors.base import java_order
from ottla.coordinator.consumer.member import NO_PARTITIONS, Partitions

Topics: TypeAlias = Sequence[tuple[UUID, int]]
"""Ids and numbers of partitions, sorted by name. All partitions form one line, topic by topic. A place is an index."""
_NONE: frozenset[int] = frozenset()


class Loads:
    """How many partitions each member has in the target, and which members have how many."""

    __slots__ = ("_by_load", "_of", "total")

    def __init__(self) -> None:
        self.total = 0
        self._of: dict[str, int] = {}
        self._by_load: dict[int, list[bytes]] = {}
        """The members of a load, in the assignors' order."""

    def __len__(self) -> int:
        return len(self._of)

    def set(self, member_id: str, load: int) -> None:
        former = self._of.get(member_id)
        if load == former:
            return
        key = java_order(member_id)
        if former is not None:
            self._take_out(key, former)
        self._of[member_id] = load
        self.total += load
        insort(self._by_load.setdefault(load, []), key)

    def drop(self, member_id: str) -> None:
        self._take_out(java_order(member_id), self._of.pop(member_id))

    def _take_out(self, key: bytes, load: int) -> None:
        self.total -= load
        members = self._by_load[load]
        del members[bisect_left(members, key)]
        if not members:
            del self._by_load[load]

    def cuts(self, each: int, more: int) -> list[tuple[str, int]]:
        """Return the members that have too many, and how many they keep: `each`, and one more for the first `more`."""
        if not any(load > each + 1 for load in self._by_load):
            return [(_name(key), each) for key in self._by_load.get(each + 1, [])[more:]]
        above = sorted((key, load) for load, members in self._by_load.items() if load > each for key in members)
        cuts = [(_name(key), each + 1) for key, load in above[:more] if load > each + 1]
        return cuts + [(_name(key), each) for key, _ in above[more:]]

    def fewest(self) -> Iterator[tuple[int, bytes]]:
        """Yield loads and members: the lowest load first, equals in the assignors' order."""
        for load in sorted(self._by_load):
            yield from zip(repeat(load), self._by_load[load])


def _name(key: bytes) -> str:
    """Return the member of a key by `java_order`."""
    return key.decode("utf-16-be", "surrogatepass")


def even_shares(
    loads: Loads,
    joining: str | None,
    target: Mapping[str, Partitions],
    topics: Topics,
    target_topics: Set[UUID],
) -> dict[str, Partitions] | None:
    """Return the shares that change, or None if the assignor must compute them.

    The present target has a share for each member, `loads` are its loads, and `target_topics` its topics.
    """
    starts: dict[UUID, int] = {}
    total = 0
    for topic_id, count in topics:
        starts[topic_id] = total
        total += count
    if not target_topics <= starts.keys():
        return None  # A topic was deleted.
    each, more = divmod(total, len(loads) + (joining is not None))
    free = _without_owner(target, topics, starts) if loads.total != total else []
    if free is None:
        return None
    shares: dict[str, Partitions] = {}
    for member_id, quota in loads.cuts(each, more):
        shares[member_id], given_up = _cut(target[member_id], starts, quota)
        free += given_up
    free.sort()
    line = list(starts.values())
    for member_id, places in _give(free, loads, joining).items():
        # No member both loses and gets partitions.
        shares[member_id] = _with(target.get(member_id, NO_PARTITIONS), places, topics, line)
    if joining is not None:
        shares.setdefault(joining, NO_PARTITIONS)
    return shares


def _without_owner(target: Mapping[str, Partitions], topics: Topics, starts: Mapping[UUID, int]) -> list[int] | None:
    """Return the places without an owner; None if the target has partitions that do not exist, as after data loss."""
    free: list[int] = []
    for topic_id, count in topics:
        owned = _NONE.union(*(share.get(topic_id, ()) for share in target.values()))
        if owned and max(owned) >= count:
            return None
        free += [starts[topic_id] + number for number in range(count) if number not in owned]
    return free


def _cut(share: Partitions, starts: Mapping[UUID, int], quota: int) -> tuple[dict[UUID, frozenset[int]], list[int]]:
    """Return the first `quota` partitions of a share, and the places of the rest."""
    kept: dict[UUID, frozenset[int]] = {}
    given_up: list[int] = []
    for topic_id in sorted(share, key=starts.__getitem__) if len(share) > 1 else share:
        numbers, start = sorted(share[topic_id]), starts[topic_id]
        if quota > 0:
            kept[topic_id] = frozenset(numbers[:quota])
        given_up += [start + number for number in numbers[max(quota, 0) :]]
        quota -= len(numbers)
    return kept, given_up


def _give(free: Sequence[int], loads: Loads, joining: str | None) -> dict[str, list[int]]:
    """Give the free places to the members that have the fewest, of equals to the first."""
    # No more members than this can get something. A member that was cut has too many to be among them.
    heap = list(islice(loads.fewest(), len(free)))
    if joining is not None:
        heap.append((0, java_order(joining)))
    heapify(heap)
    given: dict[bytes, list[int]] = {}
    at = 0
    while at < len(free):
        load, key = heap[0]
        # Until another member has as few.
        count = max(1, min(heap[1:3])[0] - load) if len(heap) > 1 else len(free)
        given.setdefault(key, []).extend(free[at : at + count])
        at += count
        heapreplace(heap, (load + count, key))
    return {_name(key): places for key, places in given.items()}


def _with(share: Partitions, places: Sequence[int], topics: Topics, line: Sequence[int]) -> dict[UUID, frozenset[int]]:
    """Return a share with more places, which are sorted. The topics begin at the places in `line`."""
    grown, at = dict(share), 0
    while at < len(places):
        topic = bisect_right(line, places[at]) - 1
        (topic_id, count), start = topics[topic], line[topic]
        end = bisect_left(places, start + count, at)
        grown[topic_id] = grown.get(topic_id, _NONE).union([place - start for place in places[at:end]])
        at = end
    return grown
