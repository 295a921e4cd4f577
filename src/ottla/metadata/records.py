"""The records of the metadata journal, and their JSON form.

A new field needs a default, so that old journals still load.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeAlias
from uuid import UUID

from ottla.errors import PolicyViolation
from ottla.metadata.values import Endpoint, PartitionState
from ottla.security.acls import AclBinding
from ottla.security.quotas import Entity
from ottla.types import Millis

#: In bytes of JSON. Brokers that are alone have the same limit, so that they can join a cluster.
LARGEST_RECORD = 900_000


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
    replicas: tuple[tuple[int, ...], ...] = ()
    """The brokers of each partition. Journals of old brokers do not have them."""


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    name: str
    partitions: int
    """The new number of partitions."""
    replicas: tuple[tuple[int, ...], ...] = ()
    """The brokers of each new partition."""


@dataclass(frozen=True, slots=True)
class PartitionsChanged:
    """New states of partitions."""

    name: str
    states: dict[int, PartitionState]
    reason: str = ""
    at: Millis = 0


@dataclass(frozen=True, slots=True)
class HistoryKept:
    """The last changes of partitions in a snapshot."""

    name: str
    changes: dict[int, list[tuple[Any, ...]]]


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
    """All dynamic configs of one broker or of the whole cluster."""

    cluster_wide: bool
    configs: dict[str, str]
    broker_id: int = -1
    """-1 in journals of old brokers: the only broker."""


@dataclass(frozen=True, slots=True)
class GroupConfigsSet:
    """All overrides of a group. An empty mapping removes them."""

    group_id: str
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class ClientQuotasSet:
    """All quotas of an entity. An empty mapping removes them."""

    entity: Entity
    values: dict[str, float]


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


@dataclass(frozen=True, slots=True)
class BrokerRegistered:
    """A broker has started. It replaces its previous life."""

    broker_id: int
    epoch: int
    listeners: tuple[Endpoint, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerChanged:
    """A broker is fenced, unfenced or shutting down."""

    broker_id: int
    epoch: int
    is_fenced: bool = False
    is_shutting_down: bool = False


@dataclass(frozen=True, slots=True)
class BrokerUnregistered:
    broker_id: int


@dataclass(frozen=True, slots=True)
class UserCredentialSet:
    """What is stored of a user's password for a SCRAM mechanism. Salt and keys are hexadecimal."""

    name: str
    mechanism: int
    salt: str = field(repr=False)
    stored_key: str = field(repr=False)
    server_key: str = field(repr=False)
    iterations: int


@dataclass(frozen=True, slots=True)
class UserCredentialRemoved:
    name: str
    mechanism: int


@dataclass(frozen=True, slots=True)
class AclAdded:
    binding: AclBinding


@dataclass(frozen=True, slots=True)
class AclRemoved:
    binding: AclBinding


MetadataRecord: TypeAlias = (
    ClusterCreated
    | TopicCreated
    | PartitionsAdded
    | PartitionsChanged
    | HistoryKept
    | TopicDeleted
    | TopicConfigsSet
    | BrokerConfigsSet
    | GroupConfigsSet
    | ClientQuotasSet
    | ProducerIdsTaken
    | LeaderEpochsRaised
    | LeaderEpochSet
    | BrokerRegistered
    | BrokerChanged
    | BrokerUnregistered
    | UserCredentialSet
    | UserCredentialRemoved
    | AclAdded
    | AclRemoved
)
_TYPES: dict[str, type[Any]] = {
    cls.__name__: cls
    for cls in (
        ClusterCreated, TopicCreated, PartitionsAdded, PartitionsChanged, HistoryKept, TopicDeleted, TopicConfigsSet,
        BrokerConfigsSet, GroupConfigsSet, ClientQuotasSet, ProducerIdsTaken, LeaderEpochsRaised, LeaderEpochSet,
        BrokerRegistered, BrokerChanged, BrokerUnregistered, UserCredentialSet, UserCredentialRemoved, AclAdded,
        AclRemoved,
    )
}  # fmt: skip


#: As `dataclasses.astuple`, which copies deeply and takes ten times as long.
_fields_of = attrgetter(*(each.name for each in fields(PartitionState)))


def to_json(record: MetadataRecord) -> dict[str, Any]:
    """Return a record as a JSON value.

    >>> to_json(TopicDeleted("orders"))
    {'type': 'TopicDeleted', 'name': 'orders'}
    """
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    if isinstance(record, TopicCreated):
        values["topic_id"] = str(record.topic_id)
    elif isinstance(record, PartitionsChanged):
        values["states"] = {str(index): _to_row(state) for index, state in record.states.items()}
    elif isinstance(record, HistoryKept):
        values["changes"] = {str(index): rows for index, rows in record.changes.items()}
    return {"type": type(record).__name__, **values}


def fitting(record: MetadataRecord) -> MetadataRecord:
    """Return a record with texts of a client; raise PolicyViolation if a node of ZooKeeper cannot hold it."""
    size = len(json.dumps(to_json(record)))
    if size > LARGEST_RECORD:
        raise PolicyViolation(
            f"This change has {size} bytes, and at most {LARGEST_RECORD} fit into the metadata. "
            "Use shorter names and values."
        )
    return record


def from_json(value: dict[str, Any]) -> MetadataRecord:
    """Return the record of a JSON value."""
    values = {name: item for name, item in value.items() if name != "type"}
    if "topic_id" in values:
        values["topic_id"] = UUID(values["topic_id"])
    if "replicas" in values:
        values["replicas"] = tuple(map(tuple, values["replicas"]))
    if "states" in values:
        values["states"] = {int(index): _from_row(row) for index, row in values["states"].items()}
    if "changes" in values:
        values["changes"] = {int(index): [_frozen(row) for row in rows] for index, rows in values["changes"].items()}
    if "entity" in values:
        values["entity"] = tuple(map(tuple, values["entity"]))
    if "listeners" in values:
        values["listeners"] = tuple(Endpoint(*each) for each in values["listeners"])
    if "binding" in values:
        values["binding"] = AclBinding(*values["binding"])
    record: MetadataRecord = _TYPES[value["type"]](**values)
    return record


def _to_row(state: PartitionState) -> list[Any]:
    """Return the fields in their order, without the empty ones at the end: there may be many thousand states."""
    row = list(_fields_of(state))
    while row[-1] == ():
        row.pop()
    return row


def _from_row(row: list[Any]) -> PartitionState:
    return PartitionState(*_frozen(row))


def _frozen(row: list[Any]) -> tuple[Any, ...]:
    """Return a row of JSON with tuples in place of lists."""
    return tuple(tuple(item) if isinstance(item, list) else item for item in row)
