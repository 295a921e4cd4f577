"""AlterPartition, ElectLeaders and the balance of leaders."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.unit.metadata.controlled import Controlled

from ottla import errors
from ottla.metadata.partitions import alter_partitions, balance_leaders, elect_leaders, elect_offline
from ottla.metadata.reassignment import reassign
from ottla.metadata.values import NO_LEADER, ReplicationSettings
from ottla.types import TopicPartition

P0 = TopicPartition("orders", 0)


def elect(cluster: Controlled, *partitions: TopicPartition, unclean: bool = False) -> Any:
    return cluster.run(elect_leaders, cluster.metadata, partitions or None, unclean=unclean)


def test_the_leader_shrinks_and_expands_its_isr() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    assert cluster.alter([1, 2]).isr == (1, 2)
    assert cluster.alter([1, 3]).isr == (1, 3)
    assert cluster.alter([1, 2, 3]) == cluster.state()
    assert (cluster.state().leader_epoch, cluster.state().partition_epoch) == (0, 3)
    assert cluster.reasons() == [
        "broker 3 is too slow",
        "broker 3 caught up, broker 2 is too slow",
        "broker 2 caught up",
    ]


def test_an_isr_that_changes_nothing_is_answered_with_the_state() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    assert cluster.alter([3, 2, 1]) == cluster.state()
    assert cluster.state().partition_epoch == 0


def test_many_partitions_are_changed_at_once_and_each_has_its_answer() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [1, 2, 3], [2, 1, 3]])
    changes = [cluster.change([1, 2], index) for index in range(3)]
    epoch = cluster.metadata.brokers[1].epoch
    first, second, third = cluster.run(alter_partitions, cluster.metadata, 1, epoch, changes)
    assert first.isr == second.isr == (1, 2)
    assert isinstance(third, errors.InvalidRequest)


def test_two_changes_of_one_partition_in_one_request_do_not_both_win() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    changes = [cluster.change([1, 2]), cluster.change([1, 3])]
    epoch = cluster.metadata.brokers[1].epoch
    first, second = cluster.run(alter_partitions, cluster.metadata, 1, epoch, changes)
    assert first.isr == (1, 2)
    assert isinstance(second, errors.InvalidUpdateVersion)


@pytest.mark.parametrize(
    ("other", "error"),
    [
        ({"topic_id": UUID(int=1)}, errors.UnknownTopicId),
        ({"partition": 7}, errors.UnknownTopicOrPartition),
        ({"partition": -1}, errors.UnknownTopicOrPartition),
        ({"leader_epoch": 9}, errors.NotController),
        ({"partition_epoch": 9}, errors.NotController),
        ({"leader_epoch": 0}, errors.FencedLeaderEpoch),
        ({"partition_epoch": 1}, errors.InvalidUpdateVersion),
        ({"isr": ((1, 101), (9, 101))}, errors.InvalidRequest),
        ({"isr": ((2, 102), (2, 102))}, errors.InvalidRequest),
        ({"isr": ((3, 103),)}, errors.InvalidRequest),
        ({"isr": ()}, errors.InvalidRequest),
        ({"isr": ((2, 102), (3, 103), (1, 100))}, errors.IneligibleReplica),
        ({"isr": ((2, 102), (3, 103), (1, -1))}, errors.IneligibleReplica),
    ],
)
def test_what_is_refused_and_why(other: dict[str, Any], error: type[errors.KafkaError]) -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    cluster.fence(1)
    cluster.alter([2, 3])
    before = cluster.state()
    assert (before.leader_epoch, before.partition_epoch) == (1, 1)
    cluster.start(1)
    cluster.alter([2])
    assert isinstance(cluster.alter([2, 3], **other), error)


def test_only_the_leader_may_change_the_isr() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    assert isinstance(cluster.alter([1, 2], sender=2), errors.InvalidRequest)


def test_a_request_of_a_previous_life_is_refused_as_a_whole() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    epoch = cluster.metadata.brokers[1].epoch
    cluster.start(1)
    with pytest.raises(errors.StaleBrokerEpoch):
        alter_partitions(cluster.metadata, 1, epoch, [cluster.change([1])], now=0)


def test_a_fenced_a_leaving_and_an_unknown_broker_do_not_join() -> None:
    cluster = Controlled(assignments=[[1, 2, 3, 4]], brokers=4)
    cluster.fence(2)
    cluster.shut_down(3)
    for broker_id, problem in ((2, "fenced"), (3, "shutting down")):
        answer = cluster.alter([1, 4, broker_id])
        assert isinstance(answer, errors.IneligibleReplica)
        assert problem in str(answer)
    assert cluster.state().isr == (1, 4)


def test_the_preferred_leader_is_elected() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [2, 3, 1]])
    cluster.fence(1)
    answers = elect(cluster, P0, TopicPartition("orders", 1), TopicPartition("orders", 2), TopicPartition("x", 0))
    assert [type(answer) for answer in answers.values()] == [
        errors.PreferredLeaderNotAvailable, errors.ElectionNotNeeded,
        errors.UnknownTopicOrPartition, errors.UnknownTopicOrPartition,
    ]  # fmt: skip
    cluster.start(1)
    assert "in sync" in str(elect(cluster, P0)[P0])
    cluster.alter([1, 2, 3])
    assert elect(cluster, P0) == {P0: None}
    assert (cluster.state().leader, cluster.state().leader_epoch) == (1, 2)


def test_an_election_for_all_leaves_out_what_needs_none() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [2, 3, 1]])
    cluster.fence(1)
    assert list(elect(cluster)) == [P0]


def test_an_unclean_election_is_only_for_offline_partitions_with_a_living_replica() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]])
    assert isinstance(elect(cluster, P0, unclean=True)[P0], errors.ElectionNotNeeded)
    cluster.alter([1])
    cluster.fence(3)
    cluster.fence(2)
    cluster.fence(1)
    assert isinstance(elect(cluster, P0, unclean=True)[P0], errors.EligibleLeadersNotAvailable)
    assert cluster.state().leader == NO_LEADER
    cluster = Controlled(assignments=[[1, 2, 3]], min_isr=1)
    cluster.alter([1])
    cluster.fence(1)
    assert elect(cluster, P0, unclean=True) == {P0: None}
    assert (cluster.state().leader, cluster.state().isr) == (2, (2,))
    assert cluster.reasons()[-1] == "an unclean election was asked for; unclean election: records may be lost"


def test_allowing_unclean_elections_brings_offline_partitions_back() -> None:
    cluster = Controlled(assignments=[[1, 2, 3]], min_isr=1)
    cluster.alter([1])
    cluster.fence(1)
    assert cluster.run(elect_offline, cluster.metadata) == 0
    cluster.settings = ReplicationSettings(1, unclean=True)
    assert cluster.run(elect_offline, cluster.metadata) == 1
    assert cluster.state().leader == 2


def test_leaders_are_balanced_beyond_the_percentage() -> None:
    cluster = Controlled(assignments=[[1, 2]] * 10 + [[2, 1]] * 10)
    cluster.fence(1)
    cluster.start(1)
    for index in range(20):
        cluster.alter([1, 2], index)
    assert cluster.run(balance_leaders, cluster.metadata, 100) == 0
    assert cluster.run(balance_leaders, cluster.metadata, 10) == 10
    assert cluster.run(balance_leaders, cluster.metadata, 10) == 0
    assert [cluster.state(index).leader for index in range(20)] == [1] * 10 + [2] * 10


def test_few_partitions_away_from_their_preferred_leader_stay_there() -> None:
    cluster = Controlled(assignments=[[1, 2]] * 10)
    cluster.fence(1)
    cluster.start(1)
    for index in range(10):
        cluster.alter([1, 2], index)
    elect(cluster, *(TopicPartition("orders", index) for index in range(9)))
    assert cluster.run(balance_leaders, cluster.metadata, 10) == 0
    assert cluster.run(balance_leaders, cluster.metadata, 9) == 1


def test_partitions_that_cannot_or_need_not_move_are_not_balanced() -> None:
    cluster = Controlled(assignments=[[1, 2, 3], [1, 2, 3]])
    cluster.fence(1)
    cluster.start(1)
    cluster.alter([1, 2, 3], 1)
    cluster.run(reassign, cluster.metadata, {TopicPartition("orders", 1): [1, 2]})
    assert cluster.state(1).replicas == (1, 2)
    assert cluster.run(balance_leaders, cluster.metadata, 10) == 1
    assert (cluster.state(0).leader, cluster.state(1).leader) == (2, 1)


def test_a_lower_minimum_ends_eligibility_before_it_holds() -> None:
    """With the lower minimum the leader commits alone. So the others may miss something from then on."""
    cluster = Controlled(assignments=[[1, 2, 3]], min_isr=2)
    cluster.alter([1])
    assert cluster.state().elr == (2, 3)
    first = len(cluster.records)
    cluster.metadata.settings = lambda topic: ReplicationSettings(int(topic.configs.get("min.insync.replicas", 2)))
    cluster.run(cluster.metadata.set_topic_configs, "orders", {"min.insync.replicas": "1"})
    assert [type(record).__name__ for record in cluster.records[first:]] == ["PartitionsChanged", "TopicConfigsSet"]
    assert (cluster.state().elr, cluster.state().partition_epoch) == ((), 2)
    assert cluster.reasons()[-1] == "min.insync.replicas changed"


def test_a_minimum_for_all_topics_ends_eligibility_beside_leaders() -> None:
    cluster = Controlled(assignments=[[1, 2], [2, 1]], min_isr=2)
    cluster.alter([1])
    cluster.run(cluster.metadata.set_broker_configs, {"min.insync.replicas": "1"}, broker_id=None)
    assert cluster.state().elr == ()
    cluster.alter([1, 2])
    cluster.fence(1)
    cluster.fence(2)
    assert cluster.state().elr == (1, 2)
    cluster.run(cluster.metadata.set_broker_configs, {"min.insync.replicas": "2"}, broker_id=None)
    assert cluster.state().elr == (1, 2)


def test_nobody_is_eligible_beside_a_leader_that_commits_alone() -> None:
    """Both were eligible by a minimum of 2. When it is 1, the one that comes back first commits without the other."""
    cluster = Controlled(assignments=[[1, 2]], min_isr=2)
    cluster.metadata.settings = lambda topic: ReplicationSettings(int(topic.configs.get("min.insync.replicas", 2)))
    cluster.fence(1)
    cluster.fence(2)
    cluster.run(cluster.metadata.set_topic_configs, "orders", {"min.insync.replicas": "1"})
    assert cluster.state().elr == (1, 2)
    cluster.start(1)
    assert (cluster.state().isr, cluster.state().elr) == ((1,), ())


def test_other_configs_leave_eligibility_alone() -> None:
    cluster = Controlled(assignments=[[1, 2]], min_isr=2)
    cluster.alter([1])
    cluster.run(cluster.metadata.set_topic_configs, "orders", {"retention.ms": "1"})
    cluster.run(cluster.metadata.set_broker_configs, {"log.retention.ms": "1"}, broker_id=1)
    assert cluster.state().elr == (2,)
