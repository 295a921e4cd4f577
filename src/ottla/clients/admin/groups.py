"""Groups: list, describe and delete them, over all coordinators of a cluster.

    listed = await list_groups(cluster)
    described = await describe_groups(cluster, ["orders"])      # of either protocol

The functions return the brokers' results, for each group its result or its error. The committed offsets of groups are
in `group_offsets`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from ottla.assignors.embedded import PROTOCOL_TYPE, MalformedProtocol, decode_assignment, decode_subscription
from ottla.clients.admin import checks as checks
from ottla.clients.cluster.cluster import Cluster
from ottla.clients.cluster.coordinators import Coordinator, by_broker, by_coordinator
from ottla.clients.cluster.leaders import read_error
from ottla.clients.cluster.metadata import Node
from ottla.errors import GroupIdNotFound, KafkaError, UnsupportedVersion
from ottla.net.client.connection import Connection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Struct
from ottla.types import TopicPartition

CLASSIC = "Classic"
CONSUMER = "Consumer"
DEAD = "Dead"
EMPTY = "Empty"
FIRST_WITH_STATES = 4
FIRST_WITH_TYPES = 5
_CLASSIC_MEMBER = 0


@dataclass(frozen=True, slots=True)
class ListedGroup:
    """A group in the response of ListGroups; brokers before Kafka 2.6 send no state, before 3.8 no type."""

    group_id: str
    protocol_type: str
    state: str | None
    type: str | None

    @property
    def of_consumers(self) -> bool:
        """Whether consumers use it, and not Connect, Streams or others; unknown for one that only has offsets."""
        return self.protocol_type in ("", PROTOCOL_TYPE) and self.type in (None, CLASSIC, CONSUMER)


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    topics: tuple[str, ...] = ()
    """The topics it subscribes to."""
    topic_regex: str | None = None
    assignment: tuple[TopicPartition, ...] = ()
    target: tuple[TopicPartition, ...] | None = None
    """Its assignment once it has reconciled; None in a classic group."""
    epoch: int | None = None
    rack: str | None = None
    protocol: str = CLASSIC
    """The protocol of the member: a group of the consumer protocol may have classic members too."""


@dataclass(frozen=True, slots=True)
class GroupDescription:
    group_id: str
    type: str
    state: str
    protocol_type: str
    assignor: str
    coordinator: Node
    members: tuple[GroupMember, ...] = ()
    epoch: int | None = None
    assignment_epoch: int | None = None
    """The group epoch of the target assignment; None in a classic group, as `epoch`."""


# ── list ──────────────────────────────────────────────────────────────────────────────────────────────────────────


async def list_groups(cluster: Cluster, *, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[ListedGroup]:
    """All groups by name, optionally filtered by states and types."""

    async def ask(connection: Connection) -> list[ListedGroup]:
        _check_filters(connection, states, types)
        message = {"states_filter": list(states), "types_filter": list(types)}
        response = await connection.request(ApiKey.LIST_GROUPS, message)
        if response.error_code:
            raise read_error(response.error_code)
        return [_read_listed(group) for group in response.groups]

    answers = await by_broker(cluster, ask)
    found = {group.group_id: group for answer in answers for group in answer}
    return sorted(found.values(), key=lambda group: group.group_id)


def _check_filters(connection: Connection, states: Sequence[str], types: Sequence[str]) -> None:
    version = connection.version_of(ApiKey.LIST_GROUPS)
    if states and version < FIRST_WITH_STATES:
        raise _cannot_filter(connection, "state", "2.6")
    if types and version < FIRST_WITH_TYPES:
        raise _cannot_filter(connection, "type", "3.8")


def _cannot_filter(connection: Connection, what: str, since: str) -> UnsupportedVersion:
    return UnsupportedVersion(
        f"the broker at {connection.address} cannot filter groups by {what}: that needs Kafka {since} or newer"
    )


def _read_listed(group: Struct) -> ListedGroup:
    return ListedGroup(group.group_id, group.protocol_type, group.group_state or None, _title(group.group_type) or None)


def _title(name: str) -> str:
    return name[:1].upper() + name[1:]


# ── describe ──────────────────────────────────────────────────────────────────────────────────────────────────────


async def describe_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
    """Describe groups of either protocol. One that does not exist is a `GroupIdNotFound`."""
    consumer = partial(_describe, ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids", _read_consumer)
    classic = partial(_describe, ApiKey.DESCRIBE_GROUPS, "groups", _read_classic)
    found = await by_coordinator(cluster, groups, consumer)
    # The protocol of a group is unknown before the request; an old broker only knows the classic one.
    other = [group for group, one in found.items() if isinstance(one, GroupIdNotFound | UnsupportedVersion)]
    return {**found, **await by_coordinator(cluster, other, classic)}


_Read = Callable[[Node, Struct], GroupDescription | KafkaError]


async def _describe(
    api: ApiKey, ids: str, read: _Read, coordinator: Coordinator, groups: Sequence[str]
) -> dict[str, GroupDescription | KafkaError]:
    message = {ids: list(groups), "include_authorized_operations": False}
    response = await coordinator.connection.request(api, message)
    return {group.group_id: read(coordinator.node, group) for group in response.groups}


def _read_consumer(node: Node, group: Struct) -> GroupDescription | KafkaError:
    if group.error_code:
        return read_error(group.error_code, group.error_message)
    return GroupDescription(
        group_id=group.group_id,
        type=CONSUMER,
        state=group.group_state,
        protocol_type=PROTOCOL_TYPE,
        assignor=group.assignor_name,
        coordinator=node,
        members=tuple(_read_consumer_member(member) for member in group.members),
        epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
    )


def _read_consumer_member(member: Struct) -> GroupMember:
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.instance_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=tuple(member.subscribed_topic_names),
        topic_regex=member.subscribed_topic_regex or None,
        assignment=_named_partitions(member.assignment),
        target=_named_partitions(member.target_assignment),
        epoch=member.member_epoch,
        rack=member.rack_id,
        protocol=CLASSIC if member.member_type == _CLASSIC_MEMBER else CONSUMER,
    )


def _named_partitions(assignment: Struct) -> tuple[TopicPartition, ...]:
    named = [TopicPartition(one.topic_name, number) for one in assignment.topic_partitions for number in one.partitions]
    return tuple(sorted(named))


def _read_classic(node: Node, group: Struct) -> GroupDescription | KafkaError:
    if group.error_code:
        return read_error(group.error_code, group.error_message)
    if group.group_state == DEAD:
        # Brokers before Kafka 4.0 report a missing group in this way.
        return GroupIdNotFound(f"Group {group.group_id} not found.")
    return GroupDescription(
        group_id=group.group_id,
        type=CLASSIC,
        state=group.group_state,
        protocol_type=group.protocol_type,
        assignor=group.protocol_data,
        coordinator=node,
        members=tuple(_read_classic_member(member, group.protocol_type) for member in group.members),
    )


def _read_classic_member(member: Struct, protocol_type: str) -> GroupMember:
    of_consumers = protocol_type == PROTOCOL_TYPE
    return GroupMember(
        member_id=member.member_id,
        instance_id=member.group_instance_id,
        client_id=member.client_id,
        host=member.client_host,
        topics=read_subscription(member.member_metadata) if of_consumers else (),
        assignment=read_assignment(member.member_assignment) if of_consumers else (),
    )


def read_subscription(data: bytes) -> tuple[str, ...]:
    """The topics of a classic consumer's subscription; none if the bytes are something else."""
    try:
        return tuple(sorted(decode_subscription(data).topics)) if data else ()
    except MalformedProtocol:
        return ()


