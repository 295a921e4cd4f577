"""What brokers and clients send each other, one partition at a time."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from tests.simulation.replication.disks import Entry

from ottla.metadata.partitions import IsrChange
from ottla.replication.values import EpochEnd, ReplicaFetch
from ottla.transactions.messages import Markers


class Fetch(NamedTuple):
    """A fetch of a follower."""

    partition: int
    fetch: ReplicaFetch
    high_watermark: int
    """What the follower knows, so that the leader tells news at once."""


class FetchAnswer(NamedTuple):
    """A partition in a Fetch response, as `ottla.replication` reads it."""

    error_code: int
    high_watermark: int = -1
    log_start_offset: int = -1
    diverging_epoch: EpochEnd | None = None
    records: list[Entry] | None = None


class AlterPartition(NamedTuple):
    """A leader proposes an ISR to the controller."""

    sender: int
    broker_epoch: int
    change: IsrChange


class ControlledShutdown(NamedTuple):
    """A broker wants to stop."""

    sender: int
    broker_epoch: int


class Produce(NamedTuple):
    """A producer writes a record."""

    partition: int
    value: object
    needs_all: bool
    """acks=all"""


class Read(NamedTuple):
    """A consumer reads from a leader or a follower."""

    partition: int
    offset: int


class ReadAnswer(NamedTuple):
    offset: int
    entries: list[Entry]


class Coordinate(NamedTuple):
    """An operation of the coordinator of a partition."""

    partition: int
    operation: str
    request: Any


class Write(NamedTuple):
    """A record of a transaction."""

    partition: int
    transactional_id: str
    producer_id: int
    producer_epoch: int
    sequence: int
    value: object


class WriteMarker(NamedTuple):
    """The end of a transaction in a partition."""

    partition: int
    markers: Markers
    coordinator_epoch: int


Request: TypeAlias = Fetch | AlterPartition | ControlledShutdown | Produce | Read | Coordinate | Write | WriteMarker
