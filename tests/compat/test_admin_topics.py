"""Topics created, listed, described, grown, emptied and deleted by each library's admin client."""

from __future__ import annotations

import pytest

from .clients.base import TP, Admin, Client, ClientError, Code
from .conftest import MakeTopic, unique_name
from .waiting import take, until


def refused(error: pytest.ExceptionInfo[ClientError]) -> int | None:
    return error.value.code


def test_the_cluster(client: Client, bootstrap_servers: str) -> None:
    cluster = client.admin().describe_cluster()
    assert cluster.cluster_id
    assert cluster.controller in cluster.brokers
    assert bootstrap_servers in cluster.brokers.values()


def test_a_topic_is_created_listed_described_and_deleted(client: Client) -> None:
    admin, name = client.admin(), unique_name()
    admin.create_topic(name, 3, configs={"retention.ms": "3600000"})
    until(lambda: name in admin.list_topics(), "the new topic is listed")
    partitions = admin.describe_topic(name)
    assert [p.partition for p in partitions] == [0, 1, 2]
    node = partitions[0].leader
    assert all((p.leader, p.replicas, p.isr) == (node, (node,), (node,)) for p in partitions)
    assert admin.describe_topic_configs(name)["retention.ms"].value == "3600000"
    admin.delete_topic(name)
    until(lambda: name not in admin.list_topics(), "the deleted topic is gone")


@pytest.mark.needs("default_counts")
def test_defaults_for_partitions_and_replicas(client: Client) -> None:
    admin, name = client.admin(), unique_name()
    admin.create_topic(name, -1, replication_factor=-1)
    until(lambda: name in admin.list_topics(), "the new topic is listed")
    node = admin.describe_cluster().controller
    number = admin.describe_broker_configs(node)["num.partitions"].value
    assert len(admin.describe_topic(name)) == int(number or 0)
    admin.delete_topic(name)


def test_a_topic_on_chosen_replicas(client: Client) -> None:
    admin, name = client.admin(), unique_name()
    (node,) = admin.describe_cluster().brokers
    admin.create_topic_on(name, [[node], [node]])
    until(lambda: name in admin.list_topics(), "the new topic is listed")
    assert [p.replicas for p in admin.describe_topic(name)] == [(node,), (node,)]
    admin.delete_topic(name)


BAD_TOPICS = {
    "space": ("two words", {}, Code.INVALID_TOPIC_EXCEPTION),
    "exclamation mark": ("bad!", {}, Code.INVALID_TOPIC_EXCEPTION),
    "a dot": (".", {}, Code.INVALID_TOPIC_EXCEPTION),
    "too long": ("x" * 250, {}, Code.INVALID_TOPIC_EXCEPTION),
    "no partitions": (None, {"partitions": 0}, Code.INVALID_PARTITIONS),
    "too many replicas": (None, {"replication_factor": 3}, Code.INVALID_REPLICATION_FACTOR),
    "no replicas": (None, {"replication_factor": 0}, Code.INVALID_REPLICATION_FACTOR),
    "unknown config": (None, {"configs": {"retention.mss": "1"}}, Code.INVALID_CONFIG),
    "bad number": (None, {"configs": {"retention.ms": "soon"}}, Code.INVALID_CONFIG),
    "out of range": (None, {"configs": {"segment.bytes": "1"}}, Code.INVALID_CONFIG),
    "bad policy": (None, {"configs": {"cleanup.policy": "burn"}}, Code.INVALID_CONFIG),
}


@pytest.mark.parametrize("case", BAD_TOPICS)
def test_a_bad_topic_is_refused(client: Client, case: str) -> None:
    given, arguments, code = BAD_TOPICS[case]
    admin, name = client.admin(), given or unique_name()
    with pytest.raises(ClientError) as error:
        admin.create_topic(name, **arguments)  # type: ignore[arg-type]
    assert refused(error) == code
    assert name not in admin.list_topics()


def test_a_topic_that_exists_is_refused(client: Client, make_topic: MakeTopic) -> None:
    with pytest.raises(ClientError) as error:
        client.admin().create_topic(make_topic())
    assert refused(error) == Code.TOPIC_ALREADY_EXISTS


