"""Static members return to their old place, and fence other clients with the same instance id."""

from __future__ import annotations

from group_context import GROUP, JOIN_TIMER, SESSION, GroupContext, assignment, heartbeat_timer, protocols, subscription

from ottla import errors
from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r


def test_a_static_member_joins_in_one_step(context: GroupContext) -> None:
    call = context.join(group_instance_id="i1")
    assert call.is_parked
    assert list(context.group.members) == ["i1-1"]


def test_a_restart_inside_the_session_timeout_moves_nothing(context: GroupContext) -> None:
    a, b = context.stable_static("i1", "i2")
    before = context.group.record(context.group.assignments)
    context.sleep(10_000)
    call = context.join(group_instance_id="i2", client_id="new", client_host="/10.0.0.2")
    assert call.response == m.JoinResponse(
        generation_id=1, protocol_type="consumer", protocol_name="range", leader=a, member_id="i2-3"
    )
    member = before.members[1]._replace(member_id="i2-3", client_id="new", client_host="/10.0.0.2")
    assert call.records == [(r.GroupMetadataKey(GROUP), before._replace(members=(before.members[0], member)))]
    assert call.timers == {heartbeat_timer("i2-3"): context.now + SESSION}
    assert context.state == "Stable"
    assert b not in context.group.members
    assert context.sync("i2-3").response.assignment == assignment(orders=[1])
    assert context.heartbeat(a).error_code == 0


def test_a_static_leader_that_restarts_still_leads_and_keeps_the_assignment(context: GroupContext) -> None:
    _, b = context.stable_static("i1", "i2")
    call = context.join(group_instance_id="i1")
    metadata = subscription("orders")
    assert call.response == m.JoinResponse(
        generation_id=1,
        protocol_type="consumer",
        protocol_name="range",
        leader="i1-3",
        skip_assignment=True,
        member_id="i1-3",
        members=(m.JoinedMember("i1-3", "i1", metadata), m.JoinedMember(b, "i2", metadata)),
    )
    assert context.group.leader == "i1-3"


def test_a_static_leader_of_an_old_client_is_not_told_that_it_leads(context: GroupContext) -> None:
    a, _ = context.stable_static("i1", "i2")
    call = context.join(group_instance_id="i1", supports_skipping_assignment=False)
    assert call.response == m.JoinResponse(
        generation_id=1, protocol_type="consumer", protocol_name="range", leader=a, member_id="i1-3"
    )
    assert context.group.leader == "i1-3"


def test_a_join_that_waits_is_fenced_by_the_second_instance(context: GroupContext) -> None:
    a, _ = context.stable_static("i1", "i2")
    waiting = context.join(a, group_instance_id="i1")
    second = context.join(group_instance_id="i1")
    assert waiting.response == m.JoinResponse(error_code=errors.FencedInstanceId.code, member_id=a)
    assert second.is_parked


def test_a_sync_that_waits_is_fenced_by_the_second_instance(context: GroupContext) -> None:
    first = context.join(group_instance_id="i1")
    second = context.join(group_instance_id="i2")
    context.wait_for_generation()
    follower = second.response.member_id
    waiting = context.sync(follower, group_instance_id="i2")
    again = context.join(group_instance_id="i2")
    assert waiting.response == m.SyncResponse(error_code=errors.FencedInstanceId.code)
    # The leader may only know the old id. Its assignment would be lost.
    assert context.state == "PreparingRebalance"
    assert again.is_parked
    context.join(first.response.member_id, group_instance_id="i1")
    assert again.response.generation_id == 2


def test_a_static_member_that_returns_with_its_id_joins_as_any_other(context: GroupContext) -> None:
    _, b = context.stable_static("i1", "i2")
    assert context.join(b, group_instance_id="i2").response.generation_id == 1
    assert context.state == "Stable"


def test_a_changed_subscription_alone_does_not_make_the_group_rebalance(context: GroupContext) -> None:
    """As in Kafka, the leader sees the new subscription at the next rebalance."""
    context.stable_static("i1", "i2")
    call = context.join(group_instance_id="i2", protocols=protocols("range", metadata=subscription("payments")))
    assert call.response.generation_id == 1
    assert context.state == "Stable"


def test_a_restart_that_changes_the_protocol_makes_the_group_rebalance(context: GroupContext) -> None:
    both = protocols("range", "roundrobin")
    context.stable_static("i1", "i2", protocols=both)
    call = context.join(group_instance_id="i2", protocols=protocols("roundrobin"))
    assert call.is_parked
    assert context.state == "PreparingRebalance"
    context.join("i1-1", group_instance_id="i1", protocols=both)
    assert call.response.protocol_name == "roundrobin"


def test_static_members_that_are_away_are_not_removed_by_a_rebalance(context: GroupContext) -> None:
    _, b = context.stable_static("i1", "i2", session_timeout=600_000, rebalance_timeout=60_000)
    waiting = context.join("i1-1", group_instance_id="i1", session_timeout=600_000, rebalance_timeout=60_000)
    context.sleep(60_000)
    assert [member.member_id for member in waiting.response.members] == ["i1-1", b]
    assert b in context.group.members


def test_when_only_absent_static_members_are_left_the_group_waits_for_their_sessions(context: GroupContext) -> None:
    a, b = context.stable_static("i1", "i2", session_timeout=130_000, rebalance_timeout=60_000)
    context.leave(a)
    for _ in range(2):
        expired = context.sleep(60_000)
        assert [entry.key for entry in expired] == [JOIN_TIMER]
        assert context.state == "PreparingRebalance"
    expired = context.sleep(10_000)
    assert [entry.key for entry in expired] == [heartbeat_timer(b)]
    assert context.state == "Empty"


def test_a_static_member_away_for_longer_than_its_session_makes_the_group_rebalance(context: GroupContext) -> None:
    a, b = context.stable_static("i1", "i2")
    context.sleep(SESSION - 1)
    context.heartbeat(a)
    (expired,) = context.sleep(1)
    assert expired.key == heartbeat_timer(b)
    assert context.state == "PreparingRebalance"
    assert context.join(group_instance_id="i2").response is None
    context.sleep(1_000)
    assert context.under_way().triggers[0].kind == history.SESSION_EXPIRED


def test_a_static_member_survives_a_restart_of_the_coordinator(context: GroupContext) -> None:
    a, b = context.stable_static("i1", "i2")
    context.restart()
    assert context.heartbeat(a, 1, group_instance_id="i1").error_code == 0
    call = context.join(group_instance_id="i2")
    assert call.response.generation_id == 1
    assert context.heartbeat(b, 1, group_instance_id="i2").error_code == errors.FencedInstanceId.code


def test_an_instance_id_that_nobody_has_is_unknown(context: GroupContext) -> None:
    a, _ = context.stable_static("i1", "i2")
    call = context.join(a, group_instance_id="i3")
    assert call.response == m.JoinResponse(error_code=errors.UnknownMemberId.code, member_id=a)


def test_an_id_given_to_a_dynamic_member_cannot_become_static(context: GroupContext) -> None:
    context.stable_static("i1")
    pending = context.join(client_id="a").response.member_id
    call = context.join(pending, group_instance_id="i9")
    assert call.response == m.JoinResponse(error_code=errors.UnknownServerError.code, member_id=pending)
