"""Consumer groups are listed, described and deleted, and their offsets expire."""

from __future__ import annotations

import pytest

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.messages import DescribedConsumer, DescribedConsumerGroup, NamedPartitions
from unit.coordinator.consumer_context import ORDERS, ConsumerContext
from unit.coordinator.group_context import GROUP


def test_a_group_is_described_with_what_its_members_have_and_will_have() -> None:
    context = ConsumerContext()
    context.enroll("a", rack_id="r1", instance_id="x")
    context.enroll("b")
    everything = NamedPartitions(ORDERS, "orders", (0, 1, 2, 3, 4, 5))
    common = {
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": ("orders",),
        "subscribed_topic_regex": "",
        "member_type": 1,
    }
    assert context.described() == DescribedConsumerGroup(
        group_id=GROUP,
        group_state="Reconciling",
        group_epoch=2,
        assignment_epoch=2,
        assignor_name="uniform",
        members=(
            DescribedConsumer(
                member_id="a",
                instance_id="x",
                rack_id="r1",
                member_epoch=1,
                assignment=(everything,),
                target_assignment=(everything._replace(partitions=(0, 1, 2)),),
                **common,
            ),
            DescribedConsumer(
                member_id="b",
                instance_id=None,
                rack_id=None,
                member_epoch=2,
                assignment=(),
                target_assignment=(everything._replace(partitions=(3, 4, 5)),),
                **common,
            ),
        ),
    )


def test_a_group_that_is_not_there_or_of_another_kind_is_not_described() -> None:
    context = ConsumerContext()
    assert context.described() == DescribedConsumerGroup(
        group_id=GROUP, error_code=errors.GroupIdNotFound.code, error_message="Group billing not found."
    )
    context.enter("client")
    assert context.described().error_message == "Group billing is not a consumer group."


def test_the_empty_group_id_is_no_consumer_group() -> None:
    context = ConsumerContext()
    answer = context.run(context.coordinator.describe_consumer, "").response
    assert answer == DescribedConsumerGroup(group_id="", error_code=errors.InvalidGroupId.code)


def test_groups_are_listed_by_type_and_state() -> None:
    context = ConsumerContext()
    context.enroll("a")

    def listed(**filters: tuple[str, ...]) -> object:
        return context.run(context.coordinator.list_groups, **filters).response

    billing = m.ListedGroup(GROUP, "consumer", "Stable", "Consumer")
    assert listed() == listed(types=("consumer",)) == listed(states=("stable",)) == (billing,)
    assert listed(types=("classic",)) == listed(states=("empty",)) == ()


def test_a_group_goes_through_its_states() -> None:
    context = ConsumerContext()
    context.enroll("a")
    states = [context.described().group_state]
    context.enroll("b")
    states.append(context.described().group_state)
    context.beat("b", -1)
    states.append(context.described().group_state)
    context.beat("a", -1)
    states.append(context.described().group_state)
    assert states == ["Stable", "Reconciling", "Assigning", "Empty"]


def test_describe_groups_of_the_classic_protocol_does_not_know_it() -> None:
    context = ConsumerContext()
    context.enroll("a")
    described = context.run(context.coordinator.describe, GROUP).response
    assert (described.error_code, described.state) == (errors.GroupIdNotFound.code, "Dead")


def test_an_empty_group_is_deleted_with_everything_that_it_wrote() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.commit(member_id="a", generation_id=1)
    assert context.run(context.coordinator.delete_groups, [GROUP]).response == (
        m.DeletedGroup(GROUP, errors.NonEmptyGroup.code),
    )
    context.beat("a", -1)
    call = context.run(context.coordinator.delete_groups, [GROUP])
    assert call.response == (m.DeletedGroup(GROUP),)
    assert call.records == [
        r.CoordinatorRecord(r.OffsetCommitKey(GROUP, "orders", 0), None),
        r.CoordinatorRecord(r.ConsumerGroupTargetAssignmentMetadataKey(GROUP), None),
        r.CoordinatorRecord(r.ConsumerGroupPartitionMetadataKey(GROUP), None),
        r.CoordinatorRecord(r.ConsumerGroupMetadataKey(GROUP), None),
    ]
    assert context.coordinator.groups == {}
    context.restart()
    assert context.coordinator.groups == {}


def test_offsets_of_a_subscribed_topic_are_not_deleted() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.commit(member_id="a", generation_id=1)
    context.commit("users", member_id="a", generation_id=1)
    request = m.DeleteOffsetsRequest(group_id=GROUP, partitions=(("orders", 0), ("users", 0)))
    call = context.run(context.coordinator.delete_offsets, request)
    assert [each.error_code for each in call.response.partitions] == [errors.GroupSubscribedToTopic.code, 0]


def test_offsets_of_topics_that_nobody_reads_expire_and_an_empty_group_goes_with_them() -> None:
    context = ConsumerContext(GroupConfig(offsets_retention_ms=100_000, offsets_retention_check_interval_ms=60_000))
    context.restart()
    context.enroll("a", "users")
    context.commit(member_id="a", generation_id=1)
    context.commit("users", member_id="a", generation_id=1)
    for _ in range(5):
        context.sleep(24_000)
        context.beat("a", 1)
    assert (context.committed().offset, context.committed("users").offset) == (-1, 100)
    context.beat("a", -1)
    context.sleep(60_000)
    assert context.coordinator.groups == {}


def test_the_members_may_be_removed_by_an_administrator() -> None:
    context = ConsumerContext()
    context.enroll("a", instance_id="x")
    context.enroll("b")
    call = context.leave(
        m.LeavingMember("", "x"), m.LeavingMember("b"), m.LeavingMember("z"), m.LeavingMember("y-1", "x")
    )
    unknown, fenced = errors.UnknownMemberId.code, errors.FencedInstanceId.code
    assert [member.error_code for member in call.response.members] == [0, 0, unknown, fenced]
    assert context.described().group_state == "Empty"


@pytest.mark.parametrize("operation", ["sync", "heartbeat"])
def test_a_member_of_the_consumer_protocol_has_no_generation(operation: str) -> None:
    context = ConsumerContext()
    context.enroll("a")
    assert getattr(context, operation)("a", 1).error_code == errors.UnknownMemberId.code
