"""Offset lookups of a consumer: the ends of logs, the offset of a timestamp, the ends of epochs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from ottla.clients.cluster import leaders as calls
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    FoundOffset,
    Outcomes,
    by_topic,
    read_error,
)
from ottla.errors import KafkaError
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.types import Millis, TopicPartition


class Lookup:
    """Sends requests to partition leaders, and retries retriable errors."""

    def __init__(self, cluster: Cluster, *, read_committed: bool) -> None:
        self._cluster = cluster
        self._isolation_level = int(read_committed)

    async def offsets(
        self, timestamps: Mapping[TopicPartition, Millis], *, timeout_ms: Millis | None = None
    ) -> dict[TopicPartition, FoundOffset | KafkaError]:
        await self._know(timestamps)
        send = partial(calls.list_offsets, self._cluster, isolation_level=self._isolation_level)
        return await self._cluster.by_leader(timestamps, send, timeout_ms=timeout_ms)

    async def positions(
        self, resets: Mapping[TopicPartition, Millis]
    ) -> dict[TopicPartition, FoundOffset | KafkaError]:
        """Like `offsets`, but the end of the log if no record is at or after the timestamp."""
        found = await self.offsets(resets)
        late = [key for key, one in found.items() if isinstance(one, FoundOffset) and one.offset < 0]
        return {**found, **await self.offsets(dict.fromkeys(late, LATEST_TIMESTAMP))} if late else found

    async def ends_of_epochs(
        self, epochs: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, tuple[int, int] | KafkaError]:
        """For each partition with (last epoch read, leader epoch): the epoch found, and where it ends.

        It is asked for once: the next leader wants to see a newer leader epoch.
        """
        await self._know(epochs)
        return await self._cluster.by_leader(epochs, _offset_for_leader_epoch, timeout_ms=0)

    async def _know(self, partitions: Iterable[TopicPartition]) -> None:
        known = self._cluster.metadata.topics
        missing = {key.topic for key in partitions if key.topic not in known}
        if missing:
            await self._cluster.refresh(missing)


def timestamp_of(where: str, *, wall_ms: Millis, duration_ms: Millis | None) -> Millis:
    """The timestamp for ListOffsets; the two ends of a log have special ones."""
    if where == "earliest":
        return EARLIEST_TIMESTAMP
    if where == "latest" or duration_ms is None:
        return LATEST_TIMESTAMP
    return max(0, wall_ms - duration_ms)


async def _offset_for_leader_epoch(
    connection: Connection, epochs: Mapping[TopicPartition, tuple[int, int]]
) -> Outcomes[tuple[int, int]]:
    topics = [
        {
            "topic": topic,
            "partitions": [
                {"partition": key.partition, "leader_epoch": epochs[key][0], "current_leader_epoch": epochs[key][1]}
                for key in keys
            ],
        }
        for topic, keys in by_topic(epochs).items()
    ]
    response = await connection.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, {"replica_id": -1, "topics": topics})
    return {
        TopicPartition(topic.topic, one.partition): (
            read_error(one.error_code) if one.error_code else (one.leader_epoch, one.end_offset)
        )
        for topic in response.topics
        for one in topic.partitions
    }
