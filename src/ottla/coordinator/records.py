"""The records of ``__consumer_offsets``: Kafka's types, byte for byte, and one of our own.

A key begins with a number that says its type, a value with the version of its layout; a value of None is a tombstone.
A type that nobody knows decodes to :class:`UnknownKey` and is passed over, as Kafka does: it may be left from a newer
broker. A new type is a dataclass or two here, a layout in ``_record_schemas`` and a row in the table of ``serde``.

Our own type is `HISTORY_TYPE`, why a group rebalanced. Its number lies far from those that Kafka has given out (0 to
23), so that Kafka's broker and tools pass over it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.types import Millis

HISTORY_TYPE = 0x6F74
"""The letters "ot"."""


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


@dataclass(frozen=True, slots=True)
class GroupMetadataKey:
    """Type 2."""

    group_id: str


@dataclass(frozen=True, slots=True)
class MemberMetadata:
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: Millis
    session_timeout: Millis
    subscription: bytes
    assignment: bytes


@dataclass(frozen=True, slots=True)
class GroupMetadataValue:
    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    current_state_timestamp: Millis
    members: tuple[MemberMetadata, ...]


# ── consumer groups (KIP-848) ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataKey:
    """Type 3."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupMetadataValue:
    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataKey:
    """Type 4. Kafka has written no values of it since 4.1, only tombstones."""

    group_id: str


@dataclass(frozen=True, slots=True)
class PartitionRacks:
    partition: int
    racks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic_id: UUID | None
    topic_name: str
    num_partitions: int
    partition_metadata: tuple[PartitionRacks, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupPartitionMetadataValue:
    topics: tuple[TopicMetadata, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataKey:
    """Type 5."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ClassicProtocol:
    name: str
    metadata: bytes


@dataclass(frozen=True, slots=True)
class ClassicMemberMetadata:
    """What a member of the classic protocol in a consumer group brought along."""

    session_timeout: Millis
    supported_protocols: tuple[ClassicProtocol, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupMemberMetadataValue:
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None = None
    rebalance_timeout: Millis = -1
    server_assignor: str | None = None
    classic_member_metadata: ClassicMemberMetadata | None = None


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataKey:
    """Type 6."""

    group_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMetadataValue:
    assignment_epoch: int


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberKey:
    """Type 7."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class TopicPartitions:
    topic_id: UUID | None
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupTargetAssignmentMemberValue:
    topic_partitions: tuple[TopicPartitions, ...]


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentKey:
    """Type 8."""

    group_id: str
    member_id: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupCurrentMemberAssignmentValue:
    member_epoch: int
    previous_member_epoch: int
    state: int
    assigned_partitions: tuple[TopicPartitions, ...] = ()
    partitions_pending_revocation: tuple[TopicPartitions, ...] = ()


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionKey:
    """Type 16."""

    group_id: str
    regular_expression: str


@dataclass(frozen=True, slots=True)
class ConsumerGroupRegularExpressionValue:
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
    """What the client gave as its reason (KIP-800)."""


@dataclass(frozen=True, slots=True)
class Latecomer:
    """A member that the others waited for."""

    who: Who
    waited: Millis
    removed: bool
    """It did not come at all, and is out of the group."""


@dataclass(frozen=True, slots=True)
class PartitionMove:
    topic: str
    partition: int
    source: str | None
    target: str | None
    """Member ids; None for nobody."""


@dataclass(frozen=True, slots=True)
class HistoryValue:
    """One rebalance, from its first trigger to its end."""

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


# ── together ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class UnknownKey:
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
