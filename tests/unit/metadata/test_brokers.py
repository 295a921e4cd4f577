"""Brokers that start, stop and fail: who leads what afterwards, and which messages are too old."""

from __future__ import annotations

import time

import pytest
from tests.unit.metadata.controlled import Controlled

from ottla import errors
from ottla.metadata.brokers import begin_controlled_shutdown, fence_broker, register_broker, unregister_broker
from ottla.metadata.reassignment import reassign
from ottla.metadata.values import NO_LEADER, Registration
from ottla.types import TopicPartition

P0 = TopicPartition("orders", 0)


def test_a_fenced_broker_leads_nothing_and_is_in_no_isr() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [2, 3, 1]])
    assert cluster.fence(1)
    assert cluster.metadata.brokers[1].is_fenced
    assert [(cluster.state(i).leader, cluster.state(i).isr) for i in (0, 1)] == [(2, (2, 3)), (2, (2, 3))]
    assert cluster.reasons() == ["broker 1 stopped"]


def test_partitions_of_other_brokers_do_not_change() -> None:
    cluster = Controlled(assignments=[[1, 2], [2, 3]])
    cluster.fence(1)
    assert cluster.state(1).partition_epoch == 0


def test_fencing_twice_or_an_unknown_broker_or_an_old_life_changes_nothing() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    old = cluster.metadata.brokers[1].epoch
    cluster.start(1)
    before = cluster.state()
    assert cluster.run(fence_broker, cluster.metadata, 1, old, "broker 1 stopped") is False
    assert cluster.run(fence_broker, cluster.metadata, 9, old, "broker 9 stopped") is False
    assert cluster.state() == before
    assert not cluster.metadata.brokers[1].is_fenced
    assert cluster.fence(1)
    assert not cluster.fence(1)


def test_a_registration_of_an_old_life_is_ignored() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    known = cluster.metadata.brokers[1]
    for epoch in (known.epoch, known.epoch - 1):
        late = Registration(1, epoch, -1, ())
        assert cluster.run(register_broker, cluster.metadata, late) is False
    assert cluster.metadata.brokers[1] == known


def test_a_broker_that_comes_back_leads_the_partitions_that_wait_for_it() -> None:
    cluster = Controlled(assignments=[[1], [1, 2]])
    cluster.fence(1)
    assert (cluster.state(0).leader, cluster.state(1).leader) == (NO_LEADER, 2)
    cluster.start(1)
    assert (cluster.state(0).leader, cluster.state(1).leader) == (1, 2)
    assert cluster.state(1).isr == (2,)
    assert cluster.reasons()[-1] == "broker 1 is back"


def test_a_clean_restart_keeps_the_right_to_lead() -> None:
    cluster = Controlled(assignments=[[1, 2]])
    cluster.fence(2)
    cluster.fence(1)
    assert cluster.state().elr == (1, 2)
    cluster.start(2)
    assert (cluster.state().leader, cluster.state().elr) == (2, (1,))


def test_an_uncleanly_restarted_broker_leads_only_after_the_others() -> None:
    cluster = Controlled(assignments=[[1, 2]])
    cluster.fence(2)
    cluster.fence(1)
    cluster.start(2, clean=False)
    assert (cluster.state().leader, cluster.state().elr) == (NO_LEADER, (1,))
    cluster.start(1)
    assert (cluster.state().leader, cluster.state().isr, cluster.state().elr) == (1, (1,), ())


def test_if_all_restart_uncleanly_the_last_leader_leads_and_the_reason_says_what_that_means() -> None:
    cluster = Controlled(assignments=[[1, 2]])
    cluster.fence(2)
    cluster.fence(1)
    cluster.start(2, clean=False)
    cluster.start(1, clean=False)
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))
    assert cluster.reasons()[-1] == "broker 1 is back; unclean election: records may be lost"


def test_a_restart_that_nobody_noticed_takes_leaderships_away_first() -> None:
    """The process is another one, so nothing that was agreed with the old one holds."""
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.start(1, clean=False)
    assert (cluster.state().leader, cluster.state().isr) == (2, (2, 3))
    cluster.start(2)
    assert (cluster.state().leader, cluster.state().isr, cluster.state().elr) == (3, (3,), (2,))


