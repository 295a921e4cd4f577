"""What a consumer group counts along is what a look at all members and targets would find."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer_member import MemberState
from ottla.coordinator.consumer_state import ConsumerState
from ottla.coordinator.group import Shard

MEMBERS = st.sampled_from("abcd")
PARTITIONS = st.dictionaries(st.sampled_from([UUID(int=1), UUID(int=2)]), st.sets(st.integers(0, 9)), max_size=2).map(
    lambda found: tuple(r.TopicPartitions(topic_id, tuple(numbers)) for topic_id, numbers in found.items())
)
TARGETS = st.builds(r.ConsumerGroupTargetAssignmentMemberValue, PARTITIONS)
CURRENTS = st.builds(
    r.ConsumerGroupCurrentMemberAssignmentValue, st.integers(0, 3), st.just(0), st.sampled_from([0, 1, 2]), PARTITIONS
)
METADATA = st.builds(
    r.ConsumerGroupMemberMetadataValue,
    st.none(), st.none(), st.just("c"), st.just("h"), st.sampled_from([(), ("t",), ("t", "u")]),
    st.sampled_from([None, "x"]),
)  # fmt: skip
STEPS = st.one_of(
    st.tuples(st.just("replay_target"), MEMBERS, st.none() | TARGETS),
    st.tuples(st.just("replay_current"), MEMBERS, st.none() | CURRENTS),
    st.tuples(st.just("replay_member"), MEMBERS, st.none() | METADATA),
)


@given(st.lists(STEPS, max_size=40))
def test_counts_follow_the_records(steps: list[tuple[str, str, object]]) -> None:
    group = ConsumerState(Shard(GroupConfig(), lambda: "id", dict, lambda _: None), "g")
    for step, member_id, value in steps:
        getattr(group, step)(member_id, value)
        members = group.members.values()
        assert group.target_loads == {each: sum(map(len, share.values())) for each, share in group.target.items()}
        assert group.target_topics == Counter(topic_id for share in group.target.values() for topic_id in share)
        assert group.subscriptions == Counter(member.subscription for member in members)
        assert group.names == Counter(name for member in members for name in member.subscribed_topic_names)
        settled = [(member.member_epoch, member.member_id) for member in members if member.state is MemberState.STABLE]
        assert sorted((epoch, each) for epoch, all_ in group.settled.items() for each in all_) == sorted(settled)
