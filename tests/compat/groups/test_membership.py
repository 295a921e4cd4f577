"""Members come and go; the remaining ones take over their partitions."""

from __future__ import annotations

import pytest

from .conftest import MakeScenario
from .drivers import ALL, CLASSIC


@pytest.mark.parametrize("kind", ALL)
def test_a_group_grows_and_shrinks(make_scenario: MakeScenario, kind: str) -> None:
    group = make_scenario(6)
    group.feed()
    first = group.join(kind)
    assert len(group.settle()[first.options.client_id]) == 6
    group.flowing()
    second = group.join(kind)
    group.settle()
    third = group.join(kind)
    assert {len(owned) for owned in group.settle().values()} == {2}
    group.flowing()
    group.leave(second)
    group.settle()
    group.leave(first)  # in a classic group this is the leader
    assert len(group.settle()[third.options.client_id]) == 6
    group.finish()


@pytest.mark.parametrize("assignor", ["range", "roundrobin"])
def test_members_of_three_libraries_in_one_group(make_scenario: MakeScenario, assignor: str) -> None:
    """Each library leads once, and assigns partitions to the others."""
    group = make_scenario(6, 3)
    group.feed()
    members = [group.join(kind, assignor=assignor) for kind in CLASSIC]
    group.settle()
    group.flowing()
    # One after the other: a kafka-python member that misses a generation continues at its old positions.
    for kind, member in zip(CLASSIC, members, strict=True):
        group.leave(member)
        group.settle()
        group.join(kind, assignor=assignor)
        group.settle()
        group.flowing()
    group.finish()


@pytest.mark.parametrize("kind", ALL)
def test_more_members_than_partitions(make_scenario: MakeScenario, kind: str) -> None:
    """Members without partitions stay, and take over."""
    group = make_scenario(2)
    group.feed()
    for _ in range(4):
        group.join(kind)
    owned = group.settle()
    assert sorted(map(len, owned.values())) == [0, 0, 1, 1]
    for busy in [member for member in group.members if owned[member.options.client_id]]:
        group.leave(busy)
    assert set(map(len, group.settle().values())) == {1}
    group.finish()


@pytest.mark.parametrize("kind", ALL)
def test_members_with_different_subscriptions(make_scenario: MakeScenario, kind: str) -> None:
    """The partitions of a topic go to its subscribers only."""
    group = make_scenario(2, 2)
    one, other = group.topics
    group.feed()
    both = group.join(kind)
    group.settle()
    single = group.join(kind, topics=(other,))
    owned = group.settle(balanced=False)
    assert {tp.topic for tp in owned[single.options.client_id]} <= {other}
    assert {tp for tp in owned[both.options.client_id] if tp.topic == one} == {(one, 0), (one, 1)}
    group.leave(single)
    assert len(group.settle()[both.options.client_id]) == 4
    group.finish()
