"""What goes into the admin client and what comes out of it: frozen values under Kafka's names.

`Results` is what an operation on several things returns. What groups are is told by the values in `groups.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import NamedTuple, TypeVar
from uuid import UUID

from ottla.clients.metadata import Node
from ottla.config.describe import ConfigSource
from ottla.errors import KafkaError
from ottla.types import BrokerId, Millis, TopicPartition

BROKER_DEFAULT = -1

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Results(dict[K, V]):
    """What worked, by its name, as a dict; `errors` is what did not, and why.

    An operation raises the first of the errors, unless it is called with ``raise_errors=False``.

    >>> results = Results.of({"a": 1, "b": KafkaError("no")})
    >>> dict(results), {name: str(error) for name, error in results.errors.items()}
    ({'a': 1}, {'b': 'no'})
    """

    __slots__ = ("errors",)

    errors: dict[K, KafkaError]

    @classmethod
    def of(cls, outcomes: Mapping[K, V | KafkaError]) -> Results[K, V]:
        results: Results[K, V] = cls()
        results.errors = {}
        for key, outcome in outcomes.items():
            if isinstance(outcome, KafkaError):
                results.errors[key] = outcome
            else:
                results[key] = outcome
        return results

    def raise_first(self) -> None:
        """Raise the first error, which names the others in its notes."""
        first, *others = self.errors.items() or [(None, None)]
        if first[1] is None:
            return
        for key, error in others:
            first[1].add_note(f"{key} failed too: {error}")
        raise first[1]


# ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. What is not given is the broker's default.

    >>> NewTopic("orders", num_partitions=3, configs={"retention.ms": "60000"}).num_partitions
    3
    """

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, object] | None = None
    replica_assignments: Mapping[int, Sequence[BrokerId]] | None = None
    """The brokers of each partition, the preferred leader first; instead of the two numbers."""


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as the broker has made it; brokers before Kafka 2.4 say -1 for the numbers."""

    name: str
    topic_id: UUID | None
    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TopicListing:
    name: str
    topic_id: UUID | None
    is_internal: bool


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[Node, ...]
    isr: tuple[Node, ...]
    offline_replicas: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """How many partitions a topic shall have, and on which brokers the new ones."""

    total_count: int
    new_assignments: Sequence[Sequence[BrokerId]] | None = None


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that is moving."""

    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]


# ── configs ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ResourceType(IntEnum):
    """What can have a configuration, with Kafka's codes."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class ConfigResource(NamedTuple):
    """Something that has a configuration. Where one is asked for, a plain text is a topic's name.

    >>> ConfigResource.topic("orders")
    ConfigResource(type=<ResourceType.TOPIC: 2>, name='orders')
    """

    type: ResourceType
    name: str

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: BrokerId | None = None) -> ConfigResource:
        """One broker, or what is set for all of them."""
        return cls(ResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        return cls(ResourceType.GROUP, name)

    @classmethod
    def given(cls, resource: ConfigResource | str) -> ConfigResource:
        return cls.topic(resource) if isinstance(resource, str) else resource

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(all)'}"


class ConfigSynonym(NamedTuple):
    """A layer that sets the value, maybe under another name."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class ConfigValue:
    name: str
    value: str | None
    source: ConfigSource
    read_only: bool
    sensitive: bool
    synonyms: tuple[ConfigSynonym, ...] = ()
    documentation: str | None = None

    @property
    def differs(self) -> bool:
        """Somebody set it: it is not what the broker would take by itself."""
        return self.source not in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)


class Append(NamedTuple):
    """In `alter_configs`: add to a list instead of setting it."""

    value: str


class Subtract(NamedTuple):
    """In `alter_configs`: take out of a list instead of setting it."""

    value: str


ConfigChange = str | int | float | bool | Append | Subtract | None
"""What to do with a config: set it, add to it, take from it, or (None) go back to what it is by itself."""


# ── offsets, cluster, logs ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """What `list_offsets` found; offset -1 when no record is that young."""

    offset: int
    timestamp: Millis
    leader_epoch: int | None


class OffsetSpec(IntEnum):
    """Offsets that are not looked up by a time."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5

    @classmethod
    def given(cls, spec: int | str) -> int:
        """A timestamp, or one of these by its name.

        >>> OffsetSpec.given("earliest"), OffsetSpec.given(1700000000000)
        (-2, 1700000000000)
        """
        if isinstance(spec, int):
            return int(spec)
        try:
            return int(cls[spec.upper().replace("-", "_")])
        except KeyError:
            names = ", ".join(one.name.lower() for one in cls)
            raise ValueError(f"there is no offset {spec!r}: give a timestamp in ms, or one of {names}") from None


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ReplicaInfo:
    size: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDir:
    """A directory of a broker's data; the sizes of the volume are None where the broker does not say them."""

    path: str
    error: KafkaError | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: Mapping[TopicPartition, ReplicaInfo]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition remembers; no open transaction: `transaction_start_offset` is None."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: Millis
    coordinator_epoch: int | None
    transaction_start_offset: int | None


def listed(values: Iterable[V] | V, kind: type[V]) -> list[V]:
    """Several values, or one alone: ``"orders"`` means ``["orders"]``."""
    if isinstance(values, kind):
        return [values]
    return list(dict.fromkeys(values))  # type: ignore[arg-type]
