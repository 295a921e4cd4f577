"""Which offsets are committed and when, the request of a commit, and what the response means.

A response has an error code for each partition. The worst of them decides about the whole commit: retry it, treat the
member as fenced, or give up.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from ottla.consuming.membership import COORDINATOR_ERRORS, Identity
from ottla.consuming.values import OffsetAndMetadata
from ottla.errors import (
    FencedInstanceId,
    FencedMemberEpoch,
    IllegalGeneration,
    KafkaError,
    RebalanceInProgress,
    StaleMemberEpoch,
    UnknownMemberId,
    UnknownTopicOrPartition,
    error_class,
)
from ottla.protocol.codec import Message, Struct
from ottla.types import Millis, TopicPartition

Offsets = Mapping[TopicPartition, OffsetAndMetadata]
#: The last version that identifies topics by name.
LAST_COMMIT_BY_NAME = 9
NO_EPOCH = -1

_TOO_LATE = (IllegalGeneration, UnknownMemberId, RebalanceInProgress, FencedMemberEpoch)


class Verdict(Enum):
    """What the error of a commit means."""

    RETRY = "retry"
    TOO_LATE = "too late"
    """The member is not in the generation that it sent."""
    RENEW = "renew"
    """Its epoch is old: a heartbeat brings the new one, and then the commit works."""
    FATAL = "fatal"


def commit_message(group_id: str, who: Identity, offsets: Offsets) -> Message:
    topics: dict[str, list[Message]] = {}
    for key, one in offsets.items():
        topics.setdefault(key.topic, []).append(
            {
                "partition_index": key.partition,
                "committed_offset": one.offset,
                "committed_leader_epoch": NO_EPOCH if one.leader_epoch is None else one.leader_epoch,
                "committed_metadata": one.metadata,
            }
        )
    return {
        "group_id": group_id,
        "generation_id_or_member_epoch": who.generation,
        "member_id": who.member_id,
        "group_instance_id": who.group_instance_id,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }


def read_commit(response: Struct) -> KafkaError | None:
    """The worst error of a commit, with its partition; None if everything was committed."""
    worst: KafkaError | None = None
    for topic in response.topics:
        for answer in topic.partitions:
            if answer.error_code:
                kind = error_class(answer.error_code)
                error = kind(f"partition {topic.name}-{answer.partition_index}: {kind.default_message}")
                if worst is None or _weight(error) > _weight(worst):
                    worst = error
    return worst


def verdict(error: KafkaError) -> Verdict:
    if isinstance(error, _TOO_LATE):
        return Verdict.TOO_LATE
    if isinstance(error, StaleMemberEpoch):
        return Verdict.RENEW
    # Unlike elsewhere, waiting for a missing topic is useless: it was consumed, so it has been deleted.
    if isinstance(error, COORDINATOR_ERRORS) or (error.retriable and not isinstance(error, UnknownTopicOrPartition)):
        return Verdict.RETRY
    return Verdict.FATAL


def _weight(error: KafkaError) -> int:
    order = (Verdict.RETRY, Verdict.RENEW, Verdict.FATAL, Verdict.TOO_LATE)
    return len(order) if isinstance(error, FencedInstanceId) else order.index(verdict(error))


class AutoCommit:
    """When the next automatic commit is due: it is made inside poll, for what earlier polls returned."""

    def __init__(self, interval_ms: Millis) -> None:
        self._interval = interval_ms
        self._next: Millis | None = None

    def is_due(self, *, now: Millis) -> bool:
        return self._next is None or now >= self._next

    def due(self, *, now: Millis) -> bool:
        """Whether it is time; if so, the next commit is one interval away."""
        if self._next is None:
            self._next = now + self._interval
            return False
        if now < self._next:
            return False
        self._next = now + self._interval
        return True

    def again_after(self, backoff_ms: Millis, *, now: Millis) -> None:
        """A commit failed with a retriable error: try sooner than usual."""
        self._next = now + min(backoff_ms, self._interval)
