"""Replicas whose disk has failed, on brokers that are alive."""

from __future__ import annotations

import pytest
from tests.unit.metadata.controlled import Controlled

from ottla import errors
from ottla.metadata.brokers import fail_replicas
from ottla.metadata.partitions import elect_leaders, elect_offline
from ottla.metadata.values import NO_LEADER
from ottla.types import TopicPartition

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)


def fail(cluster: Controlled, broker_id: int, *partitions: TopicPartition) -> None:
    epoch = cluster.metadata.brokers[broker_id].epoch
    cluster.run(fail_replicas, cluster.metadata, broker_id, epoch, partitions)


def test_only_the_partitions_of_the_disk_get_another_leader() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [1, 2, 3]])
    fail(cluster, 1, P0)
    assert (cluster.state(0).leader, cluster.state(0).isr, cluster.state(0).offline) == (2, (2, 3), (1,))
    assert (cluster.state(1).leader, cluster.state(1).isr, cluster.state(1).offline) == (1, (1, 2, 3), ())
    assert cluster.reasons() == ["a disk of broker 1 failed"]


def test_a_replica_without_a_disk_is_not_elected_even_if_it_is_the_last_one() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    fail(cluster, 1, P0)
    cluster.fence(2)
    cluster.fence(3)
    assert cluster.state().leader == NO_LEADER
    cluster.run(elect_offline, cluster.metadata)
    cluster.run(elect_leaders, cluster.metadata, [P0], unclean=True)
    assert cluster.state().leader == NO_LEADER
    cluster.start(3)
    assert cluster.state().leader == 3


def test_after_a_restart_it_must_catch_up_before_it_can_lead() -> None:
    # The new disk may be empty, although the broker stopped cleanly.
    cluster = Controlled(assignments=[[1, 2]])
    fail(cluster, 1, P0)
    cluster.fence(2)
    cluster.fence(1)
    cluster.start(1)
    assert (cluster.state().leader, cluster.state().offline) == (NO_LEADER, ())
    assert 1 not in cluster.state().isr + cluster.state().elr
    cluster.start(2)
    assert cluster.state().leader == 2


def test_the_only_replica_leads_again_after_a_restart() -> None:
    cluster = Controlled(assignments=[[1], [2]], min_isr=1)
    fail(cluster, 1, P0)
    assert (cluster.state(0).leader, cluster.state(0).offline) == (NO_LEADER, (1,))
    cluster.start(1, clean=False)
    assert (cluster.state(0).leader, cluster.state(0).offline) == (1, ())


def test_it_cannot_join_the_isr() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    fail(cluster, 3, P0)
    assert cluster.state().isr == (1, 2)
    answer = cluster.alter((1, 2, 3))
    assert isinstance(answer, errors.IneligibleReplica)


def test_reports_are_checked_and_repeated_ones_change_nothing() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    fail(cluster, 1, P0, TopicPartition("orders", 7), TopicPartition("unknown", 0))
    before = cluster.state()
    fail(cluster, 1, P0)
    assert cluster.state() == before
    with pytest.raises(errors.StaleBrokerEpoch):
        cluster.run(fail_replicas, cluster.metadata, 1, 5, [P0])
