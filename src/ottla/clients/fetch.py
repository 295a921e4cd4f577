"""Reading partitions by assignment: one long poll a leader at a time, the next one under way while records
are used.

    positions ──> Fetch to each leader ──> whole batches ──> records from the position on ──> positions move

`Fetcher.poll` gives whatever came first. Errors that pass (a leader moved, a connection broke) are healed
here; others, such as an offset out of range, reach the caller. Groups and commits come above this, fetch
sessions beside.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from ottla.clients.calls import LAST_FETCH_BY_NAME, by_topic, newest_version, read_error, topic_names
from ottla.clients.cluster import MISSING_GRACE_MS, Cluster
from ottla.clients.metadata import Node
from ottla.clients.retry import Attempts
from ottla.errors import CorruptMessage, KafkaError, LeaderNotAvailable, OffsetOutOfRange, UnknownTopicOrPartition
from ottla.net.client import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.records import CorruptBatch, Record, decode_batch, scan
from ottla.types import BrokerId, Millis, TopicPartition

READ_UNCOMMITTED = 0


@dataclass(frozen=True, slots=True)
class Fetched:
    """What one Fetch brought for one partition."""

    topic_partition: TopicPartition
    records: list[Record]
    next_offset: int
    high_watermark: int
    log_append_time: bool = False


Outcome = Fetched | KafkaError


class Fetcher:
    """Reads the partitions in `positions`, which says the next offset of each. `close` it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: Millis = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
    ) -> None:
        self.positions = dict(positions)
        self._cluster = cluster
        self._limits = {"max_wait": max_wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes}
        self._partition_max_bytes = partition_max_bytes
        self._under_way: dict[BrokerId, asyncio.Task[list[Outcome]]] = {}
        self._attempts: Attempts | None = None

    def add(self, topic_partition: TopicPartition, offset: int) -> None:
        """Read one more partition."""
        self.positions[topic_partition] = offset

    def remove(self, topic_partition: TopicPartition) -> None:
        """Read a partition no more; what is under way for it is dropped."""
        self.positions.pop(topic_partition, None)

    async def poll(self, *, timeout_ms: Millis) -> list[Fetched]:
        """What arrives first, an empty list when nothing does in time."""
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        while True:
            homeless = self._start_fetches()
            if homeless or not self._under_way:
                await self._find_leaders(homeless)
            fetched = await self._next_answers(deadline)
            if fetched or asyncio.get_running_loop().time() >= deadline:
                self._start_fetches()
                return fetched

    async def close(self) -> None:
        tasks, self._under_way = list(self._under_way.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _start_fetches(self) -> set[TopicPartition]:
        """Give every idle leader a Fetch for its partitions; returns those that have no leader."""
        shares: dict[BrokerId, dict[TopicPartition, int]] = {}
        homeless = set()
        for key, offset in self.positions.items():
            leader = self._cluster.leader(key)
            if leader is None:
                homeless.add(key)
            else:
                shares.setdefault(leader.id, {})[key] = offset
        for node_id, share in shares.items():
            if node_id not in self._under_way:
                node = self._cluster.metadata.nodes[node_id]
                self._under_way[node_id] = asyncio.create_task(self._fetch(node, share))
        return homeless

    async def _next_answers(self, deadline: float) -> list[Fetched]:
        if not self._under_way:
            return []
        left = max(0.0, deadline - asyncio.get_running_loop().time())
        done, _ = await asyncio.wait(self._under_way.values(), timeout=left, return_when=asyncio.FIRST_COMPLETED)
        fetched = []
        for node_id in [node_id for node_id, task in self._under_way.items() if task in done]:
            fetched += await self._take(self._under_way.pop(node_id).result())
        return fetched

    async def _take(self, outcomes: list[Outcome]) -> list[Fetched]:
        """Move the positions on; heal what passes, raise what does not."""
        fetched, stale = [], None
        for outcome in outcomes:
            if isinstance(outcome, KafkaError):
                if not outcome.retriable or isinstance(outcome, CorruptMessage):
                    raise outcome
                stale = outcome
            elif outcome.topic_partition in self.positions:
                # To the end of the order: the first partition of a request is served first.
                del self.positions[outcome.topic_partition]
                self.positions[outcome.topic_partition] = outcome.next_offset
                if outcome.records:
                    fetched.append(outcome)
        if stale is None:
            self._attempts = None
        else:
            await self._refresh(stale, {key.topic for key in self.positions})
        return fetched

    async def _find_leaders(self, homeless: set[TopicPartition]) -> None:
        names = ", ".join(sorted(map(str, homeless))) or "all partitions"
        error = LeaderNotAvailable(f"no leader is known for {names}: are the brokers running?")
        await self._refresh(error, {key.topic for key in homeless})

    async def _refresh(self, reason: KafkaError, topics: set[str]) -> None:
        self._attempts = self._attempts or self._cluster.attempts()
        if not await self._attempts.pause():
            raise reason
        try:
            answer = await self._cluster.refresh(topics)
        except KafkaError as error:
            if not error.retriable:
                raise
            return
        for topic in answer.topics.values():
            missing = isinstance(topic.error, UnknownTopicOrPartition)
            if missing and self._attempts.elapsed_ms >= MISSING_GRACE_MS:
                raise UnknownTopicOrPartition(f"topic {topic.name} does not exist any more")

    async def _fetch(self, node: Node, positions: Mapping[TopicPartition, int]) -> list[Outcome]:
        try:
            connection = await self._cluster.connection(node)
            response = await self._request(connection, positions)
        except KafkaError as error:
            return [error]
        if response.error_code:
            return [read_error(response.error_code)]
        names = topic_names(self._cluster, by_topic(positions))
        return [
            _read_partition(
                TopicPartition(names[topic.topic_id or topic.topic], answer.partition_index),
                answer,
                positions,
            )
            for topic in response.responses
            for answer in topic.partitions
        ]

    async def _request(self, connection: Connection, positions: Mapping[TopicPartition, int]) -> Struct:
        topics = by_topic(positions)
        at_most = newest_version(self._cluster, topics, LAST_FETCH_BY_NAME)
        message: Message = {
            **self._limits,
            "isolation_level": READ_UNCOMMITTED,
            "session_id": 0,
            "session_epoch": -1,
            "topics": [self._topic(topic, keys, positions) for topic, keys in topics.items()],
            "forgotten_topics_data": [],
        }
        patience = connection.request_timeout_ms + self._limits["max_wait"]
        return await connection.request(ApiKey.FETCH, message, at_most=at_most, timeout_ms=patience)

    def _topic(
        self, topic: str, keys: list[TopicPartition], positions: Mapping[TopicPartition, int]
    ) -> dict[str, object]:
        partitions = [
            {
                "partition": key.partition,
                "fetch_offset": positions[key],
                "partition_max_bytes": self._partition_max_bytes,
            }
            for key in keys
        ]
        topic_id = self._cluster.metadata.topics[topic].topic_id
        return {"topic": topic, "topic_id": topic_id, "partitions": partitions}


def _read_partition(key: TopicPartition, answer: Struct, positions: Mapping[TopicPartition, int]) -> Outcome:
    position = positions[key]
    if answer.error_code == OffsetOutOfRange.code:
        return OffsetOutOfRange(
            f"partition {key} has no offset {position}: it was deleted already, or is not written yet"
        )
    if answer.error_code:
        return read_error(answer.error_code)
    return read_records(key, answer.records or b"", position, answer.high_watermark)


def read_records(
    key: TopicPartition, data: bytes | bytearray | memoryview, position: int, high_watermark: int
) -> Outcome:
    """The records from `position` on in the bytes of a Fetch, whose last batch may be cut off."""
    found = scan(data, 0, len(data))
    if found.problem is not None and not found.batches:
        return CorruptMessage(f"partition {key} at offset {position}: {found.problem}")
    records: list[Record] = []
    appended = False
    try:
        for start, header in found.batches:
            if not header.is_control and header.next_offset > position:
                records += [record for record in decode_batch(data, start) if record.offset >= position]
                appended = header.is_log_append_time
    except CorruptBatch as error:
        return CorruptMessage(f"partition {key} after offset {position}: {error.reason}")
    next_offset = max(position, found.batches[-1][1].next_offset) if found.batches else position
    return Fetched(key, records, next_offset, high_watermark, appended)
