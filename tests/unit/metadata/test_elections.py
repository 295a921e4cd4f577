"""The next state of one partition: leaders, ISR, eligible replicas, epochs, the end of a reassignment."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.metadata.elections import Rules, is_unclean, settle
from ottla.metadata.values import NO_LEADER, PartitionState

THREE = PartitionState.new([1, 2, 3])
ALL = frozenset({1, 2, 3})


def leave(state: PartitionState, broker_id: int, rules: Rules, **kwargs: bool) -> PartitionState:
    """Let a broker leave the ISR."""
    isr = tuple(each for each in state.isr if each != broker_id)
    return settle(state, replace(state, isr=isr), rules, **kwargs)


def test_nothing_to_do_is_the_same_state() -> None:
    assert settle(THREE, THREE, Rules(ALL, 2)) is THREE


def test_the_first_active_member_of_the_isr_in_the_order_of_the_replicas_leads() -> None:
    state = replace(THREE, replicas=(3, 1, 2))
    assert leave(state, 1, Rules({2, 3}, 2)).leader == 3


def test_a_new_leader_raises_both_epochs() -> None:
    after = leave(THREE, 1, Rules({2, 3}, 2))
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (2, (2, 3), 1, 1)


def test_a_follower_that_leaves_raises_only_the_partition_epoch() -> None:
    after = leave(THREE, 3, Rules({1, 2}, 2))
    assert (after.leader, after.isr, after.leader_epoch, after.partition_epoch) == (1, (1, 2), 0, 1)


def test_a_replica_that_leaves_above_the_minimum_is_not_eligible() -> None:
    assert leave(THREE, 3, Rules({1, 2}, 2)).elr == ()


def test_a_replica_that_leaves_below_the_minimum_stays_eligible() -> None:
    two = leave(THREE, 3, Rules({1, 2}, 2))
    one = leave(two, 2, Rules({1}, 2))
    assert (one.isr, one.elr, one.leader) == ((1,), (2,), 1)


def test_an_eligible_replica_leads_when_the_isr_is_empty() -> None:
    one = replace(THREE, isr=(1,), elr=(2,))
    after = leave(one, 1, Rules({2, 3}, 2))
    assert (after.leader, after.isr, after.elr) == (2, (2,), (1,))


def test_without_an_eligible_replica_the_partition_is_offline_and_remembers_its_leader() -> None:
    one = replace(THREE, isr=(1,), elr=(2,))
    after = leave(one, 1, Rules({3}, 2))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (NO_LEADER, (), (1, 2), (1,))


def test_a_replica_that_lost_records_is_not_eligible() -> None:
    one = replace(THREE, isr=(1,), elr=(2,))
    after = settle(one, replace(one, isr=()), Rules({3}, 2), lost={1})
    assert after.elr == (2,)


def test_the_last_leader_leads_again_when_nobody_is_eligible() -> None:
    offline = replace(THREE, isr=(), leader=NO_LEADER, last_known_elr=(1,))
    assert settle(offline, offline, Rules({2, 3}, 2)) is offline
    after = settle(offline, offline, Rules({1, 2, 3}, 2))
    assert (after.leader, after.isr, after.last_known_elr) == (1, (1,), ())
    assert is_unclean(offline, offline, after)


def test_the_last_leader_waits_for_an_eligible_replica() -> None:
    offline = replace(THREE, isr=(), leader=NO_LEADER, elr=(2,), last_known_elr=(1,))
    assert settle(offline, offline, Rules({1, 3}, 2)) is offline


def test_an_unclean_election_takes_any_active_replica_and_forgets_the_eligible_ones() -> None:
    offline = replace(THREE, isr=(), leader=NO_LEADER, elr=(2,), last_known_elr=(2,))
    assert settle(offline, offline, Rules({3}, 2)) is offline
    after = settle(offline, offline, Rules({3}, 2, unclean=True))
    assert (after.leader, after.isr, after.elr, after.last_known_elr) == (3, (3,), (), ())


def test_an_isr_with_its_minimum_has_no_eligible_replicas_beside_it() -> None:
    one = replace(THREE, isr=(1,), elr=(2,))
    assert settle(one, replace(one, isr=(1, 3)), Rules(ALL, 2)).elr == ()


def test_eligible_replicas_are_void_once_the_minimum_was_lowered() -> None:
    one = replace(THREE, isr=(1,), elr=(2,))
    after = leave(one, 1, Rules({2, 3}, 1))
    assert (after.leader, after.elr) == (NO_LEADER, (1,))


@pytest.mark.parametrize(("leader", "prefer", "expected"), [(2, False, 2), (2, True, 1), (1, True, 1)])
def test_the_preferred_leader_takes_over_only_when_asked(leader: int, prefer: bool, expected: int) -> None:
    state = replace(THREE, leader=leader)
    assert settle(state, state, Rules(ALL, 2), prefer_first=prefer).leader == expected


def test_a_preferred_leader_that_is_not_in_sync_takes_nothing_over() -> None:
    state = replace(THREE, leader=2, isr=(2, 3))
    assert settle(state, state, Rules(ALL, 2), prefer_first=True) is state


def test_a_reassignment_ends_when_all_its_replicas_are_in_sync() -> None:
    moving = replace(THREE, replicas=(4, 2, 3, 1), adding=(4,), removing=(1,))
    active = Rules({1, 2, 3, 4}, 2)
    assert settle(moving, replace(moving, isr=(1, 2, 4)), active).adding == (4,)
    after = settle(moving, replace(moving, isr=(1, 2, 3, 4)), active)
    assert (after.replicas, after.isr, after.adding, after.removing) == ((4, 2, 3), (4, 2, 3), (), ())
    assert (after.leader, after.leader_epoch) == (4, 1)


def test_a_reassignment_that_only_adds_keeps_leader_and_leader_epoch() -> None:
    growing = replace(PartitionState.new([1]), replicas=(1, 2), adding=(2,))
    after = settle(growing, replace(growing, isr=(1, 2)), Rules({1, 2}, 2))
    assert (after.leader, after.leader_epoch, after.adding) == (1, 0, ())


def test_a_leader_that_stays_gets_a_new_epoch_when_a_replica_is_taken_away() -> None:
    """The removed replica may come back empty. What the leader knows of it is of the old epoch."""
    shrinking = replace(THREE, removing=(3,))
    after = settle(shrinking, shrinking, Rules(ALL, 2))
    assert (after.replicas, after.leader, after.leader_epoch) == ((1, 2), 1, 1)


def test_a_partition_that_grows_needs_no_larger_isr_before_it_has_grown() -> None:
    growing = replace(PartitionState.new([1]), replicas=(1, 2, 3), adding=(2, 3))
    assert growing.min_isr(2) == 1
    assert settle(growing, growing, Rules(ALL, 2)) is growing
