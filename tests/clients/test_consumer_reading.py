"""Reading with assign: positions, seeks, pauses, resets, limits, lookups, and invalid calls."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ottla.clients.blocking import IllegalUse
from ottla.clients.consumer.asynchronous import AsyncConsumer
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.consumer.records import DeserializationError
from ottla.consuming.errors import GroupRequired, NoOffsetForPartition, Wakeup
from ottla.consuming.subscription import SubscriptionConflict
from ottla.consuming.values import ConsumerInterceptor, ConsumerRecords
from ottla.errors import KafkaError, OffsetOutOfRange, RequestTimedOut, UnknownTopicOrPartition
from ottla.types import TopicPartition

from .consumer_scenes import new_group, numbers, partitions, read, values, write

Make = Callable[..., Consumer]


@pytest.fixture
def make(bootstrap_servers: str) -> Iterator[Make]:
    made: list[Consumer] = []

    def consumer(**config: Any) -> Consumer:
        made.append(Consumer(bootstrap_servers=bootstrap_servers, **{"auto_offset_reset": "earliest", **config}))
        return made[-1]

    yield consumer
    for one in made:
        one.close()


def test_everything_is_read_in_order(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic(3)
    for number in range(3):
        write(bootstrap_servers, topic, numbers(0, 1000), number)
    consumer = make(max_poll_records=300)
    consumer.assign(partitions(topic, 3))
    records = read(consumer, 3000)
    for one in partitions(topic, 3):
        assert values(ConsumerRecords(records).records(one)) == numbers(0, 1000)
        assert consumer.position(one) == 1000
        assert consumer.current_lag(one) == 0
    assert consumer.metrics()["records-consumed-total"] == 3000


def test_a_record_has_all_that_was_written(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    from confluent_kafka import Producer

    topic = make_topic()
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    producer.produce(topic, b"v", key=b"k", headers=[("h", b"1"), ("n", None)], timestamp=1234)
    producer.produce(topic, None, key=None)
    producer.flush(30)
    consumer = make()
    consumer.assign(partitions(topic, 1))
    first, second = read(consumer, 2)
    assert (first.topic, first.partition, first.offset, first.timestamp) == (topic, 0, 0, 1234)
    assert (first.key, first.value, first.headers) == (b"k", b"v", (("h", b"1"), ("n", None)))
    assert (first.serialized_key_size, first.serialized_value_size) == (1, 1)
    assert (second.key, second.value, second.serialized_value_size) == (None, None, -1)


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_every_compression_is_read(bootstrap_servers: str, make_topic: Any, make: Make, codec: str) -> None:
    topic = make_topic()
    write(bootstrap_servers, topic, [b"%d" % n * 50 for n in range(2000)], **{"compression.type": codec})
    consumer = make()
    consumer.assign(partitions(topic, 1))
    assert values(read(consumer, 2000)) == [b"%d" % n * 50 for n in range(2000)]

    async def read_async() -> int:
        async with AsyncConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as other:
            await other.assign(partitions(topic, 1))
            count = 0
            async for _ in other:
                count += 1
                if count == 2000:
                    return await other.position(TopicPartition(topic, 0))
        return -1

    assert asyncio.run(read_async()) == 2000


def test_poll_limits(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic()
    write(bootstrap_servers, topic, numbers(0, 100))
    consumer = make(max_poll_records=30)
    consumer.assign(partitions(topic, 1))
    assert len(consumer.poll(10)) == 30
    assert len(consumer.poll(10, max_records=5)) == 5
    assert len(consumer.poll(10)) == 30
    start = time.monotonic()
    assert len(read(consumer, 35)) == 35
    assert consumer.poll(0.2) == []
    assert 0.15 < time.monotonic() - start < 5
    with pytest.raises(ValueError, match="at least 1"):
        consumer.poll(0, max_records=0)


def test_seek_pause_and_resume(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic(2)
    zero, one = partitions(topic, 2)
    for number in range(2):
        write(bootstrap_servers, topic, numbers(0, 50), number)
    consumer = make()
    consumer.assign([zero, one])
    read(consumer, 100)
    consumer.seek(zero, 40)
    assert values(read(consumer, 10)) == numbers(40, 50)
    consumer.seek_to_beginning(one)
    assert consumer.position(one) == 0
    consumer.pause(one)
    assert consumer.paused() == {one}
    consumer.seek_to_beginning(zero)
    assert {record.partition for record in read(consumer, 50)} == {0}
    assert consumer.poll(0.1) == []
    consumer.resume(one)
    assert {record.partition for record in read(consumer, 50)} == {1}
    consumer.seek_to_end()
    assert consumer.position(zero) == 50
    with pytest.raises(IllegalUse, match="not assigned"):
        consumer.seek(TopicPartition(topic, 7), 0)
    with pytest.raises(ValueError, match="at least 0"):
        consumer.seek(zero, -1)


def test_pausing_keeps_what_is_buffered(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic()
    write(bootstrap_servers, topic, numbers(0, 100))
    consumer = make(max_poll_records=10)
    (key,) = partitions(topic, 1)
    consumer.assign([key])
    assert values(consumer.poll(10)) == numbers(0, 10)
    consumer.pause(key)
    assert consumer.poll(0.1) == []
    consumer.resume(key)
    assert values(consumer.poll(10)) == numbers(10, 20)


def test_resets(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic()
    (key,) = partitions(topic, 1)
    write(bootstrap_servers, topic, numbers(0, 10))
    latest = make(auto_offset_reset="latest")
    latest.assign([key])
    assert latest.position(key) == 10
    back = make(auto_offset_reset="by_duration:PT1H")
    back.assign([key])
    assert len(read(back, 10)) == 10
    nowhere = make(auto_offset_reset="none", group_id=new_group())
    nowhere.assign([key])
    with pytest.raises(NoOffsetForPartition, match=r"auto\.offset\.reset"):
        read(nowhere, 1)
    nowhere.seek(key, 3)
    assert values(read(nowhere, 7)) == numbers(3, 10)
    nowhere.seek(key, 99)
    with pytest.raises(OffsetOutOfRange, match="99"):
        read(nowhere, 1)
    lost = make(auto_offset_reset="earliest")
    lost.assign([key])
    lost.seek(key, 99)
    assert values(read(lost, 10)) == numbers(0, 10)


def test_questions_about_offsets(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    from confluent_kafka import Producer

    topic = make_topic(2)
    zero, one = partitions(topic, 2)
    producer = Producer({"bootstrap.servers": bootstrap_servers})
    for number in range(5):
        producer.produce(topic, b"x", partition=0, timestamp=1000 * (number + 1))
    producer.flush(30)
    consumer = make()
    assert consumer.beginning_offsets([zero, one]) == {zero: 0, one: 0}
    assert consumer.end_offsets([zero, one]) == {zero: 5, one: 0}
    found = consumer.offsets_for_times({zero: 2500, one: 0})
    assert found[zero] is not None
    assert (found[zero].offset, found[zero].timestamp) == (2, 3000)
    assert found[one] is None
    assert [info.partition for info in consumer.partitions_for(topic)] == [0, 1]
    assert topic in consumer.list_topics()
    with pytest.raises(UnknownTopicOrPartition, match="nowhere"):
        consumer.partitions_for("nowhere-at-all")
    with pytest.raises(ValueError, match="at least 0"):
        consumer.offsets_for_times({zero: -1})


def test_iteration_counts_what_was_handed_out(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic()
    (key,) = partitions(topic, 1)
    write(bootstrap_servers, topic, numbers(0, 100))
    group = new_group()
    consumer = make(group_id=group)
    consumer.assign([key])
    for record in consumer:
        if record.offset == 41:
            assert record.value == b"41"
            break
    assert consumer.position(key) == 42
    consumer.commit()
    committed = consumer.committed([key])[key]
    assert committed is not None
    assert committed.offset == 42
    assert values(consumer.poll(1, max_records=3)) == numbers(42, 45)
    assert next(iter(consumer)).value == b"45"
    consumer.seek(key, 7)
    assert next(iter(consumer)).value == b"7"
    consumer.close()
    again = make(group_id=group)
    again.assign([key])
    assert values(read(again, 92)) == numbers(8, 100)


def test_an_iteration_goes_on_where_its_body_left_the_position(
    bootstrap_servers: str, make_topic: Any, make: Make
) -> None:
    topic = make_topic()
    (key,) = partitions(topic, 1)
    write(bootstrap_servers, topic, numbers(0, 100))
    consumer = make()
    consumer.assign([key])
    seen: list[bytes | None] = []
    for record in consumer:
        seen.append(record.value)
        if record.offset == 2:
            seen += values(consumer.poll(1, max_records=3))
        if record.offset == 7:
            consumer.seek(key, 98)
        if record.offset == 99:
            break
    assert seen == [*numbers(0, 8), b"98", b"99"]


async def test_an_iteration_of_a_coroutine_does_so_too(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic()
    (key,) = partitions(topic, 1)
    write(bootstrap_servers, topic, numbers(0, 100))
    seen: list[bytes | None] = []
    async with AsyncConsumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        await consumer.assign([key])
        async for record in consumer:
            seen.append(record.value)
            if record.offset == 2:
                seen += values(await consumer.poll(1, max_records=3))
            if record.offset == 7:
                await consumer.seek(key, 98)
            if record.offset == 99:
                break
    assert seen == [*numbers(0, 8), b"98", b"99"]


def test_a_record_whose_deserializer_failed_is_tried_again(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic()
    write(bootstrap_servers, topic, [b"1"])
    failures = [OSError("the registry is away")]

    def deserialize(data: bytes) -> bytes:
        if failures:
            raise failures.pop()
        return data

    consumer = make(value_deserializer=deserialize)
    consumer.assign(partitions(topic, 1))
    with pytest.raises(DeserializationError, match="poll again to try it again, or seek to 1 to skip it"):
        consumer.poll(10)
    assert [record.value for record in consumer.poll(10)] == [b"1"]


def test_deserializers_and_interceptors(bootstrap_servers: str, make_topic: Any, make: Make) -> None:
    topic = make_topic()
    (key,) = partitions(topic, 1)
    write(bootstrap_servers, topic, [b"1", b"2", b"x", b"4"])
    heard: list[Any] = []

    class Evens(ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            return [record for record in records if record.value % 2 == 0]

        def on_commit(self, offsets: Any) -> None:
            heard.append(dict(offsets))

    class Broken(ConsumerInterceptor):
        def on_consume(self, records: Any) -> Any:
            raise RuntimeError("broken")

    consumer = make(value_deserializer=int, interceptor_classes=[Evens, Broken()], group_id=new_group())
    consumer.assign([key])
    assert [record.value for record in consumer.poll(10)] == [2]
    assert consumer.position(key) == 2
    for _ in range(2):
        with pytest.raises(DeserializationError, match="offset 2") as caught:
            consumer.poll(10)
    consumer.seek(key, caught.value.offset + 1)
    assert [record.value for record in consumer.poll(10)] == [4]
    consumer.commit()
    assert heard[-1][key].offset == 4


def test_modes_exclude_each_other(make_topic: Any, make: Make) -> None:
    topic = make_topic()
    consumer = make(group_id=new_group())
    consumer.assign(partitions(topic, 1))
    with pytest.raises(SubscriptionConflict, match="unsubscribe"):
        consumer.subscribe([topic])
    consumer.unsubscribe()
    consumer.subscribe([topic])
    with pytest.raises(SubscriptionConflict):
        consumer.subscribe(pattern="a.*")
    with pytest.raises(TypeError, match=r"subscribe\(\["):
        consumer.subscribe("orders")
    alone = make()
    with pytest.raises(GroupRequired, match=r"group\.id"):
        alone.subscribe([topic])
    with pytest.raises(GroupRequired):
        alone.commit()


def test_two_threads_are_rejected(make_topic: Any, make: Make) -> None:
    consumer = make()
    consumer.assign(partitions(make_topic(), 1))
    inside = threading.Event()
    errors: list[BaseException] = []

    def poll() -> None:
        inside.set()
        try:
            consumer.poll(30)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    inside.wait(30)
    with pytest.raises(IllegalUse, match="one thread at a time"):
        all(iter(consumer.assignment, None))  # until the other thread is inside
    consumer.wakeup()
    thread.join(30)
    assert [type(error) for error in errors] == [Wakeup]
    assert consumer.poll(0) == []


def test_wakeup_ends_the_next_call(make_topic: Any, make: Make) -> None:
    consumer = make()
    consumer.assign(partitions(make_topic(), 1))
    consumer.wakeup()
    with pytest.raises(Wakeup):
        consumer.poll(10)
    assert consumer.poll(0.01) == []


async def test_two_tasks_are_rejected(bootstrap_servers: str, make_topic: Any) -> None:
    topic = make_topic()
    async with AsyncConsumer(bootstrap_servers=bootstrap_servers) as consumer:
        await consumer.assign(partitions(topic, 1))
        waiting = asyncio.create_task(consumer.poll(30))
        await asyncio.sleep(0)
        for call in (consumer.poll(0), consumer.close()):
            with pytest.raises(IllegalUse, match=r"one task at a time.*cancel that task or call wakeup\(\)"):
                await call
        consumer.wakeup()
        with pytest.raises(Wakeup):
            await waiting
    with pytest.raises(IllegalUse, match="closed"):
        await consumer.poll(0)


def test_use_after_fork_and_after_close_is_rejected(make_topic: Any, make: Make) -> None:
    consumer = make()
    consumer.assign(partitions(make_topic(), 1))
    consumer.poll(0.01)
    child = os.fork()
    if child == 0:
        try:
            consumer.poll(1)
        except IllegalUse as error:
            consumer.close()
            os._exit(7 if "forked" in str(error) else 8)
        os._exit(9)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    consumer.close()
    consumer.close()
    with pytest.raises(IllegalUse, match="closed"):
        consumer.poll(0)


def test_no_call_waits_longer_than_it_may() -> None:
    """At an address where nothing listens, each call ends in time with an error that says so."""
    with Consumer(bootstrap_servers="127.0.0.1:1", group_id="g", default_api_timeout_ms=300) as consumer:
        key = TopicPartition("t", 0)
        consumer.assign([key])
        calls: list[Callable[[], object]] = [
            lambda: consumer.poll(0.3),
            lambda: consumer.position(key, timeout=0.3),
            lambda: consumer.committed([key], timeout=0.3),
            lambda: consumer.commit({key: 1}, timeout=0.3),
            lambda: consumer.end_offsets([key], timeout=0.3),
            lambda: consumer.partitions_for("t", timeout=0.3),
        ]
        for call in calls:
            start = time.monotonic()
            with pytest.raises(KafkaError, match=r"127\.0\.0\.1:1|within") as caught:
                call()
            assert time.monotonic() - start < 3, caught
        start = time.monotonic()
    assert time.monotonic() - start < 3
    assert issubclass(RequestTimedOut, KafkaError)
