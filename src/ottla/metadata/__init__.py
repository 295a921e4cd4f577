"""The metadata of the cluster: brokers, topics, partitions, configs and producer ids. A pure state machine."""

from ottla.metadata.machine import Metadata
from ottla.metadata.records import MetadataRecord
from ottla.metadata.values import BrokerState, PartitionState, Topic

__all__ = ["BrokerState", "Metadata", "MetadataRecord", "PartitionState", "Topic"]
