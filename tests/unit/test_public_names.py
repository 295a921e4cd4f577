"""Public names do not appear or disappear by accident."""

from __future__ import annotations

import subprocess
import sys

import ottla
import ottla.testing
from ottla import aio, serializers


def test_public_names_are_these() -> None:
    assert ottla.__all__ == [
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
    assert aio.__all__ == ["Admin", "Consumer", "DeadLetters", "Producer"]
    assert ottla.testing.__all__ == [
        "BrokerTestCase",
        "Fault",
        "Faults",
        "GroupState",
        "ManualClock",
        "SharedBroker",
        "Snapshot",
        "contents",
    ]
    assert serializers.__all__ == [
        "AvroDeserializer",
        "AvroSerializer",
        "BytesDeserializer",
        "BytesSerializer",
        "Deserializer",
        "JsonDeserializer",
        "JsonSerializer",
        "RegistryAvroDeserializer",
        "RegistryAvroSerializer",
        "RegistryClient",
        "RegistryJsonDeserializer",
        "RegistryJsonSerializer",
        "RegistryProtobufDeserializer",
        "RegistryProtobufSerializer",
        "SerializationError",
        "Serializer",
        "StringDeserializer",
        "StringSerializer",
    ]
    for name in ottla.__all__:
        assert getattr(ottla, name) is not None
    assert dir(ottla) == sorted(ottla.__all__)


def test_importing_ottla_loads_nothing_else_of_it() -> None:
    code = "import ottla, sys; print([m for m in sys.modules if m.startswith('ottla')])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert out.strip() == "['ottla']"
