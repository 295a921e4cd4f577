"""Dead letters with real clients: a bad record is written aside with its error, all others are handled."""

from __future__ import annotations

import functools
import json
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from uuid import uuid4

import pytest

from clients.conftest import MakeTopic
from compat.waiting import until
from ottla.clients.admin.blocking import Admin
from ottla.clients.blocking import IllegalUse
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.consumer.dead_letter_steps import Processed
from ottla.clients.consumer.dead_letters import AsyncDeadLetters, DeadLetter, DeadLetters
from ottla.clients.producer.asynchronous import AsyncProducer
from ottla.clients.producer.blocking import Producer
from ottla.clients.serializers import JsonDeserializer, JsonSerializer
from ottla.consuming.values import ConsumerRecord
from ottla.errors import ConfigError
from ottla.types import TopicPartition


def reader(address: str, topic: str, group: str, **options: object) -> Consumer:
    consumer = Consumer(
        bootstrap_servers=address, group_id=group, enable_auto_commit=False, auto_offset_reset="earliest", **options
    )
    consumer.subscribe([topic])
    return consumer


def fill(address: str, topic: str, values: list[bytes]) -> None:
    with Producer(bootstrap_servers=address) as producer:
        for value in values:
            producer.send(topic, value, key=b"k", headers=[("trace", value)])


def read_all(address: str, topic: str, count: int) -> list[ConsumerRecord]:
    with reader(address, topic, f"g-{uuid4().hex}") as consumer:
        found: list[ConsumerRecord] = []
        while len(found) < count:
            found += consumer.poll(5)
        return found


def test_a_bad_record_is_set_aside_and_can_be_replayed(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, dead, group = make_topic(), make_topic(), f"g-{uuid4().hex}"
    fill(bootstrap_servers, topic, [b"1", b"bad", b"3"])
    tried: list[bytes] = []
    with reader(bootstrap_servers, topic, group) as consumer, Producer(bootstrap_servers=bootstrap_servers) as producer:
        helper = DeadLetters(consumer, producer, topic=dead, attempts=2, backoff_ms=1)

        def handle(record: ConsumerRecord) -> None:
            tried.append(record.value)
            if record.value == b"bad":
                raise ValueError("cannot be billed")
            if record.value == b"3":
                helper.stop()

        done = helper.run(handle)
        assert (done.handled, done.dead) == (2, 1)
        assert tried == [b"1", b"bad", b"bad", b"3"]
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 3
    letter = DeadLetter.of(read_all(bootstrap_servers, dead, 1)[0])
    assert (letter.topic, letter.offset, letter.attempts, letter.value) == (topic, 1, 2, b"bad")
    assert letter.error_message == "cannot be billed"
    assert letter.headers == [("trace", b"bad")]
    with (
        reader(bootstrap_servers, dead, "replay-" + group) as letters,
        Producer(bootstrap_servers=bootstrap_servers) as producer,
    ):
        assert DeadLetters.replay(letters, producer, select=lambda letter: letter.topic == topic, timeout=2) == 1
    again = read_all(bootstrap_servers, topic, 4)[-1]
    assert (again.value, again.key, list(again.headers)) == (b"bad", b"k", [("trace", b"bad")])


async def test_the_asyncio_clients_do_the_same_with_records_that_cannot_be_read(
    bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic, dead, group = make_topic(), make_topic(), f"g-{uuid4().hex}"
    fill(bootstrap_servers, topic, [b'{"n": 1}', b"no json", b'{"n": 2}', b'{"n": 3}'])
    seen: list[int] = []
    async with (
        AsyncConsumer(
            bootstrap_servers=bootstrap_servers,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            value_deserializer=JsonDeserializer(),
        ) as consumer,
        AsyncProducer(bootstrap_servers=bootstrap_servers) as producer,
    ):
        await consumer.subscribe([topic])
        helper = AsyncDeadLetters(consumer, producer, topic=dead, attempts=1, value_serializer=JsonSerializer())

        async def handle(record: ConsumerRecord) -> None:
            seen.append(record.value["n"])
            if record.value["n"] == 2:
                raise KeyError("price")
            if record.value["n"] == 3:
                helper.stop()

        done = await helper.run(handle)
        assert (done.handled, done.dead) == (2, 2)
    assert seen == [1, 2, 3]
    broken, failed = [DeadLetter.of(record) for record in read_all(bootstrap_servers, dead, 2)]
    assert (broken.value, broken.attempts) == (b"no json", 0)
    assert (json.loads(failed.value), failed.error_class) == ({"n": 2}, "builtins.KeyError")
    with Admin(bootstrap_servers=bootstrap_servers) as admin:
        assert admin.list_group_offsets(group)[TopicPartition(topic, 0)].offset == 4


def test_a_long_wait_does_not_lose_the_membership(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), f"g-{uuid4().hex}"
    fill(bootstrap_servers, topic, [b"a", b"b"])
    times = 0
    with (
        reader(bootstrap_servers, topic, group, max_poll_interval_ms=3_000) as consumer,
        Producer(bootstrap_servers=bootstrap_servers) as producer,
    ):
        helper = DeadLetters(consumer, producer, attempts=2, backoff_ms=4_000)

        def handle(record: ConsumerRecord) -> None:
            nonlocal times
            times += 1
            if times == 1:
                raise OSError("not yet")
            if record.value == b"b":
                helper.stop()

        done = helper.run(handle)
        assert (done.handled, done.dead, times) == (2, 0, 3)
        assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 2


def test_clients_that_do_not_fit_are_rejected(bootstrap_servers: str) -> None:
    with (
        Consumer(bootstrap_servers=bootstrap_servers, group_id="g") as consumer,
        Producer(bootstrap_servers=bootstrap_servers) as producer,
        pytest.raises(ConfigError, match=r"enable\.auto\.commit must be false"),
    ):
        DeadLetters(consumer, producer)


def set_aside(address: str, topic: str, dead: str, **options: object) -> DeadLetter:
    """The dead letter of the first record of a topic; all others are handled, and `last` is the last."""
    group = f"g-{uuid4().hex}"
    with reader(address, topic, group) as consumer, Producer(bootstrap_servers=address, **options) as producer:
        helper = DeadLetters(consumer, producer, topic=dead, attempts=1)

        def handle(record: ConsumerRecord) -> None:
            if record.offset == 0:
                raise ValueError("cannot be billed")
            helper.stop()

        done = helper.run(handle)
        assert (done.handled, done.dead) == (1, 1)
        assert consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)].offset == 2
    return DeadLetter.of(read_all(address, dead, 1)[0])


