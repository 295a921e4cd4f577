"""Groups that go over from one protocol to the other while their members work (KIP-848, online migration).

Up: the first member of the consumer protocol that joins a classic group makes a consumer group of it, with the same
members, epochs that go on from the generation, and the present assignment as target. Down: when the last member of the
consumer protocol has gone, a classic group is made of those that stay, and it rebalances. Either way the tombstones of
the one and the records of the other are written together.
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
    MalformedProtocol,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    version_of,
)
from ottla.coordinator import messages as m
from ottla.coordinator import records as r
from ottla.coordinator.classic import members as classic
from ottla.coordinator.classic.group import DOWNGRADED, ClassicGroup
from ottla.coordinator.classic.logged import generation_record
from ottla.coordinator.classic.states import CONSUMER_PROTOCOL_TYPE, Status
from ottla.coordinator.consumer_member import Member, Partitions, sorted_names
from ottla.coordinator.consumer_target import metadata_hash
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import TopicInfo

if TYPE_CHECKING:
    from ottla.coordinator.consumer_rebalance import ConsumerRebalance


# ── up ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def upgrade(old: ClassicGroup, group: ConsumerRebalance, fx: Effects) -> None:
    """Make a consumer group of a classic one, which has its state at once, and again when the records are replayed.

    The classic group and its history stay as they are: the request may still be refused.
    """
    members: list[Member] = []
    if old.members:
        _check_upgrade(old)
        members = _members_of(old, group.shard.topics())
    fx.write(r.GroupMetadataKey(old.group_id), None)
    if not members:
        return
    names = {name for member in members for name in member.subscribed_topic_names}
    hash_now = metadata_hash(names, group.shard.topics()) if _is_covered(names, members, group.shard.topics()) else 0
    for member in members:
        group.write_member(member, fx)
    group.raise_epoch(old.generation, hash_now, fx)
    for member in members:
        group.write_target(member.member_id, member.assigned, fx)
    fx.write(
        r.ConsumerGroupTargetAssignmentMetadataKey(old.group_id),
        r.ConsumerGroupTargetAssignmentMetadataValue(old.generation),
    )
    for member in members:
        group.write_current(member, fx)
        group.touch(member.member_id, group.session_timeout_of(member), fx)
    group.take_over(members, old.generation, hash_now)
    if old.trace is not None:
        group.begin(old.trace.copy())


def _is_covered(names: Iterable[str], members: Iterable[Member], topics: Mapping[str, TopicInfo]) -> bool:
    """Whether every partition is with a member; a topic may have grown, and the leader has not come back for it yet."""
    assigned: Counter[UUID] = Counter()
    for member in members:
        assigned.update({topic_id: len(numbers) for topic_id, numbers in member.assigned.items()})
    return all(assigned[topics[name].topic_id] == topics[name].partitions for name in names if name in topics)


def _check_upgrade(old: ClassicGroup) -> None:
    config = old.shard.config
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


def _members_of(old: ClassicGroup, topics: Mapping[str, TopicInfo]) -> list[Member]:
    try:
        return [_to_consumer(member, old, topics) for member in old.members.values()]
    except MalformedProtocol as error:
        raise errors.GroupIdNotFound(
            f"Cannot upgrade classic group {old.group_id} to consumer group because the embedded consumer protocol is "
            f"malformed: {error}"
        ) from None


def _to_consumer(member: classic.Member, old: ClassicGroup, topics: Mapping[str, TopicInfo]) -> Member:
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


def _assigned(data: bytes, group_id: str, topics: Mapping[str, TopicInfo]) -> dict[UUID, frozenset[int]]:
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


# ── down ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def can_downgrade(group: ConsumerRebalance, leaving: Collection[Member], joining: int = 0) -> bool:
    """Whether only members of the classic protocol are left once some have gone and some of that protocol have come."""
    config = group.shard.config
    left = len(group.members) - len(leaving)
    classic_left = group.classic_members - sum(member.classic is not None for member in leaving)
    return left == classic_left and 0 < left + joining <= config.group_max_size and config.downgrade_enabled


def downgrade(group: ConsumerRebalance, members: Collection[Member], trigger: r.Trigger, fx: Effects) -> None:
    """Make a classic group of these members, which keep what they have until it has rebalanced.

    Kafka writes their targets instead, in which a partition may be that another member has not given up yet.
    """
    status, roster = Status(now=fx.now), classic.Roster()
    status.protocol_type = CONSUMER_PROTOCOL_TYPE
    status.generation = group.group_epoch
    for member in members:
        roster.add(_to_classic(member))
    status.protocol = roster.vote()
    names = {info.topic_id: name for name, info in group.shard.topics().items()}
    assignments = {
        member.member_id: _encoded(member.assigned, roster.members[member.member_id].metadata(status.protocol), names)
        for member in members
    }
    group.is_downgraded = True
    group.write_tombstones(fx)
    # Should the broker stop before the rebalance is over, a group without a leader rebalances when it is loaded.
    value = generation_record(status, roster.members.values(), None, assignments)
    fx.write(r.GroupMetadataKey(group.group_id), value)
    group.trigger(trigger.kind, fx, trigger.who, trigger.reason)
    group.tell(group.group_epoch, group.target, fx)
    # The group that the record makes is not there yet; it goes on from the timer, which is due at once.
    fx.set_timer((DOWNGRADED, group.group_id, trigger), fx.now)


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


def _encoded(partitions: Partitions, metadata: bytes, names: Mapping[UUID, str]) -> bytes:
    by_name = {names[topic_id]: sorted(numbers) for topic_id, numbers in partitions.items() if topic_id in names}
    return encode_assignment(Assignment(by_name), min(version_of(metadata), HIGHEST_VERSION))
