"""The metadata of the cluster: topics, partitions, configs and producer ids. A pure state machine."""

from ottla.metadata.machine import Metadata, Topic
from ottla.metadata.records import MetadataRecord

__all__ = ["Metadata", "MetadataRecord", "Topic"]
