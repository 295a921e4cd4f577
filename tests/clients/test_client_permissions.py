"""Real clients with exactly the permissions that docs/security.md names, and what they see without them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest

import ottla
from ottla import errors

#: What `ottla acls add --producer` and `--consumer` grant.
PRODUCER = ["alice write,describe,create topic orders"]
CONSUMER = ["bob read,describe topic orders", "bob read group team"]
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "consumer"])


@pytest.fixture(scope="module")
def broker() -> Iterator[ottla.Broker]:
    users = dict.fromkeys(("alice", "bob", "carol"), "secret")
    acls = [*PRODUCER, *CONSUMER, "carol write,describe transactional-id carol-*", "carol write,read topic orders"]
    with ottla.Broker(users=users, acls=acls) as broker:
        with ottla.Admin(broker.client_config()) as admin:
            admin.create_topics(["orders", "payments"])
        yield broker


def produce(broker: ottla.Broker, user: str, topic: str) -> int:
    with ottla.Producer(broker.client_config(user)) as producer:
        return producer.send(topic, b"x").get(20).offset


def test_an_idempotent_producer_needs_only_its_topic(broker: ottla.Broker) -> None:
    assert produce(broker, "alice", "orders") >= 0
    for topic in ("payments", "not-there"):
        with pytest.raises(errors.TopicAuthorizationFailed):
            produce(broker, "alice", topic)
    # Who may write nowhere gets no producer id.
    with pytest.raises(errors.ClusterAuthorizationFailed):
        produce(broker, "bob", "orders")


def test_confluent_kafka_produces_with_the_same_permissions(broker: ottla.Broker) -> None:
    config = broker.client_config("alice", "confluent-kafka") | {"enable.idempotence": True, "acks": "all"}
    producer = confluent_kafka.Producer(config)
    found: list[Any] = []
    for topic in ("orders", "payments"):
        producer.produce(topic, b"x", on_delivery=lambda error, _: found.append(error and error.code()))
        assert producer.flush(20) == 0
    assert found == [None, errors.TopicAuthorizationFailed.code]


def consume(broker: ottla.Broker, topic: str, group: str, protocol: str) -> bytes | None:
    config = broker.client_config("bob") | {"group.protocol": protocol, "auto.offset.reset": "earliest"}
    with ottla.Consumer({**config, "group.id": group}) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            for record in consumer.poll(timeout_ms=1000):
                consumer.commit()
                return record.value
    raise AssertionError("no record")


@PROTOCOLS
def test_a_consumer_needs_its_topic_and_its_group(broker: ottla.Broker, protocol: str) -> None:
    produce(broker, "alice", "orders")
    assert consume(broker, "orders", "team", protocol) == b"x"
    with pytest.raises(errors.GroupAuthorizationFailed):
        consume(broker, "orders", "others", protocol)
    with pytest.raises(errors.TopicAuthorizationFailed):
        consume(broker, "payments", "team", protocol)


@PROTOCOLS
def test_confluent_kafka_consumes_with_the_same_permissions(broker: ottla.Broker, protocol: str) -> None:
    produce(broker, "alice", "orders")
    config = broker.client_config("bob", "confluent-kafka") | {
        "group.id": "team", "group.protocol": protocol, "auto.offset.reset": "earliest",
    }  # fmt: skip
    consumer = confluent_kafka.Consumer(config)
    try:
        consumer.subscribe(["orders"])
        while (message := consumer.poll(20)) is not None and message.error() is not None:
            assert message.error().retriable()
        assert message is not None
    finally:
        consumer.close()


def test_a_transaction_needs_its_id(broker: ottla.Broker) -> None:
    config = broker.client_config("carol")
    with ottla.Producer({**config, "transactional.id": "carol-1"}) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("orders", b"x")
    with (
        ottla.Producer({**config, "transactional.id": "alice-1"}) as producer,
        pytest.raises(errors.TransactionalIdAuthorizationFailed),
    ):
        producer.init_transactions()


def test_users_see_only_their_topics_and_may_not_administer(broker: ottla.Broker) -> None:
    with ottla.Admin(broker.client_config("bob")) as admin:
        assert list(admin.list_topics()) == ["orders"]
        assert {group.group_id for group in admin.list_groups()} <= {"team"}
        for call in (
            lambda: admin.create_topics("mine"),
            lambda: admin.delete_topics("orders"),
            admin.describe_acls,
            lambda: admin.alter_users({"bob": "other"}),
            lambda: admin.describe_configs("orders"),
        ):
            with pytest.raises(errors.AuthorizationError):
                call()
