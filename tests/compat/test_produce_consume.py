"""Records are read as they were written: keys, values, headers, compression, acknowledgements, order."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from .clients.base import TP, Client, Message, Producer
from .conftest import MakeTopic
from .waiting import take

COMPRESSIONS = ["none", "gzip", "snappy", "lz4", "zstd"]
Sent = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]

PAYLOADS: dict[str, Sent] = {
    "plain": (b"key", b"value", ()),
    "null key": (None, b"value", ()),
    "null value": (b"key", None, ()),
    "empty key": (b"", b"value", ()),
    "empty value": (b"key", b"", ()),
    "binary": (bytes(range(256)), bytes(reversed(range(256))), ()),
    "headers": (b"key", b"value", (("trace", b"\x00\x01"), ("empty", b""), ("trace", b"again"), ("ключ", b"x"))),
}


def content(message: Message) -> Sent:
    return message.key, message.value, message.headers


def given(compression: str) -> str | None:
    return None if compression == "none" else compression


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_every_payload_comes_back_as_it_was(client: Client, make_topic: MakeTopic, compression: str) -> None:
    topic = make_topic()
    producer = client.producer(compression=given(compression), linger_ms=20)
    sent = [PAYLOADS[name] for name in PAYLOADS] * 3
    deliveries = [producer.send(topic, value, key, headers=headers) for key, value, headers in sent]
    producer.flush()
    assert [delivery.result().offset for delivery in deliveries] == list(range(len(sent)))
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    assert [content(message) for message in take(consumer, len(sent))] == sent


@pytest.mark.needs("null_header_value")
def test_header_with_a_null_value(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client.producer().send(topic, b"value", headers=[("nothing", None), ("empty", b"")]).result()
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    (message,) = take(consumer, 1)
    assert message.headers == (("nothing", None), ("empty", b""))


@pytest.mark.needs("null_key_and_value")
def test_null_key_and_null_value_together(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    client.producer().send(topic, None, None).result()
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    (message,) = take(consumer, 1)
    assert content(message) == (None, None, ())


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acknowledgements(client: Client, make_topic: MakeTopic, acks: object) -> None:
    topic = make_topic()
    producer = client.producer(acks=acks, idempotent=False)
    delivered = [producer.send(topic, b"%d" % number).result() for number in range(5)]
    if acks != 0:
        assert [answer.offset for answer in delivered] == [0, 1, 2, 3, 4]
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    assert [message.value for message in take(consumer, 5)] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.parametrize("compression", ["none", "lz4"])
def test_a_stream_over_partitions_keeps_order_in_each(client: Client, make_topic: MakeTopic, compression: str) -> None:
    topic, partitions, each = make_topic(4), 4, 1_500
    producer = client.producer(compression=given(compression), linger_ms=10, idempotent=True)
    deliveries = [
        producer.send(topic, b"%d-%d" % (partition, number), partition=partition)
        for number in range(each)
        for partition in range(partitions)
    ]
    producer.flush()
    assert {delivery.result().partition for delivery in deliveries} == set(range(partitions))
    consumer = client.consumer()
    consumer.assign({TP(topic, partition): None for partition in range(partitions)})
    messages = take(consumer, partitions * each)
    for partition in range(partitions):
        mine = [message for message in messages if message.partition == partition]
        assert [message.offset for message in mine] == list(range(each))
        assert [message.value for message in mine] == [b"%d-%d" % (partition, number) for number in range(each)]


def test_keys_choose_partitions_that_exist(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(6)
    producer = client.producer()
    deliveries = {b"%d" % number: producer.send(topic, b"", b"%d" % number, partition=None) for number in range(60)}
    producer.flush()
    chosen = {key: delivery.result().partition for key, delivery in deliveries.items()}
    assert set(chosen.values()) == set(range(6))
    again = {key: producer.send(topic, b"", key, partition=None).result().partition for key in list(chosen)[:5]}
    assert all(chosen[key] == partition for key, partition in again.items())


def test_producers_beside_each_other_in_one_partition(client: Client, make_topic: MakeTopic) -> None:
    topic, producers, each = make_topic(), 4, 300
    open_producers = [client.producer(linger_ms=2, idempotent=True) for _ in range(producers)]

    def work(number: int, producer: Producer) -> None:
        producer.send_all(topic, [b"%d %d" % (number, count) for count in range(each)])

    run_together([lambda n=n, p=p: work(n, p) for n, p in enumerate(open_producers)])  # type: ignore[misc]
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    messages = take(consumer, producers * each)
    assert [message.offset for message in messages] == list(range(producers * each))
    counts = [(int(who), int(count)) for who, count in ((m.value or b"").split() for m in messages)]
    for number in range(producers):
        assert [count for who, count in counts if who == number] == list(range(each))


def run_together(jobs: list[Callable[[], None]]) -> None:
    threads = [threading.Thread(target=job) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


@pytest.mark.parametrize("isolation_level", ["read_committed", "read_uncommitted"])
def test_isolation_levels_see_the_same_without_transactions(
    client: Client, make_topic: MakeTopic, isolation_level: str
) -> None:
    topic = make_topic()
    client.producer().send_all(topic, [b"a", b"b", b"c"])
    consumer = client.consumer(isolation_level=isolation_level)
    consumer.assign({TP(topic, 0): None})
    assert [message.value for message in take(consumer, 3)] == [b"a", b"b", b"c"]
    assert consumer.watermarks(TP(topic, 0)) == (0, 3)


def test_compression_type_of_the_topic_does_not_change_the_records(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(compression_type="gzip")
    client.producer(compression="lz4").send_all(topic, [b"same" * 50] * 20)
    client.producer().send_all(topic, [b"same" * 50] * 20)
    consumer = client.consumer()
    consumer.assign({TP(topic, 0): None})
    assert {message.value for message in take(consumer, 40)} == {b"same" * 50}
