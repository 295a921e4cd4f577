"""The connections of a producer to the brokers that it writes to, and the produce requests on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from uuid import UUID

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import LAST_PRODUCE_BY_NAME, newest_version, read_error
from ottla.config.producer import ProducerConfig
from ottla.errors import AuthenticationError, KafkaError, NetworkException, OttlaError
from ottla.net.client.connection import Connection, Disconnected, Records
from ottla.producing.batch import pack
from ottla.producing.sender import Request
from ottla.producing.values import PartitionResult
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.records.compression import Compression
from ottla.types import BrokerId, TopicPartition


class Links:
    """The brokers that can be written to now. `connect` makes a broker usable, and calls `changed` when it is."""

    def __init__(
        self,
        config: ProducerConfig,
        cluster: Cluster,
        codec: Compression,
        *,
        changed: Callable[[], None],
        unreachable: Callable[[], None],
        rejected: Callable[[BrokerId, AuthenticationError], None],
    ) -> None:
        self.config = config
        self._cluster = cluster
        self._codec = codec
        self._level = config.compression_level
        self._changed = changed
        self._unreachable = unreachable
        self._rejected = rejected
        self._open: dict[BrokerId, Connection] = {}
        self._connecting: dict[BrokerId, asyncio.Task[None]] = {}
        self._sending: dict[BrokerId, asyncio.Task[None]] = {}

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        return [*self._connecting.values(), *self._sending.values()]

    def __contains__(self, node: object) -> bool:
        connection = self._open.get(node)  # type: ignore[call-overload]
        return connection is not None and connection.writable

    def connect(self, node: BrokerId) -> None:
        """Make a broker usable: connected, ready for more, not throttling."""
        if node not in self._connecting:
            self._connecting[node] = asyncio.create_task(self._connect(node))

    async def _connect(self, node: BrokerId) -> None:
        try:
            known = self._cluster.metadata.nodes.get(node)
            if known is None:
                await asyncio.sleep(self.config.retry_backoff_ms / 1000)
                return
            connection = await self._cluster.connection(known)
            await connection.until_writable()
            self._open[node] = connection
        except AuthenticationError as error:
            self._rejected(node, error)
        except OttlaError:
            # The pool backs off before the next attempt; until then batches stay queued.
            # Another broker may lead the partitions now.
            self._unreachable()
            await asyncio.sleep(self.config.reconnect_backoff_ms / 1000)
        finally:
            del self._connecting[node]
            self._changed()

    def send(self, request: Request, *, last_version: int | None = None) -> asyncio.Future[Struct | None]:
        """Write a request at once; the future is its response, or None if there is none (acks=0)."""
        connection = self._open.get(request.node)
        if connection is None:
            raise Disconnected(f"broker {request.node} is not connected")
        topics = {batch.topic_partition.topic for batch in request.batches}
        at_most = newest_version(self._cluster, topics, LAST_PRODUCE_BY_NAME)
        if last_version is not None:
            at_most = last_version
        message = self._message(request)
        if self.config.required_acks == 0:
            return self._send_in_turn(connection, message, at_most, request.node)
        answer: asyncio.Future[Struct | None] = connection.start(ApiKey.PRODUCE, message, at_most=at_most)  # type: ignore[assignment]
        return answer

    def _send_in_turn(
        self, connection: Connection, message: Message, at_most: int | None, node: BrokerId
    ) -> asyncio.Future[Struct | None]:
        before = self._sending.get(node)
        done: asyncio.Future[Struct | None] = asyncio.get_running_loop().create_future()

        async def send() -> None:
            if before is not None:
                await asyncio.wait([before])
            try:
                await connection.send(ApiKey.PRODUCE, message, at_most=at_most)
            except OttlaError as error:
                done.set_exception(error if isinstance(error, KafkaError) else NetworkException(str(error)))
            else:
                done.set_result(None)

        self._sending[node] = asyncio.create_task(send())
        return done

    def _message(self, request: Request) -> Message:
        topics: dict[str, list[Message]] = {}
        pack(request.batches, self._codec, self._level)
        for batch in request.batches:
            topic, partition = batch.topic_partition.topic, batch.topic_partition.partition
            sealed = batch.sealed(self._codec, self._level)
            topics.setdefault(topic, []).append({"index": partition, "records": Records(sealed)})
        known = self._cluster.metadata.topics
        return {
            "transactional_id": self.config.transactional_id,
            "acks": self.config.required_acks,
            "timeout": self.config.request_timeout_ms,
            "topic_data": [
                {"name": topic, "topic_id": known[topic].topic_id, "partition_data": partitions}
                for topic, partitions in topics.items()
            ],
        }


def read_results(response: Struct, names: Mapping[UUID | str, str]) -> dict[TopicPartition, PartitionResult]:
    """Convert a response, partition by partition."""
    results = {}
    for topic in response.responses:
        name = names.get(topic.topic_id or topic.name, topic.name)
        for answer in topic.partition_responses:
            results[TopicPartition(name, answer.index)] = _read_result(answer)
    return results


def _read_result(answer: Struct) -> PartitionResult:
    if not answer.error_code:
        return PartitionResult(None, answer.base_offset, answer.log_append_time, answer.log_start_offset)
    details = "; ".join(error.batch_index_error_message or "" for error in answer.record_errors or ())
    error = read_error(answer.error_code, details or answer.error_message)
    return PartitionResult(error, -1, -1, answer.log_start_offset)
