"""Whatever happens to a consumer group, no partition has two owners, and a restart changes nothing."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import to_partitions
from unit.coordinator.consumer_context import (
    SESSION,
    ConsumerContext,
    having,
    member_record,
    rebalance_timer,
    session_timer,
)
from unit.coordinator.group_context import GROUP, AppendFailed

MEMBERS = st.sampled_from(["a", "b", "c", "d"])
TOPICS = st.lists(st.sampled_from(["orders", "users", "prices"]), unique=True).map(tuple)


def durable(group: ConsumerGroup) -> Mapping[str, object]:
    """All of a group's logged state, with its indexes."""
    logged = vars(group.logged)
    return {
        **logged,
        "subscriptions": dict(vars(group.logged.subscriptions)),
        "loads": list(group.logged.loads.fewest()),
        "_owners": {topic: owners for topic, owners in logged["_owners"].items() if owners},
    }


class ConsumerGroupMachine(RuleBasedStateMachine):
    """Members of a consumer group that do what they should late, twice, or not at all."""

    def __init__(self) -> None:
        super().__init__()
        self.context = ConsumerContext()
        self.owned: dict[str, dict[str, object]] = {}
        """The epoch and the partitions of each member, from its last response."""
        self.highest = 0

    def told(self, member: str, call: object) -> None:
        response = call.response  # type: ignore[attr-defined]
        if response.error_code:
            self.owned.pop(member, None)
            return
        have = self.owned.setdefault(member, {"epoch": 0, "partitions": ()})
        have["epoch"] = response.member_epoch
        if response.assignment is not None:
            have["partitions"] = response.assignment

    @rule(member=MEMBERS, topics=TOPICS)
    def join(self, member: str, topics: tuple[str, ...]) -> None:
        self.told(member, self.context.enroll(member, subscribed_topic_names=topics))

    @rule(member=MEMBERS, regex=st.sampled_from(["or.*", ".*s", "x"]))
    def join_by_regex(self, member: str, regex: str) -> None:
        call = self.context.enroll(member, subscribed_topic_names=None, subscribed_topic_regex=regex)
        self.told(member, call)

    @rule(member=MEMBERS, topics=TOPICS)
    def change_topics(self, member: str, topics: tuple[str, ...]) -> None:
        if member in self.owned:
            self.told(member, self.context.beat(member, self.owned[member]["epoch"], subscribed_topic_names=topics))

    @rule(member=MEMBERS, loses_answer=st.booleans())
    def beat(self, member: str, loses_answer: bool) -> None:
        if member in self.owned:
            have = self.owned[member]
            call = self.context.beat(member, have["epoch"], topic_partitions=have["partitions"])
            if not loses_answer or call.response.error_code:
                self.told(member, call)

    @rule(member=MEMBERS)
    def leave(self, member: str) -> None:
        if self.owned.pop(member, None) is not None:
            self.context.beat(member, -1)

    @rule(duration=st.sampled_from([0, 1_000, 11_000, 40_000]))
    def sleep(self, duration: int) -> None:
        self.context.sleep(duration)

    @rule(count=st.integers(1, 8), name=st.sampled_from(["orders", "users", "prices"]))
    def grow(self, count: int, name: str) -> None:
        old = self.context.topics.get(name)
        if old is None or old.partitions < count:
            self.context.grow(**{name: count})

    @precondition(lambda self: GROUP in self.context.coordinator.groups)
    @rule()
    def restart(self) -> None:
        before = durable(self.context.consumers)
        self.context.restart()
        assert durable(self.context.consumers) == before

    @invariant()
    def one_owner(self) -> None:
        seen: set[tuple[object, int]] = set()
        if GROUP not in self.context.coordinator.groups:
            return
        for member in self.context.consumers.members.values():
            for partitions in (member.assigned, member.pending_revocation):
                mine = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
                assert not mine & seen
                seen |= mine
                for topic, number in mine:
                    assert self.context.consumers.logged.owners_of(topic)[number] == member.member_id

    @invariant()
    def nobody_has_more_than_the_coordinator_thinks(self) -> None:
        """What members own according to their last responses never overlaps."""
        if GROUP not in self.context.coordinator.groups:
            return
        seen: set[tuple[object, int]] = set()
        for member, have in self.owned.items():
            if member in self.context.consumers.members:
                partitions = to_partitions(have["partitions"])  # type: ignore[arg-type]
                mine = {(topic, number) for topic, numbers in partitions.items() for number in numbers}
                assert not mine & seen, (mine & seen, self.owned)
                seen |= mine

    @invariant()
    def epochs_only_go_up(self) -> None:
        if GROUP in self.context.coordinator.groups:
            group = self.context.consumers
            assert group.group_epoch >= self.highest
            assert group.group_epoch >= group.logged.assignment_epoch
            self.highest = group.group_epoch

    def teardown(self) -> None:
        if GROUP not in self.context.coordinator.groups:
            return
        for _ in range(2):  # Expressions are resolved between two heartbeats.
            self.context.settle_consumers()
            self.context.now += 10_001
            self.context.sleep(0)
        self.context.settle_consumers()
        group = self.context.consumers
        assert group.state in ("Stable", "Empty")
        wanted = {
            (info.topic_id, number)
            for name, info in self.context.topics.items()
            if group.is_subscribed(name)
            for number in range(info.partitions)
        }
        has = {
            (topic, number)
            for member in group.members.values()
            for topic, numbers in member.assigned.items()
            for number in numbers
        }
        assert has == wanted


