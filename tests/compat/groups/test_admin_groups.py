"""Groups managed with the admin clients of confluent-kafka and kafka-python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka import TopicPartition as KafkaPythonPartition
from kafka.admin import MemberToRemove
from kafka.errors import GroupIdNotFoundError, GroupSubscribedToTopicError, NoError, UnknownMemberIdError
from kafka.protocol.consumer import OffsetSpec
from kafka.structs import OffsetAndMetadata

from ..clients.base import TP
from ..clients.confluent import REQUEST_TIMEOUT
from ..conftest import unique_name
from ..waiting import until
from .conftest import MakeScenario
from .drivers import CONSUMER_PROTOCOL
from .raw import GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, UNKNOWN_MEMBER_ID
from .scenario import Scenario

RECORDS = 40
KINDS = ["confluent", CONSUMER_PROTOCOL]
TYPES = {"confluent": ConsumerGroupType.CLASSIC, CONSUMER_PROTOCOL: ConsumerGroupType.CONSUMER}


@pytest.fixture
def confluent(bootstrap_servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 2})


@pytest.fixture
def kafka_python(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield admin
    admin.close()


@pytest.fixture
def group(make_scenario: MakeScenario) -> Scenario:
    """A group that has read a topic with two partitions and committed."""
    scenario = make_scenario(2)
    scenario.produce(RECORDS)
    return scenario


def read_all(group: Scenario, kind: str) -> None:
    """A member reads everything, commits and leaves."""
    member = group.join(kind)
    until(lambda: len(member.journal.reads) == RECORDS, "everything is read")
    group.leave(member)


def code_of(future: Any) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(REQUEST_TIMEOUT)
    return int(refused.value.args[0].code())


# ── list and describe ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_groups_are_listed(confluent: AdminClient, kafka_python: KafkaAdminClient, group: Scenario, kind: str) -> None:
    group.join(kind)
    group.settle()

    def listed(**filters: Any) -> set[str]:
        found = confluent.list_consumer_groups(**filters).result(REQUEST_TIMEOUT)
        assert found.errors == []
        return {each.group_id for each in found.valid}

    other_type = {ConsumerGroupType.CLASSIC, ConsumerGroupType.CONSUMER} - {TYPES[kind]}
    assert group.group in listed()
    assert group.group in listed(states={ConsumerGroupState.STABLE}, types={TYPES[kind]})
    assert group.group not in listed(states={ConsumerGroupState.EMPTY})
    assert group.group not in listed(types=other_type)
    (mine,) = (each for each in kafka_python.list_groups() if each["group_id"] == group.group)
    type_name = "classic" if kind == "confluent" else "consumer"
    assert (mine["protocol_type"], mine["group_state"], mine["group_type"]) == ("consumer", "Stable", type_name)
    names = {each["group_id"] for each in kafka_python.list_groups(states_filter=["Empty"])}
    assert group.group not in names


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_described(confluent: AdminClient, group: Scenario, kind: str) -> None:
    member = group.join(kind, instance_id="static")
    group.settle()
    found = confluent.describe_consumer_groups([group.group])[group.group].result(REQUEST_TIMEOUT)
    (described,) = found.members
    assert (found.state, found.type, found.is_simple_consumer_group) == (ConsumerGroupState.STABLE, TYPES[kind], False)
    assert found.partition_assignor == "range"
    assert (described.client_id, described.group_instance_id) == (member.options.client_id, "static")
    assert described.host == "/127.0.0.1"
    assert {TP(p.topic, p.partition) for p in described.assignment.topic_partitions} == group.partitions
    group.leave(member)


def test_a_classic_group_is_described(kafka_python: KafkaAdminClient, group: Scenario) -> None:
    group.join("kafka_python")
    group.settle()
    found = kafka_python.describe_groups([group.group])[group.group]
    (described,) = found["members"]
    assert (found["error"], found["group_state"]) == (None, "Stable")
    assert (found["protocol_type"], found["protocol_data"]) == ("consumer", "range")
    assert described["member_metadata"]["topics"] == list(group.topics)
    ((topic, partitions),) = [
        (each["topic"], each["partitions"]) for each in described["member_assignment"]["assigned_partitions"]
    ]
    assert {TP(topic, number) for number in partitions} == group.partitions


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_group_is_described(confluent: AdminClient, group: Scenario, kind: str) -> None:
    read_all(group, kind)
    found = confluent.describe_consumer_groups([group.group])[group.group].result(REQUEST_TIMEOUT)
    assert (found.state, found.members) == (ConsumerGroupState.EMPTY, [])


def test_a_group_that_is_not_there_is_described(confluent: AdminClient, kafka_python: KafkaAdminClient) -> None:
    name = unique_name("no-such-group")
    dead = confluent.describe_consumer_groups([name])[name].result(REQUEST_TIMEOUT)
    assert (dead.state, dead.members) == (ConsumerGroupState.DEAD, [])
    found = kafka_python.describe_groups([name])[name]
    assert (found["group_state"], found["members"]) == ("Dead", [])
    assert (found["authorized_operations"], "GroupIdNotFound" in found["error"]) == (None, True)


# ── delete ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_a_group_is_deleted(confluent: AdminClient, group: Scenario, kind: str) -> None:
    """A group with members cannot be deleted, and no group twice."""
    member = group.join(kind)
    until(lambda: len(member.journal.reads) == RECORDS, "everything is read")
    group.settle()
    assert code_of(confluent.delete_consumer_groups([group.group])[group.group]) == NON_EMPTY_GROUP
    group.leave(member)
    assert len(group.committed()) == 2
    confluent.delete_consumer_groups([group.group])[group.group].result(REQUEST_TIMEOUT)
    assert group.committed() == {}
    assert code_of(confluent.delete_consumer_groups([group.group])[group.group]) == GROUP_ID_NOT_FOUND
    again = group.join(kind)
    until(lambda: len(again.journal.reads) == RECORDS, "everything is read again")


def test_groups_are_deleted_by_kafka_python(kafka_python: KafkaAdminClient, group: Scenario) -> None:
    read_all(group, "kafka_python")
    unknown = unique_name("no-such-group")
    assert kafka_python.delete_groups([group.group, unknown]) == {group.group: "OK", unknown: "GroupIdNotFoundError"}
    assert group.committed() == {}


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("kind", KINDS)
def test_offsets_are_altered(confluent: AdminClient, group: Scenario, kind: str) -> None:
    """Offsets can be altered only without members; the next member starts there."""
    member = group.join(kind)
    until(lambda: len(member.journal.reads) == RECORDS, "everything is read")
    group.settle()
    first, second = sorted(group.partitions)
    wanted = [TopicPartition(*first, 15), TopicPartition(*second, 0)]

    def alter() -> Any:
        request = ConsumerGroupTopicPartitions(group.group, wanted)
        return confluent.alter_consumer_group_offsets([request])[group.group]

    refused = alter().result(REQUEST_TIMEOUT)
    assert {each.error.code() for each in refused.topic_partitions} == {UNKNOWN_MEMBER_ID}
    group.leave(member)
    altered = alter().result(REQUEST_TIMEOUT)
    assert [each.error for each in altered.topic_partitions] == [None, None]
    assert group.committed() == {first: 15, second: 0}
    again = group.join(kind)
    until(lambda: len(again.journal.reads) == 25, "the rest is read")
    assert min(read.offset for read in again.journal.reads if read.partition == 0) == 15


def test_offsets_in_the_hands_of_kafka_python(kafka_python: KafkaAdminClient, group: Scenario) -> None:
    name, (first, second) = group.group, sorted(group.partitions)
    one, two = KafkaPythonPartition(*first), KafkaPythonPartition(*second)
    found = kafka_python.alter_group_offsets(name, {one: OffsetAndMetadata(3, "note", -1)})
    assert found == {one: NoError}
    assert kafka_python.list_group_offsets([name]) == {name: {one: OffsetAndMetadata(3, "note", -1)}}
    kafka_python.reset_group_offsets(name, {one: OffsetSpec.LATEST, two: OffsetSpec.EARLIEST})
    assert group.committed() == {first: RECORDS // 2, second: 0}
    assert kafka_python.delete_group_offsets(name, [two]) == {two: NoError}
    assert group.committed() == {first: RECORDS // 2}


def test_offsets_of_several_groups(kafka_python: KafkaAdminClient, group: Scenario) -> None:
    names = [unique_name("group") for _ in range(5)]
    partition = KafkaPythonPartition(*min(group.partitions))
    for number, name in enumerate(names):
        kafka_python.alter_group_offsets(name, {partition: OffsetAndMetadata(number, "", -1)})
    found = kafka_python.list_group_offsets({name: [partition] for name in names})
    assert {name: offsets[partition].offset for name, offsets in found.items()} == dict(
        zip(names, range(5), strict=True)
    )


def test_offsets_that_are_read_cannot_be_deleted(kafka_python: KafkaAdminClient, group: Scenario) -> None:
    group.join("confluent", commit="each")
    group.settle()
    until(lambda: len(group.committed()) == 2, "something is committed")
    partition = KafkaPythonPartition(*min(group.partitions))
    assert kafka_python.delete_group_offsets(group.group, [partition]) == {partition: GroupSubscribedToTopicError}
    with pytest.raises(GroupIdNotFoundError):
        kafka_python.delete_group_offsets(unique_name("no-such-group"), [partition])
    assert len(group.committed()) == 2


# ── members ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_static_member_is_removed(kafka_python: KafkaAdminClient, group: Scenario) -> None:
    """A removed member does not delay the group."""
    gone = group.join("confluent", instance_id="gone", session_ms=60_000)
    stays = group.join("confluent", instance_id="stays", session_ms=60_000)
    group.settle()
    group.leave(gone)
    removed = kafka_python.remove_group_members(
        group.group, [MemberToRemove(group_instance_id="gone"), MemberToRemove(group_instance_id="unknown")]
    )
    assert removed == {"gone": NoError, "unknown": UnknownMemberIdError}
    assert group.settle() == {stays.options.client_id: group.partitions}
