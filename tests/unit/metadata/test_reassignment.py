"""Partitions that move: add, remove, replace, complete, cancel, list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.metadata.controlled import Controlled

from ottla import errors
from ottla.metadata.reassignment import reassign, reassignments
from ottla.metadata.values import NO_LEADER
from ottla.types import TopicPartition

P0 = TopicPartition("orders", 0)


def move(cluster: Controlled, target: Sequence[int] | None, partition: TopicPartition = P0) -> Any:
    return cluster.run(reassign, cluster.metadata, {partition: target})[partition]


def test_a_replica_moves_to_another_broker() -> None:
    cluster = Controlled(brokers=4, assignments=[[1, 2, 3]])
    assert move(cluster, [1, 2, 4]) is None
    state = cluster.state()
    assert (state.replicas, state.isr, state.adding, state.removing) == ((1, 2, 4, 3), (1, 2, 3), (4,), (3,))
    assert reassignments(cluster.metadata) == {P0: state}
    done = cluster.alter([1, 2, 3, 4])
    assert (done.replicas, done.isr, done.adding, done.removing) == ((1, 2, 4), (1, 2, 4), (), ())
    assert (done.leader, done.leader_epoch) == (1, 1)
    assert reassignments(cluster.metadata) == {}
    assert cluster.reasons() == [
        "reassignment to brokers 1, 2, 4", "broker 4 caught up; reassignment completed",
    ]  # fmt: skip


def test_a_leader_that_is_taken_away_hears_that_there_is_a_new_one() -> None:
    cluster = Controlled(brokers=6, assignments=[[1, 2, 3]])
    move(cluster, [4, 5, 6])
    for isr in ([1, 2, 3, 4], [1, 2, 3, 4, 5]):
        assert cluster.alter(isr).leader == 1
    answer = cluster.alter([1, 2, 3, 4, 5, 6])
    assert isinstance(answer, errors.NewLeaderElected)
    assert (cluster.state().leader, cluster.state().replicas, cluster.state().isr) == (4, (4, 5, 6), (4, 5, 6))
    assert cluster.reasons()[-1] == "broker 6 caught up; reassignment completed"


def test_a_new_leader_that_has_just_caught_up_is_no_unclean_one() -> None:
    cluster = Controlled(brokers=2, assignments=[[1]])
    move(cluster, [2])
    cluster.alter([1, 2])
    assert cluster.state().leader == 2
    assert cluster.reasons()[-1] == "broker 2 caught up; reassignment completed"


def test_an_only_replica_grows_to_three_and_stays_writable() -> None:
    cluster = Controlled(assignments=[[1]], min_isr=2)
    move(cluster, [1, 2, 3])
    assert cluster.state().min_isr(2) == 1
    assert cluster.alter([1, 3]).adding == (2, 3)
    assert cluster.alter([1, 2, 3]).min_isr(2) == 2
    assert cluster.state().leader_epoch == 0


def test_replicas_are_only_taken_away_when_the_others_are_in_sync() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.fence(2)
    move(cluster, [2, 3])
    assert cluster.state().replicas == (2, 3, 1)
    assert cluster.state().leader == 1
    cluster.start(2)
    cluster.alter([1, 2, 3])
    assert (cluster.state().replicas, cluster.state().leader) == ((2, 3), 2)


def test_another_order_needs_no_data_to_move() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    move(cluster, [3, 2, 1])
    assert (cluster.state().replicas, cluster.state().leader, cluster.state().leader_epoch) == ((3, 2, 1), 1, 0)
    assert not cluster.state().is_reassigning


def test_the_same_replicas_again_change_nothing() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    assert move(cluster, [1, 2, 3]) is None
    assert cluster.state().partition_epoch == 0


def test_a_second_reassignment_replaces_the_first() -> None:
    cluster = Controlled(brokers=5, assignments=[[1, 2, 3]])
    move(cluster, [1, 2, 4])
    move(cluster, [1, 2, 5])
    state = cluster.state()
    assert (state.replicas, state.adding, state.removing) == ((1, 2, 5, 4, 3), (5, 4), (4, 3))
    assert reassignments(cluster.metadata)[P0].adding == (5,)
    assert cluster.alter([1, 2, 3, 5]).replicas == (1, 2, 5)


def test_a_cancelled_second_reassignment_gives_the_first_replicas_back() -> None:
    cluster = Controlled(brokers=5, assignments=[[1, 2, 3]])
    move(cluster, [1, 2, 4])
    cluster.alter([1, 2, 3])
    move(cluster, [1, 2, 5])
    move(cluster, None)
    assert cluster.state().replicas == (1, 2, 3)


def test_a_cancelled_reassignment_leaves_the_first_replicas() -> None:
    cluster = Controlled(brokers=5, assignments=[[1, 2, 3]])
    move(cluster, [1, 4, 5])
    cluster.alter([1, 2, 3, 4])
    assert move(cluster, None) is None
    state = cluster.state()
    assert (state.replicas, state.isr, state.adding, state.removing) == ((1, 2, 3), (1, 2, 3), (), ())
    assert state.leader_epoch == 1
    assert cluster.reasons()[-1] == "reassignment cancelled"


def test_only_what_is_under_way_can_be_cancelled() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    assert isinstance(move(cluster, None), errors.NoReassignmentInProgress)


def test_a_cancel_that_would_leave_too_few_copies_is_refused() -> None:
    cluster = Controlled(brokers=5, assignments=[[1, 2, 3]])
    move(cluster, [3, 4, 5])
    cluster.alter([1, 4, 5])
    before = cluster.state()
    answer = move(cluster, None)
    assert isinstance(answer, errors.InvalidReplicaAssignment)
    assert "only [1] of its first replicas [3, 1, 2] are in sync, and it needs 2" in str(answer)
    assert cluster.state() == before
    cluster.alter([1, 2, 4, 5])
    assert move(cluster, None) is None
    assert (cluster.state().replicas, cluster.state().isr) == ((3, 1, 2), (1, 2))


def test_a_cancel_that_needs_an_unclean_election_is_possible_where_that_is_allowed() -> None:
    cluster = Controlled(brokers=5, assignments=[[1, 2]], min_isr=1, unclean=True)
    move(cluster, [3, 4])
    cluster.alter([1, 3])
    cluster.fence(1)
    assert cluster.state().isr == (3,)
    move(cluster, None)
    assert (cluster.state().replicas, cluster.state().isr, cluster.state().leader) == ((1, 2), (2,), 2)


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        ([], "is empty"),
        ([1, 1], "name a broker twice"),
        ([1, 9], r"the brokers are \[1, 2, 3, 4\]"),
        ([1, 4], r"\[4\] are not alive"),
    ],
)
def test_targets_that_cannot_be(target: list[int], problem: str) -> None:
    cluster = Controlled(brokers=4, assignments=[[1, 2, 3]])
    cluster.fence(4)
    answer = move(cluster, target)
    assert isinstance(answer, errors.InvalidReplicaAssignment)
    with pytest.raises(errors.InvalidReplicaAssignment, match=problem):
        raise answer


def test_a_dead_replica_may_stay_where_it_is() -> None:
    cluster = Controlled(brokers=4, assignments=[[1, 2, 3]])
    cluster.fence(3)
    assert move(cluster, [1, 4, 3]) is None


def test_unknown_partitions_have_their_own_error() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    for partition in (TopicPartition("orders", 1), TopicPartition("orders", -1), TopicPartition("x", 0)):
        assert isinstance(move(cluster, [1], partition), errors.UnknownTopicOrPartition)


def test_a_list_of_named_partitions_has_only_those_that_move() -> None:
    cluster = Controlled(assignments=[[1], [1], [1]])
    move(cluster, [2])
    move(cluster, [2], TopicPartition("orders", 1))
    asked = [TopicPartition("orders", 1), TopicPartition("orders", 2), TopicPartition("orders", 7)]
    assert list(reassignments(cluster.metadata, asked)) == [TopicPartition("orders", 1)]
    assert list(reassignments(cluster.metadata)) == [P0, TopicPartition("orders", 1)]


def test_a_cancelled_reassignment_that_takes_the_last_leader_away_leaves_a_way_back() -> None:
    """The only eligible replica returns after an unclean stop. Nobody else can be better, so it leads."""
    cluster = Controlled(assignments=[[3, 1]], min_isr=2)
    cluster.fence(1)
    move(cluster, [2, 3, 1])
    cluster.alter([3, 2])
    cluster.fence(3)
    cluster.fence(2)
    cluster.start(2, clean=False)
    assert (cluster.state().leader, cluster.state().elr, cluster.state().last_known_elr) == (NO_LEADER, (3,), (2,))
    assert move(cluster, None) is None
    cluster.start(3, clean=False)
    assert (cluster.state().leader, cluster.state().isr) == (3, (3,))


def test_a_cancel_that_would_leave_nobody_who_may_lead_is_refused() -> None:
    """All replicas have stopped uncleanly, and the last leader is a new one."""
    cluster = Controlled(assignments=[[2, 3]], min_isr=2)
    cluster.fence(2)
    move(cluster, [1, 2])
    cluster.alter([3, 1])
    cluster.fence(3)
    cluster.fence(1)
    for broker in (1, 3):
        cluster.start(broker, clean=False)
        cluster.fence(broker)
    assert (cluster.state().elr, cluster.state().last_known_elr) == ((), (1,))
    answer = move(cluster, None)
    assert isinstance(answer, errors.InvalidReplicaAssignment)
    cluster.start(1, clean=False)
    assert cluster.state().leader == 1
