"""The protocol client of the command line: one object with everything that its commands ask of a cluster.

    async with WireClient([("127.0.0.1", 9092)]) as client:
        await client.create_topics([NewTopic("orders", num_partitions=3)])

It is a face over the modules beside it, which the full clients will build on. It works against any Kafka
from 2.4 on, whose admin requests it needs. Nothing else belongs here than the choice of the leader or
controller.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from ottla.clients import calls, topics
from ottla.clients.calls import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Appended, FoundOffset, with_partition
from ottla.clients.cluster import Cluster
from ottla.clients.metadata import Metadata, TopicInfo
from ottla.clients.topics import ConfigValue, NewTopic
from ottla.config.client import Address
from ottla.errors import KafkaError
from ottla.types import Millis, TopicPartition

T = TypeVar("T")

__all__ = ["Appended", "ConfigValue", "FoundOffset", "NewTopic", "TopicInfo", "WireClient", "first_error"]


class WireClient:
    """A cluster, and what the command line does with it."""

    def __init__(
        self,
        bootstrap_servers: Sequence[Address],
        *,
        client_id: str = "ottla",
        request_timeout_ms: Millis = 30_000,
        api_timeout_ms: Millis = 60_000,
    ) -> None:
        self.cluster = Cluster(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_ms=request_timeout_ms,
            api_timeout_ms=api_timeout_ms,
        )

    async def __aenter__(self) -> WireClient:
        await self.cluster.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.cluster.close()

    # Topics.

    async def metadata(self) -> Metadata:
        """Everything: all topics, all nodes."""
        return await self.cluster.refresh(None)

    async def topic(self, name: str, *, auto_create: bool = False) -> TopicInfo:
        return await self.cluster.topic(name, auto_create=auto_create)

    async def create_topics(
        self, new: Sequence[NewTopic], *, validate_only: bool = False
    ) -> dict[str, KafkaError | None]:
        created = await topics.create_topics(self.cluster, new, validate_only=validate_only)
        return {name: one if isinstance(one, KafkaError) else None for name, one in created.items()}

    # Records.

    async def produce(
        self,
        batches: Mapping[TopicPartition, bytes],
        *,
        acks: int = calls.ALL_REPLICAS,
        timeout_ms: Millis = 30_000,
    ) -> dict[TopicPartition, Appended]:
        """Write one encoded batch to each partition; the metadata of the topics must be there (`topic`)."""
        send = partial(calls.produce, self.cluster, acks=acks, timeout_ms=timeout_ms)
        return first_error(await self.cluster.by_leader(batches, send))

    async def list_offsets(self, timestamps: Mapping[TopicPartition, Millis]) -> dict[TopicPartition, FoundOffset]:
        found = await self.cluster.by_leader(timestamps, partial(calls.list_offsets, self.cluster))
        return first_error(found)

    async def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets(partitions, EARLIEST_TIMESTAMP)

    async def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return await self._offsets(partitions, LATEST_TIMESTAMP)

    async def _offsets(self, partitions: Iterable[TopicPartition], timestamp: Millis) -> dict[TopicPartition, int]:
        found = await self.list_offsets(dict.fromkeys(partitions, timestamp))
        return {key: value.offset for key, value in found.items()}

    async def delete_records(self, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Delete what lies before each offset; returns the new log start offsets."""
        return first_error(await self.cluster.by_leader(before, partial(calls.delete_records, self.cluster)))


def first_error(outcomes: Mapping[TopicPartition, T | KafkaError]) -> dict[TopicPartition, T]:
    """The results, or the first error among them, raised."""
    results: dict[TopicPartition, T] = {}
    for key, outcome in outcomes.items():
        if isinstance(outcome, KafkaError):
            raise with_partition(outcome, key)
        results[key] = outcome
    return results
