"""Share partitions as evenly as possible, then with the fewest moves: for sticky, cooperative-sticky and uniform.

Ownership is one flat list. All partitions are in one line, topic by topic in the order of their names, and the list has
the owner of each as the member's position in the sorted list of members. A million partitions are common, so everything
here works on that list as a whole and creates an object per partition only where it must.
`balance` picks the algorithm: members with equal topics need one pass, others the search of ``uneven.py``. Both are
deterministic and do not depend on the order in which members and topics are given.
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Protocol, TypeAlias

from ottla.assignors.base import Partitions, java_order
from ottla.assignors.uneven import balance_unequal

NOBODY = -1
CONTESTED = -2

Share: TypeAlias = dict[str, tuple[int, ...]]
"""What one member gets. Numbers are tuples, so that a million shares of one partition can share a few objects."""


class Line:
    """The partitions of all subscribed topics, one after the other."""

    def __init__(self, partitions_per_topic: Mapping[str, int], topics: Collection[str]) -> None:
        self.topics = sorted(topics)
        self.counts = [partitions_per_topic[topic] for topic in self.topics]
        self.starts = []
        self.size = 0
        for count in self.counts:
            self.starts.append(self.size)
            self.size += count
        #: By topic, where its partitions start and how many there are.
        self.places = dict(zip(self.topics, zip(self.starts, self.counts, strict=True), strict=True))
        #: The same by the bytes of the topic name.
        self.places_by_bytes = {topic.encode("utf-8", "surrogatepass"): place for topic, place in self.places.items()}

    def cut(self, owners: Sequence[int]) -> Iterator[tuple[str, Sequence[int]]]:
        """The owners of each topic's partitions."""
        for topic, start, count in zip(self.topics, self.starts, self.counts, strict=True):
            yield topic, owners[start : start + count]


class Claim(Protocol):
    """What a member claims to own, and since when."""

    def __call__(self, line: Line) -> tuple[int, Sequence[int]]:
        """Return the generation and the places of the partitions in the line; unknown partitions are left out."""


@dataclass(frozen=True, slots=True)
class Owned:
    """A claim as a mapping: the owned partitions of a subscription."""

    generation: int
    partitions: Partitions

    def __call__(self, line: Line) -> tuple[int, Sequence[int]]:
        found: list[int] = []
        places = line.places
        for topic, numbers in self.partitions.items():
            if topic in places:
                start, count = places[topic]
                found += [start + number for number in numbers if 0 <= number < count]
        return self.generation, found


def sorted_members(members: Collection[str]) -> list[str]:
    """Return the member ids in the order that breaks ties."""
    is_plain = all(map(str.isascii, members))
    return sorted(members) if is_plain else sorted(members, key=java_order)


def balance(
    partitions_per_topic: Mapping[str, int],
    topics_of: Sequence[Collection[str]],
    claims: Sequence[Claim],
    *,
    keep_moved_back: bool = False,
) -> list[Share]:
    """Return the partitions of each member, in the order of `topics_of` and `claims`.

    With `keep_moved_back` no member gets a partition that another one owns or that several claim.
    """
    if not topics_of:
        return []
    subscribed = _existing(partitions_per_topic, topics_of)
    wanted = frozenset().union(*set(subscribed))
    line = Line(partitions_per_topic, [topic for topic in wanted if partitions_per_topic[topic]])
    is_equal = all(each is subscribed[0] or each == subscribed[0] for each in subscribed)
    settled = [claim(line) for claim in claims]
    if is_equal and not any(places for _, places in settled):
        return _first_shares(line, len(topics_of))
    owners = settle(line, settled)
    before = owners[:] if keep_moved_back else None
    if is_equal:
        _balance_equal(owners, len(topics_of))
    else:
        owners = _balance_unequal(line, subscribed, owners)
    if before is not None:
        owners = [now if had in (NOBODY, now) else NOBODY for had, now in zip(before, owners, strict=True)]
    return _shares(line, owners, len(topics_of))


def settle(line: Line, claims: Sequence[tuple[int, Sequence[int]]]) -> list[int]:
    """Return the owner of each place, from the generation of each member and the places that it claims.

    Of two claims the newer generation wins; two claims of the same generation make the partition contested.
    """
    owners = [NOBODY] * line.size
    # The newest first: later claims can only contest those of the same generation.
    for member in sorted(range(len(claims)), key=lambda member: -claims[member][0]):
        generation, places = claims[member]
        for place in places:
            owner = owners[place]
            if owner == NOBODY:
                owners[place] = member
            elif owner not in (member, CONTESTED) and claims[owner][0] == generation:
                owners[place] = CONTESTED
    return owners


def _existing(partitions_per_topic: Mapping[str, int], topics_of: Sequence[Collection[str]]) -> list[frozenset[str]]:
    """Return the existing topics that each member subscribes to. Members often share one list object."""
    known: dict[int, frozenset[str]] = {}
    for topics in topics_of:
        if id(topics) not in known:
            known[id(topics)] = frozenset(topic for topic in topics if topic in partitions_per_topic)
    return [known[id(topics)] for topics in topics_of]


