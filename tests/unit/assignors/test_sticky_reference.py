"""The sticky assignors compared with a slow, independent reference: a minimum-cost flow.

Each partition is a unit that flows to one of the members that subscribe to its topic. The n-th unit of a member costs
2n - 1 times more than all moves together, so the sum of squared loads is minimal, which means the most even result;
a unit that leaves its owner costs 1. Units are added one by one along the cheapest path, which may move others.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from ottla.assignors import Assignor, CooperativeStickyAssignor, StickyAssignor, Subscription, UniformAssignor
from ottla.assignors.balance import NOBODY, Line, Owned, _balance_equal, _first_shares, _shares, settle
from ottla.assignors.sticky import Told, decode_user_data, encode_user_data
from unit.assignors.groups import Group, flat, given, groups, moves, sizes

Key = tuple[str, int]


def reference(group: Group, owner: dict[Key, str]) -> tuple[list[int], int]:
    """The loads of the most even assignment, and the fewest moves that such an assignment can have."""
    subscribers = {topic: [m for m, topics in group.topics.items() if topic in topics] for topic in group.partitions}
    units = [(topic, n) for topic, count in group.partitions.items() if subscribers[topic] for n in range(count)]
    weight = len(units) + 1
    has: dict[Key, str] = {}
    loads = dict.fromkeys(group.topics, 0)

    def cost(unit: Key, member: str) -> int:
        return int(unit in owner and owner[unit] != member)

    for new in units:
        # The cheapest path from the new unit to a member, over members that pass on one of their units.
        best: dict[str, tuple[int, list[tuple[Key, str]]]] = {
            m: (cost(new, m), [(new, m)]) for m in subscribers[new[0]]
        }
        changed = True
        while changed:
            changed = False
            for unit, holder in has.items():
                if holder not in best:
                    continue
                paid, way = best[holder]
                for taker in subscribers[unit[0]]:
                    price = paid - cost(unit, holder) + cost(unit, taker)
                    if taker != holder and (taker not in best or price < best[taker][0]):
                        best[taker] = (price, [*way, (unit, taker)])
                        changed = True
        end = min(best, key=lambda member: (best[member][0] + weight * (2 * loads[member] + 1), member))
        has.update(best[end][1])
        loads[end] += 1
    return sorted(loads.values()), sum(cost(unit, member) for unit, member in has.items())


def owner_of(group: Group) -> dict[Key, str]:
    return {each: member for member, had in group.owned.items() for each in flat(had)}


def subscribed_moves(group: Group, result: dict[str, object]) -> int:
    """Moves as the reference counts them: also of partitions whose topics the owner no longer subscribes to."""
    exist = {topic for topics in group.topics.values() for topic in topics}
    owned = {m: {t: n for t, n in had.items() if t in exist} for m, had in group.owned.items()}
    return moves(owned, result)  # type: ignore[arg-type]


def run(assignor: Assignor, group: Group) -> dict[str, object]:
    told = {
        member: Subscription(topics, encode_user_data(group.owned[member], 3), group.owned[member], generation=3)
        for member, topics in group.topics.items()
    }
    return dict(given(assignor.assign(group.partitions, told)))


@settings(max_examples=80, deadline=None)
@for_all(group=groups(max_topics=4, max_members=6, max_partitions=6))
def test_sticky_is_as_good_as_the_reference(group: Group) -> None:
    loads, fewest = reference(group, owner_of(group))
    for assignor in (StickyAssignor(), UniformAssignor()):
        result = run(assignor, group)
        assert sorted(sizes(result).values()) == loads  # type: ignore[arg-type]
        assert subscribed_moves(group, result) == fewest


@pytest.mark.parametrize("seed", range(6))
def test_larger_groups_after_members_came_and_went(seed: int) -> None:
    dice = random.Random(seed)
    partitions = {f"t{number}": dice.randint(1, 12) for number in range(6)}
    names = list(partitions)
    members = [f"m{number}" for number in range(9)]
    topics = {member: tuple(dice.sample(names, dice.randint(2, 6))) for member in members}
    before = run(StickyAssignor(), Group(partitions, topics, {member: {} for member in members}))
    staying = {member: topics[member] for member in members[2:]} | {"new": tuple(names)}
    owned = {member: dict(before.get(member, {})) for member in staying}  # type: ignore[call-overload]
    group = Group(partitions, staying, owned)
    loads, fewest = reference(group, owner_of(group))
    result = run(StickyAssignor(), group)
    assert sorted(sizes(result).values()) == loads  # type: ignore[arg-type]
    assert subscribed_moves(group, result) == fewest


@settings(max_examples=60, deadline=None)
@for_all(group=groups(max_topics=3, max_members=5, max_partitions=5))
def test_cooperative_sticky_ends_where_sticky_would(group: Group) -> None:
    loads, fewest = reference(group, owner_of(group))
    first = run(CooperativeStickyAssignor(), group)
    second = run(CooperativeStickyAssignor(), Group(group.partitions, group.topics, first))  # type: ignore[arg-type]
    assert sorted(sizes(second).values()) == loads  # type: ignore[arg-type]
    assert subscribed_moves(group, second) == fewest


NAMES = st.sampled_from(["a", "b", "ü", "gone"])
CLAIMS = st.dictionaries(NAMES, st.lists(st.integers(-1, 5), max_size=4, unique=True), max_size=4)
LINE = Line({"a": 4, "b": 3, "ü": 2}, ["a", "b", "ü"])


@settings(deadline=None)
@for_all(CLAIMS, st.integers(-1, 9), st.integers(0, 40), st.sampled_from(["whole", "cut", "flip"]), st.integers(0, 255))
def test_user_data_is_read_the_same_way_with_and_without_lists(
    partitions: dict[str, list[int]], generation: int, at: int, damage: str, value: int
) -> None:
    data = encode_user_data(partitions, generation)
    if damage == "cut":
        data = data[:-4] if value % 2 else data[: at % (len(data) + 1)]
    elif damage == "flip":
        at %= len(data)
        data = data[:at] + bytes([value]) + data[at + 1 :]
    try:
        expected = Owned(*decode_user_data(data))(LINE)
    except MemoryError:
        return
    found = Told(data)(LINE)
    if damage == "flip" and found != expected:
        # For a name that is not text, one forgets everything, and the other only that topic.
        with pytest.raises(UnicodeDecodeError):
            data.decode()
        return
    assert (found[0], sorted(found[1])) == (expected[0], sorted(expected[1]))


@settings(deadline=None)
@for_all(st.lists(st.tuples(st.integers(-1, 2), st.lists(st.integers(0, 8), max_size=6)), max_size=5))
def test_the_newest_claim_counts_and_two_of_one_generation_are_contested(claims: list[tuple[int, list[int]]]) -> None:
    owners = settle(LINE, claims)
    for place, owner in enumerate(owners):
        claiming = [(generation, member) for member, (generation, places) in enumerate(claims) if place in places]
        newest = [member for generation, member in claiming if generation == max(claiming)[0]]
        assert owner == (-1 if not newest else newest[0] if len(newest) == 1 else -2)


@settings(deadline=None)
@for_all(st.lists(st.integers(1, 7), min_size=1, max_size=5), st.integers(1, 6))
def test_the_short_way_of_a_first_assignment_gives_the_same(counts: list[int], members: int) -> None:
    topics = {f"t{number}": count for number, count in enumerate(counts)}
    line = Line(topics, topics)
    owners = [NOBODY] * line.size
    _balance_equal(owners, members)
    assert _first_shares(line, members) == _shares(line, owners, members)
