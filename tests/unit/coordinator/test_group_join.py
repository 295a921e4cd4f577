"""Joins: the members of the next generation, its leader and its protocol."""

from __future__ import annotations

import pytest
from group_context import (
    GROUP,
    JOIN_TIMER,
    REBALANCE,
    SESSION,
    START,
    SYNC_TIMER,
    GroupContext,
    heartbeat_timer,
    protocols,
    subscription,
)

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.config import GroupConfig

SUBSCRIPTION = subscription("orders")
CREATED = r.CoordinatorRecord(r.GroupMetadataKey(GROUP), r.GroupMetadataValue("", 0, None, None, START, ()))


def generation(number: int, member_id: str, leader: str, *members: str) -> m.JoinResponse:
    """Return the response when everybody has joined. Only the leader gets the members."""
    return m.JoinResponse(
        generation_id=number,
        protocol_type="consumer",
        protocol_name="range",
        leader=leader,
        member_id=member_id,
        members=tuple(m.JoinedMember(member, None, SUBSCRIPTION) for member in members),
    )


# ── a new member ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_member_gets_its_id_first_and_its_group_is_written(context: GroupContext) -> None:
    call = context.join(client_id="a")
    assert call.response == m.JoinResponse(error_code=errors.MemberIdRequired.code, member_id="a-1")
    assert call.records == [CREATED]
    assert call.timers == {heartbeat_timer("a-1"): START + SESSION}
    assert context.state == "Empty"


def test_a_member_that_never_returns_with_its_id_is_forgotten_after_its_session(context: GroupContext) -> None:
    context.join(client_id="a")
    (expired,) = context.sleep(SESSION)
    assert expired == (START + SESSION, heartbeat_timer("a-1"), [], {})
    assert context.join("a-1").response == m.JoinResponse(error_code=errors.UnknownMemberId.code, member_id="a-1")


def test_joining_with_the_id_begins_the_first_rebalance(context: GroupContext) -> None:
    context.join(client_id="a")
    call = context.join("a-1")
    assert call.is_parked
    assert call.records == []
    assert call.timers == {JOIN_TIMER: START + 3_000}
    assert context.state == "PreparingRebalance"


def test_a_client_below_version_4_joins_in_one_step(context: GroupContext) -> None:
    call = context.join(client_id="old", requires_known_member_id=False)
    assert call.is_parked
    assert call.records == [CREATED]
    assert call.timers == {
        heartbeat_timer("old-1"): START + context.config.group_new_member_join_timeout_ms,
        JOIN_TIMER: START + 3_000,
    }


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"group_id": ""}, errors.InvalidGroupId),
        ({"session_timeout": 5_999}, errors.InvalidSessionTimeout),
        ({"session_timeout": 1_800_001}, errors.InvalidSessionTimeout),
        ({"protocols": ()}, errors.InconsistentGroupProtocol),
        ({"protocol_type": ""}, errors.InconsistentGroupProtocol),
    ],
)
def test_a_join_that_can_never_work_is_rejected_and_makes_no_group(
    context: GroupContext, changes: dict[str, object], error: type[errors.KafkaError]
) -> None:
    call = context.join(**changes)
    assert call.response == m.JoinResponse(error_code=error.code)
    assert call.outcome.records == ()
    assert context.coordinator.groups == {}


# ── the first rebalance (4.5) ─────────────────────────────────────────────────────────────────────────────────────


def test_a_new_group_waits_for_its_initial_delay_and_no_longer(context: GroupContext) -> None:
    a, joined = context.enter("a")
    assert context.sleep(2_999) == []
    (expired,) = context.sleep(1)
    assert expired.key == JOIN_TIMER
    assert joined.response == generation(1, a, a, a)
    assert context.state == "CompletingRebalance"


def test_the_initial_delay_begins_again_while_members_keep_coming(context: GroupContext) -> None:
    a, first = context.enter("a")
    context.sleep(2_000)
    b, second = context.enter("b")
    context.sleep(1_000)
    assert first.is_parked
    assert context.timers.next_deadline() == START + 6_000
    context.sleep(3_000)
    assert first.response == generation(1, a, a, a, b)
    assert second.response == generation(1, b, a)


def test_the_initial_delay_never_grows_beyond_the_rebalance_timeout() -> None:
    context = GroupContext(GroupConfig(group_initial_rebalance_delay_ms=3_000))
    _, first = context.enter("a", rebalance_timeout=7_000)
    fired = []
    for number in range(7):
        context.enter(f"m{number}", rebalance_timeout=7_000)
        fired += [expired.at - START for expired in context.sleep(1_000) if expired.key == JOIN_TIMER]
    assert fired == [3_000, 6_000, 7_000]
    assert first.response.generation_id == 1


