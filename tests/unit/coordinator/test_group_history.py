"""Each rebalance is recorded with its reason, its cause, the time of each phase and the partitions that moved."""

from __future__ import annotations

import gc

from group_context import SESSION, START, GroupContext, assignment, protocols, subscription

from ottla.coordinator import history
from ottla.coordinator import messages as m
from ottla.coordinator import records as r


def who(member_id: str, instance_id: str | None = None) -> r.Who:
    client_id = member_id.partition("-")[0]
    return r.Who(member_id, instance_id, client_id, "/127.0.0.1")


def last(context: GroupContext) -> r.HistoryValue:
    return context.rebalances()[-1]


def hangs(context: GroupContext) -> r.HistoryValue:
    """Let a rebalance take some time, and return its record."""
    context.sleep(1_000)
    return context.under_way()


def kinds(value: r.HistoryValue) -> list[tuple[str, str | None]]:
    return [(trigger.kind, trigger.who.member_id if trigger.who else None) for trigger in value.triggers]


def move(partition: int, source: str | None, target: str | None) -> r.PartitionMove:
    return r.PartitionMove("orders", partition, source, target)


def test_the_first_rebalance_names_who_joined_and_what_they_were_given(context: GroupContext) -> None:
    a, _ = context.enter("a", reason="starting")
    context.sleep(500)
    b, _ = context.enter("b")
    context.wait_for_generation()
    context.sleep(200)
    context.settle([a, b])
    assert context.rebalances() == [
        r.HistoryValue(
            number=0,
            generation=1,
            outcome=history.STABLE,
            protocol="range",
            started_at=START,
            joined_at=START + 6_000,
            ended_at=START + 6_200,
            members=2,
            leader=a,
            triggers=(
                r.Trigger(history.MEMBER_JOINED, START, who(a), "starting"),
                r.Trigger(history.MEMBER_JOINED, START + 500, who(b), ""),
            ),
            triggers_left_out=0,
            late=(),
            partitions_kept=0,
            partitions_moved=2,
            moves=(move(0, None, a), move(1, None, b)),
        )
    ]


