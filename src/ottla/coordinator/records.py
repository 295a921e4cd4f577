"""The records of ``__consumer_offsets``: Kafka's types, byte for byte, and one of our own.

A key begins with a number that says its type, a value with the version of its layout; a value of None is a tombstone.
A type that nobody knows decodes to :class:`UnknownKey` and is passed over, as Kafka does: it may be left from a newer
broker. A new type is a tuple or two here, a layout in ``_record_schemas`` and a row in the table of ``serde``.

Our own type is `HISTORY_TYPE`, why a group rebalanced. Its number lies far from those that Kafka has given out (0 to
23), so that Kafka's broker and tools pass over it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias, TypeVar
from uuid import UUID

from ottla.types import Millis

HISTORY_TYPE = 0x6F74
"""The letters "ot"."""
Class = TypeVar("Class", bound=type)


def typed(cls: Class) -> Class:
    """Let a tuple equal only tuples of its own class: a key says by its class what kind of a record it is."""

    def equals(self: tuple[object, ...], other: object) -> bool:
        return type(self) is type(other) and tuple.__eq__(self, other)

    def differs(self: tuple[object, ...], other: object) -> bool:
        return not equals(self, other)

    cls.__eq__, cls.__ne__, cls.__hash__ = equals, differs, _hash  # type: ignore[assignment]
    return cls


def _hash(self: tuple[object, ...]) -> int:
    return hash((type(self), *self))


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class LegacyOffsetCommitKey:
    """Type 0, of brokers before 0.9; read, never written."""

    group_id: str
    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class LegacyOffsetCommitValue:
    offset: int
    metadata: str
    commit_timestamp: Millis


class OffsetCommitKey(NamedTuple):
    """Type 1."""

    group_id: str
    topic: str
    partition: int


class OffsetCommitValue(NamedTuple):
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: Millis = -1
    expire_timestamp: Millis = -1
    """Only where the client asked for a retention of its own, which new clients cannot."""
    topic_id: UUID | None = None


# ── classic groups ────────────────────────────────────────────────────────────────────────────────────────────────


@typed
class GroupMetadataKey(NamedTuple):
    """Type 2."""

    group_id: str


@typed
class MemberMetadata(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: Millis
    session_timeout: Millis
    subscription: bytes
    assignment: bytes


@typed
class GroupMetadataValue(NamedTuple):
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: Millis
    members: tuple[MemberMetadata, ...]


# ── consumer groups (KIP-848) ─────────────────────────────────────────────────────────────────────────────────────


@typed
class ConsumerGroupMetadataKey(NamedTuple):
    """Type 3."""

    group_id: str


@typed
class ConsumerGroupMetadataValue(NamedTuple):
    epoch: int
    metadata_hash: int = 0


@typed
class ConsumerGroupPartitionMetadataKey(NamedTuple):
    """Type 4. Kafka has written no values of it since 4.1, only tombstones."""

    group_id: str


@typed
class PartitionRacks(NamedTuple):
    partition: int
    racks: tuple[str, ...]


@typed
class TopicMetadata(NamedTuple):
    topic_id: UUID | None
    topic_name: str
    num_partitions: int
    partition_metadata: tuple[PartitionRacks, ...] = ()


@typed
class ConsumerGroupPartitionMetadataValue(NamedTuple):
    topics: tuple[TopicMetadata, ...]


@typed
class ConsumerGroupMemberMetadataKey(NamedTuple):
    """Type 5."""

    group_id: str
    member_id: str


@typed
class ClassicProtocol(NamedTuple):
    name: str
    metadata: bytes


@typed
class ClassicMemberMetadata(NamedTuple):
    """What a member of the classic protocol in a consumer group brought along."""

    session_timeout: Millis
    supported_protocols: tuple[ClassicProtocol, ...]


@typed
class ConsumerGroupMemberMetadataValue(NamedTuple):
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None = None
    rebalance_timeout: Millis = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None


@typed
class ConsumerGroupTargetAssignmentMetadataKey(NamedTuple):
    """Type 6."""

    group_id: str


@typed
class ConsumerGroupTargetAssignmentMetadataValue(NamedTuple):
    assignment_epoch: int


@typed
class ConsumerGroupTargetAssignmentMemberKey(NamedTuple):
    """Type 7."""

    group_id: str
    member_id: str


@typed
class TopicPartitions(NamedTuple):
    topic_id: UUID | None
    partitions: tuple[int, ...]


@typed
class ConsumerGroupTargetAssignmentMemberValue(NamedTuple):
    topic_partitions: tuple[TopicPartitions, ...]


@typed
class ConsumerGroupCurrentMemberAssignmentKey(NamedTuple):
    """Type 8."""

    group_id: str
    member_id: str


@typed
class ConsumerGroupCurrentMemberAssignmentValue(NamedTuple):
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TopicPartitions, ...] = ()
    partitions_pending_revocation: tuple[TopicPartitions, ...] = ()


@typed
class ConsumerGroupRegularExpressionKey(NamedTuple):
    """Type 16."""

    group_id: str
    regular_expression: str


@typed
class ConsumerGroupRegularExpressionValue(NamedTuple):
    topics: tuple[str, ...]
    version: int
    timestamp: Millis


# ── history, our own ──────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class HistoryKey:
    """Type `HISTORY_TYPE`. A group has a fixed number of slots, written over in turn: compaction keeps the last."""

    group_id: str
    slot: int


@dataclass(frozen=True, slots=True)
class Who:
    """A member as a person knows it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """Something that made, or would have made, the group rebalance. The kinds are in ``history``."""

    kind: str
    at: Millis
    who: Who | None = None
    reason: str = ""
    """What the client gave as its reason (KIP-800); where there is no client, what changed."""


