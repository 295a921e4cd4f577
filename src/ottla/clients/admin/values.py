"""The arguments and results of the admin client: frozen values with Kafka's names.

`Results` is what an operation on several things returns. The values for groups are in `groups.py`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import NamedTuple, Self, TypeVar
from uuid import UUID

from ottla.clients.admin import checks as checks
from ottla.clients.cluster.metadata import Node
from ottla.config.describe import ConfigSource
from ottla.errors import KafkaError
from ottla.types import BrokerId, Millis, TopicPartition, millis, whole

BROKER_DEFAULT = -1
_NAMES_ELSEWHERE = {
    "config": "configs",
    "topic_configs": "configs",
    "partitions": "num_partitions",
    "replica_assignment": "replica_assignments",
    "topic": "name",
}
"""Parameters of `NewTopic` in kafka-python and confluent-kafka."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Results(dict[K, V]):
    """The successes as a dict; `errors` has the failures.

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
        """Raise the first error; its notes have the others."""
        first, *others = self.errors.items() or [(None, None)]
        if first[1] is None:
            return
        for key, error in others:
            first[1].add_note(f"{key} failed too: {error}")
        raise first[1]


# ── topics ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, init=False)
class NewTopic:
    """A topic to create. The broker has defaults for what is not given.

    >>> NewTopic("orders", num_partitions=3, configs={"retention.ms": "60000"}).num_partitions
    3
    """

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    configs: Mapping[str, object] | None = None
    replica_assignments: Mapping[int, Sequence[BrokerId]] | None = None
    """The brokers of each partition, the preferred leader first; instead of the two numbers."""

    def __init__(
        self,
        name: str,
        num_partitions: int = BROKER_DEFAULT,
        replication_factor: int = BROKER_DEFAULT,
        configs: Mapping[str, object] | None = None,
        replica_assignments: Mapping[int, Sequence[BrokerId]] | None = None,
        **others: object,
    ) -> None:
        for other in others:
            here = _NAMES_ELSEWHERE.get(other)
            advice = f": write {here}=" if here is not None else ""
            raise TypeError(f"NewTopic has no parameter {other!r}{advice}")
        values = (name, num_partitions, replication_factor, configs, replica_assignments)
        for each, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, each.name, value)
        self._check()

    def _check(self) -> None:
        checks.name(self.name, "the name of a topic")
        whole(self.num_partitions, f"num_partitions of topic {self.name}", bits=32)
        whole(self.replication_factor, f"replication_factor of topic {self.name}", bits=16)
        if self.configs is not None:
            checks.configs(self.configs, f"topic {self.name}", checks.config_value)
        if self.replica_assignments is not None:
            partition = f"a partition in replica_assignments of topic {self.name}"
            replicas = f"the replicas of topic {self.name}"
            checks.keyed(
                self.replica_assignments,
                lambda one: whole(one, partition, bits=32),
                lambda given, _: checks.brokers(given, replicas),
                "{0: [1, 2]}",
            )

    @classmethod
    def given(cls, topic: object) -> NewTopic:
        """Return a NewTopic, also for a name alone."""
        return topic if isinstance(topic, NewTopic) else cls(checks.name(topic, "a topic to create (or a NewTopic)"))


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic as the broker created it; brokers before Kafka 2.4 send -1 for the numbers."""

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
    eligible_leader_replicas: tuple[Node, ...] | None = None
    """Replicas that have every committed record, although they are not in sync. None from brokers before Kafka 4."""
    last_known_elr: tuple[Node, ...] | None = None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    name: str
    topic_id: UUID | None
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The new number of partitions of a topic, and the brokers of the new ones."""

    total_count: int
    new_assignments: Sequence[Sequence[BrokerId]] | None = None

    def __post_init__(self) -> None:
        whole(self.total_count, "the new number of partitions of a topic", bits=32)
        if self.new_assignments is not None:
            what = "the brokers of new partitions"
            checks.several(self.new_assignments, lambda one: checks.brokers(one, what), what)

    @classmethod
    def given(cls, new: object, topic: str) -> NewPartitions:
        """Return NewPartitions, also for a number alone."""
        if isinstance(new, NewPartitions):
            return new
        return cls(whole(new, f"the new number of partitions of topic {topic}", bits=32))


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A partition that is being moved."""

    replicas: tuple[BrokerId, ...]
    adding_replicas: tuple[BrokerId, ...]
    removing_replicas: tuple[BrokerId, ...]


