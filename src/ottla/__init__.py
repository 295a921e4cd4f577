"""A Kafka-compatible broker, Kafka clients and Spark pipelines.

>>> import ottla
>>> with ottla.Broker() as broker, ottla.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
...     producer.send("orders", b"an order").get(10).offset
0

The same clients for asyncio are in ``ottla.aio``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla.assignors import Assignor
    from ottla.broker.broker import Broker
    from ottla.clients.admin.blocking import Admin
    from ottla.clients.admin.quotas import QuotaEntity
    from ottla.clients.admin.values import ConfigResource, NewTopic
    from ottla.clients.blocking import IllegalUse
    from ottla.clients.columns import ColumnsFuture, SentColumns
    from ottla.clients.consumer.blocking import Consumer
    from ottla.clients.consumer.dead_letters import DeadLetter, DeadLetters
    from ottla.clients.consumer.records import DeserializationError
    from ottla.clients.producer.blocking import Producer
    from ottla.clients.producer.send import ProducerInterceptor
    from ottla.clients.serializers import SerializationError
    from ottla.cluster.cluster import Cluster
    from ottla.cluster.member import ClusterBroker
    from ottla.consuming.errors import CommitFailed, NoOffsetForPartition, Wakeup
    from ottla.consuming.values import (
        ConsumerInterceptor,
        ConsumerRecord,
        ConsumerRecords,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RebalanceListener,
    )
    from ottla.errors import KafkaError, OttlaError
    from ottla.producing.errors import DeliveryTimeout, MetadataTimeout
    from ottla.producing.partitioning import Partitioner
    from ottla.producing.values import RecordMetadata
    from ottla.security.acls import AclBinding, AclFilter
    from ottla.types import TopicPartition

__version__ = "0.1.0"
__all__ = [
    "AclBinding",
    "AclFilter",
    "Admin",
    "Assignor",
    "Broker",
    "Cluster",
    "ClusterBroker",
    "ColumnsFuture",
    "CommitFailed",
    "ConfigResource",
    "Consumer",
    "ConsumerInterceptor",
    "ConsumerRecord",
    "ConsumerRecords",
    "DeadLetter",
    "DeadLetters",
    "DeliveryTimeout",
    "DeserializationError",
    "IllegalUse",
    "KafkaError",
    "MetadataTimeout",
    "NewTopic",
    "NoOffsetForPartition",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "OttlaError",
    "Partitioner",
    "Producer",
    "ProducerInterceptor",
    "QuotaEntity",
    "RebalanceListener",
    "RecordMetadata",
    "SentColumns",
    "SerializationError",
    "TopicPartition",
    "Wakeup",
    "__version__",
]

_HOMES = {
    "AclBinding": "ottla.security.acls",
    "AclFilter": "ottla.security.acls",
    "Admin": "ottla.clients.admin.blocking",
    "Assignor": "ottla.assignors",
    "Broker": "ottla.broker.broker",
    "Cluster": "ottla.cluster.cluster",
    "ClusterBroker": "ottla.cluster.member",
    "ColumnsFuture": "ottla.clients.columns",
    "CommitFailed": "ottla.consuming.errors",
    "ConfigResource": "ottla.clients.admin.values",
    "Consumer": "ottla.clients.consumer.blocking",
    "ConsumerInterceptor": "ottla.consuming.values",
    "ConsumerRecord": "ottla.consuming.values",
    "ConsumerRecords": "ottla.consuming.values",
    "DeadLetter": "ottla.clients.consumer.dead_letters",
    "DeadLetters": "ottla.clients.consumer.dead_letters",
    "DeliveryTimeout": "ottla.producing.errors",
    "DeserializationError": "ottla.clients.consumer.records",
    "IllegalUse": "ottla.clients.blocking",
    "KafkaError": "ottla.errors",
    "MetadataTimeout": "ottla.producing.errors",
    "NewTopic": "ottla.clients.admin.values",
    "NoOffsetForPartition": "ottla.consuming.errors",
    "OffsetAndMetadata": "ottla.consuming.values",
    "OffsetAndTimestamp": "ottla.consuming.values",
    "OttlaError": "ottla.errors",
    "Partitioner": "ottla.producing.partitioning",
    "Producer": "ottla.clients.producer.blocking",
    "ProducerInterceptor": "ottla.clients.producer.send",
    "QuotaEntity": "ottla.clients.admin.quotas",
    "RebalanceListener": "ottla.consuming.values",
    "RecordMetadata": "ottla.producing.values",
    "SentColumns": "ottla.clients.columns",
    "SerializationError": "ottla.clients.serializers",
    "TopicPartition": "ottla.types",
    "Wakeup": "ottla.consuming.errors",
}


def __getattr__(name: str) -> Any:
    # Imported on first use, so that `ottla --help` and the pytest plugin start fast.
    if name not in _HOMES:
        raise AttributeError(f"module 'ottla' has no attribute {name!r}")
    import importlib

    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
