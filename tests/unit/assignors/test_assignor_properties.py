"""Properties of every assignor for every group."""

from __future__ import annotations

import random
from itertools import product

import pytest
from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from ottla.assignors import (
    Assignor,
    BroadcastAssignor,
    CooperativeStickyAssignor,
    RandomAssignor,
    RangeAssignor,
    RoundRobinAssignor,
    StickyAssignor,
    Subscription,
    UniformAssignor,
)
from ottla.assignors.sticky import encode_user_data
from unit.assignors.groups import Group, flat, given, groups, moves, sizes, unevenness

SHARING = [RangeAssignor, RoundRobinAssignor, StickyAssignor, UniformAssignor, lambda: RandomAssignor(lambda n: n - 1)]


def wanted(group: Group) -> set[tuple[str, int]]:
    subscribed = {topic for topics in group.topics.values() for topic in topics}
    return {(topic, number) for topic in subscribed for number in range(group.partitions[topic])}


def sticky_subscriptions(group: Group) -> dict[str, Subscription]:
    return {
        member: Subscription(topics, user_data=encode_user_data(group.owned[member], 3))
        for member, topics in group.topics.items()
    }


def valid_owned(group: Group) -> dict[str, dict[str, list[int]]]:
    return {
        member: {topic: numbers for topic, numbers in had.items() if topic in group.topics[member]}
        for member, had in group.owned.items()
    }


@pytest.mark.parametrize("make", SHARING)
@for_all(group=groups())
def test_every_partition_has_exactly_one_subscriber(make: type[Assignor], group: Group) -> None:
    result = given(make().assign(group.partitions, group.subscriptions()))
    assert result.keys() == group.topics.keys()
    everything = [each for partitions in result.values() for each in flat(partitions)]
    assert sorted(everything) == sorted(wanted(group))
    for member, partitions in result.items():
        assert partitions.keys() <= set(group.topics[member])


@pytest.mark.parametrize("make", [*SHARING, CooperativeStickyAssignor, BroadcastAssignor])
@for_all(group=groups(), seed=st.integers(0, 2**32))
def test_the_order_of_the_input_does_not_matter(make: type[Assignor], group: Group, seed: int) -> None:
    chance = random.Random(seed)

    def shuffled(mapping: dict[str, object]) -> dict[str, object]:
        items = list(mapping.items())
        chance.shuffle(items)
        return dict(items)

    other = {
        member: Subscription(chance.sample(told.topics, len(told.topics)), None, shuffled(told.owned_partitions), 3)
        for member, told in shuffled(group.subscriptions()).items()
    }
    one = make().assign(group.partitions, group.subscriptions())
    assert given(make().assign(shuffled(group.partitions), other)) == given(one)


@pytest.mark.parametrize("make", [StickyAssignor, UniformAssignor])
@for_all(group=groups())
def test_equal_subscriptions_differ_by_one_partition_at_most(make: type[Assignor], group: Group) -> None:
    same = Group(group.partitions, dict.fromkeys(group.topics, tuple(group.partitions)), group.owned)
    result = given(make().assign(same.partitions, {**same.subscriptions(), **sticky_subscriptions(same)}))
    assert max(sizes(result).values()) - min(sizes(result).values()) <= 1


def best(group: Group) -> tuple[int, int]:
    """Return the least unevenness, and the fewest moves for it, by trying everything."""
    partitions = sorted(wanted(group))
    takers = [[member for member, topics in group.topics.items() if topic in topics] for topic, _ in partitions]
    owner = {each: member for member, had in valid_owned(group).items() for each in flat(had)}
    results = []
    for choice in product(*takers):
        loads = [choice.count(member) for member in group.topics]
        uneven = sum(abs(one - other) for at, one in enumerate(loads) for other in loads[at + 1 :])
        moved = sum(owner.get(each, taker) != taker for each, taker in zip(partitions, choice, strict=True))
        results.append((uneven, moved))
    return min(results)


@settings(max_examples=150)
@for_all(group=groups(max_topics=3, max_members=3, max_partitions=2))
def test_sticky_is_as_even_as_can_be_and_then_moves_the_fewest(group: Group) -> None:
    result = given(StickyAssignor().assign(group.partitions, sticky_subscriptions(group)))
    assert (unevenness(result), moves(valid_owned(group), result)) == best(group)
    assert given(UniformAssignor().assign(group.partitions, group.subscriptions())) == result


@for_all(group=groups())
def test_sticky_moves_nothing_when_nothing_has_changed(group: Group) -> None:
    first = given(StickyAssignor().assign(group.partitions, sticky_subscriptions(group)))
    settled = Group(group.partitions, group.topics, {member: dict(had) for member, had in first.items()})
    assert given(StickyAssignor().assign(group.partitions, sticky_subscriptions(settled))) == first


@for_all(group=groups())
def test_cooperative_sticky_gives_nothing_that_another_member_has_and_settles_in_two_rounds(group: Group) -> None:
    assignor = CooperativeStickyAssignor()
    first = given(assignor.assign(group.partitions, group.subscriptions()))
    for member, partitions in first.items():
        for other, had in group.owned.items():
            assert other == member or not flat(partitions) & flat(had)

    revoked = Group(group.partitions, group.topics, {member: dict(had) for member, had in first.items()})
    second = given(assignor.assign(group.partitions, revoked.subscriptions()))
    assert sorted(each for partitions in second.values() for each in flat(partitions)) == sorted(wanted(group))
    assert unevenness(second) == unevenness(
        given(StickyAssignor().assign(group.partitions, sticky_subscriptions(group)))
    )


def test_static_members_come_first_by_their_instance_id() -> None:
    subscriptions = {
        "a": Subscription(["t"]),
        "z": Subscription(["t"], group_instance_id="i1"),
        "y": Subscription(["t"], group_instance_id="i2"),
    }
    for make in (RangeAssignor, RoundRobinAssignor):
        assert given(make().assign({"t": 3}, subscriptions)) == {"z": {"t": [0]}, "y": {"t": [1]}, "a": {"t": [2]}}


def test_a_chain_of_moves_evens_out_what_single_moves_cannot() -> None:
    # m0 can only give to m1, and m1 only to m2: 3, 2, 1 becomes 2, 2, 2.
    subscriptions = {
        "m0": Subscription(["a"], owned_partitions={"a": [0, 1, 2]}),
        "m1": Subscription(["a", "b"], owned_partitions={"b": [0, 1]}),
        "m2": Subscription(["b"], owned_partitions={"b": [2]}),
    }
    result = given(UniformAssignor().assign({"a": 3, "b": 3}, subscriptions))
    assert result == {"m0": {"a": (0, 1)}, "m1": {"b": (0,), "a": (2,)}, "m2": {"b": (1, 2)}}


def test_broadcast_gives_every_member_everything_that_it_subscribes_to() -> None:
    subscriptions = {"a": Subscription(["t", "u", "gone"]), "b": Subscription(["t"])}
    assert given(BroadcastAssignor().assign({"t": 2, "u": 1}, subscriptions)) == {
        "a": {"t": [0, 1], "u": [0]},
        "b": {"t": [0, 1]},
    }


def test_random_draws_an_owner_for_each_partition() -> None:
    draws = iter([1, 0, 1])
    subscriptions = {"a": Subscription(["t"]), "b": Subscription(["t"])}
    result = given(RandomAssignor(lambda n: next(draws)).assign({"t": 3}, subscriptions))
    assert result == {"a": {"t": [1]}, "b": {"t": [0, 2]}}
