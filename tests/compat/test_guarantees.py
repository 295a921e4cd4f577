"""Guarantees for producers: idempotence, in-sync replicas, keys on compacted topics."""

from __future__ import annotations

import pytest

from .clients.base import TP, Client, ClientError, Code
from .conftest import MakeTopic
from .waiting import take


@pytest.mark.parametrize("compression", [None, "gzip", "snappy", "lz4", "zstd"])
def test_an_idempotent_producer(client: Client, make_topic: MakeTopic, compression: str | None) -> None:
    topic = make_topic(2)
    producer = client.producer(idempotent=True, acks="all", compression=compression, linger_ms=1, batch_bytes=1_000)
    sends = [producer.send(topic, b"%d" % n, partition=n % 2) for n in range(600)]
    producer.flush()
    assert [send.result().offset for send in sends] == [n // 2 for n in range(600)]
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None, TP(topic, 1): None})
    messages = take(consumer, 600)
    for partition in (0, 1):
        values = [int(m.value or b"") for m in messages if m.partition == partition]
        assert values == list(range(partition, 600, 2))


def test_idempotent_producers_one_after_the_other(client: Client, make_topic: MakeTopic) -> None:
    """Each has its own producer id and starts with sequence number 0."""
    topic = make_topic()
    for turn in range(4):
        with client.producer(idempotent=True) as producer:
            assert producer.send(topic, b"%d" % turn).result().offset == turn


def test_an_idempotent_producer_goes_on_after_its_records_were_deleted(client: Client, make_topic: MakeTopic) -> None:
    topic, admin = make_topic(), client.admin()
    producer = client.producer(idempotent=True)
    producer.send_all(topic, [b"old"] * 5)
    assert admin.delete_records({TP(topic, 0): -1}) == {TP(topic, 0): 5}
    assert producer.send(topic, b"new").result().offset == 5


@pytest.mark.parametrize("acks", [1, "all"])
def test_one_replica_satisfies_a_larger_minimum(client: Client, make_topic: MakeTopic, acks: object) -> None:
    """Since 3.7, Kafka requires at most as many in-sync replicas as the partition has."""
    topic = make_topic(min_insync_replicas="2")
    producer = client.producer(acks=acks, idempotent=False, request_timeout_ms=4_000, delivery_timeout_ms=8_000)
    assert producer.send(topic, b"value").result().offset == 0


def test_a_compacted_topic_wants_keys(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(cleanup_policy="compact")
    with pytest.raises(ClientError) as refused:
        client.producer().send(topic, b"value").result()
    assert refused.value.code == client.sees(Code.INVALID_RECORD)
    producer = client.producer()
    assert producer.send(topic, b"value", b"key").result().offset == 0
    assert producer.send(topic, None, b"key").result().offset == 1
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    assert [(m.key, m.value) for m in take(consumer, 2)] == [(b"key", b"value"), (b"key", None)]


def test_one_record_without_a_key_refuses_its_whole_batch(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(cleanup_policy="compact")
    producer = client.producer(linger_ms=300, idempotent=False)
    keys = [b"a", None, b"c"]
    sends = [producer.send(topic, b"value", key) for key in keys]
    producer.flush()
    outcomes = []
    for send in sends:
        with pytest.raises(ClientError) as refused:
            send.result()
        outcomes.append(refused.value.code)
    assert client.sees(Code.INVALID_RECORD) in outcomes
    assert client.consumer().watermarks(TP(topic, 0)) == (0, 0)
