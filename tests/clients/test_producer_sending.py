"""The producer over real sockets: futures, callbacks, interceptors, plugins, limits, and errors that say what to do."""

from __future__ import annotations

import asyncio
import concurrent.futures
import dataclasses
import enum
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy
import pytest

import ottla
from compat.waiting import until
from ottla.clients.blocking import IllegalUse
from ottla.clients.producer.asynchronous import AsyncProducer, ProducerClosed
from ottla.clients.producer.blocking import Producer
from ottla.clients.producer.send import ProducerInterceptor
from ottla.clients.serializers import SerializationError
from ottla.errors import InvalidPartitions, KafkaError, MessageTooLarge
from ottla.producing.errors import BufferExhausted, DeliveryTimeout, MetadataTimeout
from ottla.producing.partitioning import partition_for_key
from ottla.producing.values import EncodedBatch, ProducerRecord, RecordMetadata, View
from ottla.types import TopicPartition

from .conftest import MakeTopic
from .producer_scenes import stored, stored_values, without_leaders


@pytest.fixture(scope="module")
def shared(bootstrap_servers: str) -> Iterator[Producer]:
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        yield producer


@pytest.fixture
def nobody() -> Iterator[str]:
    """An address that accepts connections and never responds."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield f"127.0.0.1:{server.getsockname()[1]}"


# Results.


def test_a_future_tells_where_the_record_lies(shared: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    before = int(time.time() * 1000)
    first = shared.send(topic, b"value", key=b"key").result(30)
    assert isinstance(first, RecordMetadata)
    assert (first.topic, first.partition, first.offset) == (topic, partition_for_key(b"key", 3), 0)
    assert (first.serialized_key_size, first.serialized_value_size) == (3, 5)
    assert before <= first.timestamp <= int(time.time() * 1000)
    second = shared.send(topic, None, partition=first.partition, timestamp=1_600_000_000_000).get(30)
    assert (second.offset, second.timestamp) == (1, 1_600_000_000_000)
    assert (second.serialized_key_size, second.serialized_value_size) == (-1, -1)


def test_records_arrive_as_they_were_sent(shared: Producer, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    topic = make_topic()
    shared.send(topic, b"value", b"key", headers=[("a", b"1"), ("a", None), ("ü", b"")], timestamp=1_600_000_000_000)
    shared.send(topic, headers={"only": b"header"})
    shared.send(topic, bytearray(b"buffer"), memoryview(b"view"))
    shared.flush(30)
    first, second, third = stored(bootstrap_servers, topic)[0]
    assert (first.key(), first.value(), first.timestamp()[1]) == (b"key", b"value", 1_600_000_000_000)
    assert first.headers() == [("a", b"1"), ("a", None), ("ü", b"")]
    assert (second.key(), second.value(), second.headers()) == (None, None, [("only", b"header")])
    assert (third.key(), third.value()) == (b"view", b"buffer")


def test_log_append_time_is_the_brokers(shared: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic(1, **{"message.timestamp.type": "LogAppendTime"})
    metadata = shared.send(topic, b"value", timestamp=5).result(30)
    assert abs(metadata.timestamp - time.time() * 1000) < 60_000


@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_acks(bootstrap_servers: str, make_topic: MakeTopic, acks: int | str) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap_servers, acks=acks) as producer:
        futures = [producer.send(topic, b"%d" % number) for number in range(300)]
        offsets = [future.result(30).offset for future in futures]
    assert offsets == ([-1] * 300 if acks == 0 else list(range(300)))
    assert stored_values(bootstrap_servers, topic)[0] == [b"%d" % number for number in range(300)]


def test_many_threads_share_a_producer(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=2_000, buffer_memory=20_000) as producer:

        def write(thread: int) -> None:
            for number in range(1_000):
                producer.send(topic, b"%d:%d" % (thread, number), partition=thread % 2)

        threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        producer.flush(20)
    written = stored_values(bootstrap_servers, topic, 2)
    for thread in range(4):
        mine = [value for value in written[thread % 2] if value.startswith(b"%d:" % thread)]
        assert mine == [b"%d:%d" % (thread, number) for number in range(1_000)]


async def test_asyncio(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    async with AsyncProducer({"bootstrap.servers": bootstrap_servers, "batch.size": 1_000}) as producer:
        future = await producer.send(topic, b"first")
        with pytest.raises(IllegalUse, match="await the future"):
            future.result()
        metadata = await future
        assert (metadata.offset, future.done(), future.result()) == (0, True, metadata)
        assert (await producer.send_and_wait(topic, b"second")).offset == 1
        futures = [await producer.send(topic, b"%d" % number) for number in range(2_000)]
        await producer.flush(20)
        assert [each.result().offset for each in futures] == list(range(2, 2_002))
        assert await producer.partitions_for(topic) == {0}
        assert producer.metrics()["record-send-total"] == 2_002
    with pytest.raises(IllegalUse, match="closed"):
        await producer.send(topic, b"late")


@pytest.mark.parametrize(
    ("batch_size", "size", "count", "least"), [(16_384, 1_000, 1_000, 5), (100, 60, 100, 10), (16_384, 200_000, 20, 15)]
)
async def test_a_coroutine_that_only_sends_leaves_turns_to_others(
    bootstrap_servers: str, make_topic: MakeTopic, batch_size: int, size: int, count: int, least: int
) -> None:
    topic = make_topic()
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with AsyncProducer({"bootstrap.servers": bootstrap_servers, "batch.size": batch_size}) as producer:
        await producer.send_and_wait(topic, b"first")
        task = asyncio.create_task(others())
        for _ in range(count):
            await producer.send(topic, bytes(size))
        task.cancel()
    assert turns >= least


# Waiting for many.


def test_futures_can_be_waited_for_by_the_standard_library(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=200) as producer:
        for _ in range(5):
            futures: list[Any] = [producer.send(topic, b"%d" % number, partition=number % 3) for number in range(300)]
            done, not_done = concurrent.futures.wait(futures, timeout=30)
            assert (done, not_done) == (set(futures), set())
            futures = [producer.send(topic, b"%d" % number, partition=number % 3) for number in range(300)]
            assert set(concurrent.futures.as_completed(futures, timeout=30)) == set(futures)
            assert all(future.is_done for future in futures)


def test_a_wait_for_futures_ends_with_the_first_or_the_first_error_or_in_time(
    bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic, small = make_topic(), make_topic(**{"max.message.bytes": "1000"})
    options: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
    with Producer(bootstrap_servers=bootstrap_servers, **options) as producer:
        waiting: Any = producer.send(topic, b"v")
        with without_leaders(producer):
            assert concurrent.futures.wait([waiting], timeout=0.05).not_done == {waiting}
            with pytest.raises(TimeoutError):
                next(concurrent.futures.as_completed([waiting], timeout=0.05))
        with Producer(bootstrap_servers=bootstrap_servers) as other:
            written, refused = other.send(topic, b"w"), other.send(small, bytes(5_000))
            first = concurrent.futures.wait([waiting, written], 10, concurrent.futures.FIRST_COMPLETED)
            assert (first.done, first.not_done) == ({written}, {waiting})
            failed = concurrent.futures.wait([waiting, refused], 10, concurrent.futures.FIRST_EXCEPTION)
            assert (failed.done, failed.not_done) == ({refused}, {waiting})
    assert waiting.result(0).offset == 1


def test_a_callback_that_would_wait_for_many_is_rejected(shared: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    told: list[str] = []

    def wait(*_: object) -> None:
        with pytest.raises(IllegalUse) as caught:
            concurrent.futures.wait([shared.send(topic, b"w")])  # type: ignore[type-var]
        told.append(str(caught.value))

    shared.send(topic, b"v", callback=wait).result(30)
    shared.flush(30)
    assert "would wait for itself" in told[0]


async def test_asyncio_waits_for_many(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    async with AsyncProducer(bootstrap_servers=bootstrap_servers) as producer:
        futures: list[Any] = [await producer.send(topic, b"v") for _ in range(3)]
        done, not_done = await asyncio.wait(futures, timeout=30)
        assert (done, not_done) == (set(futures), set())
        futures = [await producer.send(topic, b"v") for _ in range(3)]
        await asyncio.wait(futures, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert [metadata.offset for metadata in await asyncio.gather(*futures)] == [3, 4, 5]
        with pytest.raises(IllegalUse, match="await the future"):
            concurrent.futures.wait([await producer.send(topic, b"v")])  # type: ignore[type-var]


# Callbacks and interceptors.


def test_callbacks_come_in_order_before_waiting_callers(shared: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    seen: list[Any] = []
    futures = [
        shared.send(topic, b"%d" % number, callback=lambda metadata, error: seen.append((metadata.offset, error)))
        for number in range(200)
    ]
    futures[-1].result(30)
    assert seen == [(number, None) for number in range(200)]
    later: list[Any] = []
    futures[3].add_callback(lambda word, metadata: later.append((word, metadata.offset)), "done")
    futures[4].add_done_callback(lambda future: later.append(future.result().offset))
    futures[5].add_errback(later.append)
    assert later == [("done", 3), 4]


def test_a_callback_that_raises_or_sends_breaks_nothing(
    shared: Producer, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    again: list[Any] = []

    def bad(metadata: RecordMetadata | None, error: Exception | None) -> None:
        again.append(shared.send(topic, b"from the callback"))
        with pytest.raises(IllegalUse, match="would wait for itself"):
            shared.flush()
        with pytest.raises(IllegalUse, match="would wait for itself"):
            again[0].result(1)
        raise ValueError("bad callback")

    assert shared.send(topic, b"first", callback=bad).result(30).offset == 0
    assert again[0].result(30).offset == 1
    assert "a callback of a sent record failed" in caplog.text


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit, asyncio.CancelledError, ValueError])
def test_not_even_an_exit_in_a_callback_stops_a_producer(
    bootstrap_servers: str, make_topic: MakeTopic, error: type[BaseException], caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()

    class Leaving(ProducerInterceptor):
        def on_acknowledgement(self, metadata: RecordMetadata | None, failure: Exception | None) -> None:
            raise error("in the interceptor")

    def leave(*_: object) -> None:
        raise error("in the callback")

    with Producer(bootstrap_servers=bootstrap_servers, interceptor_classes=[Leaving()], linger_ms=20) as producer:
        futures = [producer.send(topic, b"v", callback=leave) for _ in range(3)]
        futures[0].add_done_callback(leave)
        assert [future.result(30).offset for future in futures] == [0, 1, 2]
        producer.flush(30)
        assert producer.send(topic, b"v").result(30).offset == 3
        with pytest.raises(InvalidPartitions):
            producer.send(topic, b"v", partition=7)
    assert "in the interceptor" in caplog.text
    assert "in the callback" in caplog.text


async def test_an_exit_in_a_callback_of_asyncio_stops_no_producer_either(
    bootstrap_servers: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()

    def leave(*_: object) -> None:
        raise SystemExit("in the callback")

    async with AsyncProducer(bootstrap_servers=bootstrap_servers) as producer:
        futures = [await producer.send(topic, b"v", callback=leave) for _ in range(3)]
        assert [(await future).offset for future in futures] == [0, 1, 2]
    assert "in the callback" in caplog.text


class Watching(ProducerInterceptor):
    def __init__(self, name: str, seen: list[Any]) -> None:
        self.name, self.seen = name, seen

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        self.seen.append((self.name, "send", record.value))
        return dataclasses.replace(record, value=f"{record.value}+{self.name}")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        self.seen.append((self.name, "acknowledged", None if metadata is None else metadata.offset, type(error)))

    def close(self) -> None:
        self.seen.append((self.name, "closed"))


class Broken(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        raise ValueError("on_send")

    def on_acknowledgement(self, metadata: RecordMetadata | None, error: Exception | None) -> None:
        raise ValueError("on_acknowledgement")

    def close(self) -> None:
        raise ValueError("close")


def test_interceptors_see_and_change_records_and_never_break_a_send(
    bootstrap_servers: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    seen: list[Any] = []
    with Producer(
        bootstrap_servers=bootstrap_servers,
        interceptor_classes=[Watching("a", seen), Broken, Watching("b", seen)],
        value_serializer="string",
    ) as producer:
        producer.send(topic, "v", callback=lambda metadata, error: seen.append("callback")).result(30)
        with pytest.raises(InvalidPartitions):
            producer.send(topic, "w", partition=7)
    assert seen == [
        ("a", "send", "v"),
        ("b", "send", "v+a"),
        ("a", "acknowledged", 0, type(None)),
        ("b", "acknowledged", 0, type(None)),
        "callback",
        ("a", "send", "w"),
        ("b", "send", "w+a"),
        ("a", "acknowledged", None, InvalidPartitions),
        ("b", "acknowledged", None, InvalidPartitions),
        ("a", "closed"),
        ("b", "closed"),
    ]
    assert stored_values(bootstrap_servers, topic)[0] == [b"v+a+b"]


class Forgetful(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        dataclasses.replace(record, value=b"lost")
        return None  # type: ignore[return-value]


class Listing(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, headers=[*record.headers, ["seen", b"1"]])  # type: ignore[arg-type]


class Spoiling(ProducerInterceptor):
    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        return dataclasses.replace(record, headers={"seen": "text"})  # type: ignore[arg-type]


def test_an_interceptor_that_returns_no_record_is_passed_over(
    bootstrap_servers: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap_servers, interceptor_classes=[Forgetful, Listing, Spoiling]) as producer:
        producer.send(topic, b"v", headers={"a": b"0"}).result(30)
    assert stored(bootstrap_servers, topic)[0][0].headers() == [("a", b"0"), ("seen", b"1")]
    assert "on_send returned None: it must return the record" in caplog.text
    assert "a header must be a name (str) and a value (bytes or None), not 'seen' and 'text'" in caplog.text


# Plugins.


def test_serializers_make_bytes(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap_servers, key_serializer=str.encode, value_serializer="json") as producer:
        producer.send(topic, {"b": 1, "a": None}, key="k")
        producer.send(topic, None, key=None)
        with pytest.raises(SerializationError, match=f"the value of a record for topic {topic}: .*not JSON serial"):
            producer.send(topic, object())
    first, second = stored(bootstrap_servers, topic)[0]
    assert (first.key(), first.value()) == (b"k", b'{"a":null,"b":1}')
    assert (second.key(), second.value()) == (None, None)


def test_partitioners(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with Producer(bootstrap_servers=bootstrap_servers, partitioner_class="RoundRobinPartitioner") as producer:
        turns = [producer.send(topic, b"v", key=b"same").result(30).partition for _ in range(6)]
    assert turns == [0, 1, 2, 0, 1, 2]
    with Producer(
        bootstrap_servers=bootstrap_servers, partitioner_class=lambda topic, key, value, partitions, available: key[0]
    ) as producer:
        assert [producer.send(topic, b"v", key=bytes([number])).result(30).partition for number in (2, 0)] == [2, 0]
        assert producer.send(topic, b"v", key=b"\2", partition=1).result(30).partition == 1
        with pytest.raises(InvalidPartitions, match=r"the partitioner chose wrongly: .* no partition 9"):
            producer.send(topic, b"v", key=b"\x09")


def test_keys_can_be_ignored_and_records_without_stick_together(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    with Producer(bootstrap_servers=bootstrap_servers, partitioner_ignore_keys=True, linger_ms=50) as producer:
        futures = [producer.send(topic, b"v", key=b"%d" % number) for number in range(30)]
        assert len({future.result(30).partition for future in futures}) == 1
    with Producer(bootstrap_servers=bootstrap_servers, batch_size=500, linger_ms=50) as producer:
        futures = [producer.send(topic, b"v" * 50) for _ in range(600)]
        assert {future.result(30).partition for future in futures} == {0, 1, 2}


# Flushing and closing.


def test_a_record_that_a_thread_waits_for_does_not_linger(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        lingering = producer.send(topic, b"v", partition=0)
        assert producer.send(topic, b"w", partition=0).get(20).offset == 1
        assert lingering.result(0).offset == 0, "they are in the same batch"


def test_flush_sends_what_lingers(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000) as producer:
        future = producer.send(topic, b"v")
        producer.flush(30)
        assert future.done()
        producer.flush(30)
        waiting = producer.send(topic, b"w")
    assert waiting.result().offset == 1  # leaving the block sends too


def test_a_closed_producer_says_so(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = Producer(bootstrap_servers=bootstrap_servers)
    producer.send(topic, b"v").result(30)
    producer.close()
    producer.close()
    for call in (lambda: producer.send(topic, b"v"), producer.flush, lambda: producer.partitions_for("other")):
        with pytest.raises(IllegalUse, match="closed: create a new one"):
            call()


def test_close_gives_up_after_its_timeout(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000)
    future = producer.send(topic, b"v")
    with without_leaders(producer):
        began = time.monotonic()
        producer.close(timeout=0.2)
        assert time.monotonic() - began < 5
    assert isinstance(future.exception(), ProducerClosed)


def test_a_closed_producer_tells_what_it_did_not_wait_for(
    bootstrap_servers: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000)
    futures = [producer.send(topic, b"v") for _ in range(3)]
    with without_leaders(producer):
        producer.close(0)
    with pytest.raises(ProducerClosed, match=r"^the producer was closed before the record was acknowledged.*flush\(\)"):
        futures[0].result()
    assert [record.getMessage() for record in caplog.records] == [
        "the producer was closed before 3 record(s) were acknowledged: they may not be written"
    ]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, ValueError])
def test_a_block_that_raises_delivers_what_was_sent(
    bootstrap_servers: str, make_topic: MakeTopic, error: type[BaseException]
) -> None:
    topic = make_topic()
    futures = []
    with pytest.raises(error), Producer(bootstrap_servers=bootstrap_servers, linger_ms=50) as producer:  # noqa: PT012
        futures.append(producer.send(topic, b"v"))
        raise error
    assert futures[0].result().offset == 0

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=bootstrap_servers, linger_ms=50) as producer:
            futures.append(await producer.send(topic, b"v"))
            raise error

    with pytest.raises(error):
        asyncio.run(run())
    assert futures[1].result().offset == 1


def test_a_block_that_raises_does_not_wait_when_nothing_was_sent(nobody: str) -> None:
    began = time.monotonic()
    with pytest.raises(ZeroDivisionError), Producer(bootstrap_servers=nobody) as producer:  # noqa: PT012
        assert not producer.metrics()["record-send-total"]
        raise ZeroDivisionError
    assert time.monotonic() - began < 5


def test_a_second_interrupt_ends_the_wait_for_delivery(
    bootstrap_servers: str, make_topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    producer = Producer(bootstrap_servers=bootstrap_servers, linger_ms=60_000, delivery_timeout_ms=120_000)
    future = producer.send(make_topic(), b"v")
    again = threading.Timer(0.3, signal.pthread_kill, (threading.get_ident(), signal.SIGINT))
    began = time.monotonic()
    # Shells start background jobs with this signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with without_leaders(producer), pytest.raises(KeyboardInterrupt), producer:  # noqa: PT012
            again.start()
            raise KeyboardInterrupt
        again.join()
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - began < 10
    assert isinstance(future.exception(), ProducerClosed)
    assert "before 1 record(s) were acknowledged" in caplog.text
    assert producer._thread.stopped


async def test_a_second_cancellation_ends_the_wait_for_delivery(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    sent: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    async def use() -> None:
        options: dict[str, Any] = {"linger_ms": 60_000, "delivery_timeout_ms": 120_000}
        async with AsyncProducer(bootstrap_servers=bootstrap_servers, **options) as producer:
            future = await producer.send(topic, b"v")
            # The producer knows no leader of the partition from now on.
            producer._core.topics.view = View()
            producer._core.topics._refreshing = asyncio.get_running_loop().create_future()  # type: ignore[assignment]
            sent.set_result((producer, future))
            await asyncio.Event().wait()

    task = asyncio.create_task(use())
    producer, future = await sent
    task.cancel()
    while not producer._core.closing:
        await asyncio.sleep(0)
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 30)
    assert isinstance(future.exception(), ProducerClosed)


FORGOTTEN = {
    "blocking": """
