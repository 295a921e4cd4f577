"""Syncs: the leader's assignment is written to the log, and then sent to everybody."""

from __future__ import annotations

import pytest
from group_context import GROUP, REBALANCE, SESSION, SYNC_TIMER, GroupContext, heartbeat_timer, protocols, subscription

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r


@pytest.fixture
def completing(context: GroupContext) -> tuple[str, str]:
    """A group of two that waits for its leader's assignment. Return the ids of leader and follower."""
    a, _ = context.enter("a")
    b, _ = context.enter("b")
    context.wait_for_generation()
    return a, b


def given(data: bytes) -> m.SyncResponse:
    return m.SyncResponse(protocol_type="consumer", protocol_name="range", assignment=data)


def recorded(member_id: str, data: bytes) -> r.MemberMetadata:
    client_id = member_id.partition("-")[0]
    return r.MemberMetadata(member_id, None, client_id, "/127.0.0.1", REBALANCE, SESSION, subscription("orders"), data)


def test_everybody_waits_for_the_leader_and_gets_theirs_with_the_record(
    context: GroupContext, completing: tuple[str, str]
) -> None:
    leader, follower = completing
    since = context.now
    context.sleep(500)
    waiting = context.sync(follower)
    assert waiting.is_parked
    call = context.sync(
        leader, assignments=(m.MemberAssignment(leader, b"first"), m.MemberAssignment(follower, b"second"))
    )
    assert call.response == given(b"first")
    assert waiting.response == given(b"second")
    members = (recorded(leader, b"first"), recorded(follower, b"second"))
    assert call.records == [
        (r.GroupMetadataKey(GROUP), r.GroupMetadataValue("consumer", 1, "range", leader, since, members))
    ]
    assert call.timers == {SYNC_TIMER: None}
    assert context.state == "Stable"


def test_members_that_the_leader_left_out_get_an_empty_assignment(
    context: GroupContext, completing: tuple[str, str]
) -> None:
    leader, follower = completing
    waiting = context.sync(follower)
    context.sync(leader, assignments=(m.MemberAssignment(leader, b"all"), m.MemberAssignment("stranger", b"x")))
    assert waiting.response == given(b"")
    assert context.group.assignments == {leader: b"all", follower: b""}


def test_a_follower_that_syncs_in_a_stable_group_gets_the_present_assignment(
    context: GroupContext, completing: tuple[str, str]
) -> None:
    leader, follower = completing
    first = context.sync(leader, assignments=(m.MemberAssignment(follower, b"second"),))
    assert first.timers == {}
    late = context.sync(follower)
    assert late.response == given(b"second")
    assert late.records == []
    assert late.timers == {SYNC_TIMER: None}
    assert context.sync(follower).response == given(b"second")


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout(
    context: GroupContext, completing: tuple[str, str]
) -> None:
    leader, follower = completing
    since = context.now
    context.sync(leader, assignments=(m.MemberAssignment(leader, b"all"),))
    while context.now < since + REBALANCE - 30_000:
        context.sleep(30_000)
        assert context.heartbeat(leader).error_code == context.heartbeat(follower).error_code == 0
    (expired,) = context.sleep(30_000)
    assert (expired.at, expired.key) == (since + REBALANCE, SYNC_TIMER)
    assert set(context.group.members) == {leader}
    assert context.state == "PreparingRebalance"
    assert context.heartbeat(leader).error_code == errors.RebalanceInProgress.code
    assert context.heartbeat(follower).error_code == errors.UnknownMemberId.code


def test_a_leader_that_never_syncs_is_removed_and_the_others_join_again(
    context: GroupContext, completing: tuple[str, str]
) -> None:
    leader, follower = completing
    waiting = context.sync(follower)
    while context.state == "CompletingRebalance":
        context.sleep(10_000)
        context.heartbeat(leader)
    assert waiting.response == m.SyncResponse(error_code=errors.RebalanceInProgress.code)
    assert set(context.group.members) == {follower}
    assert context.join(follower).response.leader == follower


def test_a_sync_is_rejected_when_the_group_rebalances_again(context: GroupContext, completing: tuple[str, str]) -> None:
    leader, follower = completing
    waiting = context.sync(follower)
    _, new = context.enter("c")
    assert waiting.response == m.SyncResponse(error_code=errors.RebalanceInProgress.code)
    assert new.is_parked
    # The leader was ready to sync, but its assignment is useless now.
    late = context.sync(leader, assignments=(m.MemberAssignment(leader, b"all"),))
    assert late.response == m.SyncResponse(error_code=errors.RebalanceInProgress.code)
    assert late.records == []


def test_a_sync_sent_twice_is_answered_once_and_the_first_must_try_again(
    context: GroupContext, completing: tuple[str, str]
) -> None:
    leader, follower = completing
    first, second = context.sync(follower), context.sync(follower)
    assert first.response == m.SyncResponse(error_code=errors.RebalanceInProgress.code)
    context.sync(leader, assignments=(m.MemberAssignment(follower, b"second"),))
    assert second.response == given(b"second")


def test_while_members_wait_for_the_leader_their_sessions_do_not_end(
    context: GroupContext, completing: tuple[str, str]
) -> None:
    leader, follower = completing
    waiting = context.sync(follower)
    for _ in range(4):
        context.sleep(20_000)
        context.heartbeat(leader)
    assert waiting.is_parked
    answered = context.now
    call = context.sync(leader, assignments=(m.MemberAssignment(follower, b"second"),))
    assert waiting.response == given(b"second")
    # Its timer fired while it waited. Its session starts again with the response.
    assert call.timers[heartbeat_timer(follower)] == answered + SESSION


def test_a_member_removed_while_its_sync_waits_gets_a_response(
    context: GroupContext, completing: tuple[str, str]
) -> None:
    _, follower = completing
    waiting = context.sync(follower)
    context.leave(follower)
    assert waiting.response == m.SyncResponse(error_code=errors.UnknownMemberId.code)


def test_groups_of_any_protocol_type_share_the_same_way(context: GroupContext) -> None:
    member_id, joined = context.enter(
        "worker", protocol_type="connect", protocols=protocols("sessioned", metadata=b"opaque")
    )
    context.wait_for_generation()
    assert joined.response.members == (m.JoinedMember(member_id, None, b"opaque"),)
    call = context.sync(member_id, assignments=(m.MemberAssignment(member_id, b"tasks"),))
    assert call.response == m.SyncResponse(protocol_type="connect", protocol_name="sessioned", assignment=b"tasks")
