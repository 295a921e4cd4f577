"""Producers and consumers of all libraries survive the death of leaders, without a lost or duplicated record.

`make compat-java-cluster` and `make compat-go-cluster` do the same with the clients of other languages.
"""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import TopicPartition as ConfluentPartition
from kafka import KafkaConsumer
from kafka import TopicPartition as KafkaPartition
from tests.crash.loads import AioKafkaLoad, ConfluentLoad, KafkaPythonLoad, Load

import ottla
from ottla.types import TopicPartition

from .checker import History, Read, check, summary
from .clusters import PlainCluster
from .loads import OttlaLoad, Recorder, read_replicas
from .trial import BROKER

# kafka-python and aiokafka leave sockets open when a broker dies.
pytestmark = [
    pytest.mark.crash,
    pytest.mark.compat,
    pytest.mark.timeout(300),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]
TOPIC = "orders"
PLACES = [TopicPartition(TOPIC, index) for index in range(3)]
LOADS: dict[str, type[Load]] = {
    "confluent-kafka": ConfluentLoad,
    "kafka-python": KafkaPythonLoad,
    "aiokafka": AioKafkaLoad,
    "ottla": OttlaLoad,
}


class Reading(threading.Thread):
    """A consumer of one library that reads everything from the start. `take` gets what it reads."""

    def __init__(
        self, name: str, servers: str, history: History, read: Callable[[str, threading.Event, Take], None]
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.halt = threading.Event()
        self.reads = {place: history.reads[name, place] for place in PLACES}
        self._servers = servers
        self._read = read

    def run(self) -> None:
        self._read(self._servers, self.halt, self.take)

    def take(self, partition: int, offset: int, value: bytes) -> None:
        self.reads[TopicPartition(TOPIC, partition)].append(Read(offset, value))

    def finish(self, ends: dict[TopicPartition, int]) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and any(len(self.reads[place]) < ends[place] for place in PLACES):
            time.sleep(0.02)
        self.halt.set()
        self.join(30)
        assert {place: len(reads) for place, reads in self.reads.items()} == ends, self.name


Take = Callable[[int, int, bytes], None]


def read_confluent(servers: str, halt: threading.Event, take: Take) -> None:
    consumer = ConfluentConsumer(
        {"bootstrap.servers": servers, "group.id": "c", "enable.auto.commit": False, "auto.offset.reset": "error",
         "log_level": 0}
    )  # fmt: skip
    consumer.assign([ConfluentPartition(TOPIC, place.partition, 0) for place in PLACES])
    while not halt.is_set():
        for message in consumer.consume(500, 0.1):
            if not message.error():
                take(message.partition() or 0, message.offset() or 0, message.value() or b"")
    consumer.close()


def read_kafka_python(servers: str, halt: threading.Event, take: Take) -> None:
    consumer = KafkaConsumer(bootstrap_servers=servers.split(","), auto_offset_reset="none", enable_auto_commit=False)
    consumer.assign([KafkaPartition(TOPIC, place.partition) for place in PLACES])
    for place in PLACES:
        consumer.seek(KafkaPartition(TOPIC, place.partition), 0)
    while not halt.is_set():
        for records in consumer.poll(100).values():
            for record in records:
                take(record.partition, record.offset, record.value)
    consumer.close()


def read_aiokafka(servers: str, halt: threading.Event, take: Take) -> None:
    async def read() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=servers, auto_offset_reset="none", enable_auto_commit=False)
        await consumer.start()
        consumer.assign([AioPartition(TOPIC, place.partition) for place in PLACES])
        for place in PLACES:
            consumer.seek(AioPartition(TOPIC, place.partition), 0)
        while not halt.is_set():
            for records in (await consumer.getmany(timeout_ms=100)).values():
                for record in records:
                    take(record.partition, record.offset, record.value)
        await consumer.stop()

    asyncio.run(read())


def read_ottla(servers: str, halt: threading.Event, take: Take) -> None:
    with ottla.Consumer(bootstrap_servers=servers, auto_offset_reset="none") as consumer:
        consumer.assign(PLACES)
        for place in PLACES:
            consumer.seek(place, 0)
        while not halt.is_set():
            for record in consumer.poll(0.1):
                take(record.partition, record.offset, record.value or b"")


READERS = {
    "confluent-kafka": read_confluent,
    "kafka-python": read_kafka_python,
    "aiokafka": read_aiokafka,
    "ottla": read_ottla,
}


@pytest.fixture
def _leaks() -> Iterator[None]:
    """Collect what the clients leave behind before the next test, which would be blamed for it."""
    yield
    gc.collect()


@pytest.mark.usefixtures("_leaks")
def test_clients_survive_the_death_of_leaders() -> None:
    with PlainCluster(config=BROKER, isolation=False) as cluster:
        servers = cluster.bootstrap_servers
        with ottla.Admin(bootstrap_servers=servers) as admin:
            admin.create_topics(ottla.NewTopic(TOPIC, num_partitions=len(PLACES)))
        recorder = Recorder(History())
        loads = [kind(name, servers, PLACES, recorder, 1) for name, kind in LOADS.items()]
        readers = [Reading(name, servers, recorder.history, read) for name, read in READERS.items()]
        for reader in readers:
            reader.start()
        for load in loads:
            load.may_send.set()
            load.start()
        _await_all(recorder)
        for partition in range(2):
            leader = cluster.leader_of(TOPIC, partition)
            leader.kill()
            _await_all(recorder)
            leader.start()
            cluster.wait_until_replicated(TOPIC)
        for load in loads:
            load.halt.set()
        for load in loads:
            load.finish()
        directories = {broker.id: broker.data_dir for broker in cluster.brokers.values()}
        recorder.history.replicas, ends, differences = read_replicas(directories, PLACES)
        for reader in readers:
            reader.finish(ends)
        assert [*recorder.problems, *differences, *summary(check(recorder.history))] == []


def _await_all(recorder: Recorder, count: int = 20, seconds: float = 60) -> None:
    """Wait until some more records of every producer are acknowledged."""
    start = len(recorder.history.acked)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        fresh = [ack.value.split(b"@")[0].decode() for ack in recorder.history.acked[start:]]
        if all(fresh.count(name) >= count for name in LOADS):
            return
        time.sleep(0.02)
    raise AssertionError(f"some producers do not get on: {sorted(set(LOADS) - set(fresh))}, {recorder.problems}")
