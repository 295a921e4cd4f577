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
        return _STATES[number] if 0 <= number <= 2 else cls.UNKNOWN


_STATES = tuple(MemberState(number) for number in range(3))


class Member(NamedTuple):
    """A member, frozen: an operation makes a new one, and replay puts it in place.

    What its metadata say comes first, then where it is on its way: a step replaces the end as a whole.
    """

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

    @property
    def settled_in(self) -> int | None:
        """The epoch that it has come to rest in; None if it is on its way."""
        return self.member_epoch if self.state is MemberState.STABLE else None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def in_epoch(
        self, epoch: int, state: MemberState, assigned: Partitions, pending_revocation: Partitions | None = None
    ) -> Member:
        """Return the member in another step of its way."""
        way = (epoch, self.member_epoch, state, assigned, pending_revocation or NO_PARTITIONS)
        return Member._make(self[:_METADATA] + way)

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def metadata_value(self) -> r.ConsumerGroupMemberMetadataValue:
        return r.ConsumerGroupMemberMetadataValue._make(self[1:_METADATA])

    def with_metadata(self, value: r.ConsumerGroupMemberMetadataValue) -> Member:
        instance_id, rack_id, client_id, client_host, names, regex, *others = value
        said = (self.member_id, instance_id, rack_id, client_id, client_host, sorted_names(names), regex or "", *others)
        return Member._make(said + self[_METADATA:])

    def current_value(self) -> r.ConsumerGroupCurrentMemberAssignmentValue:
        return r.ConsumerGroupCurrentMemberAssignmentValue(
            self.member_epoch,
            self.previous_member_epoch,
            int(self.state),
            to_topic_partitions(self.assigned),
            to_topic_partitions(self.pending_revocation),
        )

    def with_current(self, value: r.ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        epoch, previous_epoch, state, assigned, given_up = value
        way = (epoch, previous_epoch, MemberState.of(state), to_partitions(assigned), to_partitions(given_up))
        return Member._make(self[:_METADATA] + way)


_METADATA = Member._fields.index("member_epoch")
"""How many fields are metadata."""


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def to_topic_partitions(partitions: Partitions) -> tuple[r.TopicPartitions, ...]:
    """Return partitions as records and responses have them, in an order that does not depend on how they came about."""
    if not partitions:
        return ()
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
            numbers = frozenset(entry.partitions)
            present = found.setdefault(entry.topic_id, numbers)
            if present is not numbers:
                found[entry.topic_id] = present | numbers
    return found
