"""Groups that change from one protocol to the other while their members work (KIP-848, online migration).

Upgrade: the first member of the consumer protocol that joins a classic group makes it a consumer group, with the same
members, epochs that continue the generation, and the present assignment as target. Downgrade: when the last member of
the consumer protocol leaves, the others become a classic group, which rebalances. Either way the tombstones of the one
and the records of the other are written together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from ottla import errors
from ottla.assignors import Assignment
from ottla.assignors.embedded import (
    HIGHEST_VERSION,
    PROTOCOL_TYPE,
    MalformedProtocol,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic import members as classic
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.classic.logged import generation_record
from ottla.coordinator.classic.states import Status
from ottla.coordinator.config import GroupConfig
from ottla.coordinator.consumer.logged import LoggedGroup
from ottla.coordinator.consumer.member import Member, Partitions, sorted_names
from ottla.coordinator.consumer.topics import metadata_hash
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import TopicInfo
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.coordinator.consumer.group import ConsumerGroup

Topics = Mapping[str, TopicInfo]


# ── upgrade ───────────────────────────────────────────────────────────────────────────────────────────────────────


def upgrade(old: ClassicGroup, group: ConsumerGroup, fx: Effects) -> None:
    """Make a new group the successor of a classic one.

    Nobody sees the new group until the log has its records. It replays them at once, because a member joins it next.
    The classic group stays as it is: the request of that member may still be rejected.
    """
    topics = group.shard.topics()
    members: list[Member] = []
    if old.members:
        _check_upgrade(old, group.shard.config)
        members = _members_of(old, topics)
    fx.write(r.GroupMetadataKey(old.group_id), None)
    if not members:
        return
    start = len(fx.records)
    names = {name for member in members for name in member.subscribed_topic_names}
    hash_now = metadata_hash(names, topics) if _is_covered(names, members, topics) else 0
    for member in members:
        group.writer.member(member, fx)
    group.writer.epoch(old.generation, hash_now, fx)
    group.writer.new_target({member.member_id: member.assigned for member in members}, old.generation, fx)
    for member in members:
        group.writer.current(member, fx)
        group.timers.touch(member, fx)
    for record in fx.records[start:]:
        group.replay(record.key, record.value)
    if old.trace is not None:
        group.history.start(old.trace.copy())


def _is_covered(names: Iterable[str], members: Iterable[Member], topics: Topics) -> bool:
    """Return whether members own all partitions. A topic may have got more since the leader assigned them."""
    assigned: Counter[UUID] = Counter()
    for member in members:
        assigned.update({topic_id: len(numbers) for topic_id, numbers in member.assigned.items()})
    return all(assigned[topics[name].topic_id] == topics[name].partitions for name in names if name in topics)


def _check_upgrade(old: ClassicGroup, config: GroupConfig) -> None:
    problem = None
    if not config.upgrade_enabled:
        problem = "online upgrade is disabled"
    elif not old.status.uses_consumer_protocol:
        problem = "the group does not use the consumer embedded protocol"
    elif len(old.members) > config.group_consumer_max_size:
        problem = "the group size exceeds the consumer group maximum size"
    if problem is not None:
        raise errors.GroupIdNotFound(
            f"Cannot upgrade classic group {old.group_id} to consumer group because {problem}."
        )


def _members_of(old: ClassicGroup, topics: Topics) -> list[Member]:
    try:
        return [_to_consumer(member, old, topics) for member in old.members.values()]
    except MalformedProtocol as error:
        raise errors.GroupIdNotFound(
            f"Cannot upgrade classic group {old.group_id} to consumer group because the embedded consumer protocol is "
            f"malformed: {error}"
        ) from None


def _to_consumer(member: classic.Member, old: ClassicGroup, topics: Topics) -> Member:
    subscription = decode_subscription(member.metadata(old.status.protocol or member.protocols[0].name))
    protocols = tuple(r.ClassicProtocol(protocol.name, protocol.metadata) for protocol in member.protocols)
    return Member(
        member.member_id,
        instance_id=member.group_instance_id,
        rack_id=subscription.rack_id,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted_names(subscription.topics),
        rebalance_timeout=member.rebalance_timeout,
        classic=r.ClassicMemberMetadata(member.session_timeout, protocols),
        member_epoch=old.generation,
        previous_member_epoch=old.generation,
        assigned=_assigned(member.assignment, old.group_id, topics),
    )


def _assigned(data: bytes, group_id: str, topics: Topics) -> dict[UUID, frozenset[int]]:
    if not data:
        return {}  # It has not synced yet.
    assignment = decode_assignment(data)
    if assignment.user_data:
        raise errors.GroupIdNotFound(
            f"Cannot upgrade classic group {group_id} to consumer group because an unsupported custom assignor is in "
            "use. Please refer to the documentation or switch to a default assignor before re-attempting the upgrade."
        )
    return {
        topics[name].topic_id: frozenset(numbers)
        for name, numbers in assignment.partitions.items()
        if name in topics and numbers
    }


# ── downgrade ─────────────────────────────────────────────────────────────────────────────────────────────────────


def can_downgrade(logged: LoggedGroup, config: GroupConfig, leaving: Collection[Member], joining: int = 0) -> bool:
    """Return whether only members of the classic protocol are left after some left and some of that protocol joined."""
    left = len(logged.members) - len(leaving)
    classic_left = logged.subscriptions.classic_members - sum(member.classic is not None for member in leaving)
    return left == classic_left and 0 < left + joining <= config.group_max_size and config.downgrade_enabled


def classic_record(members: Collection[Member], epoch: int, topics: Topics, *, now: Millis) -> r.GroupMetadataValue:
    """Return the record of a classic group of these members. They keep what they have until it has rebalanced.

    Kafka writes their targets instead, in which a partition may still belong to another member. The record has no
    leader: if the broker stops before the rebalance is over, a group without a leader rebalances when it is loaded.
    """
    status, roster = Status(now=now), classic.Roster()
    for member in members:
        roster.add(_to_classic(member))
    status.protocol_type, status.protocol, status.generation = PROTOCOL_TYPE, roster.vote(), epoch
    assignments = {
        member.member_id: encoded_assignment(
            member.assigned, roster.members[member.member_id].metadata(status.protocol), topics
        )
        for member in members
    }
    return generation_record(status, roster.members.values(), None, assignments)


def _to_classic(member: Member) -> classic.Member:
    assert member.classic is not None
    return classic.Member(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        member.rebalance_timeout,
        member.classic.session_timeout,
        tuple(m.MemberProtocol(protocol.name, protocol.metadata) for protocol in member.classic.supported_protocols),
    )


def encoded_assignment(partitions: Partitions, subscription: bytes, topics: Topics) -> bytes:
    """Return an assignment in the embedded protocol, in the version of the member's subscription."""
    names = {info.topic_id: name for name, info in topics.items()}
    by_name = {names[topic_id]: sorted(numbers) for topic_id, numbers in partitions.items() if topic_id in names}
    return encode_assignment(Assignment(by_name), min(version_of(subscription), HIGHEST_VERSION))
