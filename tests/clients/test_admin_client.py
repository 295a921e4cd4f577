"""The admin client against a running broker: what it creates, shows and changes, and its errors."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer

from clients.conftest import MakeTopic
from compat.waiting import until
from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.blocking import Admin
from ottla.clients.admin.groups import MemberToRemove
from ottla.clients.admin.values import (
    Append,
    ConfigResource,
    ConfigValue,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    Subtract,
)
from ottla.clients.blocking import IllegalUse
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import (
    BrokerNotAvailable,
    ConfigError,
    GroupIdNotFound,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    KafkaError,
    NonEmptyGroup,
    NoReassignmentInProgress,
    OffsetOutOfRange,
    TopicAlreadyExists,
    UnknownMemberId,
    UnknownTopicOrPartition,
)
from ottla.net.client.connection import CannotConnect
from ottla.types import TopicPartition


@pytest.fixture(scope="module")
def admin(bootstrap_servers: str) -> Iterator[Admin]:
    with Admin(bootstrap_servers=bootstrap_servers, client_id="admin-tests") as admin:
        yield admin


def fresh(kind: str = "topic") -> str:
    return f"{kind}-{uuid4().hex[:12]}"


def produce(bootstrap_servers: str, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(count):
        producer.produce(topic, str(number).encode(), partition=partition, timestamp=1_000 * (number + 1))
    assert producer.flush(20) == 0


# Topics.


def test_topics_are_created_as_asked_and_by_plain_names(admin: Admin) -> None:
    plain, asked = fresh(), fresh()
    created = admin.create_topics([plain, NewTopic(asked, 3, 1, {"retention.ms": 60_000})])
    assert (created[asked].num_partitions, created[asked].replication_factor) == (3, 1)
    assert created[asked].configs["retention.ms"] == "60000"
    assert created[asked].topic_id is not None
    until(lambda: {plain, asked} <= admin.list_topics().keys(), "the topics are listed")
    described = admin.describe_topics(asked)[asked]
    assert described.topic_id == created[asked].topic_id
    assert [one.partition for one in described.partitions] == [0, 1, 2]
    assert all(one.leader in one.isr and one.leader in one.replicas for one in described.partitions)
    assert all(one.eligible_leader_replicas == () for one in described.partitions)
    admin.delete_topics([plain, asked])
    until(lambda: not {plain, asked} & admin.list_topics().keys(), "the topics are gone")


def test_topics_are_created_from_a_dict_of_partitions(admin: Admin) -> None:
    first, second = fresh(), fresh()
    created = admin.create_topics({first: 3, second: 2})
    assert [(one.name, one.num_partitions) for one in created.values()] == [(first, 3), (second, 2)]


def test_one_failure_is_raised_and_all_of_them_can_be_asked_for(admin: Admin, make_topic: MakeTopic) -> None:
    existing, new = make_topic(), fresh()
    with pytest.raises(TopicAlreadyExists, match=existing):
        admin.create_topics([existing, new])
    results = admin.create_topics([existing, new, fresh()], raise_errors=False)
    assert set(results.errors) == {existing, new}
    assert len(results) == 1
    with pytest.raises(UnknownTopicOrPartition, match="does not exist") as caught:
        admin.delete_topics(["missing-1", "missing-2"])
    assert caught.value.__notes__ == ["missing-2 failed too: topic missing-2 does not exist"]


def test_a_topic_can_be_checked_without_being_created(admin: Admin) -> None:
    name = fresh()
    admin.create_topics(name, validate_only=True)
    with pytest.raises(InvalidConfig):
        admin.create_topics(NewTopic(name, configs={"retention.ms": "soon"}), validate_only=True)
    assert name not in admin.list_topics()


def test_partitions_are_added(admin: Admin, make_topic: MakeTopic) -> None:
    one, two = make_topic(), make_topic()
    admin.create_partitions({one: 3, two: NewPartitions(2)})

    def counts() -> list[int]:
        return [len(topic.partitions) for topic in admin.describe_topics([one, two]).values()]

    until(lambda: counts() == [3, 2], "the partitions are there")
    with pytest.raises(InvalidPartitions):
        admin.create_partitions({one: 1})


def test_a_missing_topic_is_named(admin: Admin) -> None:
    with pytest.raises(UnknownTopicOrPartition, match="topic nowhere does not exist"):
        admin.describe_topics("nowhere")
    with pytest.raises(UnknownTopicOrPartition, match="topic nowhere does not exist"):
        admin.list_offsets({TopicPartition("nowhere", 0): "latest"})
    with pytest.raises(UnknownTopicOrPartition):
        admin.describe_configs("nowhere")


# Records and offsets.


def test_offsets_and_deleted_records(admin: Admin, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    key = TopicPartition(topic, 0)
    produce(bootstrap_servers, topic, 10)
    assert admin.list_offsets({key: "earliest"})[key].offset == 0
    assert admin.list_offsets({key: OffsetSpec.LATEST}, isolation_level="read_committed")[key].offset == 10
    found = admin.list_offsets({key: 4_000})[key]
    assert (found.offset, found.timestamp) == (3, 4_000)
    assert admin.list_offsets({key: "max_timestamp"})[key].offset == 9
    assert admin.list_offsets({key: 99_000})[key].offset == -1
    assert admin.delete_records({key: 4}) == {key: 4}
    assert admin.list_offsets({key: "earliest"})[key].offset == 4
    with pytest.raises(OffsetOutOfRange, match=f"{topic}-0"):
        admin.delete_records({key: 11})
    assert admin.delete_records({key: -1}) == {key: 10}
    with pytest.raises(ValueError, match="one of latest, earliest"):
        admin.list_offsets({key: "newest"})
    with pytest.raises(UnknownTopicOrPartition, match=f"topic {topic} has no partition 7"):
        admin.list_offsets({TopicPartition(topic, 7): "latest"})


def test_describe_producers(admin: Admin, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True})
    producer.produce(topic, b"x")
    assert producer.flush(20) == 0
    (state,) = admin.describe_producers([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
    assert state.producer_id >= 0
    assert (state.last_sequence, state.transaction_start_offset) == (0, None)


# Configs.


def test_configs_are_changed_one_by_one(admin: Admin, make_topic: MakeTopic) -> None:
    topic = make_topic(segment_bytes="1048576")
    resource = ConfigResource.topic(topic)
    admin.alter_configs({topic: {"retention.ms": 1_000, "cleanup.policy": Append("compact")}})

    def configs_with(retention: str) -> dict[str, ConfigValue] | None:
        found = admin.describe_configs([topic], include_synonyms=True, include_documentation=True)[resource]
        return found if found["retention.ms"].value == retention else None

    configs = until(lambda: configs_with("1000"), "the change is there") or {}
    assert configs["retention.ms"].differs
    assert configs["retention.ms"].synonyms[0].value == "1000"
    assert set((configs["cleanup.policy"].value or "").split(",")) == {"compact", "delete"}
    assert configs["segment.bytes"].value == "1048576"
    admin.incremental_alter_configs({resource: {"retention.ms": None, "cleanup.policy": Subtract("delete")}})
    configs = until(lambda: configs_with("604800000"), "it is as before") or {}
    assert configs["cleanup.policy"].value == "compact"
    assert configs["retention.ms"].documentation
    with pytest.raises(InvalidConfig):
        admin.alter_configs({topic: {"retention.ms": "soon"}}, validate_only=True)


def test_brokers_have_configs_of_their_own(admin: Admin) -> None:
    (node, *_) = admin.describe_cluster().nodes
    resource = ConfigResource.broker(node.id)
    configs = admin.describe_configs(resource)[resource]
    assert "log.retention.ms" in configs
    admin.alter_configs({resource: {"message.max.bytes": 2_000_000}}, validate_only=True)
    with pytest.raises(BrokerNotAvailable, match="there is no broker 4711: the cluster has"):
        admin.describe_configs(ConfigResource.broker(4711))


# The cluster.


def test_the_cluster_and_its_directories(admin: Admin, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    produce(bootstrap_servers, topic, 3)
    cluster = admin.describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller in cluster.nodes
    assert admin.describe_cluster(include_fenced_brokers=True).nodes == cluster.nodes
    assert bootstrap_servers in map(str, cluster.nodes)
    (dirs,) = admin.describe_log_dirs().values()
    (directory,) = dirs.values()
    assert directory.error is None
    assert directory.replicas[TopicPartition(topic, 0)].size > 0
    assert directory.replicas[TopicPartition(topic, 1)].size == 0
    assert admin.list_partition_reassignments() == {}
    with pytest.raises(BrokerNotAvailable):
        admin.describe_log_dirs([99])


def test_elections_and_moves(admin: Admin, make_topic: MakeTopic) -> None:
    key = TopicPartition(make_topic(), 0)
    (node, *_) = admin.describe_cluster().nodes
    assert list(admin.elect_leaders("preferred", [key])) == [key]
    assert list(admin.elect_leaders("unclean", [key])) == [key]
    assert list(admin.alter_partition_reassignments({key: [node.id]})) == [key]
    with pytest.raises(InvalidReplicaAssignment):
        admin.alter_partition_reassignments({key: [4711]})
    with pytest.raises(NoReassignmentInProgress):
        admin.alter_partition_reassignments({key: None})
    with pytest.raises(UnknownTopicOrPartition):
        admin.elect_leaders("preferred", [TopicPartition("nowhere", 0)])
    assert admin.list_partition_reassignments([key]) == {}


# Groups.


def joined(bootstrap_servers: str, group: str, topic: str, **config: Any) -> Consumer:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest", **config}
    )
    consumer.subscribe([topic])
    until(lambda: consumer.poll(0.1) is None and bool(consumer.assignment()), "the consumer has joined")
    return consumer


def test_groups_of_both_protocols(admin: Admin, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, classic, modern = make_topic(), fresh("group"), fresh("group")
    consumers = [
        joined(bootstrap_servers, classic, topic, **{"client.id": "old"}),
        joined(bootstrap_servers, modern, topic, **{"group.protocol": "consumer"}),
    ]
    types = {group.group_id: group.type for group in admin.list_groups(states=["Stable"])}
    assert (types[classic], types[modern]) == ("Classic", "Consumer")
    assert modern not in {group.group_id for group in admin.list_groups(types=["classic"])}
    described = admin.describe_groups([classic, modern])
    assert {name: group.type for name, group in described.items()} == {classic: "Classic", modern: "Consumer"}
    assert [member.assignment for member in described[classic].members] == [(TopicPartition(topic, 0),)]
    with pytest.raises(NonEmptyGroup):
        admin.delete_groups(classic)
    for consumer in consumers:
        consumer.close()
    until(lambda: all(not one.members for one in admin.describe_groups([classic, modern]).values()), "all have left")
    admin.delete_groups([classic, modern])
    with pytest.raises(GroupIdNotFound):
        admin.describe_groups(classic)


def test_members_are_removed(admin: Admin, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), fresh("group")
    consumer = joined(bootstrap_servers, group, topic, **{"group.instance.id": "one"})
    with pytest.raises(UnknownMemberId):
        admin.remove_members(group, [MemberToRemove(member_id="nobody")])
    assert list(admin.remove_members(group, ["one"])) == ["one"]
    until(lambda: not admin.describe_groups(group)[group].members, "the member is gone")
    assert admin.remove_members(group) == {}
    consumer.close()


def test_the_offsets_of_a_group_are_read_written_and_deleted(admin: Admin, make_topic: MakeTopic) -> None:
    topic, group = make_topic(2), fresh("group")
    one, two = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert admin.list_group_offsets(group) == {}
    admin.alter_group_offsets(group, {one: 7, two: OffsetAndMetadata(8, "here", 0)})
    assert admin.list_group_offsets(group) == {one: OffsetAndMetadata(7), two: OffsetAndMetadata(8, "here", 0)}
    assert list(admin.list_group_offsets(group, [two])) == [two]
    admin.delete_group_offsets(group, [one])
    assert list(admin.list_group_offsets(group)) == [two]
    admin.delete_groups(group)


# Use.


def test_nothing_is_done_for_nothing(admin: Admin) -> None:
    for results in (
        admin.create_topics([]),
        admin.delete_topics([]),
        admin.describe_topics(()),
        admin.create_partitions({}),
        admin.delete_records({}),
        admin.describe_configs([]),
        admin.alter_configs({}),
        admin.list_offsets({}),
        admin.describe_log_dirs([]),
        admin.describe_producers([]),
        admin.describe_groups([]),
        admin.delete_groups([]),
        admin.remove_members("no-such-group", []),
        admin.list_group_offsets("no-such-group", []),
        admin.alter_group_offsets("no-such-group", {}),
    ):
        assert results == {}
    assert "no-such-group" not in {group.group_id for group in admin.list_groups()}


async def test_it_works_from_asyncio(bootstrap_servers: str) -> None:
    name = fresh()
    async with AsyncAdmin({"bootstrap.servers": bootstrap_servers}) as admin:
        created, nodes = await asyncio.gather(admin.create_topics(name), admin.describe_cluster())
        assert list(created) == [name]
        assert nodes.nodes


def test_mistakes_of_the_configuration_are_reported_at_once() -> None:
    with pytest.raises(ConfigError, match=r"bootstrap\.servers is missing"):
        Admin()
    with pytest.raises(ConfigError, match=r"Unknown admin configuration name: bootstrap_server\. Did you mean boots"):
        Admin(bootstrap_server="localhost:9092")


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("127.0.0.1:1", r"nothing listens at 127\.0\.0\.1:1: check the address"),
        ("no.such.host.invalid:9092", r"cannot resolve the host name 'no\.such\.host\.invalid'"),
    ],
)
def test_a_wrong_address_is_reported_at_the_first_call(address: str, message: str) -> None:
    with Admin(bootstrap_servers=address) as admin, pytest.raises(CannotConnect, match=message):
        admin.list_topics()


def test_a_closed_client_says_so(bootstrap_servers: str) -> None:
    admin = Admin(bootstrap_servers=bootstrap_servers)
    admin.close()
    admin.close()
    with pytest.raises(IllegalUse, match="closed"):
        admin.list_topics()


def test_every_error_is_one_of_kafkas(admin: Admin) -> None:
    with pytest.raises(KafkaError) as caught:
        admin.create_topics("no/such name")
    assert caught.value.name == "INVALID_TOPIC_EXCEPTION"
