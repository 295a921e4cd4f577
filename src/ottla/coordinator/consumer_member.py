"""A member of a consumer group: what it asked for, where it is on its way to its target, and its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.coordinator import records as r
from ottla.types import Millis

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id; no topic is without any."""
NO_PARTITIONS: Partitions = MappingProxyType({})


class MemberState(IntEnum):
    """By Kafka's names and numbers, as they are in the log."""

    STABLE = 0
    """It has what its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it may go on to the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in its epoch, and some of its partitions have not been given up by others yet."""
    UNKNOWN = 127
    """Written by a newer broker."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        return cls(number) if number in (0, 1, 2) else cls.UNKNOWN


class Member(NamedTuple):
    """A member, frozen: an operation makes a new one, and replay puts it in place."""

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    """Sorted, each once."""
    subscribed_topic_regex: str = ""
    rebalance_timeout: Millis = -1
    server_assignor: str | None = None
    classic: r.ClassicMemberMetadata | None = None
    """What it joined with, if it speaks the classic protocol."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS

    @property
    def who(self) -> r.Who:
        return r.Who(self.member_id, self.instance_id, self.client_id, self.client_host)

    @property
    def subscription(self) -> tuple[tuple[str, ...], str]:
        return self.subscribed_topic_names, self.subscribed_topic_regex

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def in_epoch(
        self, epoch: int, state: MemberState, assigned: Partitions, pending_revocation: Partitions | None = None
    ) -> Member:
        """Return the member in another step of its way."""
        return self._replace(
            member_epoch=epoch,
            previous_member_epoch=self.member_epoch,
            state=state,
            assigned=assigned,
            pending_revocation=pending_revocation or NO_PARTITIONS,
        )

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def metadata_value(self) -> r.ConsumerGroupMemberMetadataValue:
        return r.ConsumerGroupMemberMetadataValue(
            instance_id=self.instance_id,
            rack_id=self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            subscribed_topic_names=self.subscribed_topic_names,
            subscribed_topic_regex=self.subscribed_topic_regex,
            rebalance_timeout=self.rebalance_timeout,
            server_assignor=self.server_assignor,
            classic_member_metadata=self.classic,
        )

    def with_metadata(self, value: r.ConsumerGroupMemberMetadataValue) -> Member:
        return self._replace(
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            subscribed_topic_names=sorted_names(value.subscribed_topic_names),
            subscribed_topic_regex=value.subscribed_topic_regex or "",
            rebalance_timeout=value.rebalance_timeout,
            server_assignor=value.server_assignor,
            classic=value.classic_member_metadata,
        )

    def current_value(self) -> r.ConsumerGroupCurrentMemberAssignmentValue:
        return r.ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=self.member_epoch,
            previous_member_epoch=self.previous_member_epoch,
            state=int(self.state),
            assigned_partitions=to_topic_partitions(self.assigned),
            partitions_pending_revocation=to_topic_partitions(self.pending_revocation),
        )

    def with_current(self, value: r.ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        return self._replace(
            member_epoch=value.member_epoch,
            previous_member_epoch=value.previous_member_epoch,
            state=MemberState.of(value.state),
            assigned=to_partitions(value.assigned_partitions),
            pending_revocation=to_partitions(value.partitions_pending_revocation),
        )


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def to_topic_partitions(partitions: Partitions) -> tuple[r.TopicPartitions, ...]:
    """Return partitions as records and responses have them, in an order that does not depend on how they came about."""
    if len(partitions) == 1:
        ((topic_id, numbers),) = partitions.items()
        return (r.TopicPartitions(topic_id, tuple(sorted(numbers))),)
    return tuple(
        r.TopicPartitions(topic_id, tuple(sorted(partitions[topic_id])))
        for topic_id in sorted(partitions, key=lambda topic_id: topic_id.int)
    )


def to_partitions(topic_partitions: Iterable[r.TopicPartitions]) -> dict[UUID, frozenset[int]]:
    """Return partitions from records or requests; topics without any are left out."""
    found: dict[UUID, frozenset[int]] = {}
    for entry in topic_partitions:
        if entry.topic_id is not None and entry.partitions:
            found[entry.topic_id] = found.get(entry.topic_id, frozenset()) | frozenset(entry.partitions)
    return found
