"""The requests of a transactional producer to coordinators, their results, and the three kinds of errors.

    retry   the same request may succeed later; the producer retries by itself
    abort   the transaction cannot be committed any more: abort it, and do its work again
    stop    the producer cannot continue: another one has taken over, or something is forbidden or missing

The kinds are those of Kafka 4. transactions.py decides what follows from a response.
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
    """The consumer group member for which offsets are committed: a consumer's `group_metadata()`."""

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class Offset:
    """The offset of a partition to commit."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class FindCoordinator:
    """For a group, or for the transactional id (None)."""

    group_id: str | None


@dataclass(frozen=True, slots=True)
class InitProducerId:
    """With an id and an epoch it requests the next epoch."""

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
    """One request: what, to which broker (None is any), with which identity and protocol version."""

    what: What
    broker: Any
    producer_id: int
    producer_epoch: int
    version: int


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a request; fields that do not apply are left out."""

    error: KafkaError | None = None
    errors: Mapping[TopicPartition, KafkaError] = field(default_factory=dict)
    node: Any = None
    producer_id: int = NO_ID
    producer_epoch: int = NO_ID
    version: int | None = None
    """The version of the transaction protocol that is enabled in the cluster, according to the coordinator."""


# Errors.

MOVED = (errors.CoordinatorNotAvailable, errors.NotCoordinator, errors.NetworkException, errors.RequestTimedOut)
"""Another broker may be the coordinator now."""
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
    """What the error of a coordinator means for the transaction."""
    if isinstance(error, (*MOVED, *_PASSING)):
        return Remedy.RETRY
    if isinstance(what, InitProducerId):
        # There is no transaction yet to abort.
        return Remedy.STOP
    if isinstance(error, errors.UnknownTopicOrPartition) and isinstance(what, AddPartitions | CommitOffsets):
        return Remedy.RETRY
    if isinstance(error, _STOPS):
        return Remedy.STOP
    if isinstance(error, _ABORTS) or isinstance(what, AddPartitions):
        return Remedy.ABORT
    return Remedy.STOP


def remedy_of_batch(error: Exception) -> Remedy:
    """What a batch that was given up means for the transaction. A fenced epoch is not final here: when asked to abort,
    the coordinator knows whether another producer has taken over."""
    stops = (
        errors.ProducerFenced,
        errors.TransactionalIdAuthorizationFailed,
        errors.ClusterAuthorizationFailed,
        errors.UnsupportedVersion,
    )
    return Remedy.STOP if isinstance(error, stops) else Remedy.ABORT


def with_advice(error: Exception, remedy: Remedy) -> KafkaError:
    """The error with its kind, and with advice in its message."""
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
            first = "The consumer's partitions belong to other members now, which will do this work. "
        return f"{first}To abort: call abort_transaction(), and do the work of the transaction again."
    if remedy is Remedy.STOP and isinstance(error, _FENCED):
        return (
            "To stop: either another producer uses this transactional.id, and this one must be closed; or the "
            "transaction was open for longer than transaction.timeout.ms, and a new producer can continue."
        )
    if remedy is Remedy.STOP and isinstance(error, errors.InvalidTxnState):
        return (
            "To stop: close this producer, and continue with a new one. Most likely the transaction was open for "
            "longer than transaction.timeout.ms, and its coordinator has aborted it."
        )
    if remedy is Remedy.STOP:
        return "To stop: close this producer, fix the cause, and create a new one."
    return "To retry: make the same call again."
