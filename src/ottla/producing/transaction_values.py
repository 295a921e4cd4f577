"""What a transactional producer asks of coordinators, what they answer, and into which of three kinds an error falls.

    retry   the same request may succeed later; the producer does it by itself
    abort   the transaction cannot be committed any more: it has to be aborted, and its work done again
    stop    the producer cannot go on: another one has taken over, or something is not allowed or not there

The kinds are those of Kafka 4. What follows from an answer is decided in transactions.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from ottla import errors
from ottla.errors import KafkaError
from ottla.types import TopicPartition

NO_ID = -1


class Remedy(Enum):
    """What to do about an error."""

    RETRY = "retry"
    ABORT = "abort"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class GroupMember:
    """On whose behalf offsets are committed: a consumer's `group_metadata()`."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a partition was read, as it is committed."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """Of a group, or of the transactional id (None)."""

    group_id: str | None


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """With an id and an epoch it asks for the next epoch of them."""

    producer_id: int = NO_ID
    producer_epoch: int = NO_ID


@dataclass(frozen=True, slots=True)
class AddPartitions:
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AddOffsets:
    group_id: str


@dataclass(frozen=True, slots=True)
class CommitOffsets:
    offsets: Mapping[TopicPartition, Offset]
    member: GroupMember


@dataclass(frozen=True, slots=True)
class EndTransaction:
    commit: bool


What = FindCoordinator | InitProducerId | AddPartitions | AddOffsets | CommitOffsets | EndTransaction


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """One request: what, whom (None is any broker), and as whom, in which version of the protocol."""

    what: What
    whom: Any
    producer_id: int
    producer_epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; what the question does not ask for is left out."""

    error: KafkaError | None = None
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)
    node: Any = None
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID
    version: int | None = None
    """The version of the transaction protocol that the cluster has switched on, as the coordinator said."""


# Errors.

MOVED = (errors.CoordinatorNotAvailable, errors.NotCoordinator, errors.NetworkException, errors.RequestTimedOut)
"""Somebody else may be the coordinator now."""
_PASSING = (errors.ConcurrentTransactions, errors.CoordinatorLoadInProgress)
_FENCED = (errors.ProducerFenced, errors.InvalidProducerEpoch)
_STOPS = (
    *_FENCED,
    errors.TransactionalIdAuthorizationFailed,
    errors.ClusterAuthorizationFailed,
    errors.AuthenticationError,
    errors.UnsupportedVersion,
    errors.UnsupportedForMessageFormat,
    errors.InvalidTxnState,
)
_ABORTS = (
    errors.TransactionAbortable,
    errors.UnknownProducerId,
    errors.InvalidProducerIdMapping,
    errors.GroupAuthorizationFailed,
    errors.TopicAuthorizationFailed,
    errors.FencedInstanceId,
    errors.UnknownMemberId,
    errors.IllegalGeneration,
    errors.StaleMemberEpoch,
)
_MEMBERSHIP = (errors.FencedInstanceId, errors.UnknownMemberId, errors.IllegalGeneration, errors.StaleMemberEpoch)


def remedy_of_answer(what: What, error: KafkaError) -> Remedy:
    """What a coordinator's error means for the transaction."""
    if isinstance(error, (*MOVED, *_PASSING)):
        return Remedy.RETRY
    if isinstance(what, InitProducerId):
        # There is no transaction yet that could be aborted.
        return Remedy.STOP
    if isinstance(error, errors.UnknownTopicOrPartition) and isinstance(what, AddPartitions | CommitOffsets):
        return Remedy.RETRY
    if isinstance(error, _STOPS):
        return Remedy.STOP
    if isinstance(error, _ABORTS) or isinstance(what, AddPartitions):
        return Remedy.ABORT
    return Remedy.STOP


def remedy_of_batch(error: Exception) -> Remedy:
    """What a batch that was given up means for the transaction. A fenced epoch is not the end here: the coordinator,
    asked to abort, knows whether another producer has taken over."""
    stops = (
        errors.ProducerFenced,
        errors.TransactionalIdAuthorizationFailed,
        errors.ClusterAuthorizationFailed,
        errors.UnsupportedVersion,
    )
    return Remedy.STOP if isinstance(error, stops) else Remedy.ABORT


def told(error: Exception, remedy: Remedy) -> KafkaError:
    """The error with its kind, and in its message what to do."""
    if isinstance(error, KafkaError) and error.remedy is not None:
        return error
    kind = errors.ProducerFenced if isinstance(error, _FENCED) and remedy is Remedy.STOP else type(error)
    made = (kind if issubclass(kind, KafkaError) else KafkaError)(f"{str(error).rstrip('.')}. {_advice(error, remedy)}")
    made.remedy = remedy.value
    made.__cause__ = error
    return made


def _advice(error: Exception, remedy: Remedy) -> str:
    if remedy is Remedy.ABORT:
        first = ""
        if isinstance(error, _MEMBERSHIP):
            first = "The consumer's partitions belong to others now, who will do this work. "
        return f"{first}To abort: call abort_transaction(), and do the work of the transaction again."
    if remedy is Remedy.STOP and isinstance(error, _FENCED):
        return (
            "To stop: either another producer uses this transactional.id, and this one has to be closed; or the "
            "transaction was open for longer than transaction.timeout.ms, and a new producer can go on."
        )
    if remedy is Remedy.STOP and isinstance(error, errors.InvalidTxnState):
        return (
            "To stop: close this producer, and go on with a new one. Most likely the transaction was open for longer "
            "than transaction.timeout.ms, and its coordinator has aborted it."
        )
    if remedy is Remedy.STOP:
        return "To stop: close this producer, repair the cause, and make a new one."
    return "To retry: make the same call again."
