"""Topics are created automatically, deleted and created again while clients use them."""

from __future__ import annotations

import time

import pytest

from .clients.base import TP, Admin, Client, ClientError, Code, Consumer, Message
from .conftest import Connect, MakeTopic, StartBroker, create_and_wait, unique_name
from .waiting import DEADLINE, take, until


def test_a_producer_creates_an_unknown_topic(client: Client) -> None:
    name = unique_name()
    admin = client.admin()
    assert client.producer().send(name, b"value").result().offset == 0
    node = admin.describe_cluster().controller
    assert len(admin.describe_topic(name)) == int(admin.describe_broker_configs(node)["num.partitions"].value or 0)
    consumer = client.consumer()
    consumer.assign({TP(name, 0): None})
    assert [message.value for message in take(consumer, 1)] == [b"value"]
    admin.delete_topic(name)


@pytest.mark.parametrize("name", ["no good name", "x" * 250])
def test_a_bad_name_is_not_created(client: Client, name: str) -> None:
    with pytest.raises((ClientError, ValueError)):
        client.producer(max_block_ms=2_000, delivery_timeout_ms=2_000, request_timeout_ms=1_000).send(
            name, b"value"
        ).result()
    assert name not in client.admin().list_topics()


def test_without_auto_creation_an_unknown_topic_stays_unknown(
    start_own_broker: StartBroker, connect: Connect, library: str
) -> None:
    broker = start_own_broker(auto_create_topics_enable="false")
    client = connect(library, broker.bootstrap_servers)
    name = unique_name()
    producer = client.producer(max_block_ms=1_500, delivery_timeout_ms=1_500, request_timeout_ms=1_000)
    with pytest.raises(ClientError):
        producer.send(name, b"value").result()
    admin = client.admin()
    assert name not in admin.list_topics()
    create_and_wait(connect("confluent", broker.bootstrap_servers).admin(), name, 1, {})
    assert client.producer().send(name, b"value").result().offset == 0


def test_deleting_a_topic_under_a_producer_and_a_consumer(client: Client, make_topic: MakeTopic) -> None:
    """Both continue with the new topic of the same name, which has no old records."""
    topic, admin = make_topic(), client.admin()
    tp = TP(topic, 0)
    producer = client.producer(idempotent=False)
    consumer = client.consumer(fetch_max_wait_ms=100, metadata_max_age_ms=1_000)
    producer.send_all(topic, [b"old %d" % n for n in range(10)])
    consumer.assign({tp: None})
    assert len(take(consumer, 10)) == 10
    admin.delete_topic(topic)
    create_unless_there(admin, topic)
    delivered = producer.send(topic, b"new 0").result()
    assert delivered.offset == 0
    producer.send_all(topic, [b"new %d" % n for n in range(1, 12)])
    assert [m.value for m in read_new(client, tp, 12)] == [b"new %d" % n for n in range(12)]
    assert b"new 11" in {m.value for m in keep_reading(consumer, b"new 11")}


def create_unless_there(admin: Admin, topic: str) -> None:
    """A client that refreshes its metadata may be faster: that creates topics too."""
    try:
        admin.create_topic(topic)
    except ClientError as problem:
        if problem.code != Code.TOPIC_ALREADY_EXISTS:
            raise
    until(lambda: topic in admin.list_topics(), "the topic is there again")


def read_new(client: Client, tp: TP, count: int) -> list[Message]:
    with client.consumer() as consumer:
        consumer.assign({tp: None})
        return take(consumer, count)


def keep_reading(consumer: Consumer, last: bytes) -> list[Message]:
    """An older consumer may learn that the topic, or its offset, is unknown; it continues."""
    seen: list[Message] = []
    deadline = time.monotonic() + DEADLINE
    while not any(message.value == last for message in seen):
        assert time.monotonic() < deadline, f"never saw {last!r}, only {seen[-3:]}"
        try:
            seen += consumer.poll(0.5)
        except ClientError as problem:
            if problem.code not in (Code.UNKNOWN_TOPIC_OR_PARTITION, Code.UNKNOWN_TOPIC_ID):
                raise
    return seen
