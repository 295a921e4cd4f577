"""Transactions of other producers, and consumers that read only committed records."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Protocol
from uuid import uuid4

import confluent_kafka
import kafka
import pytest
from confluent_kafka import KafkaException
from kafka.errors import KafkaError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from .conftest import MakeTopic, StartBroker
from .waiting import DEADLINE, until


class TransactionalProducer(Protocol):
    """The common interface of both libraries."""

    def begin(self) -> None: ...
    def send(self, topic: str, value: bytes) -> None: ...
    def flush(self) -> None: ...
    def offsets(self, consumer: Any) -> None: ...
    def commit(self) -> None: ...
    def abort(self) -> None: ...
    def close(self) -> None: ...


class Confluent:
    """librdkafka's producer."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, timeout: int = 60_000) -> None:
        config = {"bootstrap.servers": bootstrap_servers, "transactional.id": transactional_id, "log_level": 0}
        self._producer = confluent_kafka.Producer({**config, "transaction.timeout.ms": timeout})
        self._producer.init_transactions(DEADLINE)
        self.begin = self._producer.begin_transaction

    def send(self, topic: str, value: bytes) -> None:
        self._producer.produce(topic, value)

    def flush(self) -> None:
        self._producer.flush(DEADLINE)

    def offsets(self, consumer: confluent_kafka.Consumer) -> None:
        position = consumer.position(consumer.assignment())
        self._producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), DEADLINE)

    def commit(self) -> None:
        self._producer.commit_transaction(DEADLINE)

    def abort(self) -> None:
        self._producer.abort_transaction(DEADLINE)

    def close(self) -> None:
        self._producer.purge()
        self._producer.flush(0)


class KafkaPython:
    """kafka-python's producer."""

    def __init__(self, bootstrap_servers: str, transactional_id: str, timeout: int = 60_000) -> None:
        self._producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap_servers, transactional_id=transactional_id, transaction_timeout_ms=timeout
        )
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.commit = self._producer.commit_transaction
        self.abort = self._producer.abort_transaction

    def send(self, topic: str, value: bytes) -> None:
        self._producer.send(topic, value)

    def flush(self) -> None:
        self._producer.flush()

    def offsets(self, consumer: kafka.KafkaConsumer) -> None:
        positions = {each: OffsetAndMetadata(consumer.position(each), "", -1) for each in consumer.assignment()}
        self._producer.send_offsets_to_transaction(positions, consumer.group_metadata())

    def close(self) -> None:
        self._producer.close(timeout=2)


LIBRARIES: dict[str, Callable[..., TransactionalProducer]] = {"confluent": Confluent, "kafka-python": KafkaPython}
Make = Callable[..., TransactionalProducer]


@pytest.fixture(params=LIBRARIES)
def make(request: pytest.FixtureRequest, bootstrap_servers: str, caplog: pytest.LogCaptureFixture) -> Iterator[Make]:
    # kafka-python logs its connections. pytest keeps the log records, and with them the open sockets.
    caplog.set_level(logging.CRITICAL, "kafka")
    made: list[TransactionalProducer] = []

    def make_one(transactional_id: str, *, at: str = bootstrap_servers, timeout: int = 60_000) -> TransactionalProducer:
        made.append(LIBRARIES[request.param](at, transactional_id, timeout))
        return made[-1]

    yield make_one
    while made:
        with suppress(Exception):
            made.pop().close()
    gc.collect()  # kafka-python leaves sockets open when it cannot connect; collect them here, not in another test


def new_id() -> str:
    return f"id-{uuid4().hex[:8]}"


def read(bootstrap_servers: str, topic: str, *, isolation: str = "read_committed") -> list[bytes]:
    """Return everything in a topic up to its end, as such a consumer sees it."""
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "isolation.level": isolation}
    consumer = confluent_kafka.Consumer(
        {**config, "enable.partition.eof": True, "fetch.wait.max.ms": 20, "log_level": 0}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, confluent_kafka.OFFSET_BEGINNING)])
    found: list[bytes] = []
    deadline = time.monotonic() + DEADLINE
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error():
                return found
            if message is not None:
                found.append(message.value() or b"")
    finally:
        consumer.close()
    raise AssertionError(f"no end of {topic}: {found}")


def read_kafka_python(bootstrap_servers: str, topic: str) -> list[bytes]:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    )
    place = kafka.TopicPartition(topic, 0)
    consumer.assign([place])
    end = consumer.end_offsets([place])[place]
    found: list[bytes] = []
    try:
        deadline = time.monotonic() + DEADLINE
        while consumer.position(place) < end and time.monotonic() < deadline:
            found += [record.value for records in consumer.poll(500).values() for record in records]
    finally:
        consumer.close()
    return found


def test_what_is_committed_is_seen_and_what_is_aborted_is_not(
    make: Make, make_topic: MakeTopic, bootstrap_servers: str
) -> None:
    topic = make_topic()
    producer = make(new_id())
    for value, commits in ((b"a", True), (b"b", False), (b"c", True), (b"d", False)):
        producer.begin()
        for _ in range(3):
            producer.send(topic, value)
        producer.flush()
        producer.commit() if commits else producer.abort()
    expected = [b"a"] * 3 + [b"c"] * 3
    assert read(bootstrap_servers, topic) == expected
    assert read_kafka_python(bootstrap_servers, topic) == expected
    assert len(read(bootstrap_servers, topic, isolation="read_uncommitted")) == 12