def test_a_member_that_left_is_named_with_its_reason_and_its_partitions(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.leave(m.LeavingMember(b, None, "the consumer is being closed"))
    context.join(a)
    context.sync(a, assignments=(m.MemberAssignment(a, assignment(orders=[0, 1])),))
    value = last(context)
    assert kinds(value) == [(history.MEMBER_LEFT, b)]
    assert value.triggers[0].reason == "the consumer is being closed"
    assert (value.partitions_kept, value.partitions_moved, value.moves) == (1, 1, (move(1, b, a),))
    assert value.generation == 2


def test_an_expired_session_is_named(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.sleep(SESSION - 1)
    context.heartbeat(a)
    context.sleep(1)
    assert kinds(hangs(context)) == [(history.SESSION_EXPIRED, b)]
    assert context.under_way().triggers[0].who == who(b)


def test_a_leader_that_saw_new_partitions_is_named_with_its_reason(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.join(a, reason="cached metadata has changed")
    context.join(b)
    context.settle([a, b])
    assert kinds(last(context)) == [(history.LEADER_REJOINED, a)]
    assert last(context).triggers[0].reason == "cached metadata has changed"
    assert (last(context).partitions_kept, last(context).partitions_moved) == (2, 0)


def test_a_changed_subscription_is_named(context: GroupContext) -> None:
    _, b = context.stable("a", "b")
    context.join(b, protocols=protocols("range", metadata=subscription("payments")))
    assert kinds(hangs(context)) == [(history.SUBSCRIPTION_CHANGED, b)]


def test_a_member_that_only_owns_something_else_now_did_not_change_its_subscription(context: GroupContext) -> None:
    """As in a cooperative rebalance: a member that joins again no longer lists the partitions that it has revoked."""
    a, b = context.stable("a", "b")
    context.join(b, protocols=protocols("range", metadata=subscription("orders") + b"\0\0\0\0"), reason="revoked")
    assert kinds(hangs(context)) == [(history.MEMBER_REJOINED, b)]
    context.join(a)
    context.settle([a, b])
    context.join(a, protocols=protocols("range", metadata=subscription("orders") + b"\0\0\0\0"), reason="enforced")
    assert kinds(hangs(context)) == [(history.LEADER_REJOINED, a)]


def test_members_that_never_synced_are_named(context: GroupContext) -> None:
    a, _ = context.enter("a")
    b, _ = context.enter("b")
    c, _ = context.enter("c")
    context.wait_for_generation()
    context.sync(a, assignments=())
    while context.state == "Stable":
        context.sleep(30_000)
        for member_id in (a, b, c):
            context.heartbeat(member_id)
    assert kinds(hangs(context)) == [(history.NEVER_SYNCED, b), (history.NEVER_SYNCED, c)]


def test_a_static_member_that_returned_is_recorded_though_nothing_moved(context: GroupContext) -> None:
    context.stable_static("i1", "i2")
    context.sleep(1_000)
    call = context.join(group_instance_id="i2", client_id="i2", reason="restarted")
    (value,) = call.history
    assert value is not None
    assert (value.outcome, value.generation) == (history.UNCHANGED, 1)
    assert value.triggers == (r.Trigger(history.STATIC_MEMBER_REPLACED, context.now, who("i2-3", "i2"), "restarted"),)
    assert (value.partitions_kept, value.partitions_moved) == (2, 0)


def test_a_static_member_that_came_back_during_a_rebalance_keeps_its_partitions_in_the_account(
    context: GroupContext,
) -> None:
    a, b = context.stable_static("i1", "i2")
    context.join(a, group_instance_id="i1")
    new = context.join(group_instance_id="i2").response.member_id
    context.settle([a, new])
    assert b not in context.group.members
    assert (last(context).partitions_kept, last(context).partitions_moved) == (2, 0)


def test_a_group_that_became_empty_says_so(context: GroupContext) -> None:
    (a,) = context.stable("a")
    context.leave(a)
    value = last(context)
    assert (value.outcome, value.generation, value.members, value.leader) == (history.EMPTY, 2, 0, "")
    assert value.moves == (move(0, a, None),)


def test_the_one_that_the_others_waited_for_is_named(context: GroupContext) -> None:
    a, b, c = context.stable("a", "b", "c")
    context.join(a)
    context.sleep(300)
    context.join(b)
    context.sleep(8_700)
    context.join(c)
    context.settle([a, b, c])
    assert last(context).late == (r.Latecomer(who(c), 9_000, removed=False),)


def test_those_who_did_not_come_at_all_are_named_and_gone(context: GroupContext) -> None:
    a, b = context.stable("a", "b", session_timeout=600_000, rebalance_timeout=60_000)
    context.join(a, session_timeout=600_000, rebalance_timeout=60_000)
    assert hangs(context).waiting_for == (who(b),)
    context.sleep(59_000)
    context.settle([a])
    assert last(context).late == (r.Latecomer(who(b), 60_000, removed=True),)
    assert kinds(last(context)) == [(history.LEADER_REJOINED, a)]


def test_a_rebalance_that_takes_its_time_tells_why_and_since_when_and_whom_it_waits_for(context: GroupContext) -> None:
    a, b, c = context.stable("a", "b", "c")
    began = context.now
    context.join(a, reason="cached metadata has changed")
    context.sleep(999)
    assert context.all_under_way() == []
    context.sleep(1)
    assert context.under_way() == r.HistoryValue(
        number=1,
        generation=1,
        outcome=history.UNDER_WAY,
        protocol="range",
        started_at=began,
        joined_at=-1,
        ended_at=began + 1_000,
        members=3,
        leader=a,
        triggers=(r.Trigger(history.LEADER_REJOINED, began, who(a), "cached metadata has changed"),),
        triggers_left_out=0,
        late=(),
        partitions_kept=0,
        partitions_moved=0,
        moves=(),
        waiting_for=(who(b), who(c)),
    )


def test_who_has_come_meanwhile_is_no_longer_waited_for(context: GroupContext) -> None:
    a, b, c = context.stable("a", "b", "c")
    context.join(a)
    context.sleep(1_000)
    context.join(b)
    context.sleep(5_000)
    assert context.under_way().waiting_for == (who(c),)
    told = context.under_way().ended_at
    context.sleep(20_000)
    assert context.under_way().ended_at == told  # Nothing has changed.
    context.join(c)
    context.settle([a, b, c])
    assert context.all_under_way() == []
    assert [value.number for value in context.rebalances()] == [0, 1]


def test_a_leader_that_does_not_assign_is_waited_for(context: GroupContext) -> None:
    a, _ = context.enter("a")
    b, _ = context.enter("b")
    context.wait_for_generation()
    joined = context.now
    context.sync(b)
    value = hangs(context)
    assert (value.started_at, value.joined_at, value.waiting_for) == (START, joined, (who(a),))


def test_a_quick_rebalance_is_one_record(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    before = len(context.log)
    context.join(a)
    context.sleep(900)
    context.join(b)
    context.settle([a, b])
    context.sleep(10_000)
    assert len(context.log) - before == 2  # The group and its history.


def test_a_rebalance_that_a_restart_took_back_is_recorded_with_its_reason(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    c, _ = context.enter("c")
    hangs(context)
    context.restart()
    context.sleep(0)
    assert context.all_under_way() == []
    value = last(context)
    assert (value.outcome, value.number, value.generation, kinds(value)) == (
        history.INTERRUPTED,
        1,
        1,
        [(history.MEMBER_JOINED, c)],
    )
    assert (value.partitions_kept, value.partitions_moved) == (2, 0)
    context.join(a)
    context.join(b)
    context.settle([a, b])
    assert (last(context).number, kinds(last(context))) == (2, [(history.LEADER_REJOINED, a)])


def test_a_group_that_could_not_be_recorded_goes_on_and_is_recorded_later(context: GroupContext) -> None:
    a, b = context.stable("a", "b", rebalance_timeout=60_000)
    context.join(a, rebalance_timeout=60_000)
    with context.losing():
        context.sleep(1_000)
    context.sleep(1_000)
    assert context.under_way().waiting_for == (who(b),)
    assert context.timers.next_deadline() is not None
    context.sleep(58_000)
    assert context.state == "CompletingRebalance"  # The wait for joins was not extended.


def test_a_rebalance_that_begins_again_before_it_ended_is_one_with_all_its_reasons(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.join(a)
    context.join(b)
    assert context.group.generation == 2
    c, _ = context.enter("c")
    context.join(a)
    context.join(b)
    context.settle([a, b, c])
    value = last(context)
    assert value.generation == 3
    assert kinds(value) == [(history.LEADER_REJOINED, a), (history.MEMBER_JOINED, c)]
    assert value.number == 1


def test_only_the_last_fifty_rebalances_are_kept(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    for _ in range(59):
        context.join(a)
        context.join(b)
        context.settle([a, b])
    kept = context.rebalances()
    assert [value.number for value in kept] == list(range(10, 60))
    assert kept[-1].generation == 60


def test_what_is_in_the_log_is_not_kept_in_memory_too(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    partitions = [assignment(orders=range(100)), assignment(orders=range(100, 200))]
    for _ in range(60):
        partitions.reverse()
        context.join(a)
        context.join(b)
        context.sync(a, assignments=tuple(map(m.MemberAssignment, (a, b), partitions)))
        context.sync(b)
    assert last(context).partitions_moved == 200
    gc.collect()
    assert not [each for each in gc.get_objects() if isinstance(each, r.HistoryValue) and each.number < 58]


def test_the_history_survives_a_restart(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.join(a)
    context.join(b)
    context.settle([a, b])
    before = context.rebalances()
    context.log = list(dict(context.log).items())
    context.restart()
    assert context.rebalances() == before
    context.join(a)
    context.join(b)
    context.settle([a, b])
    assert [value.number for value in context.rebalances()] == [0, 1, 2]


def test_what_moved_after_a_restart_is_measured_from_before_it(context: GroupContext) -> None:
    a, b = context.stable("a", "b")
    context.restart()
    context.leave(b)
    context.join(a)
    context.sync(a, assignments=(m.MemberAssignment(a, assignment(orders=[0, 1])),))
    assert last(context).moves == (move(1, b, a),)


def test_long_lists_are_cut_and_say_so(context: GroupContext) -> None:
    members = context.stable(*(f"m{number}" for number in range(30)))
    everything = assignment(orders=range(500))
    value = last(context)
    assert (len(value.triggers), value.triggers_left_out) == (20, 10)
    context.leave(*members[1:])
    context.join(members[0])
    context.sync(members[0], assignments=(m.MemberAssignment(members[0], everything),))
    value = last(context)
    assert (len(value.moves), value.partitions_moved, value.partitions_kept) == (100, 499, 1)


def test_assignments_that_are_not_of_consumers_count_no_partitions(context: GroupContext) -> None:
    worker, _ = context.enter("worker", protocol_type="connect", protocols=protocols("default", metadata=b"x"))
    context.wait_for_generation()
    context.sync(worker, assignments=(m.MemberAssignment(worker, b"\0\0\xff\xff\xff\xff\xff"),))
    assert (last(context).partitions_moved, last(context).members) == (0, 1)
