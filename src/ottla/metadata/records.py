"""The records of the metadata journal, and their JSON form.

A new field needs a default, so that old journals still load.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias
from uuid import UUID


@dataclass(frozen=True, slots=True)
class ClusterCreated:
    """The first record of a journal."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class TopicCreated:
    name: str
    topic_id: UUID
    partitions: int
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    name: str
    partitions: int
    """The new number of partitions."""


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    name: str


@dataclass(frozen=True, slots=True)
class TopicConfigsSet:
    """All overrides of a topic."""

    name: str
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class BrokerConfigsSet:
    """All dynamic configs of the broker or of the whole cluster."""

    cluster_wide: bool
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class GroupConfigsSet:
    """All overrides of a group. An empty mapping removes them."""

    group_id: str
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class ProducerIdsTaken:
    """Producer ids below this one may be in use."""

    next_producer_id: int


@dataclass(frozen=True, slots=True)
class LeaderEpochsRaised:
    """The broker started after an unclean stop. All its partitions get a new leader epoch."""


@dataclass(frozen=True, slots=True)
class LeaderEpochSet:
    """The leader epoch of a topic in a rewritten journal."""

    name: str
    leader_epoch: int


MetadataRecord: TypeAlias = (
    ClusterCreated
    | TopicCreated
    | PartitionsAdded
    | TopicDeleted
    | TopicConfigsSet
    | BrokerConfigsSet
    | GroupConfigsSet
    | ProducerIdsTaken
    | LeaderEpochsRaised
    | LeaderEpochSet
)
_TYPES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        ClusterCreated, TopicCreated, PartitionsAdded, TopicDeleted, TopicConfigsSet, BrokerConfigsSet,
        GroupConfigsSet, ProducerIdsTaken, LeaderEpochsRaised, LeaderEpochSet,
    )
}  # fmt: skip


def to_json(record: MetadataRecord) -> dict[str, Any]:
    """Return a record as a JSON value.

    >>> to_json(TopicDeleted("orders"))
    {'type': 'TopicDeleted', 'name': 'orders'}
    """
    fields = {name: str(value) if isinstance(value, UUID) else value for name, value in asdict(record).items()}
    return {"type": type(record).__name__, **fields}


def from_json(value: dict[str, Any]) -> MetadataRecord:
    """Return the record of a JSON value."""
    fields = {name: item for name, item in value.items() if name != "type"}
    if "topic_id" in fields:
        fields["topic_id"] = UUID(fields["topic_id"])
    record: MetadataRecord = _TYPES[value["type"]](**fields)
    return record
