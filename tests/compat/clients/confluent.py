"""confluent-kafka (librdkafka) behind the interface in `base`."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Literal
from uuid import uuid4

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    OFFSET_INVALID,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka import Consumer as LibraryConsumer
from confluent_kafka import Message as LibraryMessage
from confluent_kafka import Producer as LibraryProducer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from . import base
from .base import TP

REQUEST_TIMEOUT = 20.0
PRODUCER_NAMES = {
    "acks": "acks",
    "compression": "compression.type",
    "idempotent": "enable.idempotence",
    "linger_ms": "linger.ms",
    "batch_bytes": "batch.size",
    "max_request_bytes": "message.max.bytes",
    "request_timeout_ms": "request.timeout.ms",
    "delivery_timeout_ms": "delivery.timeout.ms",
    "retries": "retries",
}
CONSUMER_NAMES = {
    "fetch_min_bytes": "fetch.min.bytes",
    "fetch_max_wait_ms": "fetch.wait.max.ms",
    "fetch_max_bytes": "fetch.max.bytes",
    "max_partition_fetch_bytes": "max.partition.fetch.bytes",
    "isolation_level": "isolation.level",
    "metadata_max_age_ms": "metadata.max.age.ms",
}
RESET = {"earliest": "earliest", "latest": "latest", "none": "error"}
START = {"earliest": OFFSET_BEGINNING, "latest": OFFSET_END}
SPECS = {"earliest": OffsetSpec.earliest, "latest": OffsetSpec.latest, "max_timestamp": OffsetSpec.max_timestamp}
OPERATIONS = {
    "set": AlterConfigOpType.SET,
    "delete": AlterConfigOpType.DELETE,
    "append": AlterConfigOpType.APPEND,
    "subtract": AlterConfigOpType.SUBTRACT,
}


def client_error(error: KafkaError) -> base.ClientError:
    # librdkafka has its own negative codes; this one means that the offset is out of range.
    if error.code() == KafkaError._AUTO_OFFSET_RESET:
        return base.ClientError(base.Code.OFFSET_OUT_OF_RANGE, error.str())
    return base.ClientError(error.code() if error.code() > 0 else None, f"{error.name()}: {error.str()}")


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except KafkaException as problem:
        raise client_error(problem.args[0]) from problem


class Delivery(base.Delivery):
    def __init__(self, producer: LibraryProducer) -> None:
        self._producer = producer
        self._error: KafkaError | None = None
        self._message: LibraryMessage | None = None

    def report(self, error: KafkaError | None, message: LibraryMessage) -> None:
        self._error, self._message = error, message

    def result(self, timeout: float = 30.0) -> base.Delivered:
        deadline = time.monotonic() + timeout
        while self._message is None:
            self._producer.poll(0.05)
            if time.monotonic() > deadline:
                raise base.ClientError(None, f"no delivery report in {timeout:g} s")
        if self._error is not None:
            raise client_error(self._error)
        offset, (_, timestamp) = self._message.offset(), self._message.timestamp()
        partition = self._message.partition()
        assert partition is not None
        return base.Delivered(partition, offset if offset is not None and offset >= 0 else None, timestamp)


class Producer(base.Producer):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._producer = LibraryProducer(dict(config))

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = 0,
        timestamp: int | None = None,
        headers: base.Headers = (),
    ) -> Delivery:
        delivery = Delivery(self._producer)
        optional: dict[str, Any] = {"partition": partition, "timestamp": timestamp, "headers": list(headers)}
        given = {name: value for name, value in optional.items() if value is not None and value != []}
        with translated():
            self._producer.produce(topic, value, key, on_delivery=delivery.report, **given)
        return delivery

    def flush(self, timeout: float = 30.0) -> None:
        left = self._producer.flush(timeout)
        if left:
            raise base.ClientError(None, f"{left} records not delivered in {timeout:g} s")

    def shut(self) -> None:
        self._producer.purge()
        self._producer.flush(1.0)


class Consumer(base.Consumer):
    def __init__(self, config: Mapping[str, Any], offset_reset: str) -> None:
        self._consumer = LibraryConsumer(dict(config))
        self._start = START.get(offset_reset, OFFSET_INVALID)

    def assign(self, offsets: Mapping[TP, int | None]) -> None:
        self._consumer.assign(
            [TopicPartition(*tp, self._start if offset is None else offset) for tp, offset in offsets.items()]
        )

    def poll(self, timeout: float) -> list[base.Message]:
        first = self._consumer.poll(timeout)
        if first is None:
            return []
        return [_message(message) for message in [first, *self._consumer.consume(500, 0)]]

    def seek(self, partition: TP, offset: int) -> None:
        with translated():
            self._consumer.seek(TopicPartition(*partition, offset))

    def pause(self, partition: TP) -> None:
        self._consumer.pause([TopicPartition(*partition)])

    def resume(self, partition: TP) -> None:
        self._consumer.resume([TopicPartition(*partition)])

    def position(self, partition: TP) -> int:
        with translated():
            (found,) = self._consumer.position([TopicPartition(*partition)])
        return int(found.offset)

    def watermarks(self, partition: TP) -> tuple[int, int]:
        with translated():
            found = self._consumer.get_watermark_offsets(TopicPartition(*partition), timeout=REQUEST_TIMEOUT)
        assert found is not None
        return found[0], found[1]

    def offsets_for_times(self, times: Mapping[TP, int]) -> dict[TP, int | None]:
        wanted = [TopicPartition(*tp, when) for tp, when in times.items()]
        with translated():
            found = self._consumer.offsets_for_times(wanted, timeout=REQUEST_TIMEOUT)
        for answer in found:
            if answer.error is not None:
                raise client_error(answer.error)
        return {TP(a.topic, a.partition): a.offset if a.offset >= 0 else None for a in found}

    def shut(self) -> None:
        self._consumer.close()


def _message(message: LibraryMessage) -> base.Message:
    error = message.error()
    if error is not None:
        raise client_error(error)
    kind, timestamp = message.timestamp()
    topic, partition, offset = message.topic(), message.partition(), message.offset()
    assert topic is not None
    assert partition is not None
    assert offset is not None
    return base.Message(
        topic,
        partition,
        offset,
        timestamp,
        kind == TIMESTAMP_LOG_APPEND_TIME,
        message.key(),
        message.value(),
        tuple(_pairs(message.headers())),
    )


def _pairs(headers: Any) -> list[tuple[str, bytes | None]]:
    return list(headers or ())


def _one(futures: Mapping[Any, Future[Any]]) -> Any:
    """Return the result of a call for one item, for which the library returns a dict of futures."""
    (future,) = futures.values()
    with translated():
        return future.result(REQUEST_TIMEOUT)


class Admin(base.Admin):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._admin = AdminClient(dict(config))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, config=dict(configs or {}))
        _one(self._admin.create_topics([topic], validate_only=validate_only))

    def create_topic_on(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        replicas = [list(brokers) for brokers in assignment]
        _one(self._admin.create_topics([NewTopic(name, len(replicas), replica_assignment=replicas)]))

    def delete_topic(self, name: str) -> None:
        _one(self._admin.delete_topics([name]))

    def list_topics(self) -> set[str]:
        with translated():
            return set(self._admin.list_topics(timeout=REQUEST_TIMEOUT).topics)

    def describe_topic(self, name: str) -> list[base.PartitionInfo]:
        found = _one(self._admin.describe_topics(TopicCollection([name])))
        return [
            base.PartitionInfo(
                p.id, p.leader.id if p.leader else -1, tuple(n.id for n in p.replicas), tuple(n.id for n in p.isr)
            )
            for p in found.partitions
        ]

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        _one(self._admin.create_partitions([NewPartitions(topic, total)], validate_only=validate_only))

    def delete_records(self, before: Mapping[TP, int]) -> dict[TP, int]:
        futures = self._admin.delete_records([TopicPartition(*tp, offset) for tp, offset in before.items()])
        with translated():
            return {TP(p.topic, p.partition): f.result(REQUEST_TIMEOUT).low_watermark for p, f in futures.items()}

    def describe_topic_configs(self, topic: str) -> dict[str, base.ConfigValue]:
        return self._describe_configs(ConfigResource(ResourceType.TOPIC, topic))

    def describe_broker_configs(self, node_id: int) -> dict[str, base.ConfigValue]:
        return self._describe_configs(ConfigResource(ResourceType.BROKER, str(node_id)))

    def _describe_configs(self, resource: ConfigResource) -> dict[str, base.ConfigValue]:
        entries: dict[str, Any] = _one(self._admin.describe_configs([resource]))
        default = ConfigSource.DEFAULT_CONFIG.value
        return {
            name: base.ConfigValue(e.value, e.source == default, bool(e.is_read_only), bool(e.is_sensitive))
            for name, e in entries.items()
        }

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ResourceType.TOPIC, topic, set_config=dict(configs))
        _one(self._admin.alter_configs([resource]))

    def change_topic_configs(
        self, topic: str, changes: Mapping[str, tuple[Literal["set", "delete", "append", "subtract"], str | None]]
    ) -> None:
        entries = [
            ConfigEntry(name, value, incremental_operation=OPERATIONS[operation])
            for name, (operation, value) in changes.items()
        ]
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
        _one(self._admin.incremental_alter_configs([resource]))

    def describe_cluster(self) -> base.ClusterInfo:
        with translated():
            found = self._admin.describe_cluster().result(REQUEST_TIMEOUT)
        brokers = {node.id: f"{node.host}:{node.port}" for node in found.nodes}
        return base.ClusterInfo(found.cluster_id, found.controller.id, brokers)

    def list_offset(self, partition: TP, spec: Literal["earliest", "latest", "max_timestamp"]) -> tuple[int, int]:
        found = _one(self._admin.list_offsets({TopicPartition(*partition): SPECS[spec]()}))
        return found.offset, found.timestamp

    def shut(self) -> None:
        del self._admin


class Confluent(base.Client):
    name = "confluent"

    def _config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {"bootstrap.servers": self.bootstrap_servers, "log_level": 2, **more}

    def make_producer(self, options: base.ProducerOptions) -> Producer:
        return Producer(self._config(options.named(PRODUCER_NAMES)))

    def make_consumer(self, options: base.ConsumerOptions) -> Consumer:
        # The library requires a group id even if no group is used.
        needed = {"group.id": f"compat-{uuid4().hex}", "enable.auto.commit": False}
        reset = {"auto.offset.reset": RESET[options.offset_reset]}
        return Consumer(self._config({**needed, **reset, **options.named(CONSUMER_NAMES)}), options.offset_reset)

    def make_admin(self) -> Admin:
        return Admin(self._config({}))
