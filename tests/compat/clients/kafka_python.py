"""kafka-python behind the interface in `base`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import KafkaError, KafkaTimeoutError, for_code
from kafka.protocol.consumer import OffsetSpec

from . import base
from .base import TP

PRODUCER_NAMES = {
    "acks": "acks",
    "compression": "compression_type",
    "idempotent": "enable_idempotence",
    "linger_ms": "linger_ms",
    "batch_bytes": "batch_size",
    "max_request_bytes": "max_request_size",
    "request_timeout_ms": "request_timeout_ms",
    "delivery_timeout_ms": "delivery_timeout_ms",
    "max_block_ms": "max_block_ms",
    "retries": "retries",
}
CONSUMER_NAMES = {
    "offset_reset": "auto_offset_reset",
    "fetch_min_bytes": "fetch_min_bytes",
    "fetch_max_wait_ms": "fetch_max_wait_ms",
    "fetch_max_bytes": "fetch_max_bytes",
    "max_partition_fetch_bytes": "max_partition_fetch_bytes",
    "isolation_level": "isolation_level",
    "metadata_max_age_ms": "metadata_max_age_ms",
}
SPECS = {"earliest": OffsetSpec.EARLIEST, "latest": OffsetSpec.LATEST, "max_timestamp": OffsetSpec.MAX_TIMESTAMP}
LOG_APPEND_TIME = 1


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except KafkaError as problem:
        raise client_error(problem) from problem


def client_error(problem: KafkaError) -> base.ClientError:
    code = getattr(problem, "errno", None)
    return base.ClientError(code if code is not None and code > 0 else None, f"{type(problem).__name__}: {problem}")


def raise_for(code: int, message: str | None) -> None:
    if code:
        raise base.ClientError(code, message or for_code(code).__name__)


class Delivery(base.Delivery):
    def __init__(self, future: Any) -> None:
        self._future = future

    def result(self, timeout: float = 30.0) -> base.Delivered:
        with translated():
            found = self._future.get(timeout)
        return base.Delivered(found.partition, found.offset if found.offset >= 0 else None, found.timestamp)


class Failed(base.Delivery):
    """An error that this library raises at once and others report in the delivery."""

    def __init__(self, problem: KafkaError) -> None:
        self._problem = problem

    def result(self, timeout: float = 30.0) -> base.Delivered:
        raise client_error(self._problem)


class Producer(base.Producer):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._producer = KafkaProducer(**config)

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None = None,
        *,
        partition: int | None = 0,
        timestamp: int | None = None,
        headers: base.Headers = (),
    ) -> base.Delivery:
        try:
            return Delivery(self._producer.send(topic, value, key, list(headers), partition, timestamp))
        except KafkaError as problem:
            return Failed(problem)

    def flush(self, timeout: float = 30.0) -> None:
        try:
            self._producer.flush(timeout)
        except KafkaTimeoutError as problem:
            raise base.ClientError(None, str(problem)) from problem

    def shut(self) -> None:
        self._producer.close(timeout=1)


class Consumer(base.Consumer):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._consumer = KafkaConsumer(**config)

    def assign(self, offsets: Mapping[TP, int | None]) -> None:
        self._consumer.assign([TopicPartition(*tp) for tp in offsets])
        for tp, offset in offsets.items():
            if offset is not None:
                self._consumer.seek(TopicPartition(*tp), offset)

    def poll(self, timeout: float) -> list[base.Message]:
        with translated():
            batches = self._consumer.poll(timeout_ms=timeout * 1000)
        return [_message(record) for records in batches.values() for record in records]

    def seek(self, partition: TP, offset: int) -> None:
        self._consumer.seek(TopicPartition(*partition), offset)

    def pause(self, partition: TP) -> None:
        self._consumer.pause(TopicPartition(*partition))

    def resume(self, partition: TP) -> None:
        self._consumer.resume(TopicPartition(*partition))

    def position(self, partition: TP) -> int:
        with translated():
            return int(self._consumer.position(TopicPartition(*partition)))

    def watermarks(self, partition: TP) -> tuple[int, int]:
        tp = TopicPartition(*partition)
        with translated():
            return self._consumer.beginning_offsets([tp])[tp], self._consumer.end_offsets([tp])[tp]

    def offsets_for_times(self, times: Mapping[TP, int]) -> dict[TP, int | None]:
        with translated():
            found = self._consumer.offsets_for_times({TopicPartition(*tp): when for tp, when in times.items()})
        return {TP(*tp): answer.offset if answer else None for tp, answer in found.items()}

    def shut(self) -> None:
        self._consumer.close()


def _message(record: Any) -> base.Message:
    return base.Message(
        record.topic,
        record.partition,
        record.offset,
        record.timestamp,
        record.timestamp_type == LOG_APPEND_TIME,
        record.key,
        record.value,
        tuple(record.headers),
    )


class Admin(base.Admin):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._admin = KafkaAdminClient(**config)

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic = {"num_partitions": partitions, "replication_factor": replication_factor, "configs": dict(configs or {})}
        with translated():
            self._admin.create_topics({name: topic}, validate_only=validate_only)

    def create_topic_on(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        with translated():
            self._admin.create_topics({name: {"assignments": dict(enumerate(map(list, assignment)))}})

    def delete_topic(self, name: str) -> None:
        with translated():
            self._admin.delete_topics([name])

    def list_topics(self) -> set[str]:
        with translated():
            return set(self._admin.list_topics())

    def describe_topic(self, name: str) -> list[base.PartitionInfo]:
        with translated():
            (topic,) = self._admin.describe_topics([name])
        raise_for(topic["error_code"], None)
        return [
            base.PartitionInfo(p["partition_index"], p["leader_id"], tuple(p["replica_nodes"]), tuple(p["isr_nodes"]))
            for p in sorted(topic["partitions"], key=lambda p: p["partition_index"])
        ]

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        with translated():
            self._admin.create_partitions({topic: total}, validate_only=validate_only)

    def delete_records(self, before: Mapping[TP, int]) -> dict[TP, int]:
        with translated():
            found = self._admin.delete_records({TopicPartition(*tp): offset for tp, offset in before.items()})
        return {TP(*tp): answer["low_watermark"] for tp, answer in found.items()}

    def describe_topic_configs(self, topic: str) -> dict[str, base.ConfigValue]:
        return self._describe_configs(ConfigResource(ConfigResourceType.TOPIC, topic))

    def describe_broker_configs(self, node_id: int) -> dict[str, base.ConfigValue]:
        return self._describe_configs(ConfigResource(ConfigResourceType.BROKER, str(node_id)))

    def _describe_configs(self, resource: ConfigResource) -> dict[str, base.ConfigValue]:
        with translated():
            found = self._admin.describe_configs([resource], config_filter="all")
        entries = found[resource.resource_type.name.lower()][resource.name]
        return {
            name: base.ConfigValue(
                entry["value"], entry["config_source"] == "DEFAULT_CONFIG", entry["read_only"], entry["is_sensitive"]
            )
            for name, entry in entries.items()
        }

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        self._alter(topic, dict(configs), incremental=False)

    def change_topic_configs(
        self, topic: str, changes: Mapping[str, tuple[Literal["set", "delete", "append", "subtract"], str | None]]
    ) -> None:
        named = {name: (operation.upper(), value) for name, (operation, value) in changes.items()}
        self._alter(topic, named, incremental=True)

    def _alter(self, topic: str, configs: dict[str, Any], *, incremental: bool) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, configs)
        with translated():
            found = self._admin.alter_configs([resource], raise_on_unknown=False, incremental=incremental)
        if (said := found["topic"][topic]) != "OK":
            raise base.ClientError(_code_in(said), said)

    def describe_cluster(self) -> base.ClusterInfo:
        with translated():
            found = self._admin.describe_cluster()
        brokers = {b["broker_id"]: f"{b['host']}:{b['port']}" for b in found["brokers"]}
        return base.ClusterInfo(found["cluster_id"], found["controller_id"], brokers)

    def list_offset(self, partition: TP, spec: Literal["earliest", "latest", "max_timestamp"]) -> tuple[int, int]:
        tp = TopicPartition(*partition)
        with translated():
            found = self._admin.list_partition_offsets({tp: SPECS[spec]})[tp]
        return found.offset, found.timestamp

    def shut(self) -> None:
        self._admin.close()


def _code_in(text: str) -> int | None:
    """Parse "[Error 40] InvalidConfigurationError: …", all that the library returns for a failed alteration."""
    head = text.removeprefix("[Error ").partition("]")[0]
    return int(head) if head.isdigit() else None


class KafkaPython(base.Client):
    name = "kafka_python"
    lacks = frozenset({"null_header_value", "null_key_and_value", "replace_configs"})

    def _config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap_servers, **more}

    def make_producer(self, options: base.ProducerOptions) -> Producer:
        return Producer(self._config(options.named(PRODUCER_NAMES)))

    def make_consumer(self, options: base.ConsumerOptions) -> Consumer:
        return Consumer(self._config({"group_id": None, **options.named(CONSUMER_NAMES)}))

    def make_admin(self) -> Admin:
        return Admin(self._config({}))
