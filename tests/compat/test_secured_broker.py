"""``Broker(tls=…, users=…, acls=…)``: a secured broker for tests in one line, and the settings of every client."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import kafka
import pytest
from aiokafka import AIOKafkaProducer

import ottla
from ottla.errors import ConfigError
from ottla.net.client.connection import CLOSE_TIMEOUT_MS

USERS = {"alice": "secret of alice", "bob": "secret, of; \"bob'"}


def send_ottla(config: dict[str, Any], topic: str) -> None:
    with ottla.Producer(config) as producer:
        producer.send(topic, b"1").result(20)


def send_confluent(config: dict[str, Any], topic: str) -> None:
    told: list[Any] = []
    producer = confluent_kafka.Producer(config | {"log_level": 2})
    producer.produce(topic, b"1", on_delivery=lambda error, message: told.append(error))
    producer.flush(20)
    if told != [None]:
        raise AssertionError(told)


def send_kafka_python(config: dict[str, Any], topic: str) -> None:
    producer = kafka.KafkaProducer(**config, max_block_ms=20_000)
    try:
        producer.send(topic, b"1").get(20)
    finally:
        producer.close()


def send_aiokafka(config: dict[str, Any], topic: str) -> None:
    async def send() -> None:
        async with AIOKafkaProducer(**config) as producer:
            await producer.send_and_wait(topic, b"1")

    asyncio.run(send())


Send = Callable[[dict[str, Any], str], None]
SENDERS: dict[str, Send] = {
    "ottla": send_ottla,
    "confluent-kafka": send_confluent,
    "kafka-python": send_kafka_python,
    "aiokafka": send_aiokafka,
}


def values(broker: ottla.Broker, topic: str) -> list[bytes | None]:
    with ottla.Consumer(broker.client_config(), auto_offset_reset="earliest") as consumer:
        consumer.assign([ottla.TopicPartition(topic, 0)])
        return [record.value for record in consumer.poll(10)]


@pytest.mark.parametrize(
    ("tls", "users", "user"), [(True, None, None), ("mutual", None, "bob"), (False, USERS, "bob"), (True, USERS, "bob")]
)
@pytest.mark.parametrize("name", SENDERS)
def test_the_settings_of_every_library(name: str, tls: Any, users: dict[str, str] | None, user: str | None) -> None:
    with ottla.Broker(tls=tls, users=users) as broker:
        SENDERS[name](broker.client_config(user, name), "orders")
        assert values(broker, "orders") == [b"1"]


def test_users_may_do_what_their_acls_say() -> None:
    acls = ["alice read,write topic orders-*", "alice read group etl", "deny alice write topic orders-secret"]
    with ottla.Broker(tls=True, users=USERS, acls=acls) as broker:
        with ottla.Admin(broker.client_config()) as admin:
            admin.create_topics(["orders-new", "orders-secret", "payments"])
        send_ottla(broker.client_config("alice"), "orders-new")
        for user, topic in (("alice", "orders-secret"), ("alice", "payments"), ("bob", "orders-new")):
            with pytest.raises(ottla.errors.TopicAuthorizationFailed):
                send_ottla(broker.client_config(user), topic)
        config = broker.client_config("alice")
        with ottla.Consumer(config, group_id="etl", auto_offset_reset="earliest") as consumer:
            consumer.subscribe(["orders-new"])
            assert [record.value for record in consumer.poll(20)] == [b"1"]


def test_with_client_certificates_the_user_is_the_common_name() -> None:
    with ottla.Broker(tls="mutual", acls=["carol write topic orders"]) as broker:
        with ottla.Admin(broker.client_config()) as admin:
            admin.create_topics(["orders"])
        send_ottla(broker.client_config("carol"), "orders")
        with pytest.raises(ottla.errors.TopicAuthorizationFailed):
            send_ottla(broker.client_config("dave"), "orders")


def test_a_client_without_the_authority_or_with_a_wrong_password_is_refused() -> None:
    with ottla.Broker(tls=True, users=USERS) as broker:
        good = broker.client_config("alice") | {"delivery.timeout.ms": 5_000, "request.timeout.ms": 2_000}
        with pytest.raises(ottla.errors.SaslAuthenticationFailed):
            send_ottla(good | {"sasl.password": "another"}, "orders")
        with pytest.raises(ottla.errors.OttlaError, match="certificate"):
            send_ottla({name: value for name, value in good.items() if "truststore" not in name}, "orders")


def test_a_consumer_does_not_wait_for_its_last_fetch_when_it_closes() -> None:
    with ottla.Broker(tls=True) as broker:
        with ottla.Admin(broker.client_config()) as admin:
            admin.create_topics(["orders"])
        with ottla.Consumer(broker.client_config(), fetch_max_wait_ms=60_000) as consumer:
            consumer.assign([ottla.TopicPartition("orders", 0)])
            assert consumer.poll(0.2) == []
            started = time.monotonic()
        assert time.monotonic() - started < CLOSE_TIMEOUT_MS / 2000


def test_each_run_has_its_own_authority() -> None:
    with ottla.Broker(tls=True) as one, ottla.Broker(tls=True) as other:
        context: ssl.SSLContext = one.client_config(library="aiokafka")["ssl_context"]
        assert len(context.get_ca_certs()) == 1
        mixed = other.client_config() | {"bootstrap.servers": one.bootstrap_servers, "max.block.ms": 3_000}
        with pytest.raises(ottla.errors.OttlaError, match="certificate"):
            send_ottla(mixed, "orders")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"tls": "yes"}, "tls must be True, False or 'mutual', not 'yes'"),
        ({"users": {"alice": 5}}, "users must be a dict of names and passwords"),
        ({"users": {"alice": ""}}, "a name or a password is empty"),
        ({"acls": "alice read topic orders"}, r"acls must be a list, such as \['alice read topic orders'\]"),
        ({"acls": ["alice reads topic orders"]}, "'reads' in 'alice reads topic orders' must be one of .*read"),
        ({"acls": ["alice read table orders"]}, "'table' in .* must be one of topic, group, cluster"),
        ({"acls": ["alice"]}, "is not an ACL of the form"),
        ({"acls": ["alice write group etl"]}, "'write' in 'alice write group etl' must be one of read, delete"),
        ({"tls": True, "listeners": "SSL://localhost:0"}, "Leave listeners out"),
    ],
)
def test_wrong_arguments_say_what_is_right(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message), ottla.Broker(**arguments):
        pass


@pytest.mark.parametrize(
    ("users", "message"),
    [
        (USERS, r"there is no User:alcie in users\. Did you mean alice\?"),
        (None, "no client is User:alcie: all are User:ANONYMOUS"),
    ],
)
def test_a_rule_for_nobody_is_told(users: dict[str, str] | None, message: str) -> None:
    with pytest.warns(UserWarning, match=message) as told:
        ottla.Broker(users=users, acls=["alcie read topic orders", "* describe topic orders", "alcie read group g"])
    assert [each.filename for each in told] == [__file__]


def test_settings_of_an_unknown_user_or_library() -> None:
    with ottla.Broker(users=USERS) as broker:
        with pytest.raises(ValueError, match=r"there is no user 'eve'\. Known users: admin, alice, bob"):
            broker.client_config("eve")
        with pytest.raises(ValueError, match="library must be one of ottla, confluent-kafka"):
            broker.client_config("alice", "librdkafka")