import sys, ottla
producer = ottla.Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
for _ in range(3):
    producer.send(sys.argv[2], b"v")
""",
    "asyncio": """
import asyncio, sys, ottla.aio
async def main():
    producer = ottla.aio.Producer(bootstrap_servers=sys.argv[1], linger_ms=60_000)
    for _ in range(3):
        await producer.send(sys.argv[2], b"v")
asyncio.run(main())
""",
}


@pytest.mark.parametrize("face", FORGOTTEN)
def test_a_program_that_ends_without_close_logs_what_it_lost(
    bootstrap_servers: str, make_topic: MakeTopic, face: str
) -> None:
    command = [sys.executable, "-c", FORGOTTEN[face], bootstrap_servers, make_topic()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert "3 record(s) were not acknowledged when the program ended: call flush() or close()" in ended.stderr


def test_a_forked_child_has_to_make_its_own(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap_servers, linger_ms=20) as producer:
        producer.send(topic, b"v")
        child = os.fork()
        if child == 0:
            try:
                producer.send(topic, b"w")
            except IllegalUse as error:
                os._exit(0 if "forked" in str(error) else 1)
            except BaseException:
                os._exit(2)
            os._exit(3)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        producer.send(topic, b"x").result(30)


# Errors.


def test_a_topic_that_is_missing_is_named(own_broker: Any) -> None:
    broker = own_broker(auto_create_topics_enable="false")
    with Producer(bootstrap_servers=broker.bootstrap_servers, max_block_ms=300) as producer:
        began = time.monotonic()
        with pytest.raises(MetadataTimeout, match=r"'missing' within 0.3 s .*does not exist.*ottla topics create"):
            producer.send("missing", b"v")
        assert time.monotonic() - began < 5
        with pytest.raises(KafkaError, match="bad/name"):
            producer.send("bad/name", b"v")
        # Once it exists, the next send finds it.
        with ottla.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([ottla.NewTopic("missing", 1, 1)])
        assert producer.send("missing", b"v").result(30).offset == 0


def test_a_wrong_address_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    with (
        Producer(bootstrap_servers=address, max_block_ms=300) as producer,
        pytest.raises(MetadataTimeout, match=f"'orders'.*nothing listens at {address}: check the address"),
    ):
        producer.send("orders", b"v")


def test_a_silent_broker_blocks_no_call_for_longer_than_max_block_ms(nobody: str) -> None:
    with Producer(bootstrap_servers=nobody, max_block_ms=200) as producer:
        began = time.monotonic()
        with pytest.raises(MetadataTimeout, match=r"'orders' within 0\.2 s"):
            producer.send("orders", b"v")
        assert time.monotonic() - began < 3


def test_bad_arguments_say_what_to_do(shared: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with pytest.raises(SerializationError, match=f"value of a record for topic {topic}: bytes are required, not str"):
        shared.send(topic, "text")
    with pytest.raises(SerializationError, match=r"key of a record .*not int"):
        shared.send(topic, b"v", key=5)
    with pytest.raises(InvalidPartitions, match=f"topic {topic} has no partition 1: it has 0 to 0"):
        shared.send(topic, b"v", partition=1)
    with pytest.raises(TypeError, match="a header must be a name"):
        shared.send(topic, b"v", headers=[(b"name", b"v")])
    with pytest.raises(ValueError, match="at least 0, in milliseconds"):
        shared.send(topic, b"v", timestamp=-7)
    with pytest.raises(TypeError, match=r"the timestamp must be an int, in milliseconds since 1970, not 1\.5"):
        shared.send(topic, b"v", timestamp=1.5)  # type: ignore[arg-type]
    with pytest.raises(
        TypeError, match=r"headers must be pairs of a name and a value, or a dict, not \[\('a', b'b', 1\)\]"
    ):
        shared.send(topic, b"v", headers=[("a", b"b", 1)])
    for nameless in (None, "", 5, b"orders"):
        with pytest.raises(TypeError, match="topic must be a name"):
            shared.send(nameless, b"v")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="topic must be a name"):
            shared.send_arrow(nameless, {"value": [b"v"]})  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="topic must be a name"):
            shared.partitions_for(nameless)  # type: ignore[arg-type]


def test_members_of_enums_are_names(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    class Topics(str, enum.Enum):  # noqa: UP042
        ORDERS = make_topic()

    topic = Topics.ORDERS
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        assert producer.send(topic, b"first").result(30).topic == topic.value
        assert producer.send(topic, b"second").result(30).offset == 1
        assert producer.send_arrow(topic, {"value": [b"third"]}).result(30).topic == topic.value
    with ottla.Consumer(bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, numpy.int32(0))])
        values: list[bytes | None] = []
        while len(values) < 3:
            values += [record.value for record in consumer.poll(10)]
        assert [type(each.topic) for each in consumer.assignment()] == [str]
    assert values == [b"first", b"second", b"third"]


@pytest.mark.parametrize("partition", [1.0, 0.5, numpy.float64(1), True, numpy.bool_(True), "1"])
def test_what_only_looks_like_a_partition_is_rejected_and_harms_nothing(
    bootstrap_servers: str, make_topic: MakeTopic, partition: Any
) -> None:
    topic = make_topic(2)

    class Choosing(ProducerInterceptor):
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            return dataclasses.replace(record, partition=partition) if record.value == b"chosen" else record

    with (
        Producer(bootstrap_servers=bootstrap_servers, interceptor_classes=[Choosing()]) as intercepted,
        Producer(bootstrap_servers=bootstrap_servers, partitioner_class=lambda *_: partition) as partitioned,
    ):
        message = "must be an int, not "
        with pytest.raises(TypeError, match=f"the partition {message}"):
            intercepted.send(topic, b"v", partition=partition)
        with pytest.raises(TypeError, match=f"the partition {message}"):
            intercepted.send(topic, b"chosen")
        with pytest.raises(TypeError, match=f"the partition {message}"):
            intercepted.send_batch(EncodedBatch(TopicPartition(topic, partition), b"", 1, 0, 0))
        with pytest.raises(TypeError, match=f"what the partitioner returns {message}"):
            partitioned.send(topic, b"v")
        assert intercepted.send(topic, b"v").result(30).offset == 0
        assert partitioned.send(topic, b"v", partition=0).result(30).partition == 0


def test_integers_of_numpy_are_partitions_and_timestamps(shared: Producer, make_topic: MakeTopic) -> None:
    topic = make_topic(2)
    metadata = shared.send(topic, b"v", partition=numpy.int64(1), timestamp=numpy.int64(17)).result(30)
    assert (metadata.partition, metadata.timestamp) == (1, 17)
    assert (type(metadata.partition), type(metadata.timestamp)) == (int, int)


@pytest.mark.parametrize(
    "bad", [{"timestamp": 1.5}, {"timestamp": 2**70}, {"headers": [("\ud800", b"")]}, {"headers": {"\ud800": b""}}]
)
def test_records_that_are_rejected_hold_no_memory(shared: Producer, make_topic: MakeTopic, bad: dict[str, Any]) -> None:
    topic = make_topic()
    for _ in range(3):
        with pytest.raises((TypeError, ValueError)):
            shared.send(topic, b"v", **bad)
    assert shared.send(topic, b"v").result(30).offset == 0
    shared.flush(30)
    metrics = shared.metrics()
    assert metrics["buffer-available-bytes"] == metrics["buffer-total-bytes"]


def test_records_that_are_too_large(shared: Producer, make_topic: MakeTopic, bootstrap_servers: str) -> None:
    topic = make_topic(1, **{"max.message.bytes": "2000"})
    with pytest.raises(MessageTooLarge, match=r"more than max\.request\.size"):
        shared.send(topic, bytes(1_048_576))
    future = shared.send(topic, bytes(5_000))
    with pytest.raises(MessageTooLarge, match=f"larger than topic {topic} accepts"):
        future.result(30)
    # A batch of small records is only split.
    futures = [shared.send(topic, b"%04d" % number + bytes(96)) for number in range(60)]
    shared.flush(30)
    assert [each.result().offset for each in futures] == list(range(60))
    assert [value[:4] for value in stored_values(bootstrap_servers, topic)[0]] == [b"%04d" % n for n in range(60)]


def test_a_full_buffer_makes_send_wait_and_then_fail(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(
        bootstrap_servers=bootstrap_servers, buffer_memory=4_000, batch_size=1_000, max_block_ms=200
    ) as producer:
        producer.send(topic, b"v").result(30)
        with without_leaders(producer):
            futures = [producer.send(topic, bytes(900)) for _ in range(4)]
            began = time.monotonic()
            with pytest.raises(BufferExhausted, match=rf"topic {topic} within 0.2 s \(max.block.ms\): all 4,000 bytes"):
                producer.send(topic, bytes(900))
            assert 0.15 < time.monotonic() - began < 5
            assert producer.metrics()["waiting-threads"] == 0
        assert [future.result(30).offset for future in futures] == [1, 2, 3, 4]
        assert producer.send(topic, bytes(900)).result(30).offset == 5
        assert producer.metrics()["buffer-available-bytes"] == 4_000


def test_waiting_for_a_result_ends_in_time(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with Producer(bootstrap_servers=bootstrap_servers) as producer:
        producer.partitions_for(topic)
        with without_leaders(producer):
            future = producer.send(topic, b"v")
            with pytest.raises(TimeoutError, match=r"not acknowledged within 0\.05 s; it may still be"):
                future.result(0.05)
            with pytest.raises(TimeoutError):
                producer.flush(0.0)
        assert future.result(30).offset == 0


def test_expired_batches_fail_their_futures(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    seen: list[Any] = []
    with Producer(
        bootstrap_servers=bootstrap_servers, delivery_timeout_ms=300, request_timeout_ms=200, linger_ms=0
    ) as producer:
        producer.send(topic, b"v").result(30)
        with without_leaders(producer):
            future = producer.send(topic, b"v", callback=lambda metadata, error: seen.append((metadata, type(error))))
            began = time.monotonic()
            with pytest.raises(DeliveryTimeout, match=f"1 record.* for {topic}-0 .*delivery.timeout.ms"):
                future.result(30)
            assert time.monotonic() - began < 5
            assert seen == [(None, DeliveryTimeout)]


def test_new_partitions_are_noticed(bootstrap_servers: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    with (
        Producer(bootstrap_servers=bootstrap_servers) as producer,
        ottla.Admin(bootstrap_servers=bootstrap_servers) as admin,
    ):
        producer.send(topic, b"v").result(30)
        admin.create_partitions({topic: 3})
        # An unknown partition makes the producer refresh its metadata.
        assert producer.send(topic, b"v", partition=2).result(30).partition == 2
        assert producer.partitions_for(topic) == {0, 1, 2}


def test_a_deleted_topic_is_created_again_by_a_producer(own_broker: Any) -> None:
    servers = own_broker(**{"num.partitions": "1"}).bootstrap_servers
    with Producer(bootstrap_servers=servers) as producer, ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic("orders", num_partitions=8))
        keys = [b"%d" % number for number in range(20)]
        for key in keys:
            producer.send("orders", b"old", key=key).result(30)
        admin.delete_topics("orders")
        # Kafka deletes a topic after it has answered: until then records are written to the old one.
        until(lambda: producer.send("orders", b"new", partition=0).result(30).offset == 0, "the topic is a new one")
        found = [producer.send("orders", b"new", key=key).result(30).partition for key in keys]
    assert found == [0] * 20


def test_a_topic_that_was_deleted_is_named_and_found_again(own_broker: Any) -> None:
    servers = own_broker(**{"auto.create.topics.enable": "false"}).bootstrap_servers
    options = {"max_block_ms": 300, "delivery_timeout_ms": 1_000, "request_timeout_ms": 500, "linger_ms": 0}
    with Producer(bootstrap_servers=servers, **options) as producer, ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic("orders", num_partitions=2))
        producer.send("orders", b"old", partition=1).result(30)
        admin.delete_topics("orders")
        with pytest.raises(DeliveryTimeout, match="no broker knows the topic now, was it deleted"):
            producer.send("orders", b"lost", partition=1).result(30)
        with pytest.raises(MetadataTimeout, match="it does not exist, and no broker creates it"):
            producer.send("orders", b"refused", partition=1)
        admin.create_topics(ottla.NewTopic("orders", num_partitions=1))
        keys = [b"%d" % number for number in range(20)]
        assert {producer.send("orders", b"new", key=key).result(30).partition for key in keys} == {0}
