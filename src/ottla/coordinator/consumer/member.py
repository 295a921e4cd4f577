"""A member of a consumer group: its subscription, its progress towards its target, and its records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla import errors
from ottla.coordinator import records as r
from ottla.coordinator.consumer.messages import JOIN_EPOCH, ConsumerHeartbeatRequest
from ottla.types import Millis

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Partition numbers by topic id. No set is empty."""
NO_PARTITIONS: Partitions = MappingProxyType({})
Subscription: TypeAlias = tuple[tuple[str, ...], str]
"""Topic names, sorted, and a regular expression or the empty string."""


class MemberState(IntEnum):
    """Kafka's names and numbers, as in the log."""

    STABLE = 0
    """It has what its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It must give up partitions before it may enter the next epoch."""
    UNRELEASED_PARTITIONS = 2
    """It is in its epoch, and other members have not given up some of its partitions yet."""
    UNKNOWN = 127
    """A newer broker wrote it."""

    @classmethod
    def of(cls, number: int) -> MemberState:
        return _STATES[number] if 0 <= number <= 2 else cls.UNKNOWN


_STATES = tuple(MemberState(number) for number in range(3))
_NO_CHANGE = (None, -1, None, None, None)
"""The fields of a request from `rack_id` to `server_assignor` if nothing has changed."""


class Member(NamedTuple):
    """A member, frozen: an operation makes a new one, and replay puts it in place.

    Its metadata come first, then its progress: a step replaces the end as a whole.
    """

    member_id: str
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    subscribed_topic_names: tuple[str, ...] = ()
    """Sorted, without duplicates."""
    subscribed_topic_regex: str = ""
    rebalance_timeout: Millis = -1
    server_assignor: str | None = None
    classic: r.ClassicMemberMetadata | None = None
    """What it joined with, if it uses the classic protocol."""

    member_epoch: int = 0
    previous_member_epoch: int = -1
    state: MemberState = MemberState.STABLE
    assigned: Partitions = NO_PARTITIONS
    pending_revocation: Partitions = NO_PARTITIONS

    @property
    def who(self) -> r.Who:
        return r.Who(self.member_id, self.instance_id, self.client_id, self.client_host)

    @property
    def subscription(self) -> Subscription:
        return self.subscribed_topic_names, self.subscribed_topic_regex

    @property
    def settled_in(self) -> int | None:
        """The epoch in which it is stable; None if it is reconciling."""
        return self.member_epoch if self.state is MemberState.STABLE else None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def in_epoch(
        self, epoch: int, state: MemberState, assigned: Partitions, pending_revocation: Partitions | None = None
    ) -> Member:
        """Return the member after a step."""
        progress = (epoch, self.member_epoch, state, assigned, pending_revocation or NO_PARTITIONS)
        return Member._make(self[:_METADATA] + progress)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def changed_by(self, request: ConsumerHeartbeatRequest) -> Member:
        """Return the member with the fields of a request; the same object if the request changes nothing."""
        if (
            request[4:9] == _NO_CHANGE
            and request.client_id == self.client_id
            and request.client_host == self.client_host
            and request.instance_id == self.instance_id
            and self.classic is None
        ):
            return self
        names, regex = request.subscribed_topic_names, request.subscribed_topic_regex
        return self._replace(
            instance_id=self.instance_id if request.instance_id is None else request.instance_id,
            rack_id=self.rack_id if request.rack_id is None else request.rack_id,
            rebalance_timeout=self.rebalance_timeout if request.rebalance_timeout == -1 else request.rebalance_timeout,
            server_assignor=self.server_assignor if request.server_assignor is None else request.server_assignor,
            subscribed_topic_names=self.subscribed_topic_names if names is None else sorted_names(names),
            subscribed_topic_regex=self.subscribed_topic_regex if regex is None else regex,
            client_id=request.client_id,
            client_host=request.client_host,
            classic=None,
        )

    def check_heartbeat_epoch(self, epoch: int, owned: Partitions | None) -> None:
        """Raise FencedMemberEpoch unless the epoch is current, or is the last one because a response was lost."""
        if epoch in (JOIN_EPOCH, self.member_epoch):
            return
        is_subset = owned is not None and all(
            numbers <= self.assigned.get(topic_id, frozenset()) for topic_id, numbers in owned.items()
        )
        if epoch < self.member_epoch and epoch == self.previous_member_epoch and is_subset:
            return
        size = "greater" if epoch > self.member_epoch else "smaller"
        raise errors.FencedMemberEpoch(
            f"The consumer group member has a {size} member epoch ({epoch}) than the one known by the group "
            f"coordinator ({self.member_epoch}). The member must abandon all its partitions and rejoin."
        )

    def check_current_epoch(self, epoch: int) -> None:
        """Raise unless offsets are committed or fetched in the member's epoch."""
        if epoch == self.member_epoch:
            return
        if self.classic is not None:
            raise errors.IllegalGeneration(
                f"The received generation id {epoch} does not match the expected member epoch {self.member_epoch}."
            )
        raise errors.StaleMemberEpoch(
            f"The received member epoch {epoch} does not match the expected member epoch {self.member_epoch}."
        )

    # ── records ───────────────────────────────────────────────────────────────────────────────────────────────────

    def metadata_value(self) -> r.ConsumerGroupMemberMetadataValue:
        return r.ConsumerGroupMemberMetadataValue._make(self[1:_METADATA])

    def with_metadata(self, value: r.ConsumerGroupMemberMetadataValue) -> Member:
        instance_id, rack_id, client_id, client_host, names, regex, *rest = value
        metadata = (self.member_id, instance_id, rack_id, client_id, client_host, sorted_names(names), regex or "")
        return Member._make((*metadata, *rest, *self[_METADATA:]))

    def current_value(self) -> r.ConsumerGroupCurrentMemberAssignmentValue:
        return r.ConsumerGroupCurrentMemberAssignmentValue(
            self.member_epoch,
            self.previous_member_epoch,
            int(self.state),
            to_topic_partitions(self.assigned),
            to_topic_partitions(self.pending_revocation),
        )

    def with_current(self, value: r.ConsumerGroupCurrentMemberAssignmentValue) -> Member:
        epoch, previous_epoch, state, assigned, revoking = value
        progress = (epoch, previous_epoch, MemberState.of(state), to_partitions(assigned), to_partitions(revoking))
        return Member._make(self[:_METADATA] + progress)


_METADATA = Member._fields.index("member_epoch")
"""How many fields are metadata."""


class Change(NamedTuple):
    """A member before and after a request."""

    before: Member
    after: Member
    replaces: Member | None = None
    """The static member whose place it takes."""
    is_new: bool = False
    """Neither the member nor a static predecessor is in the group."""

    @property
    def leaving(self) -> tuple[Member, ...]:
        """The present member whose place `after` takes, if there is one."""
        if self.replaces is not None:
            return (self.replaces,)
        return () if self.is_new else (self.before,)


def sorted_names(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(names)))


def to_topic_partitions(partitions: Partitions) -> tuple[r.TopicPartitions, ...]:
    """Return partitions as in records and responses, in a fixed order."""
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
    """Return the partitions of a record or request, without topics that have none."""
    found: dict[UUID, frozenset[int]] = {}
    for entry in topic_partitions:
        if entry.topic_id is not None and entry.partitions:
            numbers = frozenset(entry.partitions)
            present = found.setdefault(entry.topic_id, numbers)
            if present is not numbers:
                found[entry.topic_id] = present | numbers
    return found
