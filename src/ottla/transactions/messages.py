"""Requests and responses of the transaction coordinator, independent of API versions.

An error is a code in the response. A handler translates PRODUCER_FENCED to INVALID_PRODUCER_EPOCH for old API versions.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.transactions.transitions import State
from ottla.types import NO_PRODUCER_ID, Millis, TopicPartition

NO_EPOCH = -1
#: The second version of the protocol (KIP-890) raises the epoch with every transaction.
FIRST_VERSION = 0
SECOND_VERSION = 2


class InitRequest(NamedTuple):
    """InitProducerId with a transactional id."""

    transactional_id: str
    timeout: Millis
    producer_id: int = NO_PRODUCER_ID
    """The producer's current id and epoch (KIP-360). Not set by a new producer."""
    producer_epoch: int = NO_EPOCH
    spare_producer_id: int = NO_PRODUCER_ID
    """An unused id, if `TransactionCoordinator.needs_producer_id`."""


class InitResponse(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    error_code: int = 0


class AddPartitionsRequest(NamedTuple):
    """AddPartitionsToTxn, AddOffsetsToTxn, and a broker's request for a producer of the second version."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    version: int = FIRST_VERSION


class AddPartitionsResponse(NamedTuple):
    error_code: int = 0


class VerifyResponse(NamedTuple):
    """An error code for each partition. 0 if it belongs to the ongoing transaction."""

    codes: dict[TopicPartition, int]


class EndRequest(NamedTuple):
    """EndTxn."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    version: int = FIRST_VERSION
    spare_producer_id: int = NO_PRODUCER_ID


class EndResponse(NamedTuple):
    """In the second version, with the producer's next id and epoch."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    error_code: int = 0


class Markers(NamedTuple):
    """The markers that end a transaction in its partitions."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    committed: bool
    partitions: frozenset[TopicPartition]
    version: int


class Listed(NamedTuple):
    transactional_id: str
    producer_id: int
    state: State


class Described(NamedTuple):
    transactional_id: str
    error_code: int = 0
    state: str = ""
    timeout: Millis = 0
    started_at: Millis = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: tuple[TopicPartition, ...] = ()
