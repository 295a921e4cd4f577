"""What the cluster knows of itself: topics, their partitions and configs, producer ids. A pure machine."""

from ottla.metadata.machine import Metadata, Topic
from ottla.metadata.records import MetadataRecord

__all__ = ["Metadata", "MetadataRecord", "Topic"]
