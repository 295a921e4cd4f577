"""The logged state of a consumer group: its indexes are what a look at all members and targets would find."""

from __future__ import annotations

from collections import Counter
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.assignors.base import java_order
from ottla.coordinator import records as r
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Member, MemberState

MEMBERS = st.sampled_from(["a", "b", "\uffff", "\U00010000"])
PARTITIONS = st.dictionaries(st.sampled_from([UUID(int=1), UUID(int=2)]), st.sets(st.integers(0, 9)), max_size=2).map(
    lambda found: tuple(r.TopicPartitions(topic_id, tuple(numbers)) for topic_id, numbers in found.items())
)
TARGETS = st.builds(r.ConsumerGroupTargetAssignmentMemberValue, PARTITIONS)
CURRENTS = st.builds(
    r.ConsumerGroupCurrentMemberAssignmentValue,
    st.integers(0, 3),
    st.just(0),
    st.sampled_from([0, 1, 2]),
    PARTITIONS,
    PARTITIONS,
)
METADATA = st.builds(
    r.ConsumerGroupMemberMetadataValue,
    st.none(), st.none(), st.just("c"), st.just("h"), st.sampled_from([(), ("t",), ("t", "u")]),
    st.sampled_from([None, "x"]),
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just(r.ConsumerGroupTargetAssignmentMemberKey), MEMBERS, st.none() | TARGETS),
    st.tuples(st.just(r.ConsumerGroupCurrentMemberAssignmentKey), MEMBERS, st.none() | CURRENTS),
    st.tuples(st.just(r.ConsumerGroupMemberMetadataKey), MEMBERS, st.none() | METADATA),
)


def places_of(member: Member | None) -> set[tuple[UUID, int]]:
    had = () if member is None else (*member.assigned.items(), *member.pending_revocation.items())
    return {(topic_id, number) for topic_id, numbers in had for number in numbers}


@given(st.lists(STEPS, max_size=40))
def test_the_owner_of_a_partition_is_who_got_it_last(steps: list[tuple[Any, str, object]]) -> None:
    group = LoggedGroup("g")
    owners: dict[tuple[UUID, int], str] = {}
    for key_type, member_id, value in steps:
        had = places_of(group.members.get(member_id))
        group.replay(key_type("g", member_id), value)
        has = places_of(group.members.get(member_id))
        if key_type is not r.ConsumerGroupTargetAssignmentMemberKey:
            owners = {place: each for place, each in owners.items() if place not in had or each != member_id}
            owners |= dict.fromkeys(has, member_id)
        for place in [(UUID(int=topic), number) for topic in (1, 2) for number in range(10)]:
            assert group.owners_of(place[0]).get(place[1]) == owners.get(place)


@given(st.lists(STEPS, max_size=40))
def test_counts_follow_the_records(steps: list[tuple[Any, str, object]]) -> None:
    group = LoggedGroup("g")
    for key_type, member_id, value in steps:
        group.replay(key_type("g", member_id), value)
        members = group.members.values()
        expected = {each: sum(map(len, group.target.get(each, {}).values())) for each in group.members}
        assert list(group.loads.fewest()) == sorted((load, java_order(each)) for each, load in expected.items())
        assert (len(group.loads), group.loads.total) == (len(expected), sum(expected.values()))
        assert group.target_topics == Counter(topic_id for share in group.target.values() for topic_id in share)
        assert group.subscriptions.same == Counter(member.subscription for member in members)
        assert group.subscriptions.names == Counter(
            name for member in members for name in member.subscribed_topic_names
        )
        settled = {
            (member.member_epoch if member.state is MemberState.STABLE else None, member.member_id)
            for member in members
        }
        assert {(epoch, each) for epoch, all_ in group.settled.items() for each in all_} == settled
        assert all(group.settled.values())