def commit_is_fenced(producer: TransactionalProducer) -> bool:
    """Whether a commit fails because of a newer producer. It must fail in any case.

    kafka-python tries to get a new epoch when its batch is rejected. Until that is answered, `commit` fails with
    "Invalid transition attempted from state BUMPING_PRODUCER_EPOCH" if it comes at that moment.
    """
    with pytest.raises((KafkaException, KafkaError)) as raised:
        producer.commit()
    if isinstance(raised.value, KafkaException):
        return bool(raised.value.args[0].code() == confluent_kafka.KafkaError._FENCED)
    return isinstance(raised.value, ProducerFencedError) or "ProducerFencedError" in str(raised.value)


def test_a_second_producer_of_the_same_id_fences_the_first(
    make: Make, make_topic: MakeTopic, bootstrap_servers: str
) -> None:
    topic, name = make_topic(), new_id()
    first = make(name)
    first.begin()
    first.send(topic, b"left open")
    first.flush()
    second = make(name)
    first.send(topic, b"zombie")
    until(lambda: commit_is_fenced(first), "the first producer to learn that it is fenced")
    second.begin()
    second.send(topic, b"second")
    second.commit()
    assert read(bootstrap_servers, topic) == [b"second"]
    assert read(bootstrap_servers, topic, isolation="read_uncommitted") == [b"left open", b"second"]


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_move_with_the_records(
    make: Make, make_topic: MakeTopic, bootstrap_servers: str, commits: bool
) -> None:
    source, target, group = make_topic(), make_topic(), f"group-{uuid4().hex[:8]}"
    producer = make(new_id())
    producer.begin()
    for number in range(3):
        producer.send(source, b"%d" % number)
    producer.commit()
    consumer: Any
    if isinstance(producer, Confluent):
        config = {"bootstrap.servers": bootstrap_servers, "group.id": group, "auto.offset.reset": "earliest"}
        consumer = confluent_kafka.Consumer({**config, "enable.auto.commit": False, "log_level": 0})
        consumer.subscribe([source])
        taken = until(lambda: [m for m in [consumer.poll(0.5)] if m is not None and not m.error()], "a record")
    else:
        consumer = kafka.KafkaConsumer(
            source, bootstrap_servers=bootstrap_servers, group_id=group, auto_offset_reset="earliest",
            isolation_level="read_committed", enable_auto_commit=False, max_poll_records=1,
        )  # fmt: skip
        taken = until(lambda: [record for found in consumer.poll(500).values() for record in found], "a record")
    assert len(taken) == 1
    try:
        producer.begin()
        producer.send(target, b"made of it")
        producer.offsets(consumer)
        producer.commit() if commits else producer.abort()
    finally:
        consumer.close() if isinstance(producer, Confluent) else consumer.close(autocommit=False)
    admin = confluent_kafka.Consumer({"bootstrap.servers": bootstrap_servers, "group.id": group, "log_level": 0})
    (found,) = admin.committed([confluent_kafka.TopicPartition(source, 0)], DEADLINE)
    admin.close()
    assert found.offset == (1 if commits else confluent_kafka.OFFSET_INVALID)
    assert read(bootstrap_servers, target) == ([b"made of it"] if commits else [])


def test_a_transaction_that_takes_too_long(make: Make, start_own_broker: StartBroker) -> None:
    broker = start_own_broker(
        transaction_abort_timed_out_transaction_cleanup_interval_ms="50", transaction_state_log_num_partitions="2"
    )
    producer = make(new_id(), at=broker.bootstrap_servers, timeout=1000)
    producer.begin()
    producer.send("slow", b"x")
    producer.flush()
    until(lambda: high_watermark(broker.bootstrap_servers, "slow") == 2, "the marker of the abort")
    with pytest.raises((KafkaException, KafkaError)):
        producer.commit()
    assert read(broker.bootstrap_servers, "slow") == []


def high_watermark(bootstrap_servers: str, topic: str) -> int:
    config = {"bootstrap.servers": bootstrap_servers, "group.id": "unused", "log_level": 0}
    consumer = confluent_kafka.Consumer({**config, "isolation.level": "read_uncommitted"})
    try:
        return int(consumer.get_watermark_offsets(confluent_kafka.TopicPartition(topic, 0), DEADLINE)[1])
    finally:
        consumer.close()


def test_the_broker_is_started_again_in_the_middle_of_a_transaction(make: Make, start_own_broker: StartBroker) -> None:
    broker = start_own_broker(transaction_state_log_num_partitions="2")
    producer = make(new_id(), at=broker.bootstrap_servers)
    for value, commits in ((b"one", True), (b"two", False)):
        producer.begin()
        producer.send("orders", value)
        producer.flush()
        broker.stop()
        broker.start()
        producer.send("orders", value)
        producer.commit() if commits else producer.abort()
    assert read(broker.bootstrap_servers, "orders") == [b"one", b"one"]
