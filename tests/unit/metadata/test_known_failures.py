"""Failures that other systems had, as far as the controller decides. The names are those of the reports."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.metadata.controlled import TOPIC_ID, Controlled

from ottla import errors
from ottla.metadata.brokers import fence_broker, register_broker
from ottla.metadata.partitions import alter_partitions
from ottla.metadata.reassignment import reassign
from ottla.metadata.values import NO_LEADER, Registration
from ottla.types import TopicPartition

P0 = TopicPartition("orders", 0)


# ── joining the ISR ───────────────────────────────────────────────────────────────────────────────────────────────


def test_kafka_13916_a_fenced_replica_does_not_join_the_isr() -> None:
    """The leader has heard of its last fetch, but not yet that it is fenced (KIP-841)."""
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.alter([1, 2])
    late = cluster.change([1, 2, 3])
    cluster.fence(3)
    (answer,) = cluster.run(alter_partitions, cluster.metadata, 1, cluster.metadata.brokers[1].epoch, [late])
    assert isinstance(answer, errors.IneligibleReplica)
    assert cluster.state().isr == (1, 2)


def test_kafka_14140_a_replica_in_controlled_shutdown_does_not_join_again() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.shut_down(3)
    assert isinstance(cluster.alter([1, 2, 3]), errors.IneligibleReplica)
    cluster.fence(3)
    cluster.start(3)
    assert cluster.alter([1, 2, 3]).isr == (1, 2, 3)


def test_kip_903_a_replica_that_lost_its_log_does_not_join_by_a_fetch_of_its_previous_life() -> None:
    """It fetched up to the end, stopped uncleanly, lost the end, and is back before the leader's request arrives."""
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.alter([1, 2])
    late = cluster.change([1, 2, 3])
    before = cluster.state()
    cluster.start(3, clean=False)
    assert cluster.state() == before, "nothing but the broker epoch tells that something has happened"
    (answer,) = cluster.run(alter_partitions, cluster.metadata, 1, cluster.metadata.brokers[1].epoch, [late])
    assert isinstance(answer, errors.IneligibleReplica)


# ── zombies ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_kip_320_a_zombie_leader_does_not_change_the_isr() -> None:
    """It was cut off, somebody else leads, and its request arrives when it is connected again."""
    cluster = Controlled(assignments=[[1, 2, 3]])
    late = cluster.change([1])
    epoch = cluster.metadata.brokers[1].epoch
    cluster.fence(1)
    (answer,) = cluster.run(alter_partitions, cluster.metadata, 1, epoch, [late])
    assert isinstance(answer, errors.FencedLeaderEpoch)
    assert (cluster.state().leader, cluster.state().isr) == (2, (2, 3))


@pytest.mark.parametrize("later", [{"leader_epoch": 1}, {"partition_epoch": 1}])
def test_kafka_14154_a_deposed_controller_sends_leaders_to_the_new_one(later: dict[str, int]) -> None:
    """The leader has replayed more than this controller has. It must not be told that its epoch is fenced."""
    cluster = Controlled(assignments=[[1, 2, 3]])
    answer = cluster.alter([1, 2], **later)
    assert isinstance(answer, errors.NotController)
    assert answer.retriable


def test_kafka_6082_what_a_deposed_controller_decides_leaves_no_trace() -> None:
    """An operation only returns records. If the log refuses them, the image is what it was."""
    cluster = Controlled(assignments=[[1, 2, 3]])
    before = list(cluster.metadata.snapshot())
    epoch = cluster.metadata.brokers[1].epoch
    assert fence_broker(cluster.metadata, 1, epoch, "broker 1 stopped", now=0).records
    assert reassign(cluster.metadata, {P0: [3, 2, 1]}, now=0).records
    assert alter_partitions(cluster.metadata, 1, epoch, [cluster.change([1])], now=0).records
    assert list(cluster.metadata.snapshot()) == before


# ── previous lives of a broker ────────────────────────────────────────────────────────────────────────────────────


def test_kip_380_a_fast_restart_is_seen_although_nobody_saw_the_broker_missing() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.start(1, clean=False)
    assert (cluster.state().leader, cluster.state().isr, cluster.state().leader_epoch) == (2, (2, 3), 1)


def test_kafka_7235_messages_to_and_from_a_previous_life_are_ignored() -> None:
    cluster = Controlled(assignments=[[2, 1, 3]])
    old = cluster.metadata.brokers[1].epoch
    cluster.start(1)
    cluster.alter([1, 2, 3])
    before = list(cluster.metadata.snapshot())
    assert cluster.run(fence_broker, cluster.metadata, 1, old, "broker 1 stopped") is False
    assert cluster.run(register_broker, cluster.metadata, Registration(1, old, -1, ())) is False
    with pytest.raises(errors.StaleBrokerEpoch):
        alter_partitions(cluster.metadata, 1, old, [], now=0)
    assert list(cluster.metadata.snapshot()) == before


