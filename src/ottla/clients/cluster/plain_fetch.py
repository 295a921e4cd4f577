"""Fetch without a consumer: one request for some partitions of one leader, for tools that read logs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import (
    LAST_FETCH_BY_NAME,
    READ_COMMITTED,
    READ_UNCOMMITTED,
    Outcomes,
    by_topic,
    newest_version,
    read_error,
)
from ottla.consuming.batches import Aborted
from ottla.errors import KafkaError
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.types import Millis, TopicPartition

WAIT_MS: Millis = 500


class Fetched(NamedTuple):
    """What a partition answered."""

    data: bytes
    aborted: list[Aborted] | None
    """The aborted transactions within `data`; None if uncommitted records were asked for, too."""


async def fetch_plainly(
    cluster: Cluster,
    connection: Connection,
    positions: Mapping[TopicPartition, int],
    *,
    most_bytes: int,
    wait_ms: Millis = WAIT_MS,
) -> Outcomes[bytes]:
    """The bytes of the logs from these positions on, uncommitted transactions included.

    The first partition with records has at least one batch, however few bytes are asked for.
    """
    found = await fetch_batches(cluster, connection, positions, most_bytes=most_bytes, wait_ms=wait_ms)
    return {key: one if isinstance(one, KafkaError) else one.data for key, one in found.items()}


async def fetch_batches(
    cluster: Cluster,
    connection: Connection,
    positions: Mapping[TopicPartition, int],
    *,
    most_bytes: int,
    most_of_each: int | None = None,
    wait_ms: Millis = WAIT_MS,
    isolation: int = READ_UNCOMMITTED,
) -> Outcomes[Fetched]:
    """Like `fetch_plainly`, also up to the last stable offset; `most_of_each` limits the bytes of one partition."""
    topics = [
        {
            "topic": topic,
            "topic_id": cluster.metadata.topics[topic].topic_id,
            "partitions": [
                {
                    "partition": key.partition,
                    "fetch_offset": positions[key],
                    "partition_max_bytes": most_of_each or most_bytes,
                }
                for key in keys
            ],
        }
        for topic, keys in by_topic(positions).items()
    ]
    message = {
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": most_bytes,
        "isolation_level": isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": topics,
        "forgotten_topics_data": [],
    }
    names = {cluster.metadata.topics[key.topic].topic_id: key.topic for key in positions}
    at_most = newest_version(cluster, names.values(), LAST_FETCH_BY_NAME)
    response = await connection.request(ApiKey.FETCH, message, at_most=at_most)
    if response.error_code:
        raise read_error(response.error_code)
    return {
        TopicPartition(answer.topic or names[answer.topic_id], one.partition_index): (
            read_error(one.error_code) if one.error_code else _fetched(one, isolation)
        )
        for answer in response.responses
        for one in answer.partitions
    }


def _fetched(answer: Struct, isolation: int) -> Fetched:
    aborted = None
    if isolation == READ_COMMITTED:
        aborted = [Aborted(one.producer_id, one.first_offset) for one in answer.aborted_transactions or ()]
    return Fetched(bytes(answer.records or b""), aborted)
