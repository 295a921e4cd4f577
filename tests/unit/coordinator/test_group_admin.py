"""Listing, describing and deleting groups."""

from __future__ import annotations

import pytest
from group_context import GROUP, GroupContext, assignment, protocols, subscription

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r


def test_a_stable_group_is_described_with_subscriptions_and_assignments(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    metadata = subscription("orders")
    assert context.run(context.coordinator.describe, GROUP).response == m.DescribedGroup(
        group_id=GROUP,
        state="Stable",
        protocol_type="consumer",
        protocol_name="range",
        members=(
            m.DescribedMember(a, None, "a", "/127.0.0.1", metadata, assignment(orders=[0])),
            m.DescribedMember(b, None, "b", "/127.0.0.1", metadata, assignment(orders=[1])),
        ),
    )


def test_a_group_that_rebalances_is_described_without_subscriptions(context: GroupContext) -> None:
    a, _ = context.stable("a", "b")
    context.join(a)
    described = context.run(context.coordinator.describe, GROUP).response
    assert (described.state, described.protocol_name) == ("PreparingRebalance", "")
    assert [member.metadata for member in described.members] == [b"", b""]


@pytest.mark.parametrize("group_id", ["other", ""])
def test_a_group_that_does_not_exist_is_described_as_dead(context: GroupContext, group_id: str) -> None:
    assert context.run(context.coordinator.describe, group_id).response == m.DescribedGroup(
        group_id=group_id,
        error_code=errors.GroupIdNotFound.code,
        error_message=f"Group {group_id} not found.",
        state="Dead",
    )


def test_an_empty_group_is_deleted_with_its_offsets_and_its_history(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.commit("orders", 0, member_id=a, generation_id=1)
    context.leave(a)
    call = context.run(context.coordinator.delete_groups, [GROUP])
    assert call.response == (m.DeletedGroup(GROUP),)
    assert call.records == [(r.OffsetCommitKey(GROUP, "orders", 0), None), (r.GroupMetadataKey(GROUP), None)]
    assert call.history == [None, None]
    assert context.coordinator.groups == {}
    assert context.rebalances() == []
    assert context.coordinator.histories.next_number(GROUP) == 0


def test_a_group_in_its_first_rebalance_cannot_be_deleted(context: GroupContext) -> None:
    context.enter("a", protocols=protocols("range"))
    call = context.run(context.coordinator.delete_groups, [GROUP])
    assert call.response == (m.DeletedGroup(GROUP, errors.NonEmptyGroup.code),)