def _balance_equal(owners: list[int], members: int) -> None:
    """Each member keeps what fits its quota; the rest goes one by one to the member with the fewest."""
    quotas, loads = _quotas(owners, members)
    over = {member for member in range(members) if loads[member] > quotas[member]}
    if over:
        _take_back(owners, over, quotas)
    kept = [min(load, quota) for load, quota in zip(loads, quotas, strict=True)]
    free = [place for place, owner in enumerate(owners) if owner < 0]
    for place, taker in zip(free, _takers(kept), strict=False):
        owners[place] = taker


def _quotas(owners: Sequence[int], members: int) -> tuple[list[int], list[int]]:
    """Return how many partitions each member may keep (the even share, or one more for some that have more), and its
    present number."""
    each, more = divmod(len(owners), members)
    owned = Counter(owners)
    loads = [owned[member] for member in range(members)]
    quotas = [each] * members
    for member, load in enumerate(loads):
        if more and load > each:
            quotas[member] += 1
            more -= 1
    return quotas, loads


def _take_back(owners: list[int], over: Collection[int], quotas: Sequence[int]) -> None:
    """Take the last partitions from members that have too many."""
    room = {member: quotas[member] for member in over}
    for place, owner in enumerate(owners):
        if owner in room:
            if room[owner]:
                room[owner] -= 1
            else:
                owners[place] = NOBODY


def _takers(loads: Sequence[int]) -> Iterator[int]:
    """Yield the next member to get a partition, endlessly: always the one with the fewest, then the first."""
    by_load: dict[int, list[int]] = {}
    for member, load in enumerate(loads):
        by_load.setdefault(load, []).append(member)
    turn: list[int] = []
    level = min(by_load)
    while by_load:
        turn = sorted(turn + by_load.pop(level, []))
        yield from turn
        level += 1
    yield from chain.from_iterable(repeat(turn))


def _balance_unequal(line: Line, subscribed: Sequence[frozenset[str]], owners: Sequence[int]) -> list[int]:
    number = {topic: position for position, topic in enumerate(line.topics)}
    wanted = [sorted(number[topic] for topic in each if topic in number) for each in subscribed]
    given = balance_unequal(wanted, [owned_by for _, owned_by in line.cut(owners)])
    return list(chain.from_iterable(given))


def _first_shares(line: Line, members: int) -> list[Share]:
    """Deal out partitions that no member had, in turns: the same result as the general way, in one step."""
    with _no_collection():
        if not line.topics:
            return [{} for _ in range(members)]
        if max(line.counts) > members:
            return _first_runs(line, members)
        # Each member gets at most one partition of a topic.
        is_dense = 2 * line.size >= len(line.topics) * members
        return _first_ones_by_member(line, members) if is_dense else _first_ones_by_topic(line, members)


def _first_runs(line: Line, members: int) -> list[Share]:
    rows = list(zip(line.topics, line.starts, line.counts, strict=True))
    return [
        {
            topic: tuple(range(first, count, members))
            for topic, start, count in rows
            if (first := (member - start) % members) < count
        }
        for member in range(members)
    ]


def _first_ones_by_member(line: Line, members: int) -> list[Share]:
    """Most members get something of each topic: build a column of numbers per topic and transpose with `zip`."""
    topics = line.topics
    columns: list[list[tuple[int, ...]]] = []
    ones: list[tuple[int, ...]] = [(number,) for number in range(members)]
    for start, count in zip(line.starts, line.counts, strict=True):
        turn = members - start % members
        column = ones if count == members else ones[:count] + [()] * (members - count)
        columns.append(column[turn:] + column[:turn])
    if min(line.counts) == members:
        return [dict(zip(topics, row)) for row in zip(*columns)]  # noqa: B905
    return [
        {topic: numbers for topic, numbers in zip(topics, row) if numbers}  # noqa: B905
        for row in zip(*columns)  # noqa: B905
    ]


def _first_ones_by_topic(line: Line, members: int) -> list[Share]:
    """Most members get nothing of a topic: visit only those that do."""
    shares: list[Share] = [{} for _ in range(members)]
    ones = [(number,) for number in range(max(line.counts))]
    for topic, start, count in zip(line.topics, line.starts, line.counts, strict=True):
        first = start % members
        end = first + count
        for one, share in zip(ones, chain(shares[first:end], shares[: max(0, end - members)])):  # noqa: B905
            share[topic] = one
    return shares


def _shares(line: Line, owners: Sequence[int], members: int) -> list[Share]:
    """Return the partitions of each member by topic, one member after the other for better memory locality."""
    with _no_collection():
        places: list[list[int]] = [[] for _ in range(members + 1)]
        for place, owner in enumerate(owners):
            places[owner].append(place)  # unowned ones are in the last list
        return [_share(line, mine) for mine in places[:members]]


def _share(line: Line, places: Sequence[int]) -> Share:
    share: Share = {}
    topics, starts, counts = line.topics, line.starts, line.counts
    at, start, end = -1, 0, 0
    numbers: list[int] = []
    for place in places:
        if place < end:
            numbers.append(place - start)
            continue
        if numbers:
            share[topics[at]] = tuple(numbers)
        while place >= end:
            at += 1
            end += counts[at]
        start = starts[at]
        numbers = [place - start]
    if numbers:
        share[topics[at]] = tuple(numbers)
    return share


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable garbage collection: searching for cycles among so many new lists takes longer than creating them."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
