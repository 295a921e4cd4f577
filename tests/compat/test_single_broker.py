"""What a single broker answers about elections, replicas, the quorum and other things of clusters, as Kafka does."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from ottla import errors

from .conftest import MakeTopic, unique_name
from .waiting import DEADLINE, TICK, until
from .wire import Wire


@pytest.fixture
def wire(bootstrap_servers: str) -> Iterator[Wire]:
    with Wire(bootstrap_servers) as connection:
        yield connection


@pytest.fixture
def node(wire: Wire) -> int:
    (broker,) = wire.call("metadata", 12, {"topics": [], "allow_auto_topic_creation": False}).brokers
    return int(broker.node_id)


@pytest.mark.parametrize("timestamp", [-5, -6])
def test_nothing_is_in_remote_storage(wire: Wire, make_topic: MakeTopic, timestamp: int) -> None:
    topics = [{"name": make_topic(), "partitions": [{"partition_index": 0, "timestamp": timestamp}]}]
    content = {"replica_id": -1, "isolation_level": 0, "timeout": 1000, "topics": topics}
    version = 9 if timestamp == -5 else 11
    found = wire.call("list_offsets", version, content).topics[0].partitions[0]
    assert (found.error_code, found.offset) == (0, -1)


def test_no_election_is_needed(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    for kind in (0, 1):
        asked = [{"topic": topic, "partitions": [0, 7]}]
        answer = wire.call("elect_leaders", 2, {"election_type": kind, "topic_partitions": asked, "timeout": 10_000})
        assert answer.error_code == 0
        ((first, second),) = (each.partition_result for each in answer.replica_election_results)
        assert (first.partition_id, first.error_code) == (0, errors.ElectionNotNeeded.code)
        assert (second.partition_id, second.error_code) == (7, errors.UnknownTopicOrPartition.code)
        answer = wire.call("elect_leaders", 2, {"election_type": kind, "topic_partitions": None, "timeout": 10_000})
        assert answer.error_code == 0
        assert [one for each in answer.replica_election_results for one in each.partition_result] == []


def test_partitions_stay_on_the_only_broker(wire: Wire, make_topic: MakeTopic, node: int) -> None:
    topic = make_topic()

    def reassign(replicas: list[int] | None) -> int:
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": replicas}]}]
        answer = wire.call("alter_partition_reassignments", 0, {"topics": topics, "timeout": 10_000})
        assert answer.error_code == 0
        return int(answer.responses[0].partitions[0].error_code)

    assert reassign([node]) == 0
    assert reassign([node, node + 1]) == errors.InvalidReplicaAssignment.code
    assert reassign(None) == errors.NoReassignmentInProgress.code
    listed = wire.call("list_partition_reassignments", 0, {"topics": None, "timeout": 10_000})
    assert (listed.error_code, list(listed.topics)) == (0, [])


def test_replicas_are_in_their_directory(wire: Wire, make_topic: MakeTopic) -> None:
    topic = make_topic()
    (directory,) = (each.log_dir for each in wire.call("describe_log_dirs", 4, {"topics": None}).results)

    def move(path: str, name: str, partition: int) -> int:
        dirs = [{"path": path, "topics": [{"name": name, "partitions": [partition]}]}]
        return int(wire.call("alter_replica_log_dirs", 2, {"dirs": dirs}).results[0].partitions[0].error_code)

    assert move(directory, topic, 0) == 0
    assert move(directory, topic, 7) == errors.UnknownTopicOrPartition.code
    assert move(directory, unique_name(), 0) == errors.UnknownTopicOrPartition.code
    assert move("/nowhere", topic, 0) == errors.LogDirNotFound.code


def test_the_quorum_is_the_broker(wire: Wire, node: int) -> None:
    topics = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    (topic,) = wire.call("describe_quorum", 2, {"topics": topics}).topics
    (partition,) = topic.partitions
    assert (partition.error_code, partition.leader_id) == (0, node)
    assert [each.replica_id for each in partition.current_voters] == [node]
    assert list(partition.observers) == []


def test_features_have_the_level_of_the_release(wire: Wire) -> None:
    versions = wire.call("api_versions", 4, {"client_software_name": "wire", "client_software_version": "1"})
    levels = {each.name: each.max_version_level for each in versions.finalized_features}
    supported = {each.name: each.max_version for each in versions.supported_features}
    assert 25 <= levels["metadata.version"] <= supported["metadata.version"]

    def update(feature: str, level: int) -> int:
        updates = [{"feature": feature, "max_version_level": level, "upgrade_type": 1}]
        content = {"timeout": 10_000, "feature_updates": updates, "validate_only": True}
        return int(wire.call("update_features", 2, content).error_code)

    assert update("metadata.version", levels["metadata.version"]) == 0
    assert update("metadata.version", 99) == errors.InvalidUpdateVersion.code
    assert update("nothing.version", 1) == errors.InvalidUpdateVersion.code


def test_a_broker_that_does_not_exist_cannot_be_unregistered(wire: Wire) -> None:
    answer = wire.call("unregister_broker", 0, {"broker_id": 4711})
    assert answer.error_code == errors.BrokerIdNotRegistered.code


def test_there_are_no_quotas_or_users(wire: Wire) -> None:
    answer = wire.call("describe_client_quotas", 1, {"components": [], "strict": False})
    assert (answer.error_code, list(answer.entries or ())) == (0, [])
    answer = wire.call("describe_user_scram_credentials", 0, {"users": None})
    assert (answer.error_code, list(answer.results)) == (0, [])


def test_acls_need_an_authorizer(wire: Wire) -> None:
    pattern = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1}
    anybody = {"principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1}
    assert wire.call("describe_acls", 3, pattern | anybody).error_code == errors.SecurityDisabled.code
    binding = {"resource_type": 2, "resource_name": "orders", "resource_pattern_type": 3}
    alice = {"principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3}
    (created,) = wire.call("create_acls", 3, {"creations": [binding | alice]}).results
    assert created.error_code == errors.SecurityDisabled.code
    (deleted,) = wire.call("delete_acls", 3, {"filters": [pattern | anybody]}).filter_results
    assert deleted.error_code == errors.SecurityDisabled.code


def test_a_lone_consumer_with_a_pattern_has_its_topics_soon_when_it_returns(wire: Wire, make_topic: MakeTopic) -> None:
    topic, group = make_topic(2), unique_name("group")

    def heartbeat(member: str, epoch: int) -> Any:
        content = {
            "group_id": group, "member_id": member, "member_epoch": epoch, "instance_id": None, "rack_id": None,
            "rebalance_timeout": 10_000, "subscribed_topic_regex": f"{topic}.*", "subscribed_topic_names": [],
            "server_assignor": None, "topic_partitions": [],
        }  # fmt: skip
        return wire.call("consumer_group_heartbeat", 1, content)

    def joined(member: str) -> Any:
        wire.call("find_coordinator", 4, {"key_type": 0, "coordinator_keys": [group]})
        answer = heartbeat(member, 0)
        return answer if answer.error_code == 0 else None

    for _ in range(2):
        member = str(uuid4())
        answer = until(lambda: joined(member), "the member has joined")  # noqa: B023
        deadline = time.monotonic() + DEADLINE
        while answer.assignment is None or not answer.assignment.topic_partitions:
            assert time.monotonic() < deadline, "the member has no partitions"
            time.sleep(TICK)
            answer = heartbeat(member, answer.member_epoch)
            assert answer.error_code == 0
        (assigned,) = answer.assignment.topic_partitions
        assert list(assigned.partitions) == [0, 1]
        heartbeat(member, -1)
