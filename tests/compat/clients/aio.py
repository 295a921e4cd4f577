"""aiokafka behind the interface in `base`. Its coroutines run on one event loop in a separate thread."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Literal, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from . import base
from .base import TP

PRODUCER_NAMES = {
    "acks": "acks",
    "compression": "compression_type",
    "idempotent": "enable_idempotence",
    "linger_ms": "linger_ms",
    "batch_bytes": "max_batch_size",
    "max_request_bytes": "max_request_size",
    "delivery_timeout_ms": "request_timeout_ms",  # this library retries as long as a request may take
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
CALL_TIMEOUT = 60.0
LOG_APPEND_TIME = 1
DEFAULT_CONFIG = 5
Result = TypeVar("Result")


class LoopThread:
    """One event loop for all aiokafka objects of the test run; created on first use, ended by `stop`."""

    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None

    @classmethod
    def loop(cls) -> asyncio.AbstractEventLoop:
        if cls._loop is None:
            cls._loop = asyncio.new_event_loop()
            cls._thread = threading.Thread(target=cls._loop.run_forever, name="aiokafka", daemon=True)
            cls._thread.start()
        return cls._loop

    @classmethod
    def stop(cls) -> None:
        if cls._loop is not None and cls._thread is not None:
            cls._loop.call_soon_threadsafe(cls._loop.stop)
            cls._thread.join()
            cls._loop.close()
            cls._loop = cls._thread = None

    @classmethod
    def run(cls, call: Coroutine[Any, Any, Result], timeout: float = CALL_TIMEOUT) -> Result:
        try:
            return asyncio.run_coroutine_threadsafe(call, cls.loop()).result(timeout)
        except KafkaError as problem:
            raise client_error(problem) from problem


run = LoopThread.run


async def on_loop(call: Callable[..., Result], *arguments: Any) -> Result:
    """Call a plain function of the library on its event loop."""
    return call(*arguments)


async def started(make: Callable[..., Any], config: Mapping[str, Any]) -> Any:
    client = make(**config)
    try:
        await client.start()
    except BaseException:
        await (client.close() if hasattr(client, "close") else client.stop())
        raise
    return client


def client_error(problem: KafkaError) -> base.ClientError:
    code = getattr(problem, "errno", None)
    return base.ClientError(code if code is not None and code > 0 else None, f"{type(problem).__name__}: {problem}")


def raise_for(code: int, message: str | None) -> None:
    if code:
        raise base.ClientError(code, message or for_code(code).__name__)


class Delivery(base.Delivery):
    def __init__(self, sending: Coroutine[Any, Any, Any]) -> None:
        self._future = asyncio.run_coroutine_threadsafe(sending, LoopThread.loop())

    def result(self, timeout: float = 30.0) -> base.Delivered:
        try:
            found = self._future.result(timeout)
        except KafkaError as problem:
            raise client_error(problem) from problem
        if found is None:  # acks=0
            return base.Delivered(None, None, None)
        return base.Delivered(found.partition, found.offset, found.timestamp)


class Producer(base.Producer):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._producer = run(started(AIOKafkaProducer, config))
        self._in_order = asyncio.Lock()

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
        return Delivery(self._send(topic, value, key, partition, timestamp, list(headers)))

    async def _send(self, *record: Any) -> Any:
        """Like a program that awaits one `send` after the other and checks the futures later."""
        async with self._in_order:
            delivery = await self._producer.send(*record)
        return await delivery

    def flush(self, timeout: float = 30.0) -> None:
        run(self._flush(), timeout)

    async def _flush(self) -> None:
        async with self._in_order:
            await self._producer.flush()

    def shut(self) -> None:
        run(self._producer.stop())


class Consumer(base.Consumer):
    def __init__(self, config: Mapping[str, Any]) -> None:
        self._consumer = run(started(AIOKafkaConsumer, config))

    def assign(self, offsets: Mapping[TP, int | None]) -> None:
        run(self._assign(offsets))

    async def _assign(self, offsets: Mapping[TP, int | None]) -> None:
        self._consumer.assign([TopicPartition(*tp) for tp in offsets])
        for tp, offset in offsets.items():
            if offset is not None:
                self._consumer.seek(TopicPartition(*tp), offset)

    def poll(self, timeout: float) -> list[base.Message]:
        batches = run(self._consumer.getmany(timeout_ms=int(timeout * 1000)), timeout + CALL_TIMEOUT)
        return [_message(record) for records in batches.values() for record in records]

    def seek(self, partition: TP, offset: int) -> None:
        run(on_loop(self._consumer.seek, TopicPartition(*partition), offset))

    def pause(self, partition: TP) -> None:
        run(on_loop(self._consumer.pause, TopicPartition(*partition)))

    def resume(self, partition: TP) -> None:
        run(on_loop(self._consumer.resume, TopicPartition(*partition)))

    def position(self, partition: TP) -> int:
        return int(run(self._consumer.position(TopicPartition(*partition))))

    def watermarks(self, partition: TP) -> tuple[int, int]:
        tp = TopicPartition(*partition)
        return run(self._consumer.beginning_offsets([tp]))[tp], run(self._consumer.end_offsets([tp]))[tp]

    def offsets_for_times(self, times: Mapping[TP, int]) -> dict[TP, int | None]:
        wanted = {TopicPartition(*tp): when for tp, when in times.items()}
        found = run(self._consumer.offsets_for_times(wanted))
        return {TP(*tp): answer.offset if answer else None for tp, answer in found.items()}

    def shut(self) -> None:
        run(self._consumer.stop())


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
        self._admin = run(started(AIOKafkaAdminClient, config))

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
        validate_only: bool = False,
    ) -> None:
        topic = NewTopic(name, partitions, replication_factor, topic_configs=dict(configs or {}))
        self._create(topic, validate_only=validate_only)

    def create_topic_on(self, name: str, assignment: Sequence[Sequence[int]]) -> None:
        replicas = dict(enumerate(map(list, assignment)))
        self._create(NewTopic(name, -1, -1, replica_assignments=replicas), validate_only=False)

    def _create(self, topic: NewTopic, *, validate_only: bool) -> None:
        answer = run(self._admin.create_topics([topic], validate_only=validate_only))
        for _, code, message, *_ in answer.topic_errors:
            raise_for(code, message)

    def delete_topic(self, name: str) -> None:
        answer = run(self._admin.delete_topics([name]))
        for _, code, *_ in answer.topic_error_codes:
            raise_for(code, None)

    def list_topics(self) -> set[str]:
        return set(run(self._admin.list_topics()))

    def describe_topic(self, name: str) -> list[base.PartitionInfo]:
        (topic,) = run(self._admin.describe_topics([name]))
        raise_for(topic["error_code"], None)
        return [
            base.PartitionInfo(p["partition"], p["leader"], tuple(p["replicas"]), tuple(p["isr"]))
            for p in sorted(topic["partitions"], key=lambda p: p["partition"])
        ]

    def create_partitions(self, topic: str, total: int, *, validate_only: bool = False) -> None:
        run(self._admin.create_partitions({topic: NewPartitions(total)}, validate_only=validate_only))

    def delete_records(self, before: Mapping[TP, int]) -> dict[TP, int]:
        wanted = {TopicPartition(*tp): RecordsToDelete(offset) for tp, offset in before.items()}
        return {TP(*tp): low for tp, low in run(self._admin.delete_records(wanted)).items()}

    def describe_topic_configs(self, topic: str) -> dict[str, base.ConfigValue]:
        return self._describe_configs(ConfigResource(ConfigResourceType.TOPIC, topic))

    def describe_broker_configs(self, node_id: int) -> dict[str, base.ConfigValue]:
        return self._describe_configs(ConfigResource(ConfigResourceType.BROKER, str(node_id)))

    def _describe_configs(self, resource: ConfigResource) -> dict[str, base.ConfigValue]:
        (answer,) = run(self._admin.describe_configs([resource]))
        ((code, message, _, _, entries, *_),) = answer.resources
        raise_for(code, message)
        return {
            name: base.ConfigValue(value, source == DEFAULT_CONFIG, read_only, sensitive)
            for name, value, read_only, source, sensitive, *_ in entries
        }

    def alter_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))
        (answer,) = run(self._admin.alter_configs([resource]))
        for code, message, *_ in answer.resources:
            raise_for(code, message)

    def change_topic_configs(
        self, topic: str, changes: Mapping[str, tuple[Literal["set", "delete", "append", "subtract"], str | None]]
    ) -> None:
        raise TypeError("aiokafka does not speak IncrementalAlterConfigs")

    def describe_cluster(self) -> base.ClusterInfo:
        found = run(self._admin.describe_cluster())
        brokers = {b["node_id"]: f"{b['host']}:{b['port']}" for b in found["brokers"]}
        return base.ClusterInfo(found["cluster_id"], found["controller_id"], brokers)

    def list_offset(self, partition: TP, spec: Literal["earliest", "latest", "max_timestamp"]) -> tuple[int, int]:
        raise TypeError("aiokafka's admin client does not speak ListOffsets")

    def shut(self) -> None:
        run(self._admin.close())


class Aiokafka(base.Client):
    name = "aiokafka"
    lacks = frozenset(
        {"default_counts", "incremental_alter_configs", "list_offsets", "no_retries", "null_key_and_value"}
    )

    unknown_codes = frozenset({base.Code.INVALID_RECORD})

    def _config(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {"bootstrap_servers": self.bootstrap_servers, **more}

    def make_producer(self, options: base.ProducerOptions) -> Producer:
        return Producer(self._config(options.named(PRODUCER_NAMES)))

    def make_consumer(self, options: base.ConsumerOptions) -> Consumer:
        return Consumer(self._config({"group_id": None, **options.named(CONSUMER_NAMES)}))

    def make_admin(self) -> Admin:
        return Admin(self._config({}))
