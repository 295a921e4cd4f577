"""Static members of a consumer group keep their partitions when they leave for a while."""

from __future__ import annotations

import pytest

from ottla import errors
from ottla.coordinator.consumer.member import MemberState
from ottla.coordinator.consumer.messages import ConsumerHeartbeatResponse
from unit.coordinator.consumer_context import (
    SESSION,
    ConsumerContext,
    current_record,
    having,
    member_record,
    session_timer,
    target_record,
    tombstones,
)
from unit.coordinator.group_context import START


def group_of_static(*instances: str) -> ConsumerContext:
    context = ConsumerContext()
    for instance in instances:
        context.enroll(f"{instance}-1", instance_id=instance)
    context.settle_consumers()
    return context


def test_a_static_member_that_goes_for_a_while_keeps_its_partitions() -> None:
    context = group_of_static("x", "y")
    call = context.beat("x-1", -2, instance_id="x")
    assert call.response == ConsumerHeartbeatResponse(member_id="x-1", member_epoch=-2)
    assert call.records == [current_record("x-1", -2, 1, assigned=having(orders=[0, 1, 2]))]
    assert context.beat("y-1", 2, instance_id="y").records == []
    assert context.described().group_epoch == 2


def test_it_returns_under_a_new_id_and_nothing_moves() -> None:
    context = group_of_static("x", "y")
    context.beat("x-1", -2, instance_id="x")
    call = context.enroll("x-2", instance_id="x")
    assert (call.response.member_epoch, call.response.assignment) == (2, having(orders=[0, 1, 2]))
    assert call.records == [
        *tombstones("x-1"),
        member_record("x-2", instance_id="x"),
        target_record("x-2", orders=[0, 1, 2]),
        current_record("x-2", 0, 0, assigned=having(orders=[0, 1, 2])),
        current_record("x-2", 2, 0, assigned=having(orders=[0, 1, 2])),
    ]
    assert call.timers == {session_timer("x-2"): START + SESSION}
    assert (context.described().group_state, context.described().group_epoch) == ("Stable", 2)
    # The timer of its old session finds nobody.
    context.beat("y-1", 2, instance_id="y")
    context.now += 30_000
    context.beat("x-2", 2, instance_id="x")
    context.beat("y-1", 2, instance_id="y")
    context.sleep(30_000)
    assert list(context.consumers.members) == ["y-1", "x-2"]


@pytest.mark.parametrize("member_id", ["x-2", "x-1"])
def test_it_returns_with_another_subscription_and_the_group_rebalances(member_id: str) -> None:
    """A static consumer that unsubscribes sends -2, and uses its old id when it subscribes again."""
    context = group_of_static("x", "y")
    context.beat("x-1", -2, instance_id="x")
    call = context.enroll(member_id, "users", instance_id="x")
    assert (call.response.member_epoch, call.response.assignment) == (3, having(users=[0, 1, 2]))
    context.settle_consumers()
    assert context.assigned() == {"y-1": {"orders": [0, 1, 2, 3, 4, 5]}, member_id: {"users": [0, 1, 2]}}


def test_it_is_removed_if_it_does_not_return_within_its_session() -> None:
    context = group_of_static("x")
    context.now += 10_000
    context.beat("x-1", 1, instance_id="x")
    context.beat("x-1", -2, instance_id="x")
    assert context.sleep(SESSION - 1) == []
    [expired] = context.sleep(1)
    assert (expired.at, expired.records[:3]) == (START + 10_000 + SESSION, tombstones("x-1"))
    assert context.described().group_state == "Empty"


def test_a_second_instance_cannot_join_while_the_first_is_there() -> None:
    context = group_of_static("x")
    call = context.enroll("x-2", instance_id="x")
    assert call.error_code == errors.UnreleasedInstanceId.code
    assert call.response.error_message == (
        "Static member x-2 with instance id x cannot join the group because the instance id is owned by x-1 member."
    )


def test_the_old_id_is_fenced_once_the_instance_has_another() -> None:
    context = group_of_static("x")
    context.beat("x-1", -2, instance_id="x")
    context.enroll("x-2", instance_id="x")
    for epoch in (1, -1, -2):
        call = context.beat("x-1", epoch, instance_id="x")
        assert call.error_code == errors.FencedInstanceId.code
        assert call.response.error_message == "Static member x-1 with instance id x was fenced by member x-2."


def test_an_instance_that_nobody_knows_is_told_so() -> None:
    context = group_of_static("x")
    for epoch in (1, -1, -2):
        call = context.beat("z-1", epoch, instance_id="z")
        assert (call.error_code, call.response.error_message) == (
            errors.UnknownMemberId.code,
            "Instance id z is unknown.",
        )


def test_a_static_member_that_leaves_for_good_is_removed_at_once() -> None:
    context = group_of_static("x", "y")
    call = context.beat("x-1", -1, instance_id="x")
    assert call.records[:3] == tombstones("x-1")
    context.settle_consumers()
    assert context.assigned() == {"y-1": {"orders": [0, 1, 2, 3, 4, 5]}}


def test_a_static_member_may_not_send_the_epoch_of_its_leave() -> None:
    context = group_of_static("x")
    context.beat("x-1", -2, instance_id="x")
    assert context.beat("x-1", 1, instance_id="x").error_code == errors.FencedMemberEpoch.code


def test_one_that_goes_while_it_gives_up_partitions_has_its_session_to_return() -> None:
    context = ConsumerContext()
    context.enroll("x-1", instance_id="x", rebalance_timeout=60_000)
    context.enroll("y-1")
    context.beat("x-1", 1, instance_id="x")
    assert context.consumers.members["x-1"].state is MemberState.UNREVOKED_PARTITIONS
    for _ in range(5):
        context.sleep(10_000)
        context.beat("x-1", 1, instance_id="x")
        context.beat("y-1", 2)
    context.beat("x-1", -2, instance_id="x")
    context.sleep(30_000)
    assert "x-1" in context.consumers.members
    call = context.enroll("x-2", instance_id="x")
    assert (call.response.member_epoch, call.response.assignment) == (2, having(orders=[0, 1, 2]))