def read_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions of a classic consumer's assignment; none if the bytes are something else."""
    try:
        partitions = decode_assignment(data).partitions if data else {}
    except MalformedProtocol:
        return ()
    return tuple(sorted(TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers))


# ── delete ────────────────────────────────────────────────────────────────────────────────────────────────────────


async def delete_groups(cluster: Cluster, groups: Iterable[str]) -> dict[str, KafkaError | None]:
    """Delete groups without members, and their offsets; returns the error of each, None for success."""
    return await by_coordinator(cluster, groups, _delete)


async def _delete(coordinator: Coordinator, groups: Sequence[str]) -> dict[str, KafkaError | None]:
    response = await coordinator.connection.request(ApiKey.DELETE_GROUPS, {"groups_names": list(groups)})
    return {
        result.group_id: read_error(result.error_code) if result.error_code else None for result in response.results
    }


# ── remove members ────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class MemberToRemove:
    """A member by its `group.instance.id`, or a dynamic one by the id that `describe_groups` shows."""

    instance_id: str | None = None
    member_id: str = ""

    def __post_init__(self) -> None:
        if self.instance_id is not None:
            checks.name(self.instance_id, "the group.instance.id of a member")
        checks.name(self.member_id, "the id of a member")

    @classmethod
    def given(cls, member: object) -> MemberToRemove:
        """Return a MemberToRemove, also for a `group.instance.id` alone."""
        if isinstance(member, MemberToRemove):
            return member
        return cls(checks.name(member, "a member (its group.instance.id, or a MemberToRemove)"))

    def __str__(self) -> str:
        return self.instance_id or self.member_id


async def remove_members(
    cluster: Cluster, group: str, members: Sequence[MemberToRemove], *, reason: str
) -> dict[str, KafkaError | None]:
    """Remove members from a classic group; returns the error of each, None for success."""

    async def send(coordinator: Coordinator, groups: Sequence[str]) -> dict[str, dict[str, KafkaError | None]]:
        coordinator.connection.version_of(ApiKey.LEAVE_GROUP)
        leaving = [
            {"member_id": one.member_id, "group_instance_id": one.instance_id, "reason": reason} for one in members
        ]
        response = await coordinator.connection.request(
            ApiKey.LEAVE_GROUP, {"group_id": group, "member_id": "", "members": leaving}
        )
        if response.error_code:
            raise read_error(response.error_code)
        return {groups[0]: {_removed(one): _leave_error(one) for one in response.members}}

    outcome = (await by_coordinator(cluster, [group], send))[group]
    if isinstance(outcome, KafkaError):
        raise outcome
    return outcome


def _removed(answer: Struct) -> str:
    return answer.group_instance_id or str(answer.member_id)


def _leave_error(answer: Struct) -> KafkaError | None:
    return read_error(answer.error_code) if answer.error_code else None