def test_a_record_near_the_limit_of_its_size_leaves_out_what_does_not_fit(
    bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic, dead = make_topic(), make_topic()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.send(topic, b"x" * 1_048_300)
        producer.send(topic, b"after")
    letter = set_aside(bootstrap_servers, topic, dead)
    assert (letter.value, letter.omitted) == (b"x" * 1_048_300, ())
    assert (letter.topic, letter.partition, letter.offset, letter.traceback) == (topic, 0, 0, "")


def test_a_record_that_no_letter_can_hold_is_logged_and_never_replayed(
    bootstrap_servers: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic, group = make_topic(), f"g-{uuid4().hex}"
    dead = make_topic(**{"max.message.bytes": "20000"})
    fill(bootstrap_servers, topic, [b"y" * 30_000, b"last"])
    with caplog.at_level(logging.WARNING):
        letter = set_aside(bootstrap_servers, topic, dead)
    assert (letter.topic, letter.partition, letter.offset, letter.size) == (topic, 0, 0, 30_000)
    assert letter.omitted == ("value", "key", "headers"), "its header has the same 30,000 bytes"
    assert f"{topic}-0 at offset 0" in caplog.text
    with reader(bootstrap_servers, dead, group) as letters, Producer(bootstrap_servers=bootstrap_servers) as producer:
        assert DeadLetters.replay(letters, producer, timeout=1) == 0
    assert "skipping a dead letter" in caplog.text


def test_a_record_that_compresses_well_needs_a_producer_that_takes_its_size(
    bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic, dead, other = make_topic(), make_topic(), make_topic()
    like_the_writer = {"compression_type": "zstd", "max_request_size": 8_000_000}
    with Producer(bootstrap_servers=bootstrap_servers, **like_the_writer) as producer:
        producer.send(topic, b"z" * 4_000_000)
        producer.send(topic, b"last")
    assert set_aside(bootstrap_servers, topic, dead, **like_the_writer).value == b"z" * 4_000_000
    assert set_aside(bootstrap_servers, topic, other, compression_type="zstd").size == 4_000_000


def test_a_coroutine_is_rejected_by_the_blocking_helper(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic, group = make_topic(), f"g-{uuid4().hex}"
    fill(bootstrap_servers, topic, [b"1"])

    async def handle(record: ConsumerRecord) -> None:
        raise AssertionError("nobody awaits it")

    class Handler:
        async def __call__(self, record: ConsumerRecord) -> None: ...

    def hidden(record: ConsumerRecord) -> object:
        return handle(record)

    with reader(bootstrap_servers, topic, group) as consumer, Producer(bootstrap_servers=bootstrap_servers) as producer:
        helper = DeadLetters(consumer, producer)
        for handler in (handle, functools.partial(handle), Handler(), hidden):
            with pytest.raises(IllegalUse, match=r"ottla\.aio\.DeadLetters"):
                helper.run(handler)
        assert consumer.committed([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): None}


def test_a_rebalance_during_a_wait_hands_the_record_over(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    """Of two records that one member cannot handle, the one whose partition moves is handled by its new owner."""
    topic, dead, group = make_topic(2), make_topic(), f"g-{uuid4().hex}"
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        for partition in (0, 1):
            producer.send(topic, f"of {partition}".encode(), partition=partition)
    failed = threading.Event()
    results: list[Processed] = []

    with (
        reader(bootstrap_servers, topic, group, heartbeat_interval_ms=100) as consumer,
        Producer(bootstrap_servers=bootstrap_servers) as producer,
        ThreadPoolExecutor(1) as threads,
    ):
        helper = DeadLetters(consumer, producer, topic=dead, attempts=2, backoff_ms=3_000)

        def fail(record: ConsumerRecord) -> None:
            failed.set()
            raise ValueError("not here")

        running = threads.submit(lambda: results.append(helper.run(fail)))
        try:
            assert failed.wait(30)
            with reader(bootstrap_servers, topic, group) as other:
                handed_over: list[ConsumerRecord] = []
                until(lambda: handed_over.extend(other.poll(0.1)) or handed_over, "the other has a record")
                other.commit()
                (letter,) = [DeadLetter.of(record) for record in read_all(bootstrap_servers, dead, 1)]
        finally:
            helper.stop()
            running.result(30)
    assert [record.partition for record in handed_over] == [1 - letter.partition]
    assert (results[0].handled, results[0].dead) == (0, 1)