# ── configs ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ResourceType(IntEnum):
    """The kinds of resources with a configuration, with Kafka's codes."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


_RESOURCE_TYPES = {one.name.lower(): one for one in ResourceType}


class _ConfigResource(NamedTuple):
    type: ResourceType
    name: str


class ConfigResource(_ConfigResource):
    """A resource with a configuration. A plain text is accepted as the name of a topic.

    >>> ConfigResource.topic("orders")
    ConfigResource(type=<ResourceType.TOPIC: 2>, name='orders')
    >>> ConfigResource("broker", "1") == ConfigResource.broker(1)
    True
    """

    __slots__ = ()

    def __new__(cls, type: ResourceType | str, name: str) -> Self:  # noqa: A002 - as the attribute is called
        """`type` may be a name, in any case."""
        what = "the type of a ConfigResource"
        named = isinstance(type, str)
        kind = checks.chosen(type, _RESOURCE_TYPES, what) if named else ResourceType(whole(type, what, bits=32))
        return super().__new__(cls, kind, checks.name(name, f"the name of a {kind.name.lower()}"))

    @classmethod
    def topic(cls, name: str) -> ConfigResource:
        return cls(ResourceType.TOPIC, name)

    @classmethod
    def broker(cls, broker_id: BrokerId | None = None) -> ConfigResource:
        """One broker, or the default of all brokers."""
        return cls(ResourceType.BROKER, "" if broker_id is None else str(broker_id))

    @classmethod
    def group(cls, name: str) -> ConfigResource:
        return cls(ResourceType.GROUP, name)

    @classmethod
    def given(cls, resource: object) -> ConfigResource:
        """Return a ConfigResource, also for the name of a topic."""
        if isinstance(resource, ConfigResource):
            return resource
        return cls.topic(checks.name(resource, "a resource (a topic's name, or a ConfigResource)"))

    def __str__(self) -> str:
        return f"{self.type.name.lower()} {self.name or '(all)'}"


class ConfigSynonym(NamedTuple):
    """A source of the value, maybe under another name."""

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
        """Whether it was set, and is not the broker's default."""
        return self.source not in (ConfigSource.DEFAULT, ConfigSource.UNKNOWN)


class Append(NamedTuple):
    """In `alter_configs`: add to a list instead of setting it."""

    value: str


class Subtract(NamedTuple):
    """In `alter_configs`: remove from a list instead of setting it."""

    value: str


ConfigChange = str | int | float | bool | Append | Subtract | None
"""A change of a config: a new value, an addition, a removal, or None to reset it to its default."""


def checked_change(given: object, what: str) -> ConfigChange:
    if isinstance(given, Append | Subtract):
        checks.config_value(given.value, what)
        return given
    return None if given is None else checks.config_value(given, what)


# ── offsets, cluster, logs ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """The result of `list_offsets`; offset -1 if no record is at or after the timestamp."""

    offset: int
    timestamp: Millis
    leader_epoch: int | None


class OffsetSpec(IntEnum):
    """Special offsets that need no timestamp."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5

    @classmethod
    def given(cls, spec: object) -> int:
        """Return a timestamp, or the code of one of these names.

        >>> OffsetSpec.given("earliest"), OffsetSpec.given(1700000000000)
        (-2, 1700000000000)
        """
        if not isinstance(spec, str):
            if isinstance(spec, float):
                return millis(spec, "a timestamp (or one of the OffsetSpecs)")
            return whole(spec, "a timestamp in ms (or one of the OffsetSpecs)", least=min(cls))
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
    """A data directory of a broker; the sizes of the volume are None if the broker does not send them."""

    path: str
    error: KafkaError | None
    total_bytes: int | None
    usable_bytes: int | None
    replicas: Mapping[TopicPartition, ReplicaInfo]


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer that a partition remembers; `transaction_start_offset` is None without an open transaction."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp: Millis
    coordinator_epoch: int | None
    transaction_start_offset: int | None
