"""Members join a consumer group, and partitions move between them without ever having two owners."""

from __future__ import annotations

import gc

import pytest

from ottla import errors
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import MemberState
from ottla.coordinator.consumer.messages import ConsumerHeartbeatResponse
from ottla.coordinator.consumer.topics import metadata_hash
from unit.coordinator.consumer_context import (
    REBALANCE,
    SESSION,
    ConsumerContext,
    current_record,
    epoch_record,
    having,
    member_record,
    rebalance_timer,
    session_timer,
    target_epoch_record,
    target_record,
)
from unit.coordinator.group_context import START


def test_the_first_member_makes_the_group_and_gets_everything_at_once() -> None:
    context = ConsumerContext()
    call = context.enroll("a")
    assert call.response == ConsumerHeartbeatResponse(
        member_id="a", member_epoch=1, heartbeat_interval=5_000, assignment=having(orders=[0, 1, 2, 3, 4, 5])
    )
    assert call.records == [
        member_record("a"),
        epoch_record(1, metadata_hash(["orders"], context.topics)),
        target_record("a", orders=[0, 1, 2, 3, 4, 5]),
        target_epoch_record(1),
        current_record("a", 1, 0, assigned=having(orders=[0, 1, 2, 3, 4, 5])),
    ]
    assert call.timers == {session_timer("a"): START + SESSION}
    assert context.described().group_state == "Stable"


def test_a_member_of_version_0_is_given_its_id() -> None:
    context = ConsumerContext()
    assert context.enroll("", requires_member_id=False).response.member_id == "id-1"
    assert list(context.consumers.members) == ["id-1"]


def test_a_second_member_waits_until_the_first_has_given_up_its_share() -> None:
    context = ConsumerContext()
    context.enroll("a")
    call = context.enroll("b")
    assert (call.response.member_epoch, call.response.assignment) == (2, ())
    assert call.records == [
        member_record("b"),
        epoch_record(2, metadata_hash(["orders"], context.topics)),
        target_record("a", orders=[0, 1, 2]),
        target_record("b", orders=[3, 4, 5]),
        target_epoch_record(2),
        current_record("b", 2, 0, state=MemberState.UNRELEASED_PARTITIONS),
    ]
    assert context.described().group_state == "Reconciling"

    # The first is told what it may keep, and stays in its epoch until it says that it has no more than that.
    call = context.beat("a", 1)
    assert (call.response.member_epoch, call.response.assignment) == (1, having(orders=[0, 1, 2]))
    assert call.records == [
        current_record(
            "a",
            1,
            1,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=having(orders=[0, 1, 2]),
            revoking=having(orders=[3, 4, 5]),
        )
    ]
    assert call.timers == {rebalance_timer("a"): START + REBALANCE}

    # Nothing moves for the second meanwhile, nor while the first still has some of it.
    assert context.beat("b", 2).records == [current_record("b", 2, 2, state=MemberState.UNRELEASED_PARTITIONS)]
    assert context.beat("b", 2).records == []
    still = context.beat("a", 1, topic_partitions=having(orders=[0, 1, 2, 3]))
    assert (still.records, still.response.assignment, still.timers) == ([], None, {})

    call = context.beat("a", 1, topic_partitions=having(orders=[0, 1, 2]))
    assert (call.response.member_epoch, call.response.assignment) == (2, None)
    assert call.records == [current_record("a", 2, 1, assigned=having(orders=[0, 1, 2]))]
    assert call.timers == {rebalance_timer("a"): None}

    call = context.beat("b", 2)
    assert (call.response.member_epoch, call.response.assignment) == (2, having(orders=[3, 4, 5]))
    assert call.records == [current_record("b", 2, 2, assigned=having(orders=[3, 4, 5]))]
    assert context.described().group_state == "Stable"


def test_a_heartbeat_with_nothing_new_writes_nothing_and_sets_no_timer() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.now += 5_000
    call = context.beat("a", 1)
    assert call.response == ConsumerHeartbeatResponse(member_id="a", member_epoch=1, heartbeat_interval=5_000)
    assert (call.outcome.records, call.outcome.timers) == ((), ())


def test_a_full_heartbeat_is_told_the_whole_assignment() -> None:
    context = ConsumerContext()
    context.enroll("a")
    owned = having(orders=[0, 1, 2, 3, 4, 5])
    call = context.beat("a", 1, rebalance_timeout=REBALANCE, subscribed_topic_names=("orders",), topic_partitions=owned)
    assert (call.response.assignment, call.records) == (owned, [])


