"""The fast computation of even shares has the same result as the assignor."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.assignors import Subscription, UniformAssignor
from ottla.assignors.balance import sorted_members
from ottla.assignors.base import java_order
from ottla.coordinator.consumer.member import Partitions
from ottla.coordinator.consumer.shares import Loads, even_shares

MEMBERS = ["a", "b", "c", "d", "e", "f", "g", "h", "\u00fc", "\uffff", "\U00010000"]
NAMES = ["orders", "payments", "users"]
IDS = {name: UUID(int=number) for number, name in enumerate(NAMES, 1)}


def shares_of(
    members: list[str], target: Mapping[str, Partitions], topics: list[tuple[UUID, int]]
) -> dict[str, Partitions] | None:
    """Return the next target. At most one member is new; those that are not in it have left."""
    present = {member: target[member] for member in members if member in target}
    loads = Loads()
    for member, share in present.items():
        loads.set(member, sum(map(len, share.values())))
    joining = next((member for member in members if member not in present), None)
    target_topics = {topic_id for share in present.values() for topic_id in share}
    changed = even_shares(loads, joining, present, topics, target_topics)
    if changed is None:
        return None
    assert all(present.get(member) != share for member, share in changed.items())
    return {member: {**present, **changed}[member] for member in members}


def assigned(members: list[str], target: Mapping[str, Partitions], counts: Mapping[str, int]) -> dict[str, Partitions]:
    name_of = {topic_id: name for name, topic_id in IDS.items()}
    subscriptions = {
        member: Subscription(list(counts), None, {name_of[t]: n for t, n in target.get(member, {}).items()}, 1)
        for member in members
    }
    given = UniformAssignor().assign(counts, subscriptions)
    return {
        member: {IDS[name]: frozenset(numbers) for name, numbers in each.partitions.items() if numbers}
        for member, each in given.items()
    }


@given(st.data())
def test_members_that_come_and_go_are_given_what_the_assignor_gives(data: st.DataObject) -> None:
    counts = {name: data.draw(st.integers(0, 7), name) for name in sorted(data.draw(st.sets(st.sampled_from(NAMES))))}
    target: dict[str, Partitions] = {}
    for _ in range(data.draw(st.integers(1, 16))):
        staying = [member for member in target if data.draw(st.sampled_from([True, True, True, False]))]
        others = [member for member in MEMBERS if member not in staying]
        members = staying + [data.draw(st.sampled_from(others)) for _ in range(data.draw(st.integers(not staying, 1)))]
        counts = {name: count + data.draw(st.sampled_from([0, 0, 0, 2])) for name, count in counts.items()}
        topics = [(IDS[name], count) for name, count in counts.items()]
        shares = shares_of(members, target, topics)
        assert shares == assigned(members, target, counts)
        target = shares


def test_a_topic_that_has_gone_is_left_to_the_assignor() -> None:
    assert shares_of(["a"], {"a": {UUID(int=9): frozenset({0})}}, [(IDS["orders"], 3)]) is None


def test_members_that_keep_their_share_are_not_touched() -> None:
    target: dict[str, Partitions] = {}
    for members in ("a", "ab", "abc"):
        target = shares_of(list(members), target, [(IDS["orders"], 7)]) or {}
    again = shares_of(["a", "b", "c", "d"], target, [(IDS["orders"], 7)])
    assert again is not None
    assert again["b"] is target["b"]


@given(st.lists(st.tuples(st.sampled_from(MEMBERS), st.none() | st.integers(0, 4)), max_size=30))
def test_loads_know_who_has_the_fewest_and_who_has_too_much(steps: list[tuple[str, int | None]]) -> None:
    loads, expected = Loads(), dict[str, int]()
    for member, load in steps:
        if load is not None:
            loads.set(member, load)
            expected[member] = load
        elif expected.pop(member, None) is not None:
            loads.drop(member)
    order = sorted_members(expected)
    assert (len(loads), loads.total) == (len(expected), sum(expected.values()))
    assert [(load, key) for load, key in loads.fewest()] == sorted((expected[each], java_order(each)) for each in order)
    for each in range(4):
        for more in range(len(expected) + 1):
            above = [member for member in order if expected[member] > each]
            quotas = [(member, each + (rank < more)) for rank, member in enumerate(above)]
            assert dict(loads.cuts(each, more)) == {
                member: quota for member, quota in quotas if expected[member] > quota
            }