def test_a_rebalance_timeout_below_the_initial_delay_does_not_extend_it(context: GroupContext) -> None:
    _, first = context.enter("a", rebalance_timeout=1_000)
    context.enter("b", rebalance_timeout=1_000)
    context.sleep(3_000)
    assert first.response.generation_id == 1


def test_without_an_initial_delay_the_group_forms_at_once() -> None:
    context = GroupContext(GroupConfig(group_initial_rebalance_delay_ms=0))
    a, joined = context.enter("a")
    context.sleep(0)
    assert joined.response == generation(1, a, a, a)


def test_everybody_leaving_during_the_initial_delay_leaves_an_empty_group(context: GroupContext) -> None:
    a, joined = context.enter("a")
    call = context.leave(a)
    assert joined.response == m.JoinResponse(error_code=errors.UnknownMemberId.code)
    assert call.records == [(r.GroupMetadataKey(GROUP), r.GroupMetadataValue("consumer", 1, None, None, START, ()))]
    assert call.timers == {heartbeat_timer(a): None, JOIN_TIMER: None}
    assert context.state == "Empty"


# ── later rebalances ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_new_member_waits_until_everybody_has_joined_again(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    now = context.now
    c, new = context.enter("c")
    assert new.timers == {JOIN_TIMER: now + REBALANCE, SYNC_TIMER: None}
    first = context.join(a)
    assert new.is_parked
    assert first.is_parked
    last = context.join(b)
    assert last.response == generation(2, b, a)
    assert first.response == generation(2, a, a, a, b, c)
    assert new.response == generation(2, c, a)
    assert last.timers[SYNC_TIMER] == now + REBALANCE
    assert last.timers[JOIN_TIMER] is None
    assert last.records == []


def test_members_that_do_not_come_back_are_removed_after_the_largest_rebalance_timeout(context: GroupContext) -> None:
    a, b = context.stable("a", "b", rebalance_timeout=60_000)
    _, new = context.enter("c", rebalance_timeout=90_000)
    rejoined = context.join(a, rebalance_timeout=60_000)
    for _ in range(3):
        context.sleep(30_000 - 1)
        context.heartbeat(b)
        assert new.is_parked
    expired = context.sleep(3)
    assert [entry.key for entry in expired] == [JOIN_TIMER]
    assert set(context.group.members) == {a, "c-3"}
    assert rejoined.response.generation_id == new.response.generation_id == 2
    assert context.heartbeat(b, 2).error_code == errors.UnknownMemberId.code


def test_a_leader_that_does_not_come_back_is_replaced_by_the_first_that_did(context: GroupContext) -> None:
    a, b = context.stable("a", "b", session_timeout=REBALANCE, rebalance_timeout=60_000)
    c, new = context.enter("c", session_timeout=REBALANCE, rebalance_timeout=60_000)
    rejoined = context.join(b, session_timeout=REBALANCE, rebalance_timeout=60_000)
    context.sleep(60_000)
    assert rejoined.response == generation(2, b, b, b, c)
    assert new.response == generation(2, c, b)
    assert a not in context.group.members


