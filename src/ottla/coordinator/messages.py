"""The requests and responses of the coordinator: frozen values, the same for every version of the protocol.

The broker's handlers translate between these and the messages on the wire. An operation on members (join, sync,
heartbeat, leave) never raises: its response has an ``error_code``. An operation on offsets or on a whole group raises a
class of `ottla.errors` if the whole request is wrong. Otherwise its response has a code for each part.
Messages of the consumer protocol (KIP-848) are in ``consumer_messages``.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias
from uuid import UUID

from ottla.types import Millis

NO_GENERATION = -1
UNKNOWN_MEMBER_ID = ""
#: The version of OffsetCommit and OffsetFetch for callers inside the broker.
LATEST_VERSION = 32_767


class MemberProtocol(NamedTuple):
    """An assignor that a member supports, with its subscription in the format of that assignor."""

    name: str
    metadata: bytes


# ── join ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class JoinRequest(NamedTuple):
    group_id: str
    session_timeout: Millis
    rebalance_timeout: Millis
    """Version 0 has none on the wire. Then it is the session timeout."""
    protocol_type: str
    protocols: tuple[MemberProtocol, ...]
    member_id: str = UNKNOWN_MEMBER_ID
    group_instance_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    reason: str = ""
    requires_known_member_id: bool = True
    """Version 4 and later: a new member gets its id first, and then joins with it."""
    supports_skipping_assignment: bool = True
    """Version 9 and later: a leader can be told to keep the present assignment."""


class JoinedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    metadata: bytes


class JoinResponse(NamedTuple):
    error_code: int = 0
    generation_id: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    """Versions below 7 have no null: the handler writes an empty string."""
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = UNKNOWN_MEMBER_ID
    members: tuple[JoinedMember, ...] = ()


# ── sync ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class MemberAssignment(NamedTuple):
    member_id: str
    assignment: bytes


class SyncRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


class SyncResponse(NamedTuple):
    error_code: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


# ── heartbeat, leave ──────────────────────────────────────────────────────────────────────────────────────────────


class HeartbeatRequest(NamedTuple):
    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


class HeartbeatResponse(NamedTuple):
    error_code: int = 0


class LeavingMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    reason: str = ""


class LeaveRequest(NamedTuple):
    group_id: str
    members: tuple[LeavingMember, ...]
    """Versions below 3 have one."""


class LeftMember(NamedTuple):
    member_id: str
    group_instance_id: str | None = None
    error_code: int = 0


class LeaveResponse(NamedTuple):
    error_code: int = 0
    """Versions below 3 have no members in the response: the handler puts the member's code here."""
    members: tuple[LeftMember, ...] = ()


# ── offsets ───────────────────────────────────────────────────────────────────────────────────────────────────────


class OffsetToCommit(NamedTuple):
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""
    topic_id: UUID | None = None
    """From version 10 on. The handler has looked up the name."""


Offset: TypeAlias = tuple[str, int, int, int, str | None, UUID | None]
"""An `OffsetToCommit`, or a plain tuple of the same values, which is made in a quarter of the time."""


class CommitRequest(NamedTuple):
    """OffsetCommit, without the partitions that do not exist: the handler rejects them."""

    group_id: str
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    """In a consumer group, the member epoch."""
    group_instance_id: str | None = None
    retention_time: Millis = -1
    """Versions 2 to 4: how long to keep the offsets, or -1 for the broker's retention."""
    api_version: int = LATEST_VERSION
    offsets: tuple[Offset, ...] | bytes = ()
    """Packed offsets are bytes, see ``records/packed.py``. Their metadata is never too long."""


class CommitResponse(NamedTuple):
    error_codes: tuple[int, ...] = ()
    """One for each offset, in the order of the request. Packed offsets have none, because all are accepted."""


ALL_TAKEN = CommitResponse()


class TransactionalCommitRequest(NamedTuple):
    """TxnOffsetCommit: the offsets are valid once the transaction of the producer is committed."""

    group_id: str
    transactional_id: str
    producer_id: int
    producer_epoch: int
    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None
    api_version: int = LATEST_VERSION
    offsets: tuple[Offset, ...] = ()


class TopicToFetch(NamedTuple):
    topic: str
    partitions: tuple[int, ...]
    topic_id: UUID | None = None


class FetchRequest(NamedTuple):
    """OffsetFetch of one group."""

    group_id: str
    topics: tuple[TopicToFetch, ...] | None = None
    """None for all committed offsets of the group."""
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


class FetchedPartition(NamedTuple):
    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error_code: int = 0


class FetchResponse(NamedTuple):
    group_id: str
    partitions: tuple[FetchedPartition, ...] = ()
    """In the order of the request."""


class DeleteOffsetsRequest(NamedTuple):
    group_id: str
    partitions: tuple[tuple[str, int], ...]


class DeletedOffset(NamedTuple):
    topic: str
    partition: int
    error_code: int = 0


class DeleteOffsetsResponse(NamedTuple):
    partitions: tuple[DeletedOffset, ...] = ()


# ── groups as a whole ─────────────────────────────────────────────────────────────────────────────────────────────


class ListedGroup(NamedTuple):
    group_id: str
    protocol_type: str
    state: str
    type: str


class DescribedMember(NamedTuple):
    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes
    assignment: bytes


class DescribedGroup(NamedTuple):
    """DescribeGroups of one group."""

    group_id: str
    error_code: int = 0
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


class DeletedGroup(NamedTuple):
    group_id: str
    error_code: int = 0
