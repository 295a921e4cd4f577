"""Heartbeats keep a member in the group and tell it about rebalances. Leaving removes it."""

from __future__ import annotations

from group_context import GROUP, JOIN_TIMER, REBALANCE, SESSION, SYNC_TIMER, GroupContext, heartbeat_timer

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r

FINE = m.HeartbeatResponse()


def refused(error: type[errors.KafkaError]) -> m.HeartbeatResponse:
    return m.HeartbeatResponse(error_code=error.code)


# ── heartbeats ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_heartbeats_keep_a_member_in_the_group(context: GroupContext) -> None:
    (a,) = context.stable("a")
    for _ in range(20):
        context.sleep(SESSION - 1)
        assert context.heartbeat(a).response == FINE
    assert context.state == "Stable"


def test_a_member_that_is_silent_for_its_session_timeout_is_removed(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.sleep(10_000)
    context.heartbeat(a)
    context.sleep(SESSION - 10_000 - 1)
    assert set(context.group.members) == {a, b}
    (expired,) = context.sleep(1)
    assert expired.key == heartbeat_timer(b)
    assert set(context.group.members) == {a}
    assert context.state == "PreparingRebalance"


def test_each_member_has_the_session_timeout_that_it_asked_for(context: GroupContext) -> None:
    a, _ = context.enter("a", session_timeout=6_000)
    b, _ = context.enter("b", session_timeout=20_000)
    context.wait_for_generation()
    context.settle([a, b])
    start = context.now
    expired = context.sleep(30_000)
    assert [(entry.at - start, entry.key) for entry in expired] == [
        (6_000, heartbeat_timer(a)),
        (20_000, heartbeat_timer(b)),
    ]


def test_the_last_member_to_expire_leaves_an_empty_group_in_the_log(context: GroupContext) -> None:
    (a,) = context.stable("a")
    since = context.now
    (expired,) = context.sleep(SESSION)
    assert expired.key == heartbeat_timer(a)
    assert expired.records == [
        (r.GroupMetadataKey(GROUP), r.GroupMetadataValue("consumer", 2, None, None, since + SESSION, ()))
    ]
    assert context.state == "Empty"
    assert context.heartbeat(a, 2).response == refused(errors.UnknownMemberId)


def test_members_learn_of_a_rebalance_by_their_heartbeat_and_stay_alive_by_it(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.join(a)
    for _ in range(4):
        context.sleep(SESSION - 1)
        assert context.heartbeat(b).response == refused(errors.RebalanceInProgress)
    assert b in context.group.members


def test_a_heartbeat_writes_nothing_and_sets_no_timer(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.sleep(3_000)
    call = context.heartbeat(a)
    assert call.outcome.records == ()
    assert call.outcome.timers == ()


def test_commits_keep_a_member_alive_too(context: GroupContext) -> None:
    (a,) = context.stable("a")
    for _ in range(5):
        context.sleep(SESSION - 1)
        context.commit(member_id=a, generation_id=1)
    assert context.state == "Stable"


def test_while_its_join_waits_a_members_session_does_not_end(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    waiting = context.join(a)
    for _ in range(4):
        context.sleep(SESSION - 1)
        context.heartbeat(b)
    assert waiting.is_parked
    context.join(b)
    assert waiting.response.generation_id == 2
    (expired,) = context.sleep(SESSION)[:1]
    assert expired.key == heartbeat_timer(a)


# ── leave ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_member_that_leaves_is_gone_at_once_and_the_others_rebalance(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    now = context.now
    call = context.leave(b)
    assert call.response == m.LeaveResponse(members=(m.LeftMember(b),))
    assert call.records == []
    assert call.timers == {heartbeat_timer(b): None, SYNC_TIMER: None, JOIN_TIMER: now + REBALANCE}
    assert context.heartbeat(a).response == refused(errors.RebalanceInProgress)
    assert context.heartbeat(b).response == refused(errors.UnknownMemberId)


def test_the_last_member_to_leave_leaves_an_empty_group_in_the_log(context: GroupContext) -> None:
    (a,) = context.stable("a")
    call = context.leave(a)
    assert call.records == [
        (r.GroupMetadataKey(GROUP), r.GroupMetadataValue("consumer", 2, None, None, context.now, ()))
    ]
    assert context.state == "Empty"


def test_the_last_one_waited_for_completes_the_rebalance_by_leaving(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    waiting = context.join(a)
    call = context.leave(b)
    assert waiting.response.generation_id == 2
    assert [member.member_id for member in waiting.response.members] == [a]
    assert call.timers[JOIN_TIMER] is None


def test_a_pending_member_can_leave_before_it_joined(context: GroupContext) -> None:
    (a,) = context.stable("a")
    pending = context.join(client_id="b").response.member_id
    call = context.leave(pending)
    assert call.response == m.LeaveResponse(members=(m.LeftMember(pending),))
    assert call.timers == {heartbeat_timer(pending): None}
    assert context.heartbeat(a).response == FINE
