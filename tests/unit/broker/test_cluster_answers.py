"""What a broker tells about the cluster: dead brokers, partitions without a leader, the quorum, features."""

from __future__ import annotations

from pathlib import Path

from ottla import errors
from ottla.metadata.brokers import fence_broker
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from unit.broker.leading import EPOCH, ME, OTHER, THIRD, leading
from unit.broker.wire import Wire

QUORUM = {"topics": [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]}


async def test_a_partition_without_a_leader_is_not_available(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic(replicas=((ME, OTHER), (OTHER, THIRD)))
        node = broker.node
        for broker_id in (OTHER, THIRD):
            await node.controller.run(fence_broker, node.metadata, broker_id, EPOCH, f"broker {broker_id} stopped")
        metadata = await broker.call(ApiKey.METADATA, 9, {"topics": [{"name": "orders"}]})
        described = await broker.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": "orders"}]})
        for topic in (metadata.topics[0], described.topics[0]):
            assert topic.error_code == 0
            found = [(each.error_code, each.leader_id, each.offline_replicas) for each in topic.partitions]
            assert found == [(0, ME, (OTHER,)), (errors.LeaderNotAvailable.code, -1, (OTHER, THIRD))]


async def test_a_new_topic_avoids_dead_brokers(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        node = broker.node
        await node.controller.run(fence_broker, node.metadata, OTHER, EPOCH, "broker 2 stopped")
        entry = {"name": "new", "num_partitions": 4, "replication_factor": 2, "assignments": [], "configs": []}
        assert (await broker.call(ApiKey.CREATE_TOPICS, 7, {"topics": [entry]})).topics[0].error_code == 0
        assert {each.leader for each in node.metadata.topics["new"].states} <= {ME, THIRD}
        too_many = {**entry, "name": "more", "replication_factor": 3}
        answer = (await broker.call(ApiKey.CREATE_TOPICS, 7, {"topics": [too_many]})).topics[0]
        assert answer.error_code == 0, answer.error_message
        dead_only = {**entry, "name": "dead", "num_partitions": -1, "replication_factor": -1}
        dead_only["assignments"] = [{"partition_index": 0, "broker_ids": [OTHER]}]
        refused = (await broker.call(ApiKey.CREATE_TOPICS, 7, {"topics": [dead_only]})).topics[0]
        assert refused.error_code == errors.InvalidReplicaAssignment.code


async def test_replicas_that_left_below_the_minimum_stay_eligible(tmp_path: Path) -> None:
    async with leading(tmp_path) as broker:
        await broker.create_topic(replicas=((ME, OTHER, THIRD), (OTHER, THIRD, ME)), min_insync_replicas="3")
        node = broker.node
        await node.controller.run(fence_broker, node.metadata, OTHER, EPOCH, "broker 2 stopped")
        described = await broker.call(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, {"topics": [{"name": "orders"}]})
        found = [(each.isr_nodes, each.eligible_leader_replicas) for each in described.topics[0].partitions]
        assert found == [((ME, THIRD), (OTHER,)), ((THIRD, ME), (OTHER,))]
        assert [each.last_known_elr for each in described.topics[0].partitions] == [(), ()]


def elect(wire: Wire, kind: int, *partitions: int) -> list[tuple[int, int]]:
    topics = [{"topic": "elected", "partitions": list(partitions)}]
    answer = wire.call(ApiKey.ELECT_LEADERS, 2, {"election_type": kind, "topic_partitions": topics, "timeout": 1000})
    results = answer.replica_election_results[0].partition_result
    return [(each.partition_id, each.error_code) for each in results]


def test_one_broker_needs_no_elections(wire: Wire) -> None:
    wire.create_topic("elected", 2)
    not_needed, unknown = errors.ElectionNotNeeded.code, errors.UnknownTopicOrPartition.code
    for kind in (0, 1):
        assert elect(wire, kind, 0, 1, 7) == [(0, not_needed), (1, not_needed), (7, unknown)]
    everything = {"election_type": 0, "topic_partitions": None, "timeout": 1000}
    answer = wire.call(ApiKey.ELECT_LEADERS, 2, everything)
    assert (answer.error_code, answer.replica_election_results) == (0, [])
    assert wire.call(ApiKey.ELECT_LEADERS, 2, {**everything, "election_type": 5}).error_code == 42


def reassign(wire: Wire, index: int, replicas: list[int] | None) -> int:
    topics = [{"name": "moved", "partitions": [{"partition_index": index, "replicas": replicas}]}]
    answer = wire.call(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"topics": topics, "timeout": 1000})
    return int(answer.responses[0].partitions[0].error_code)


def test_one_broker_can_only_keep_its_partitions(wire: Wire) -> None:
    wire.create_topic("moved")
    assert reassign(wire, 0, [1]) == 0
    assert reassign(wire, 0, [1, 2]) == errors.InvalidReplicaAssignment.code
    assert reassign(wire, 0, []) == errors.InvalidReplicaAssignment.code
    assert reassign(wire, 0, None) == errors.NoReassignmentInProgress.code
    assert reassign(wire, 9, [1]) == errors.UnknownTopicOrPartition.code
    listed = wire.call(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"topics": None})
    assert (listed.error_code, listed.topics) == (0, [])


def test_the_only_broker_is_not_unregistered(wire: Wire) -> None:
    running = wire.call(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 1})
    assert (running.error_code, running.error_message) == (
        errors.InvalidRequest.code,
        "The broker 1 is running. Stop it before you remove it.",
    )
    unknown = wire.call(ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 4711})
    assert unknown.error_code == errors.BrokerIdNotRegistered.code


def test_one_broker_is_its_own_quorum(wire: Wire) -> None:
    answer = wire.call(ApiKey.DESCRIBE_QUORUM, 2, QUORUM)
    partition = answer.topics[0].partitions[0]
    assert (answer.error_code, partition.error_code, partition.leader_id) == (0, 0, 1)
    voters = [(each.replica_id, each.log_end_offset) for each in partition.current_voters]
    assert voters == [(1, partition.high_watermark)]
    assert partition.observers == []
    assert [each.node_id for each in answer.nodes] == [1]


def test_other_topics_have_no_quorum(wire: Wire) -> None:
    other = {"topics": [{"topic_name": "orders", "partitions": [{"partition_index": 0}]}]}
    partition = wire.call(ApiKey.DESCRIBE_QUORUM, 2, other).topics[0].partitions[0]
    assert partition.error_code == errors.UnknownTopicOrPartition.code


def test_the_offset_of_the_metadata_rises_with_changes(wire: Wire) -> None:
    before = wire.call(ApiKey.DESCRIBE_QUORUM, 2, QUORUM).topics[0].partitions[0].high_watermark
    wire.create_topic("one-more")
    assert wire.call(ApiKey.DESCRIBE_QUORUM, 2, QUORUM).topics[0].partitions[0].high_watermark == before + 1


def test_features_stay_at_their_level(wire: Wire) -> None:
    def update(version: int, **levels: int) -> Struct:
        updates = [{"feature": name.replace("_", "."), "max_version_level": level} for name, level in levels.items()]
        return wire.call(ApiKey.UPDATE_FEATURES, version, {"feature_updates": updates})

    assert update(2, group_version=1, transaction_version=2).error_code == 0
    refused = update(2, group_version=1, transaction_version=1)
    assert refused.error_code == errors.InvalidUpdateVersion.code
    assert "transaction.version has level 2" in refused.error_message
    results = update(1, metadata_version=25, something=1).results
    assert [(each.feature, each.error_code) for each in results] == [
        ("metadata.version", 0),
        ("something", errors.InvalidUpdateVersion.code),
    ]
