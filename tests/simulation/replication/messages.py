"""What brokers and clients send each other, one partition at a time."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from tests.simulation.replication.disks import Entry

from ottla.metadata.partitions import IsrChange
from ottla.replication.values import EpochEnd, ReplicaFetch


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


Request: TypeAlias = Fetch | AlterPartition | ControlledShutdown | Produce | Read