def test_kip_570_a_message_about_a_deleted_topic_does_not_meet_its_successor() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    late = cluster.change([1])
    cluster.run(cluster.metadata.delete_topic, "orders")
    cluster.run(cluster.metadata.create_topic, "orders", UUID(int=8), 1, {}, assignments=[[1, 2, 3]])
    assert late.topic_id == TOPIC_ID
    (answer,) = cluster.run(alter_partitions, cluster.metadata, 1, cluster.metadata.brokers[1].epoch, [late])
    assert isinstance(answer, errors.UnknownTopicId)
    assert cluster.state().isr == (1, 2, 3)


# ── races of ISR changes ──────────────────────────────────────────────────────────────────────────────────────────


def test_kafka_12686_a_leader_that_missed_a_change_of_the_isr_does_not_undo_it() -> None:
    """The controller takes broker 3 out. The leader, which has not heard of it, asks for the same ISR without 2."""
    cluster = Controlled(brokers=4, assignments=[[1, 2, 3, 4]])
    late = cluster.change([1, 3, 4])
    cluster.fence(3)
    (answer,) = cluster.run(alter_partitions, cluster.metadata, 1, cluster.metadata.brokers[1].epoch, [late])
    assert isinstance(answer, errors.InvalidUpdateVersion)
    assert cluster.state().isr == (1, 2, 4)


def test_kafka_13254_a_request_that_is_sent_twice_is_not_done_twice() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    twice = cluster.change([1, 2])
    epoch = cluster.metadata.brokers[1].epoch
    (first,) = cluster.run(alter_partitions, cluster.metadata, 1, epoch, [twice])
    (second,) = cluster.run(alter_partitions, cluster.metadata, 1, epoch, [twice])
    assert first == cluster.state()
    assert isinstance(second, errors.InvalidUpdateVersion)


# ── reassignments ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_kafka_9672_nobody_is_in_an_isr_without_being_a_replica() -> None:
    """Broker 3 dies while it is being removed, and comes back when the partition has forgotten it."""
    cluster = Controlled(brokers=4, assignments=[[1, 2, 3]])
    cluster.run(reassign, cluster.metadata, {P0: [1, 2, 4]})
    cluster.fence(3)
    cluster.alter([1, 2, 4])
    cluster.start(3)
    assert (cluster.state().replicas, cluster.state().isr) == ((1, 2, 4), (1, 2, 4))
    assert isinstance(cluster.alter([1, 2, 3, 4]), errors.InvalidRequest)


def test_kafka_15665_a_reassignment_is_not_complete_before_all_its_replicas_are_in_sync() -> None:
    """Only the new broker 4 is in sync of those that stay. Without the others the records would be there once."""
    cluster = Controlled(brokers=4, assignments=[[1, 2, 3]])
    cluster.alter([1])
    cluster.run(reassign, cluster.metadata, {P0: [4, 2, 3]})
    cluster.alter([1, 4])
    assert (cluster.state().replicas, cluster.state().leader) == ((4, 2, 3, 1), 1)
    cluster.alter([1, 2, 3, 4])
    assert (cluster.state().replicas, cluster.state().leader) == ((4, 2, 3), 4)


# ── too few replicas ──────────────────────────────────────────────────────────────────────────────────────────────


def test_kip_966_the_last_replica_standing_is_not_the_only_one_that_may_lead() -> None:
    """Broker 1 stands alone, so it commits nothing. When it loses its disk, broker 2 still has every record."""
    cluster = Controlled(assignments=[[1, 2, 3]], min_isr=2)
    cluster.fence(3)
    cluster.fence(2)
    assert (cluster.state().isr, cluster.state().elr) == ((1,), (2,))
    cluster.fence(1)
    cluster.start(1, clean=False)
    assert (cluster.state().leader, cluster.state().elr) == (NO_LEADER, (2,))
    cluster.start(3)
    assert cluster.state().leader == NO_LEADER
    cluster.start(2)
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))


def test_kafka_15583_no_replica_becomes_eligible_beside_an_isr_that_commits() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]], min_isr=2)
    cluster.alter([1])
    assert cluster.state().elr == (2, 3)
    cluster.alter([1, 2])
    assert cluster.state().elr == ()
    cluster.fence(1)
    assert (cluster.state().isr, cluster.state().elr) == ((2,), (1,))