def test_a_restarted_only_replica_leads_in_a_new_epoch() -> None:
    cluster = Controlled(assignments=[[1]])
    cluster.start(1, clean=False)
    assert (cluster.state().leader, cluster.state().isr, cluster.state().leader_epoch) == (1, (1,), 2)


def test_a_broker_is_out_of_the_isr_before_it_is_unfenced() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    first = len(cluster.records)
    cluster.start(2, clean=False)
    assert [type(record).__name__ for record in cluster.records[first:]] == ["PartitionsChanged", "BrokerRegistered"]


def test_a_controlled_shutdown_moves_leaderships_and_leaves_isrs() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [2, 1, 3]])
    assert cluster.shut_down(1) == []
    assert not cluster.metadata.brokers[1].is_active
    assert [(cluster.state(i).leader, cluster.state(i).isr) for i in (0, 1)] == [(2, (2, 3)), (2, (2, 3))]
    assert cluster.reasons() == ["broker 1 is shutting down"]


def test_a_broker_that_shuts_down_leads_on_while_nobody_else_is_in_sync() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [1]], min_isr=1)
    cluster.alter([1])
    assert cluster.shut_down(1) == [P0, TopicPartition("orders", 1)]
    assert (cluster.state().leader, cluster.state().isr) == (1, (1,))
    # As soon as a follower has caught up, it leads.
    assert isinstance(cluster.alter([1, 2]), errors.NewLeaderElected)
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))
    assert cluster.shut_down(1) == [TopicPartition("orders", 1)]


def test_a_controlled_shutdown_of_an_old_life_is_refused() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    old = cluster.metadata.brokers[1].epoch
    cluster.start(1)
    with pytest.raises(errors.StaleBrokerEpoch, match=f"not {old}"):
        begin_controlled_shutdown(cluster.metadata, 1, old, now=0)
    with pytest.raises(errors.StaleBrokerEpoch, match="not registered"):
        begin_controlled_shutdown(cluster.metadata, 9, old, now=0)


def test_a_fenced_broker_has_nothing_left_to_move() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.fence(1)
    assert cluster.shut_down(1) == []


def test_a_stopped_broker_without_replicas_is_forgotten() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]], brokers=4)
    cluster.fence(4)
    cluster.run(unregister_broker, cluster.metadata, 4)
    assert sorted(cluster.metadata.brokers) == [1, 2, 3]


def test_a_broker_that_runs_or_has_replicas_or_is_unknown_is_not_forgotten() -> None:
    cluster = Controlled(assignments=[[1, 2], [1, 3], [1], [1, 2], [1]])
    with pytest.raises(errors.InvalidRequest, match="is running"):
        unregister_broker(cluster.metadata, 1, now=0)
    cluster.fence(1)
    with pytest.raises(errors.InvalidRequest, match="orders-0, orders-1, orders-2 and 2 more"):
        unregister_broker(cluster.metadata, 1, now=0)
    with pytest.raises(errors.BrokerIdNotRegistered, match=r"\[1, 2, 3\]"):
        unregister_broker(cluster.metadata, 4, now=0)


def test_a_dead_broker_can_be_drained_and_forgotten() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]], brokers=4)
    cluster.fence(3)
    cluster.run(reassign, cluster.metadata, {P0: [1, 2, 4]})
    cluster.alter([1, 2, 4])
    cluster.run(unregister_broker, cluster.metadata, 3)
    assert cluster.state().replicas == (1, 2, 4)


def test_fencing_the_leader_of_thousands_of_partitions_is_fast() -> None:
    cluster = Controlled(assignments=[[i % 3 + 1, (i + 1) % 3 + 1, (i + 2) % 3 + 1] for i in range(10_000)])
    epoch = cluster.metadata.brokers[1].epoch
    began = time.process_time()
    outcome = fence_broker(cluster.metadata, 1, epoch, "broker 1 stopped", now=0)
    for record in outcome.records:
        cluster.metadata.replay(record)
    assert time.process_time() - began < 1  # 0.1 s; a loaded machine needs more
    assert all(state.leader in (2, 3) for state in cluster.metadata.topics["orders"].states)