@dataclass(frozen=True, slots=True)
class Latecomer:
    """A member that the others waited for."""

    who: Who
    waited: Millis
    removed: bool
    """It did not come at all, and is out of the group."""
    did: str = ""
    """What it did so late, where that was not to join."""


@dataclass(frozen=True, slots=True)
class PartitionMove:
    topic: str
    partition: int
    source: str | None
    target: str | None
    """Member ids; None for nobody."""


@dataclass(frozen=True, slots=True)
class HistoryValue:
    """One rebalance, from its first trigger to its end, or to now if it is under way."""

    number: int
    """Counts the rebalances of the group, the first is 0."""
    generation: int
    """The generation (or group epoch) that it led to, or -1 if it led to none."""
    outcome: str
    protocol: str
    """The assignor that was chosen."""
    started_at: Millis
    joined_at: Millis
    """When the last member had joined; -1 if that never was."""
    ended_at: Millis
    members: int
    leader: str
    triggers: tuple[Trigger, ...]
    triggers_left_out: int
    late: tuple[Latecomer, ...]
    partitions_kept: int
    partitions_moved: int
    moves: tuple[PartitionMove, ...]
    """The first of the partitions that moved."""
    revoked_at: Millis = -1
    """In a consumer group: when the last member had given up what others were to get; -1 if nobody had to."""
    waiting_for: tuple[Who, ...] = ()
    """In a classic group whose rebalance is under way: those that have not joined again, or the leader."""


# ── together ──────────────────────────────────────────────────────────────────────────────────────────────────────


@typed
class UnknownKey(NamedTuple):
    """A key of a type, or a value of a version, that this broker does not know; its bytes are kept for the dump."""

    type: int
    key: bytes
    value: bytes | None
    why: str


Key: TypeAlias = (
    LegacyOffsetCommitKey
    | OffsetCommitKey
    | GroupMetadataKey
    | ConsumerGroupMetadataKey
    | ConsumerGroupPartitionMetadataKey
    | ConsumerGroupMemberMetadataKey
    | ConsumerGroupTargetAssignmentMetadataKey
    | ConsumerGroupTargetAssignmentMemberKey
    | ConsumerGroupCurrentMemberAssignmentKey
    | ConsumerGroupRegularExpressionKey
    | HistoryKey
    | UnknownKey
)
Value: TypeAlias = (
    LegacyOffsetCommitValue
    | OffsetCommitValue
    | GroupMetadataValue
    | ConsumerGroupMetadataValue
    | ConsumerGroupPartitionMetadataValue
    | ConsumerGroupMemberMetadataValue
    | ConsumerGroupTargetAssignmentMetadataValue
    | ConsumerGroupTargetAssignmentMemberValue
    | ConsumerGroupCurrentMemberAssignmentValue
    | ConsumerGroupRegularExpressionValue
    | HistoryValue
)


class CoordinatorRecord(NamedTuple):
    """A key and its value, or a tombstone."""

    key: Key
    value: Value | None

    @property
    def is_tombstone(self) -> bool:
        return self.value is None


class TransactionalRecords(tuple[CoordinatorRecord, ...]):
    """The records of one outcome that count when the transaction of a producer is committed."""

    producer_id: int
    producer_epoch: int

    def __new__(cls, records: Iterable[CoordinatorRecord], producer_id: int, producer_epoch: int) -> Self:
        new = super().__new__(cls, records)
        new.producer_id, new.producer_epoch = producer_id, producer_epoch
        return new


COMMIT_TYPES = (OffsetCommitKey, OffsetCommitValue, CoordinatorRecord)
"""What a commit of an offset is made of, for the kernels that make it."""
