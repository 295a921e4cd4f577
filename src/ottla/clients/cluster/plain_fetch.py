"""Fetch without a consumer: one request for some partitions of one leader, for tools that read logs."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.leaders import (
    LAST_FETCH_BY_NAME,
    READ_UNCOMMITTED,
    Outcomes,
    by_topic,
    newest_version,
    read_error,
)
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.types import Millis, TopicPartition

WAIT_MS: Millis = 500


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
    message = {
        "max_wait": wait_ms,
        "min_bytes": 1,
        "max_bytes": most_bytes,
        "isolation_level": READ_UNCOMMITTED,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [_wanted(cluster, topic, keys, positions, most_bytes) for topic, keys in by_topic(positions).items()],
        "forgotten_topics_data": [],
    }
    names = {cluster.metadata.topics[key.topic].topic_id: key.topic for key in positions}
    at_most = newest_version(cluster, names.values(), LAST_FETCH_BY_NAME)
    response = await connection.request(ApiKey.FETCH, message, at_most=at_most)
    if response.error_code:
        raise read_error(response.error_code)
    return {
        TopicPartition(answer.topic or names[answer.topic_id], one.partition_index): (
            read_error(one.error_code) if one.error_code else bytes(one.records or b"")
        )
        for answer in response.responses
        for one in answer.partitions
    }


def _wanted(
    cluster: Cluster, topic: str, keys: list[TopicPartition], positions: Mapping[TopicPartition, int], most_bytes: int
) -> dict[str, object]:
    partitions = [
        {"partition": key.partition, "fetch_offset": positions[key], "partition_max_bytes": most_bytes} for key in keys
    ]
    return {"topic": topic, "topic_id": cluster.metadata.topics[topic].topic_id, "partitions": partitions}
