"""The values of the metadata: topics, the state of each partition, brokers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

CONSUMER_OFFSETS = "__consumer_offsets"
TRANSACTION_STATE = "__transaction_state"
INTERNAL_TOPICS = frozenset({CONSUMER_OFFSETS, TRANSACTION_STATE})
NO_LEADER = -1
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Who has a partition and who leads it."""

    replicas: tuple[int, ...]
    """The ids of the brokers that have the partition. The first one is the preferred leader."""
    isr: tuple[int, ...]
    """The replicas that have every committed record."""
    leader: int
    """The id of the leader, or NO_LEADER while the partition is offline."""
    leader_epoch: int = 0
    """Rises when the leader changes, and when a reassignment takes a replica away."""
    partition_epoch: int = 0
    """Rises with every change."""
    elr: tuple[int, ...] = ()
    """Eligible leader replicas (KIP-966): not in the ISR, but they have every committed record."""
    last_known_elr: tuple[int, ...] = ()
    """The leader at the time when the ISR became empty. It may have lost records by an unclean stop."""
    adding: tuple[int, ...] = ()
    """The replicas that a reassignment adds."""
    removing: tuple[int, ...] = ()
    """The replicas that a reassignment removes when it is complete."""
    offline: tuple[int, ...] = ()
    """The replicas whose disk has failed. Their brokers are alive, but cannot lead until they have started again."""

    @classmethod
    def new(cls, replicas: Iterable[int]) -> PartitionState:
        """Return the state of a new partition whose replicas are all in sync.

        >>> PartitionState.new([2, 3]).leader
        2
        """
        replicas = tuple(replicas)
        return cls(replicas, replicas, replicas[0] if replicas else NO_LEADER)

    def min_isr(self, configured: int) -> int:
        """Return the smallest ISR that can commit: ``min.insync.replicas``, or all replicas if there are fewer.

        Replicas that a reassignment adds do not count, so a partition that grows stays writable.

        >>> PartitionState.new([2]).min_isr(2)
        1
        """
        return min(configured, len(self.replicas) - len(self.adding))

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas) - len(self.adding)


class Endpoint(NamedTuple):
    """An address of a broker."""

    name: str
    """The name of the listener."""
    host: str
    port: int


class Registration(NamedTuple):
    """What a broker tells when it starts."""

    broker_id: int
    epoch: int
    previous_epoch: int
    """The epoch of its last run if that ended cleanly, else -1."""
    listeners: tuple[Endpoint, ...]
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class BrokerState:
    """A broker of the cluster."""

    broker_id: int
    epoch: int
    """Rises with every registration, so messages of a previous life are recognised."""
    listeners: tuple[Endpoint, ...]
    rack: str | None = None
    is_fenced: bool = False
    """It is not reachable. It leads nothing and is in no ISR."""
    is_shutting_down: bool = False
    """It is in a controlled shutdown and gets no new work."""

    @property
    def is_active(self) -> bool:
        return not self.is_fenced and not self.is_shutting_down


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic."""

    name: str
    topic_id: UUID
    states: list[PartitionState]
    """One for each partition. Only `Metadata.replay` changes the list."""
    configs: Mapping[str, str]

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return len(self.states)

    @property
    def replication_factor(self) -> int:
        """The number of replicas of the first partition."""
        return len(self.states[0].replicas)

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


class ReplicationSettings(NamedTuple):
    """The configs of a topic that elections depend on."""

    min_isr: int = 1
    unclean: bool = False
    """Whether a replica that may miss committed records can become the leader."""
