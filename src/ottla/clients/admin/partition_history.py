"""Reads the last changes of a partition: who led it, who was in sync, and why. Ottla's brokers keep them."""

from __future__ import annotations

from ottla.clients.admin.topics import describe_configs
from ottla.clients.admin.values import ConfigResource
from ottla.clients.cluster.cluster import Cluster
from ottla.errors import KafkaError
from ottla.metadata.history import CONFIG_PREFIX, Change, from_text
from ottla.types import TopicPartition


async def read_changes(cluster: Cluster, key: TopicPartition) -> list[Change] | None:
    """Return the changes of a partition, the oldest first; None if the broker keeps none, as Apache Kafka."""
    resource, name = ConfigResource.topic(key.topic), f"{CONFIG_PREFIX}{key.partition}"
    found = (await describe_configs(cluster, {resource: [name]}))[resource]
    if isinstance(found, KafkaError):
        raise found
    return from_text(found[name].value or "[]") if name in found else None