def test_the_leader_stays_the_leader_while_it_returns(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.join(b, protocols=protocols("range", metadata=b"changed"))
    assert context.join(a).response.leader == a


def test_a_pending_member_is_waited_for(context: GroupContext) -> None:
    (a,) = context.stable("a")
    pending = context.join(client_id="b").response.member_id
    rejoined = context.join(a)
    assert rejoined.is_parked
    context.join(pending, client_id="b")
    assert rejoined.response == generation(2, a, a, a, pending)


def test_a_pending_member_that_vanishes_holds_nobody_up_beyond_its_session(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.join(client_id="b", session_timeout=6_000)
    rejoined = context.join(a)
    (expired,) = context.sleep(6_000)
    assert expired.key == heartbeat_timer("b-2")
    assert rejoined.response == generation(2, a, a, a)


def test_the_leader_joining_again_makes_everybody_join_again(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    assert context.join(a).is_parked
    assert context.state == "PreparingRebalance"
    assert context.heartbeat(b).error_code == errors.RebalanceInProgress.code


def test_a_follower_joining_again_unchanged_gets_the_present_generation(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    call = context.join(b)
    assert call.response == generation(1, b, a)
    assert context.state == "Stable"


def test_a_follower_with_a_new_subscription_makes_everybody_join_again(context: GroupContext) -> None:
    _, b = context.stable("a", "b")
    call = context.join(b, protocols=protocols("range", metadata=subscription("payments")))
    assert call.is_parked
    assert context.state == "PreparingRebalance"


def test_joining_again_while_the_assignment_is_awaited_gives_the_same_generation(context: GroupContext) -> None:
    a, _ = context.enter("a")
    b, _ = context.enter("b")
    context.sleep(6_000)
    assert context.join(a).response == generation(1, a, a, a, b)
    assert context.join(b).response == generation(1, b, a)
    assert context.state == "CompletingRebalance"


def test_a_changed_member_while_the_assignment_is_awaited_sends_everybody_back(context: GroupContext) -> None:
    context.enter("a")
    b, _ = context.enter("b")
    context.sleep(6_000)
    waiting = context.sync(b)
    changed = context.join(b, protocols=protocols("range", metadata=b"changed"))
    assert changed.is_parked
    assert waiting.response == m.SyncResponse(error_code=errors.RebalanceInProgress.code)
    assert context.state == "PreparingRebalance"


def test_a_join_sent_twice_is_answered_once_and_the_first_must_try_again(context: GroupContext) -> None:
    a, _ = context.stable("a", "b")
    first = context.join(a)
    second = context.join(a)
    assert first.response == m.JoinResponse(error_code=errors.RebalanceInProgress.code, member_id=a)
    assert second.is_parked


def test_a_new_member_whose_connection_is_gone_is_not_waited_for_for_ever(context: GroupContext) -> None:
    (a,) = context.stable("a", rebalance_timeout=1_800_000)
    b, new = context.enter("b", rebalance_timeout=1_800_000)
    for _ in range(30):
        context.sleep(10_000)
        context.heartbeat(a)
    assert new.response == m.JoinResponse(error_code=errors.UnknownMemberId.code)
    assert set(context.group.members) == {a}
    assert b not in context.group.members


def test_a_thousand_members_that_vanish_at_once_leave_an_empty_group(context: GroupContext) -> None:
    context.stable(*(f"m{number}" for number in range(1_000)), session_timeout=1_800_000)
    last_heard_of = context.now
    expired = context.sleep(1_800_000 + REBALANCE)
    assert context.state == "Empty"
    assert context.group.generation == 2
    assert [record.value for entry in expired for record in entry.records] == [
        r.GroupMetadataValue("consumer", 2, None, None, last_heard_of + 1_800_000, ())
    ]
    assert len(context.timers) == 0


# ── the vote ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_protocol_is_the_one_that_most_members_put_first_of_what_all_support(context: GroupContext) -> None:
    context.enter("a", protocols=protocols("sticky", "range", "roundrobin"))
    context.enter("b", protocols=protocols("roundrobin", "range"))
    _, last = context.enter("c", protocols=protocols("cooperative-sticky", "roundrobin", "range"))
    context.wait_for_generation()
    # Not all support sticky and cooperative-sticky. a votes for range, b and c for roundrobin.
    assert last.response.protocol_name == "roundrobin"


def test_an_empty_group_may_take_up_another_protocol_type(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.leave(a)
    _, joined = context.enter("worker", protocol_type="connect", protocols=protocols("default"))
    context.sleep(3_000)
    assert joined.response.protocol_type == "connect"
    assert joined.response.generation_id == 3


def test_a_member_may_not_drop_the_protocol_that_the_others_need(context: GroupContext) -> None:
    a, b = context.stable("a", "b", protocols=protocols("range"))
    call = context.join(b, protocols=protocols("sticky"))
    assert call.response == m.JoinResponse(error_code=errors.InconsistentGroupProtocol.code, member_id=b)
    assert context.heartbeat(a).error_code == 0


# ── group.max.size ────────────────────────────────────────────────────────────────────────────────────────────────


def test_while_a_full_group_rebalances_the_first_to_come_have_the_places() -> None:
    context = GroupContext(GroupConfig(group_max_size=2))
    a, b = context.stable("a", "b")
    context.join(a)
    assert context.join(b).response.generation_id == 2
    _, c = context.enter("c")
    assert c.error_code == errors.GroupMaxSizeReached.code


def test_a_group_that_is_too_large_after_a_restart_shrinks_to_its_limit() -> None:
    context = GroupContext()
    a, b, c = context.stable("a", "b", "c")
    context.config = GroupConfig(group_max_size=2)
    call = context.restart()
    assert context.state == "PreparingRebalance"
    assert call.timers[JOIN_TIMER] == context.now + REBALANCE
    first, second = context.join(a), context.join(b)
    assert context.join(c).response == m.JoinResponse(error_code=errors.GroupMaxSizeReached.code)
    assert first.response.generation_id == second.response.generation_id == 2
    assert set(context.group.members) == {a, b}


def test_a_rebalance_timeout_of_zero_does_not_keep_the_coordinator_busy(context: GroupContext) -> None:
    """Only a static member is left, and it is away: the group waits for its session."""
    static = context.join(group_instance_id="s", client_id="s", rebalance_timeout=0)
    d, _ = context.enter("d")
    context.wait_for_generation()
    context.settle([static.response.member_id, d])
    context.leave(d)
    context.driver.fire_due(context.now)
    assert context.timers.next_deadline() == context.now + 1
