"""Requests of kafka-python's admin client only: log directories, producers, topic ids, partition pages."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition

from .conftest import MakeTopic
from .waiting import until


@pytest.fixture
def admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap_servers)
    yield client
    client.close()


def test_the_version_of_the_broker_is_recognised(admin: KafkaAdminClient) -> None:
    assert admin.get_broker_version_data(admin.describe_cluster()["controller_id"]).broker_version >= (4, 0)


def test_log_directories(admin: KafkaAdminClient, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    producer.send(topic, b"x" * 1_000, partition=1).get(20)
    producer.close()
    (broker,) = admin.describe_log_dirs({topic: [0, 1]})
    found = {
        partition["partition_index"]: partition["partition_size"]
        for directory in broker["log_dirs"]
        for entry in directory["topics"]
        for partition in entry["partitions"]
    }
    assert found[0] == 0
    assert found[1] > 1_000


def test_active_producers(admin: KafkaAdminClient, bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, enable_idempotence=True)
    for _ in range(3):
        producer.send(topic, b"value", partition=0).get(20)
    producer.close()
    partition = TopicPartition(topic, 0)
    (state,) = admin.describe_producers([partition])[partition].active_producers
    assert state.last_sequence == 2
    assert state.producer_epoch == 0


def test_topics_by_their_ids(admin: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    (found,) = admin.describe_topics([topic])
    (by_id,) = admin.describe_topics([uuid.UUID(str(found["topic_id"]))])
    assert (by_id["name"], len(by_id["partitions"])) == (topic, 2)
    admin.delete_topics([uuid.UUID(str(found["topic_id"]))])
    until(lambda: topic not in admin.list_topics(), "the topic is gone")


def test_pages_of_partitions(admin: KafkaAdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic(5)
    first = admin.describe_topic_partitions([topic], response_partition_limit=2)
    assert [p["partition_index"] for p in first["topics"][0]["partitions"]] == [0, 1]
    rest = admin.describe_topic_partitions([topic], cursor=first["next_cursor"])
    assert [p["partition_index"] for p in rest["topics"][0]["partitions"]] == [2, 3, 4]


def test_a_changing_assignment_inside_one_fetch_session(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """This library keeps an incremental session: partitions are removed, added and added again."""
    topic = make_topic(3)
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=50)
    partitions = [TopicPartition(topic, n) for n in range(3)]
    expected = [0, 0, 0]
    for assigned in ([0], [0, 1], [1, 2], [2], [0, 1, 2]):
        for number in range(3):
            producer.send(topic, b"value", partition=number).get(20)
            expected[number] += 1
        consumer.assign([partitions[number] for number in assigned])
        for number in assigned:
            consumer.seek(partitions[number], expected[number] - 1)
        seen: dict[int, int] = {}

        def all_seen(seen: dict[int, int] = seen, assigned: list[int] = assigned) -> bool:
            for partition, records in consumer.poll(timeout_ms=200).items():
                seen[partition.partition] = records[-1].offset
            return seen == {number: expected[number] - 1 for number in assigned}

        until(all_seen, f"the last record of each of {assigned}")
    consumer.close()
    producer.close()


def test_following_by_iteration(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers)
    for number in range(5):
        producer.send(topic, b"%d" % number, partition=0).get(20)
    producer.close()
    consumer = KafkaConsumer(
        bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    consumer.assign([TopicPartition(topic, 0)])
    values = [record.value for _, record in zip(range(5), consumer, strict=False)]
    consumer.close()
    assert values == [b"0", b"1", b"2", b"3", b"4"]
