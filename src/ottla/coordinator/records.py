"""The records of ``__consumer_offsets``: Kafka's types, byte for byte, and one of our own.

A key begins with the number of its type, a value with the version of its layout. A value of None is a tombstone. An
unknown type decodes to :class:`UnknownKey` and is skipped, as in Kafka: a newer broker may have written it. A new type
needs one or two tuples here, a layout in ``_record_schemas`` and a row in the table of ``serde``.

Our own is why a group rebalanced. Kafka and its tools must not stumble over it, so on disk it is the tombstone of an
offset that nobody can commit, and its content is in a header (see ``serde``). Older versions had a type for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple, Self, TypeAlias, TypeVar
from uuid import UUID

from ottla.types import Millis

OLD_HISTORY_TYPE = 0x6F74
"""The letters "ot"."""
HISTORY_TOPIC = "ottla:rebalance-history"
"""In place of a topic in the key of an offset. No topic can have this name."""
HISTORY_HEADER = "ottla.rebalance"
Class = TypeVar("Class", bound=type)


def typed(cls: Class) -> Class:
    """Make a tuple equal to tuples of its own class only, because the class of a key is the type of its record."""

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
    """Type 0, from brokers before 0.9. Read, but never written."""

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
    """Set only if an old client asked for its own retention."""
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
    """Type 4. Since 4.1 Kafka writes only tombstones."""

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
    """What only members of the classic protocol have in a consumer group."""

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
    """A group has a fixed number of slots, which are overwritten in turn."""

    group_id: str
    slot: int


@dataclass(frozen=True, slots=True)
class OldHistoryKey:
    """Type `OLD_HISTORY_TYPE`: the key of older versions. Its records are read, and removed one by one."""

    group_id: str
    slot: int


@dataclass(frozen=True, slots=True)
class Who:
    """How people identify a member."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class Trigger:
    """An event that made, or could have made, the group rebalance. The kinds are in ``history``."""

    kind: str
    at: Millis
    who: Who | None = None
    reason: str = ""
    """The client's reason (KIP-800). If no client caused the event, what changed."""


@dataclass(frozen=True, slots=True)
class Latecomer:
    """A member that the others waited for."""

    who: Who
    waited: Millis
    removed: bool
    """It never joined, and was removed from the group."""
    did: str = ""
    """What it did late, if not joining."""


@dataclass(frozen=True, slots=True)
class PartitionMove:
    topic: str
    partition: int
    source: str | None
    target: str | None
    """Member ids, or None."""


@dataclass(frozen=True, slots=True)
class HistoryValue:
    """One rebalance, from its first trigger to its end, or so far if it is under way."""

    number: int
    """Counts the rebalances of the group from 0."""
    generation: int
    """The generation (or group epoch) that it led to, or -1."""
    outcome: str
    protocol: str
    """The assignor that was chosen."""
    started_at: Millis
    joined_at: Millis
    """When the last member joined, or -1."""
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
    """In a consumer group: when the last partition that had to move was revoked, or -1."""
    waiting_for: tuple[Who, ...] = ()
    """In a classic group that rebalances: the members that have not joined again, or the leader."""


# ── together ──────────────────────────────────────────────────────────────────────────────────────────────────────


@typed
class UnknownKey(NamedTuple):
    """A key of an unknown type, or a value of an unknown version. Its bytes are kept for dumps."""

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
    | OldHistoryKey
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
"""The types that a committed offset consists of, for the kernels."""
