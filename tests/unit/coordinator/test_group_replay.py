"""After a restart a coordinator knows what it wrote before, and nothing else."""

from __future__ import annotations

import pytest
from group_context import (
    EXPIRY_TIMER,
    GROUP,
    JOIN_TIMER,
    REBALANCE,
    SESSION,
    AppendFailed,
    GroupContext,
    assignment,
    heartbeat_timer,
    protocols,
    subscription,
)

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest
from ottla.coordinator.serde import encode


def test_a_stable_group_goes_on_after_a_restart_as_if_nothing_had_happened(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    before = context.group.record(context.group.assignments)
    call = context.restart()
    assert context.group.record(context.group.assignments) == before
    assert call.timers == {
        heartbeat_timer(a): context.now + SESSION,
        heartbeat_timer(b): context.now + SESSION,
        EXPIRY_TIMER: context.now + 600_000,
    }
    assert context.heartbeat(a).error_code == 0
    assert context.sync(b).response.assignment == assignment(orders=[1])


def test_members_that_do_not_come_back_after_a_restart_expire(context: GroupContext) -> None:
    context.stable("a", "b")
    context.restart()
    context.sleep(SESSION)
    assert context.state == "Empty"


def test_a_rebalance_that_was_under_way_is_forgotten_and_the_last_generation_counts(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    c, _ = context.enter("c")
    context.join(a)
    context.restart()
    assert context.state == "Stable"
    assert set(context.group.members) == {a, b}
    # The new member and those that had joined again try again.
    assert context.join(c).error_code == errors.UnknownMemberId.code
    assert context.join(a).is_parked


def test_a_generation_that_nobody_was_assigned_may_be_given_again(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.join(a)
    assert (context.state, context.group.generation) == ("CompletingRebalance", 2)
    context.restart()
    assert (context.state, context.group.generation) == ("Stable", 1)
    assert context.sync(a, 2).error_code == errors.IllegalGeneration.code


def test_a_loaded_group_that_nobody_leads_rebalances(context: GroupContext) -> None:
    """A consumer group that became a classic one is written without a leader."""
    member = r.MemberMetadata("a-1", None, "a", "/127.0.0.1", REBALANCE, SESSION, subscription("orders"), b"")
    value = r.GroupMetadataValue("consumer", 4, "range", None, context.now, (member,))
    context.log.append(encode(r.CoordinatorRecord(r.GroupMetadataKey(GROUP), value)))
    call = context.restart()
    assert context.state == "PreparingRebalance"
    assert call.timers[JOIN_TIMER] == context.now + REBALANCE
    joined = context.join("a-1")
    assert (joined.response.generation_id, joined.response.leader) == (5, "a-1")


def test_an_empty_group_keeps_its_generation(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.leave(a)
    context.restart()
    assert (context.state, context.group.generation) == ("Empty", 2)
    _, joined = context.enter("b")
    context.wait_for_generation()
    assert joined.response.generation_id == 3


def test_offsets_are_there_again(context: GroupContext) -> None:
    context.commit("orders", 0, 5)
    context.commit("orders", 0, 6, metadata="note", leader_epoch=2)
    context.commit("orders", 1, 7)
    request = m.DeleteOffsetsRequest(group_id=GROUP, partitions=(("orders", 1),))
    context.run(context.coordinator.delete_offsets, request)
    context.restart()
    assert context.committed("orders", 0) == m.FetchedPartition("orders", 0, 6, 2, "note")
    assert context.committed("orders", 1) == m.FetchedPartition("orders", 1)


def test_a_deleted_group_does_not_come_back(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.commit(member_id=a, generation_id=1)
    context.leave(a)
    context.run(context.coordinator.delete_groups, [GROUP])
    context.restart()
    assert context.coordinator.groups == {}
    assert context.committed().offset == -1


def test_records_of_an_unknown_type_are_passed_over(context: GroupContext) -> None:
    context.commit()
    context.log.insert(0, (b"\0\x63??", b"\0\0??"))
    context.restart()
    assert context.coordinator.ignored == 1
    assert context.committed().offset == 100


def test_offsets_of_brokers_of_long_ago_are_read(context: GroupContext) -> None:
    key = r.LegacyOffsetCommitKey(GROUP, "orders", 0)
    context.coordinator.replay(r.CoordinatorRecord(key, r.LegacyOffsetCommitValue(8, "old", 5)))
    assert context.committed() == m.FetchedPartition("orders", 0, 8, -1, "old")
    context.coordinator.replay(r.CoordinatorRecord(key, None))
    assert context.committed().offset == -1


def test_a_member_that_changed_its_protocol_and_timeouts_is_loaded_as_it_was_last(context: GroupContext) -> None:
    a, b = context.stable("a", "b", protocols=protocols("range", "roundrobin"))
    for member_id in (a, b):
        context.join(
            member_id,
            protocols=protocols("roundrobin", metadata=subscription("payments")),
            session_timeout=20_000,
            rebalance_timeout=40_000,
        )
    context.settle([a, b])
    before = context.group.record(context.group.assignments)
    context.restart()
    assert context.group.record(context.group.assignments) == before
    assert {member.session_timeout for member in context.group.members.values()} == {20_000}
    assert context.group.is_subscribed("payments")
    assert not context.group.is_subscribed("orders")


def test_a_log_compacted_to_its_last_records_gives_the_same_state(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.commit("orders", 0, 1, member_id=a, generation_id=1)
    context.commit("orders", 0, 2, member_id=a, generation_id=1)
    c, _ = context.enter("c")
    context.join(a)
    context.join(b)
    context.settle([a, b, c])

    def known() -> object:
        return context.group.described(), context.group.generation, context.coordinator.offsets.of_group(GROUP)

    context.restart()
    whole = known()
    context.log = list(dict(context.log).items())
    context.restart()
    assert known() == whole


# ── the log does not take it ──────────────────────────────────────────────────────────────────────────────────────


def test_an_assignment_that_could_not_be_written_is_given_to_nobody_and_the_group_rebalances(
    context: GroupContext,
) -> None:
    a, _ = context.enter("a")
    b, _ = context.enter("b")
    context.wait_for_generation()
    told = context.sync(b)
    given = (m.MemberAssignment(a, b"A"), m.MemberAssignment(b, b"B"))
    with context.losing():
        context.sync(a, assignments=given)
    assert isinstance(told.response, AppendFailed)
    assert context.state == "PreparingRebalance"
    assert context.heartbeat(b).error_code == errors.RebalanceInProgress.code
    first, second = context.join(a), context.join(b)
    assert first.response.generation_id == second.response.generation_id == 2
    waiting = context.sync(b)
    assert context.sync(a, assignments=given).response.assignment == b"A"
    assert waiting.response.assignment == b"B"
    assert context.state == "Stable"


def test_members_that_stay_away_after_an_assignment_could_not_be_written_are_removed(context: GroupContext) -> None:
    a, _ = context.enter("a")
    context.wait_for_generation()
    with context.losing():
        context.sync(a, assignments=(m.MemberAssignment(a, b"A"),))
    context.sleep(max(SESSION, REBALANCE))
    assert context.state == "Empty"


def test_a_group_whose_end_could_not_be_written_takes_new_members(context: GroupContext) -> None:
    (a,) = context.stable("a")
    with context.losing():
        context.leave(a)
    b, joined = context.enter("b")
    context.wait_for_generation()
    assert joined.response.generation_id == 3
    context.settle([b])


def test_a_group_whose_end_could_not_be_written_tries_again(context: GroupContext) -> None:
    context.stable("a")
    context.append_fails = True
    with pytest.raises(AppendFailed):
        context.sleep(SESSION)
    with pytest.raises(AppendFailed):
        context.sleep(500)
    context.append_fails = False
    context.sleep(500)
    assert (context.state, context.group.generation) == ("Empty", 2)
    context.restart()
    assert (context.state, context.group.generation) == ("Empty", 2)


def test_expiry_goes_on_after_the_log_did_not_take_it(context: GroupContext) -> None:
    context.run(context.coordinator.loaded)
    context.commit(retention_time=1_000)
    with context.losing():
        context.sleep(600_000)
    context.sleep(1_000)
    assert context.committed().offset == -1
    assert context.timers.next_deadline() is not None


def test_a_static_member_whose_return_could_not_be_written_leaves_the_old_one_in_place(context: GroupContext) -> None:
    a, b = context.stable_static("i1", "i2")
    with context.losing():
        context.join(group_instance_id="i2")
    assert context.heartbeat(b, group_instance_id="i2").error_code == 0
    assert context.group.assignments.keys() == {a, b}
    again = context.join(group_instance_id="i2")
    assert again.response.generation_id == 1
    assert context.heartbeat(b, group_instance_id="i2").error_code == errors.FencedInstanceId.code


def test_a_commit_that_could_not_be_written_never_was(context: GroupContext) -> None:
    context.commit(offset=1)
    context.append_fails = True
    with pytest.raises(AppendFailed):
        context.commit(offset=2)
    assert context.committed().offset == 1


@pytest.mark.parametrize("known_ids", [True, False])
def test_a_group_that_could_not_be_created_can_be_joined_all_the_same(context: GroupContext, known_ids: bool) -> None:
    context.append_fails = True
    with pytest.raises(AppendFailed):
        context.join(client_id="a", requires_known_member_id=known_ids)
    assert (context.coordinator.groups, context.coordinator.shard.forming) == ({}, {})
    context.append_fails = False
    b, joined = context.enter("b", protocols=protocols("range"))
    context.sleep(10_000)
    assert joined.response.generation_id == 1
    assert b in context.group.members


def test_a_group_is_one_of_the_shard_when_its_first_record_is_replayed(context: GroupContext) -> None:
    coordinator = context.coordinator
    request = m.JoinRequest(GROUP, SESSION, REBALANCE, "consumer", protocols("range"))
    outcome = coordinator.join(request, now=context.now)
    assert (list(coordinator.groups), list(coordinator.shard.forming)) == ([], [GROUP])
    for record in outcome.records:
        coordinator.replay(record)
    assert (list(coordinator.groups), list(coordinator.shard.forming)) == ([GROUP], [])
    assert outcome.response.member_id in context.group.pending


def test_a_member_that_expired_while_the_log_failed_is_removed_all_the_same(context: GroupContext) -> None:
    a, _ = context.enter("a")
    b, _ = context.enter("b")
    context.wait_for_generation()
    context.sync(b)
    context.sleep(SESSION - 1)
    context.heartbeat(a)
    context.sleep(1)  # The timer of b fires while its sync waits.
    with context.losing():
        context.sync(a)
    context.sleep(SESSION - 1)
    context.heartbeat(a)
    context.sleep(1)
    assert set(context.group.members) == {a}


def test_an_empty_consumer_group_stays_one_if_the_log_does_not_take_its_end(context: GroupContext) -> None:
    beat = context.coordinator.consumer_heartbeat
    join = ConsumerHeartbeatRequest(
        group_id=GROUP,
        member_id="m",
        member_epoch=0,
        rebalance_timeout=60_000,
        subscribed_topic_names=("orders",),
        topic_partitions=(),
    )
    assert context.run(beat, join).error_code == 0
    context.run(beat, ConsumerHeartbeatRequest(group_id=GROUP, member_id="m", member_epoch=-1))
    with context.losing():
        context.join(client_id="a")
    assert context.coordinator.groups[GROUP].type == "Consumer"
    _, joined = context.enter("a")
    context.wait_for_generation()
    assert joined.response.generation_id == 1
    context.restart()
    assert context.state == "Empty"