TestConsumerGroupMachine = ConsumerGroupMachine.TestCase
TestConsumerGroupMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_after_a_restart_every_member_has_a_whole_session_again() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    context.beat("a", 1)
    context.now += 40_000
    timers = context.restart().timers
    assert timers[session_timer("a")] == timers[session_timer("b")] == context.now + SESSION
    assert timers[rebalance_timer("a")] == context.now + 300_000
    assert rebalance_timer("b") not in timers
    assert context.beat("a", 1, topic_partitions=having(orders=[0, 1, 2])).response.member_epoch == 2


def test_a_record_of_an_older_broker_is_cleaned_up() -> None:
    context = ConsumerContext()
    context.enroll("a")
    key = r.ConsumerGroupPartitionMetadataKey(GROUP)
    context.coordinator.replay(r.CoordinatorRecord(key, r.ConsumerGroupPartitionMetadataValue(())))
    context.grow(orders=7)
    assert r.CoordinatorRecord(key, None) in context.beat("a", 1).records
    assert not context.consumers.logged.has_partition_metadata


def test_tombstones_of_groups_that_are_gone_are_passed_over() -> None:
    context = ConsumerContext()
    for key in (
        r.ConsumerGroupMetadataKey(GROUP),
        r.ConsumerGroupPartitionMetadataKey(GROUP),
        r.ConsumerGroupMemberMetadataKey(GROUP, "a"),
        r.ConsumerGroupTargetAssignmentMetadataKey(GROUP),
        r.ConsumerGroupTargetAssignmentMemberKey(GROUP, "a"),
        r.ConsumerGroupCurrentMemberAssignmentKey(GROUP, "a"),
        r.ConsumerGroupRegularExpressionKey(GROUP, "x"),
    ):
        context.coordinator.replay(r.CoordinatorRecord(key, None))
    assert context.coordinator.groups == {}


def test_offsets_that_come_before_the_group_in_the_log_are_its_own() -> None:
    context = ConsumerContext()
    context.commit()
    context.enroll("a")
    assert context.committed().offset == 100
    context.restart()
    assert context.described().group_state == "Stable"
    assert context.committed().offset == 100


def test_a_join_that_was_not_written_leaves_no_group() -> None:
    context = ConsumerContext()
    context.append_fails = True
    with pytest.raises(AppendFailed):
        context.enroll("a")
    assert context.coordinator.groups == {}
    context.append_fails = False
    call = context.enroll("b")
    assert (call.error_code, call.records[0]) == (0, member_record("b"))
    assert list(context.consumers.members) == ["b"]
    assert context.beat("a", 1).error_code == errors.UnknownMemberId.code
