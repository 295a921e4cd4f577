"""What the transaction coordinator is asked, and what it answers: values, without the versions of the wire.

An error is a code in the answer. PRODUCER_FENCED is told as such; a handler of an API whose version is too old for it
makes INVALID_PRODUCER_EPOCH of it.
"""

from __future__ import annotations

from typing import NamedTuple

from ottla.transactions.transitions import State
from ottla.types import NO_PRODUCER_ID, Millis, TopicPartition

NO_EPOCH = -1
#: The first version of the protocol, and the second (KIP-890), which raises the epoch with every transaction.
FIRST_VERSION = 0
SECOND_VERSION = 2


class InitRequest(NamedTuple):
    """InitProducerId with a transactional id."""

    transactional_id: str
    timeout: Millis
    producer_id: int = NO_PRODUCER_ID
    """The id and epoch that the producer believes to have (KIP-360); neither if it has just begun."""
    producer_epoch: int = NO_EPOCH
    spare_producer_id: int = NO_PRODUCER_ID
    """An id that nobody has: see `TransactionCoordinator.needs_producer_id`."""


class InitResponse(NamedTuple):
    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    error_code: int = 0


class AddPartitionsRequest(NamedTuple):
    """AddPartitionsToTxn, AddOffsetsToTxn, and what brokers ask for a producer of the second version."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    partitions: frozenset[TopicPartition]
    version: int = FIRST_VERSION


class AddPartitionsResponse(NamedTuple):
    error_code: int = 0


class VerifyResponse(NamedTuple):
    """Whether partitions belong to the ongoing transaction: a code for each."""

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
    """The second version is told the id and epoch that it goes on with."""

    producer_id: int = NO_PRODUCER_ID
    producer_epoch: int = NO_EPOCH
    error_code: int = 0


class Markers(NamedTuple):
    """What has to be written to partitions so that a transaction is over."""

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