def test_members_that_take_over_from_one_that_left_need_no_revocation() -> None:
    context = ConsumerContext()
    context.enroll("a")
    context.enroll("b")
    context.settle_consumers()
    context.beat("b", -1)
    call = context.beat("a", 2)
    assert (call.response.member_epoch, call.response.assignment) == (3, having(orders=[0, 1, 2, 3, 4, 5]))
    assert call.records == [
        target_record("a", orders=[0, 1, 2, 3, 4, 5]),
        target_epoch_record(3),
        current_record("a", 3, 2, assigned=having(orders=[0, 1, 2, 3, 4, 5])),
    ]


def test_partitions_that_are_free_are_given_while_others_are_waited_for() -> None:
    context = ConsumerContext()
    context.enroll("a")
    call = context.enroll("b", "orders", "users")
    assert call.response.assignment == having(users=[0, 1, 2])
    assert context.consumers.members["b"].state is MemberState.UNRELEASED_PARTITIONS


def test_a_member_that_changes_its_topics_gives_up_the_old_ones_first() -> None:
    context = ConsumerContext()
    context.enroll("a")
    call = context.beat("a", 1, subscribed_topic_names=("users",))
    assert (call.response.member_epoch, call.response.assignment) == (1, ())
    assert call.records == [
        member_record("a", "users"),
        epoch_record(2, metadata_hash(["users"], context.topics)),
        target_record("a", users=[0, 1, 2]),
        target_epoch_record(2),
        current_record("a", 1, 1, state=MemberState.UNREVOKED_PARTITIONS, revoking=having(orders=[0, 1, 2, 3, 4, 5])),
    ]
    call = context.beat("a", 1, topic_partitions=())
    assert (call.response.member_epoch, call.response.assignment) == (2, having(users=[0, 1, 2]))


def test_a_change_of_anything_else_is_written_without_a_rebalance() -> None:
    context = ConsumerContext()
    context.enroll("a")
    call = context.beat("a", 1, rack_id="r1", client_host="/127.0.0.2")
    assert call.records == [member_record("a", rack_id="r1", client_host="/127.0.0.2")]
    assert context.described().group_epoch == 1


def test_a_topic_that_does_not_exist_gives_nothing_until_it_does() -> None:
    context = ConsumerContext()
    assert context.enroll("a", "prices").response.assignment == ()
    context.grow(prices=2)
    assert context.beat("a", 1).response.assignment == having(prices=[0, 1])


def test_a_member_may_subscribe_to_nothing() -> None:
    context = ConsumerContext()
    context.enroll("a")
    call = context.enroll("b", subscribed_topic_names=())
    assert (call.response.member_epoch, call.response.assignment) == (1, ())
    assert call.records == [member_record("b", subscribed_topic_names=()), current_record("b", 1, 0)]


def test_a_group_that_is_full_takes_nobody_but_its_members() -> None:
    context = ConsumerContext(GroupConfig(group_consumer_max_size=1))
    context.enroll("a")
    call = context.enroll("b")
    assert call.response == ConsumerHeartbeatResponse(
        error_code=errors.GroupMaxSizeReached.code,
        error_message="The consumer group has reached its maximum capacity of 1 members.",
    )
    assert call.outcome.records == ()
    assert context.enroll("a").error_code == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"group_id": "  "}, "GroupId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": ""}, "RackId can't be empty."),
        ({"rebalance_timeout": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"topic_partitions": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"topic_partitions": having(orders=[0])}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"member_epoch": -3}, "MemberEpoch is invalid."),
        ({"member_epoch": -2}, "InstanceId can't be null."),
    ],
)
def test_a_malformed_request_is_told_what_is_wrong(changes: dict[str, object], message: str) -> None:
    context = ConsumerContext()
    call = context.enroll("a", **changes)
    assert (call.error_code, call.response.error_message) == (errors.InvalidRequest.code, message)
    assert call.outcome.records == ()


def test_groups_whose_first_member_was_refused_are_not_remembered() -> None:
    context = ConsumerContext()
    for number in range(10):
        call = context.enroll("a", group_id=f"group-{number}", subscribed_topic_names=None, subscribed_topic_regex="(")
        assert call.error_code == errors.InvalidRegularExpression.code
    gc.collect()
    shard = context.coordinator.shard
    assert not [each for each in gc.get_objects() if isinstance(each, ConsumerGroup) and each.shard is shard]
