"""Brokers under the control of a test: leaders move, requests fail, connections break.

They use real frames on real sockets, keep batches in memory, and support just enough requests for the clients' routing.
"""

from __future__ import annotations

import asyncio
import struct
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

from ottla.errors import (
    FencedLeaderEpoch,
    NotController,
    NotLeaderOrFollower,
    OffsetOutOfRange,
    UnknownTopicOrPartition,
)
from ottla.protocol import codec
from ottla.protocol.apis import ApiKey, api
from ottla.records import Record, decode_batch, encode_batch, read_header, stamp
from ottla.types import TopicPartition

HANG_UP = "hang up"
SERVED = (
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.API_VERSIONS,
    ApiKey.CREATE_TOPICS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
)


class FakeCluster:
    """Several brokers with the same topics. `leaders` and `controller` may be changed at any time."""

    def __init__(self, brokers: int = 2, *, newest: dict[int, int] | None = None) -> None:
        self.leaders: dict[TopicPartition, int] = {}
        self.epochs: dict[TopicPartition, int] = defaultdict(int)
        self.controller = 0
        self.requests: list[tuple[int, int]] = []
        self.batches: dict[TopicPartition, list[bytes]] = defaultdict(list)
        self.log_start: dict[TopicPartition, int] = defaultdict(int)
        self.created: list[str] = []
        self.max_batch_bytes = 1 << 30
        self.failures: dict[tuple[int, TopicPartition | None], list[int | str]] = defaultdict(list)
        self.auto_create_after: int | None = None
        self.arrived = asyncio.Event()
        self._newest = newest or {}
        self._brokers = brokers
        self._ports: list[int] = []
        self._servers: list[asyncio.Server] = []

    # Control.

    def add_topic(self, name: str, leaders: list[int]) -> list[TopicPartition]:
        keys = [TopicPartition(name, number) for number in range(len(leaders))]
        self.leaders.update(zip(keys, leaders, strict=True))
        return keys

    def fail(self, api_key: int, key: TopicPartition | None, *how: int | str) -> None:
        """Let the next requests of this kind get these error codes, or a closed connection."""
        self.failures[api_key, key].extend(how)

    def write(self, key: TopicPartition, *values: bytes) -> None:
        records = [Record(number, 0, None, value) for number, value in enumerate(values)]
        self._append(key, encode_batch(records))

    def values(self, key: TopicPartition) -> list[bytes | None]:

        return [record.value for batch in self.batches[key] for record in decode_batch(batch)]

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [("127.0.0.1", self._ports[0])]

    def count(self, api_key: int, broker: int | None = None) -> int:
        return sum(1 for key, asked in self.requests if key == api_key and broker in (None, asked))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[FakeCluster]:
        for broker in range(self._brokers):
            server = await asyncio.start_server(self._connection(broker), "127.0.0.1", 0)
            self._servers.append(server)
            self._ports.append(server.sockets[0].getsockname()[1])
        try:
            yield self
        finally:
            for server in self._servers:
                server.close()
                await server.wait_closed()

    # Responses.

    def _connection(self, broker: int) -> Callable[..., Any]:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                while True:
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    await self._handle(broker, await reader.readexactly(size), writer)
            except (asyncio.IncompleteReadError, ConnectionError):
                pass
            finally:
                writer.close()

        return handle

    async def _handle(self, broker: int, frame: bytes, writer: asyncio.StreamWriter) -> None:
        header = codec.decode_request_header(frame)
        body = codec.decode_request_body(header.api_key, header.api_version, frame, header.body)
        self.requests.append((header.api_key, broker))
        handlers = {
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.METADATA: self._metadata,
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.CREATE_TOPICS: self._create_topics,
            ApiKey.OFFSET_FOR_LEADER_EPOCH: self._offset_for_leader_epoch,
        }
        if self._next_failure(header.api_key, None) == HANG_UP:
            raise ConnectionError
        message = await handlers[ApiKey(header.api_key)](broker, body)
        self.arrived.set()
        if message is not None:
            writer.write(codec.encode_response(header.api_key, header.api_version, header.correlation_id, message))

    def _next_failure(self, api_key: int, key: TopicPartition | None) -> int | str | None:
        waiting = self.failures.get((api_key, key))
        return waiting.pop(0) if waiting else None

    async def _api_versions(self, broker: int, body: Any) -> dict[str, Any]:
        keys = [
            {"api_key": key, "min_version": api(key).first, "max_version": self._newest.get(key, api(key).last)}
            for key in SERVED
        ]
        return {"error_code": 0, "api_keys": keys, "throttle_time": 0}

    async def _metadata(self, broker: int, body: Any) -> dict[str, Any]:
        known = sorted({key.topic for key in self.leaders})
        names = known if body.topics is None else [topic.name for topic in body.topics]
        if body.allow_auto_topic_creation and self.auto_create_after is not None:
            self.auto_create_after -= 1
            if self.auto_create_after < 0:
                self.add_topic(names[0], [0])
        nodes = [
            {"node_id": number, "host": "127.0.0.1", "port": port, "rack": None}
            for number, port in enumerate(self._ports)
        ]
        topics = [self._topic(name) for name in names]
        return {"brokers": nodes, "cluster_id": "fake", "controller_id": self.controller, "topics": topics}

    def _topic(self, name: str) -> dict[str, Any]:
        keys = [key for key in self.leaders if key.topic == name]
        partitions = [
            {
                "error_code": 5 if self.leaders[key] < 0 else 0,
                "partition_index": key.partition,
                "leader_id": self.leaders[key],
                "leader_epoch": self.epochs[key],
                "replica_nodes": [0],
                "isr_nodes": [0],
                "offline_replicas": [],
            }
            for key in keys
        ]
        return {
            "error_code": 0 if keys else UnknownTopicOrPartition.code,
            "name": name,
            "topic_id": self.topic_id(name) if keys else None,
            "is_internal": False,
            "partitions": partitions,
        }

    @staticmethod
    def topic_id(name: str) -> UUID:
        return UUID(bytes=name.encode().ljust(16, b"\1")[:16])

    def _name(self, topic: Any, plain: str) -> str:
        if topic.topic_id is None:
            return str(plain)
        names = {self.topic_id(key.topic): key.topic for key in self.leaders}
        return names.get(topic.topic_id, "deleted")

    def _error(self, api_key: int, key: TopicPartition, broker: int) -> int:
        failure = self._next_failure(api_key, key)
        if failure == HANG_UP:
            raise ConnectionError
        if isinstance(failure, int):
            return failure
        if key not in self.leaders:
            return UnknownTopicOrPartition.code
        return 0 if self.leaders[key] == broker else NotLeaderOrFollower.code

    async def _produce(self, broker: int, body: Any) -> dict[str, Any] | None:
        responses = []
        for topic in body.topic_data:
            name = self._name(topic, topic.name)
            answers = [self._produce_one(broker, name, partition) for partition in topic.partition_data]
            responses.append({"name": name, "topic_id": topic.topic_id, "partition_responses": answers})
        return None if body.acks == 0 else {"responses": responses, "throttle_time": 0}

    def _produce_one(self, broker: int, name: str, partition: Any) -> dict[str, Any]:
        key = TopicPartition(name, partition.index)
        error = self._error(ApiKey.PRODUCE, key, broker)
        if not error and len(partition.records) > self.max_batch_bytes:
            error = 10
        offset = -1 if error else self._append(key, bytes(partition.records))
        return {"index": key.partition, "error_code": error, "base_offset": offset, "record_errors": []}

    def _append(self, key: TopicPartition, batch: bytes) -> int:
        offset = self._end(key)
        data = bytearray(batch)
        stamp(data, 0, base_offset=offset, leader_epoch=0)
        self.batches[key].append(bytes(data))
        return offset

    def _end(self, key: TopicPartition) -> int:
        return read_header(self.batches[key][-1]).next_offset if self.batches[key] else 0

    async def _fetch(self, broker: int, body: Any) -> dict[str, Any]:
        responses, size = [], 0
        for topic in body.topics:
            name = self._name(topic, topic.topic)
            answers = [self._fetch_one(broker, name, partition) for partition in topic.partitions]
            size += sum(len(one["records"]) or one["error_code"] for one in answers)
            responses.append({"topic": name, "topic_id": topic.topic_id, "partitions": answers})
        if not size:
            await asyncio.sleep(min(body.max_wait, 20) / 1000)
        return {"throttle_time": 0, "error_code": 0, "session_id": 0, "responses": responses}

    def _fetch_one(self, broker: int, name: str, partition: Any) -> dict[str, Any]:
        key, offset = TopicPartition(name, partition.partition), partition.fetch_offset
        error = self._error(ApiKey.FETCH, key, broker)
        if not error and not self.log_start[key] <= offset <= self._end(key):
            error = OffsetOutOfRange.code
        batches = [batch for batch in self.batches[key] if read_header(batch).next_offset > offset]
        records = b"" if error else b"".join(batches)
        # As in Kafka, cut anywhere, but with a complete first batch.
        limit = max(partition.partition_max_bytes, len(batches[0]) if batches else 0)
        return {
            "partition_index": key.partition,
            "error_code": error,
            "high_watermark": self._end(key),
            "last_stable_offset": self._end(key),
            "log_start_offset": self.log_start[key],
            "aborted_transactions": None,
            "records": records[:limit],
        }

    async def _list_offsets(self, broker: int, body: Any) -> dict[str, Any]:
        topics = []
        for topic in body.topics:
            answers = []
            for partition in topic.partitions:
                key = TopicPartition(topic.name, partition.partition_index)
                offset = self.log_start[key] if partition.timestamp == -2 else self._end(key)
                error = self._error(ApiKey.LIST_OFFSETS, key, broker)
                answers.append(
                    {"partition_index": key.partition, "error_code": error, "timestamp": -1, "offset": offset}
                )
            topics.append({"name": topic.name, "partitions": answers})
        return {"throttle_time": 0, "topics": topics}

    async def _offset_for_leader_epoch(self, broker: int, body: Any) -> dict[str, Any]:
        topics = []
        for topic in body.topics:
            answers = []
            for partition in topic.partitions:
                key = TopicPartition(topic.topic, partition.partition)
                error = self._error(ApiKey.OFFSET_FOR_LEADER_EPOCH, key, broker)
                if not error and partition.current_leader_epoch != self.epochs[key]:
                    error = FencedLeaderEpoch.code
                found = {"leader_epoch": partition.leader_epoch, "end_offset": self._end(key)}
                answers.append({"partition": key.partition, "error_code": error, **found})
            topics.append({"topic": topic.topic, "partitions": answers})
        return {"throttle_time": 0, "topics": topics}

    async def _create_topics(self, broker: int, body: Any) -> dict[str, Any]:
        error = 0 if broker == self.controller else NotController.code
        if not error:
            self.created += [topic.name for topic in body.topics]
        answers = [
            {"name": topic.name, "topic_id": None, "error_code": error, "error_message": None, "configs": None}
            for topic in body.topics
        ]
        return {"throttle_time": 0, "topics": answers}
