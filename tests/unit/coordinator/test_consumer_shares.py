"""The short way to the target of a large group comes to the same as the assignor."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.assignors import Subscription, UniformAssignor
from ottla.assignors.balance import sorted_members
from ottla.coordinator.consumer_member import Partitions
from ottla.coordinator.consumer_shares import even_shares

NAMES = ["orders", "payments", "users"]
IDS = {name: UUID(int=number) for number, name in enumerate(NAMES, 1)}


def shares_of(
    members: list[str], target: Mapping[str, Partitions], topics: list[tuple[UUID, int]]
) -> dict[str, Partitions] | None:
    """The target after `even_shares`, which says what changes in it."""
    loads = {member: sum(map(len, share.values())) for member, share in target.items()}
    target_topics = {topic_id for share in target.values() for topic_id in share}
    changed = even_shares(sorted_members(members), target, topics, loads, target_topics)
    if changed is None:
        return None
    assert changed.keys() <= set(members)
    assert all(target.get(member) != share for member, share in changed.items())
    return {member: changed.get(member, target.get(member, {})) for member in members}


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
    for _ in range(data.draw(st.integers(1, 6))):
        members = data.draw(st.lists(st.sampled_from("abcdefgh\u00fc"), min_size=1, max_size=9, unique=True))
        counts = {name: count + data.draw(st.sampled_from([0, 0, 0, 2])) for name, count in counts.items()}
        topics = [(IDS[name], count) for name, count in counts.items()]
        shares = shares_of(members, target, topics)
        assert shares == assigned(members, target, counts)
        target = shares


def test_a_topic_that_has_gone_is_left_to_the_assignor() -> None:
    assert shares_of(["a"], {"a": {UUID(int=9): frozenset({0})}}, [(IDS["orders"], 3)]) is None


def test_members_that_keep_their_share_keep_the_very_same() -> None:
    target = shares_of(["a", "b", "c"], {}, [(IDS["orders"], 7)])
    assert target is not None
    again = shares_of(["a", "b", "c", "d"], target, [(IDS["orders"], 7)])
    assert again is not None
    assert again["b"] is target["b"]
