"""A waiting consumer gets a record at once. One with a minimum of bytes waits for them up to its limit."""

from __future__ import annotations

import threading
import time

from .clients.base import TP, Client, Consumer, Message
from .conftest import MakeTopic
from .waiting import take

LONG = 20_000  # ms; a record must arrive much earlier
AT_ONCE = 5.0  # s; generous, because other tests may run at the same time


class Waiting(threading.Thread):
    """Takes messages in a thread and records when they arrived."""

    def __init__(self, consumer: Consumer, count: int = 1) -> None:
        super().__init__(daemon=True)
        self._consumer, self._count = consumer, count
        self.messages: list[Message] = []
        self.ended = 0.0
        self.start()

    def run(self) -> None:
        self.messages = take(self._consumer, self._count, timeout=60)
        self.ended = time.monotonic()

    def values(self) -> list[bytes | None]:
        self.join(60)
        return [message.value for message in self.messages]


def test_a_waiting_consumer_gets_a_record_at_once(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    consumer = client.consumer(fetch_max_wait_ms=LONG)
    consumer.assign({TP(topic, 0): 0})
    assert consumer.poll(0.3) == []  # its fetch now waits at the broker
    waiting = Waiting(consumer)
    started = time.monotonic()
    client.producer().send(topic, b"now").result()
    assert waiting.values() == [b"now"]
    assert waiting.ended - started < AT_ONCE


def test_a_record_in_one_of_many_waiting_partitions(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic(20)
    producer = client.producer()
    for partition in range(20):
        producer.send(topic, b"first", partition=partition)
    producer.flush()
    consumer = client.consumer(fetch_max_wait_ms=LONG)
    consumer.assign({TP(topic, partition): 0 for partition in range(20)})
    assert len(take(consumer, 20)) == 20
    assert consumer.poll(0.3) == []  # now one fetch waits for all of them
    for partition in (13, 2, 13):
        waiting = Waiting(consumer)
        started = time.monotonic()
        producer.send(topic, b"now", partition=partition).result()
        assert waiting.values() == [b"now"]
        assert waiting.messages[0].partition == partition
        assert waiting.ended - started < AT_ONCE


def test_consumers_that_wait_together_all_get_the_record(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    consumers = [client.consumer(fetch_max_wait_ms=LONG) for _ in range(5)]
    for consumer in consumers:
        consumer.assign({TP(topic, 0): 0})
        assert consumer.poll(0.1) == []
    waiting = [Waiting(consumer) for consumer in consumers]
    started = time.monotonic()
    client.producer().send(topic, b"all").result()
    assert [each.values() for each in waiting] == [[b"all"]] * 5
    assert max(each.ended for each in waiting) - started < AT_ONCE


def test_too_few_bytes_are_delivered_when_the_wait_is_over(client: Client, make_topic: MakeTopic) -> None:
    topic, wait = make_topic(), 1_200
    client.producer().send(topic, b"small").result()
    consumer = client.consumer(fetch_min_bytes=100_000, fetch_max_wait_ms=wait)
    started = time.monotonic()
    consumer.assign({TP(topic, 0): 0})
    assert [message.value for message in take(consumer, 1)] == [b"small"]
    assert wait / 1000 - 0.05 <= time.monotonic() - started < wait / 1000 + AT_ONCE


def test_enough_bytes_end_the_wait(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    consumer = client.consumer(fetch_min_bytes=50_000, fetch_max_wait_ms=LONG)
    consumer.assign({TP(topic, 0): 0})
    producer = client.producer()
    producer.send(topic, b"small").result()
    assert consumer.poll(0.5) == []
    waiting = Waiting(consumer, 2)
    started = time.monotonic()
    producer.send(topic, b"x" * 60_000).result()
    assert waiting.values() == [b"small", b"x" * 60_000]
    assert waiting.ended - started < AT_ONCE


def test_a_slow_trickle_arrives_record_by_record(client: Client, make_topic: MakeTopic) -> None:
    topic = make_topic()
    consumer = client.consumer(fetch_max_wait_ms=LONG)
    consumer.assign({TP(topic, 0): 0})
    producer = client.producer()
    started = time.monotonic()
    for number in range(30):
        producer.send(topic, b"%d" % number).result()
        assert [message.value for message in take(consumer, 1)] == [b"%d" % number]
    assert time.monotonic() - started < AT_ONCE
