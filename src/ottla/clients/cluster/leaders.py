"""The requests to partition leaders: ListOffsets and DeleteRecords, one function each.

A function builds one request for one connection and reads its response: a result or an error per partition.
`Cluster.by_leader` calls it and decides about retries. Produce and Fetch belong to the producer and the consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from ottla.clients.cluster.cluster import Cluster
from ottla.errors import KafkaError, error_class
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.types import Millis, TopicPartition

T = TypeVar("T")
Outcomes = dict[TopicPartition, T | KafkaError]

EARLIEST_TIMESTAMP = -2
LATEST_TIMESTAMP = -1
MAX_TIMESTAMP = -3
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
ISOLATION_LEVELS = {"read_uncommitted": READ_UNCOMMITTED, "read_committed": READ_COMMITTED}
LAST_PRODUCE_BY_NAME = 12
LAST_FETCH_BY_NAME = 12


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """The result of ListOffsets; offset -1 if no record is at or after the timestamp."""

    offset: int
    timestamp: Millis
    leader_epoch: int


def read_error(code: int, message: str | None = None) -> KafkaError:
    return error_class(code)(message or "")


def with_partition(error: KafkaError, key: TopicPartition) -> KafkaError:
    """The same error with the partition in its message."""
    message = str(error)
    if str(key) in message or f"topic {key.topic} " in message:
        return error
    return type(error)(f"partition {key}: {message}")


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for key in partitions:
        topics.setdefault(key.topic, []).append(key)
    return topics


def newest_version(cluster: Cluster, topics: Iterable[str], last_by_name: int) -> int | None:
    """Newer versions identify topics only by id, which clusters before Kafka 2.8 do not have."""
    infos = (cluster.metadata.topics.get(topic) for topic in topics)
    return None if all(info is not None and info.topic_id is not None for info in infos) else last_by_name


async def list_offsets(
    cluster: Cluster,
    connection: Connection,
    timestamps: Mapping[TopicPartition, Millis],
    *,
    isolation_level: int = READ_UNCOMMITTED,
) -> Outcomes[FoundOffset]:
    """The first offset at or after a timestamp, or one of the three special ones above."""
    topics = [
        {
            "name": topic,
            "partitions": [
                {"partition_index": key.partition, "timestamp": timestamps[key], "current_leader_epoch": -1}
                for key in keys
            ],
        }
        for topic, keys in by_topic(timestamps).items()
    ]
    message = {
        "replica_id": -1,
        "isolation_level": isolation_level,
        "topics": topics,
        "timeout": connection.request_timeout_ms,
    }
    response = await connection.request(ApiKey.LIST_OFFSETS, message)
    return {
        TopicPartition(topic.name, answer.partition_index): _read_found(answer)
        for topic in response.topics
        for answer in topic.partitions
    }


def _read_found(answer: Struct) -> FoundOffset | KafkaError:
    if answer.error_code:
        return read_error(answer.error_code)
    return FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)


async def delete_records(
    cluster: Cluster, connection: Connection, before: Mapping[TopicPartition, int]
) -> Outcomes[int]:
    """Delete records before an offset (-1: up to the high watermark); returns the new low watermarks."""
    topics = [
        {
            "name": topic,
            "partitions": [{"partition_index": key.partition, "offset": before[key]} for key in keys],
        }
        for topic, keys in by_topic(before).items()
    ]
    message = {"topics": topics, "timeout": connection.request_timeout_ms}
    response = await connection.request(ApiKey.DELETE_RECORDS, message)
    return {
        TopicPartition(topic.name, answer.partition_index): (
            read_error(answer.error_code) if answer.error_code else answer.low_watermark
        )
        for topic in response.topics
        for answer in topic.partitions
    }