def test_names_that_differ_only_in_dots_and_underscores_collide(client: Client) -> None:
    admin, name = client.admin(), unique_name()
    admin.create_topic(f"{name}.a_b")
    with pytest.raises(ClientError) as error:
        admin.create_topic(f"{name}.a.b")
    assert refused(error) == Code.INVALID_TOPIC_EXCEPTION
    admin.delete_topic(f"{name}.a_b")


def test_validation_only_creates_nothing(client: Client, make_topic: MakeTopic) -> None:
    admin, name, existing = client.admin(), unique_name(), make_topic()
    admin.create_topic(name, validate_only=True)
    assert name not in admin.list_topics()
    with pytest.raises(ClientError) as error:
        admin.create_topic(existing, validate_only=True)
    assert refused(error) == Code.TOPIC_ALREADY_EXISTS
    admin.create_partitions(existing, 5, validate_only=True)
    assert len(admin.describe_topic(existing)) == 1


def test_partitions_are_added_while_a_producer_runs(client: Client, make_topic: MakeTopic) -> None:
    topic, admin = make_topic(), client.admin()
    client.producer().send(topic, b"first").result()
    admin.create_partitions(topic, 3)
    until(lambda: _leaders(admin, topic) == 3, "three partitions have leaders")
    producer = client.producer()  # a library finds new partitions only when its metadata expires, so use a new producer
    delivered = [producer.send(topic, b"%d" % n, partition=n).result() for n in range(3)]
    assert [answer.offset for answer in delivered] == [1, 0, 0]
    consumer = client.consumer()
    consumer.assign({TP(topic, n): None for n in range(3)})
    assert len(take(consumer, 4)) == 4


def _leaders(admin: Admin, topic: str) -> int:
    return sum(partition.leader >= 0 for partition in admin.describe_topic(topic))


@pytest.mark.parametrize("total", [1, 2, 3])
def test_partitions_only_become_more(client: Client, make_topic: MakeTopic, total: int) -> None:
    topic, admin = make_topic(3), client.admin()
    with pytest.raises(ClientError) as error:
        admin.create_partitions(topic, total)
    assert refused(error) == Code.INVALID_PARTITIONS
    assert len(admin.describe_topic(topic)) == 3


def test_a_topic_that_is_not_there(client: Client) -> None:
    admin, name = client.admin(), unique_name()
    with pytest.raises(ClientError) as deleting:
        admin.delete_topic(name)
    with pytest.raises(ClientError) as growing:
        admin.create_partitions(name, 2)
    assert refused(deleting) == refused(growing) == Code.UNKNOWN_TOPIC_OR_PARTITION
    assert name not in admin.list_topics()


def test_records_are_deleted(client: Client, make_topic: MakeTopic) -> None:
    topic, admin = make_topic(2), client.admin()
    first, second = TP(topic, 0), TP(topic, 1)
    producer = client.producer()
    for partition in (0, 1):
        producer.send_all(topic, [b"%d" % n for n in range(10)], partition)
    assert admin.delete_records({first: 4, second: -1}) == {first: 4, second: 10}
    consumer = client.consumer()
    assert consumer.watermarks(first) == (4, 10)
    assert consumer.watermarks(second) == (10, 10)
    assert admin.delete_records({first: 2}) == {first: 4}  # deleted records stay deleted
    consumer.assign({first: None, second: None})
    assert [message.offset for message in take(consumer, 6)] == [4, 5, 6, 7, 8, 9]
    assert producer.send(topic, b"on and on", partition=1).result().offset == 10


def test_records_beyond_the_end_cannot_be_deleted(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client.producer().send_all(topic, [b"value"] * 3)
    with pytest.raises(ClientError) as error:
        client.admin().delete_records({TP(topic, 0): 4})
    assert refused(error) == Code.OFFSET_OUT_OF_RANGE
    assert client.consumer().watermarks(TP(topic, 0)) == (0, 3)
