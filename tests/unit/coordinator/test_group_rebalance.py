"""The rebalance of a classic group by itself: the waits for joins and syncs, and the generation between them."""

from __future__ import annotations

from group_context import GROUP, JOIN_TIMER, REBALANCE, SESSION, START, SYNC_TIMER, heartbeat_timer
from group_parts import Parts, member, trigger

from ottla import errors
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic.rebalance import InitialDelay
from ottla.coordinator.classic.states import State


def preparing(parts: Parts, *, joined: tuple[str, ...] = ()) -> None:
    """Let a stable group start to rebalance, with some members that have joined."""
    parts.status.state = State.STABLE
    parts.rebalance.prepare(trigger(), parts.effects())
    for member_id in joined:
        parts.rebalance.park_join(parts.roster.members[member_id], parts.effects())


def test_the_initial_delay_is_extended_while_members_join_and_at_most_to_the_rebalance_timeout() -> None:
    delay = InitialDelay(3_000, longest=5_000)
    delay.newcomers = True
    assert delay.extend() == 2_000
    delay.newcomers = True
    assert delay.extend() is None
    assert InitialDelay(3_000, longest=60_000).extend() is None
    short = InitialDelay(3_000, longest=1_000)
    short.newcomers = True
    assert short.extend() is None


def test_the_first_generation_waits_for_its_delay_even_if_everybody_has_joined() -> None:
    parts, fx = Parts(member("a")), Parts().effects()
    parked = parts.rebalance.park_join(parts.roster.members["a-1"], fx)
    parts.rebalance.request(trigger(), fx)
    parts.rebalance.maybe_complete(fx)
    assert parts.status.state is State.PREPARING_REBALANCE
    assert fx.timers == {JOIN_TIMER: START + 3_000}
    fx = parts.effects(3_000)
    parts.rebalance.join_timer(fx)
    assert parts.status.state is State.COMPLETING_REBALANCE
    assert fx.answers[parked.token].generation_id == 1


def test_the_last_join_makes_the_generation() -> None:
    parts = Parts(member("a"), member("b", "range", "sticky"))
    preparing(parts, joined=("b-1",))
    assert [each.member_id for each in parts.rebalance.awaited()] == ["a-1"]
    fx = parts.effects(100)
    parts.rebalance.park_join(parts.roster.members["a-1"], fx)
    parts.rebalance.maybe_complete(fx)
    leader, follower = sorted(fx.answers.values(), key=lambda response: -len(response.members))
    assert (leader.member_id, [each.member_id for each in leader.members]) == ("a-1", ["a-1", "b-1"])
    assert (follower.member_id, follower.members, follower.leader) == ("b-1", (), "a-1")
    assert (follower.generation_id, follower.protocol_name) == (1, "range")
    assert [each.member_id for each in parts.rebalance.awaited()] == ["a-1"]
    assert fx.timers[JOIN_TIMER] is None
    assert fx.timers[SYNC_TIMER] == START + 100 + REBALANCE
    assert fx.records == []


def test_members_that_do_not_join_in_time_are_removed_but_for_static_ones() -> None:
    parts = Parts(member("a"), member("b", instance_id="i"), member("c"))
    preparing(parts, joined=("c-1",))
    fx = parts.effects(REBALANCE)
    parts.rebalance.join_timer(fx)
    assert (list(parts.roster.members), parts.roster.leader) == (["b-1", "c-1"], "c-1")
    assert fx.timers[heartbeat_timer("a-1")] is None
    assert parts.history.trace is not None
    assert [(each.who.member_id, each.removed) for each in parts.history.trace.late] == [("a-1", True), ("b-1", False)]


def test_a_group_of_absent_static_members_waits_on() -> None:
    parts = Parts(member("a", instance_id="i"))
    preparing(parts)
    fx = parts.effects(REBALANCE)
    parts.rebalance.join_timer(fx)
    assert parts.status.state is State.PREPARING_REBALANCE
    assert fx.timers == {JOIN_TIMER: START + 2 * REBALANCE}


def test_without_members_the_group_is_written_empty_and_changes_when_that_is_replayed() -> None:
    parts, fx = Parts(member("a")), Parts().effects()
    parts.status.state = State.STABLE
    parts.rebalance.remove(parts.roster.members["a-1"], fx)
    parts.rebalance.after_removal([trigger("member left")], fx)
    assert fx.records[0] == (r.GroupMetadataKey(GROUP), r.GroupMetadataValue("consumer", 1, None, None, START, ()))
    assert (parts.status.state, parts.status.generation) == (State.PREPARING_REBALANCE, 0)


def test_the_leaders_sync_answers_everybody_and_a_late_member_gets_its_share_from_the_stable_group() -> None:
    parts = Parts(member("a"), member("b"), member("c"))
    preparing(parts, joined=("a-1", "b-1", "c-1"))
    parts.rebalance.maybe_complete(parts.effects())
    fx = parts.effects()
    a, b, c = parts.roster.members.values()
    first, second = parts.rebalance.sync(b, (), fx), parts.rebalance.sync(b, (), fx)
    given = (m.MemberAssignment("a-1", b"A"), m.MemberAssignment("b-1", b"B"), m.MemberAssignment("c-1", b"C"))
    parts.rebalance.sync(a, given, fx)
    answers = {token: (each.error_code, each.assignment) for token, each in fx.answers.items()}
    assert not isinstance(first, m.SyncResponse)
    assert not isinstance(second, m.SyncResponse)
    assert answers[first.token] == (errors.RebalanceInProgress.code, b"")
    assert answers[second.token] == (0, b"B")
    value = fx.records[0].value
    assert isinstance(value, r.GroupMetadataValue)
    assert list(parts.rebalance.unsynced) == ["c-1"]
    parts.status.replay(value)
    parts.roster.replay(value)
    parts.rebalance.replay()
    assert not parts.rebalance.is_over
    assert parts.rebalance.sync(c, (), fx) == m.SyncResponse(0, "consumer", "range", b"C")
    assert fx.timers[SYNC_TIMER] is None
    assert parts.rebalance.is_over


def test_members_that_never_sync_are_removed_and_the_others_join_again() -> None:
    parts = Parts(member("a"), member("b"))
    preparing(parts, joined=("a-1", "b-1"))
    fx = parts.effects()
    parts.rebalance.maybe_complete(fx)
    waiting = parts.rebalance.sync(parts.roster.members["b-1"], (), fx)
    fx = parts.effects(REBALANCE)
    parts.rebalance.sync_timer(fx)
    assert list(parts.roster.members) == ["b-1"]
    assert parts.status.state is State.PREPARING_REBALANCE
    assert not isinstance(waiting, m.SyncResponse)
    assert fx.answers[waiting.token].error_code == errors.RebalanceInProgress.code


def test_every_timer_can_be_set_again() -> None:
    parts = Parts(member("a"), member("b"))
    preparing(parts, joined=("a-1",))
    parts.rebalance.touch(parts.roster.members["b-1"], parts.effects())
    fx = parts.effects(500)
    parts.rebalance.set_timers(fx)
    history_timer = ("history", GROUP)
    assert fx.timers == {
        heartbeat_timer("b-1"): START + SESSION,
        history_timer: START + 1_500,
        JOIN_TIMER: START + 500 + REBALANCE,
    }
    fx = parts.effects(600)
    parts.rebalance.park_join(parts.roster.members["b-1"], fx)
    parts.rebalance.maybe_complete(fx)
    fx = parts.effects(700)
    parts.rebalance.set_timers(fx)
    assert fx.timers[SYNC_TIMER] == START + 700 + REBALANCE
    assert JOIN_TIMER not in fx.timers
