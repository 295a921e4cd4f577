"""A coordinator in virtual time with topics and members of the consumer protocol, for the tests that begin with
``test_consumer``. It adds to `GroupContext` what is about that protocol.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from ottla.assignors import Assignor
from ottla.coordinator import records as r
from ottla.coordinator.config import Times
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.member import MemberState, Partitions
from ottla.coordinator.consumer.messages import ConsumerHeartbeatRequest, DescribedConsumerGroup
from ottla.coordinator.group import TopicInfo
from unit.coordinator.group_context import GROUP, Call, GroupContext, WatchedCoordinator

REBALANCE = 300_000
SESSION = 45_000
Record = r.CoordinatorRecord


def topic_id(number: int) -> UUID:
    return UUID(int=number)


ORDERS, USERS, PRICES = topic_id(1), topic_id(2), topic_id(3)


def topics(**partitions: int) -> dict[str, TopicInfo]:
    """Topics by name; the first ones have the ids above whatever their order."""
    known = {"orders": ORDERS, "users": USERS, "prices": PRICES}
    return {
        name: TopicInfo(known.get(name, topic_id(100 + position)), count)
        for position, (name, count) in enumerate(partitions.items())
    }


def having(**partitions: Sequence[int]) -> tuple[r.TopicPartitions, ...]:
    """What a member has, or is given: ``having(orders=[0, 1])``."""
    known = {"orders": ORDERS, "users": USERS, "prices": PRICES}
    return tuple(r.TopicPartitions(known[name], tuple(numbers)) for name, numbers in partitions.items())


@dataclass
class ConsumerContext(GroupContext):
    """One shard with its topics."""

    topics: dict[str, TopicInfo] = field(default_factory=lambda: topics(orders=6, users=3))
    assignors: Sequence[Assignor] | None = None
    times: dict[str, Times] = field(default_factory=dict)

    def new_coordinator(self) -> WatchedCoordinator:
        return WatchedCoordinator(
            self.config,
            new_id=lambda: f"id-{next(self._ids)}",
            topics=lambda: self.topics,
            assignors=self.assignors,
            times_of=self.times.get,
        )

    # ── members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def beat(self, member_id: str, epoch: int, /, **changes: Any) -> Call:
        """Send one ConsumerGroupHeartbeat that says nothing but what is given."""
        fields: dict[str, Any] = {
            "group_id": GROUP,
            "member_id": member_id,
            "member_epoch": epoch,
            "client_id": "client",
            "client_host": "/127.0.0.1",
        }
        return self.run(self.coordinator.consumer_heartbeat, ConsumerHeartbeatRequest(**{**fields, **changes}))

    def enroll(self, member_id: str, /, *names: str, **changes: Any) -> Call:
        """Join with a subscription to topics, orders unless others are given."""
        fields: dict[str, Any] = {
            "rebalance_timeout": REBALANCE,
            "subscribed_topic_names": names or ("orders",),
            "topic_partitions": (),
        }
        return self.beat(member_id, 0, **{**fields, **changes})

    def settle_consumers(self) -> None:
        """Let every member send heartbeats and do as it is told, until nothing changes any more."""
        for _ in range(10 * (1 + len(self.consumers.members))):
            before = self.described()
            for member_id, member in list(self.consumers.members.items()):
                if member.classic is None and member.member_epoch >= 0:
                    owned = tuple(
                        r.TopicPartitions(topic, tuple(sorted(numbers))) for topic, numbers in member.assigned.items()
                    )
                    self.beat(member_id, member.member_epoch, instance_id=member.instance_id, topic_partitions=owned)
            if self.described() == before:
                return
        raise AssertionError("the group does not settle")

    def grow(self, **partitions: int) -> None:
        """Create topics, or give topics more partitions."""
        created = not partitions.keys() <= self.topics.keys()
        for name, count in partitions.items():
            old = self.topics.get(name)
            known = topics(**{name: count})[name]
            self.topics[name] = TopicInfo(old.topic_id if old else known.topic_id, count)
        self.run(self.coordinator.topics_changed, list(partitions), created=created)

    def drop_topic(self, name: str) -> None:
        del self.topics[name]
        self.run(self.coordinator.topics_changed, [name], created=False)

    # ── the group ─────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def consumers(self) -> ConsumerGroup:
        group = self.coordinator.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    def described(self, group_id: str = GROUP) -> DescribedConsumerGroup:
        described: DescribedConsumerGroup = self.run(self.coordinator.describe_consumer, group_id).response
        return described

    def assigned(self) -> dict[str, dict[str, list[int]]]:
        """Who has what, by names."""
        return {
            member.member_id: {each.topic_name: list(each.partitions) for each in member.assignment}
            for member in self.described().members
        }


# ── records, as short as they can be said ─────────────────────────────────────────────────────────────────────────


def member_record(member_id: str, *names: str, **changes: Any) -> Record:
    fields: dict[str, Any] = {
        "instance_id": None,
        "rack_id": None,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "subscribed_topic_names": names or ("orders",),
        "subscribed_topic_regex": "",
        "rebalance_timeout": REBALANCE,
    }
    value = r.ConsumerGroupMemberMetadataValue(**{**fields, **changes})
    return Record(r.ConsumerGroupMemberMetadataKey(GROUP, member_id), value)


def target_record(member_id: str, **partitions: Sequence[int]) -> Record:
    value = r.ConsumerGroupTargetAssignmentMemberValue(having(**partitions))
    return Record(r.ConsumerGroupTargetAssignmentMemberKey(GROUP, member_id), value)


def target_epoch_record(epoch: int) -> Record:
    value = r.ConsumerGroupTargetAssignmentMetadataValue(epoch)
    return Record(r.ConsumerGroupTargetAssignmentMetadataKey(GROUP), value)


def current_record(
    member_id: str,
    epoch: int,
    previous: int,
    *,
    state: MemberState = MemberState.STABLE,
    assigned: tuple[r.TopicPartitions, ...] = (),
    revoking: tuple[r.TopicPartitions, ...] = (),
) -> Record:
    value = r.ConsumerGroupCurrentMemberAssignmentValue(epoch, previous, int(state), assigned, revoking)
    return Record(r.ConsumerGroupCurrentMemberAssignmentKey(GROUP, member_id), value)


def epoch_record(epoch: int, metadata_hash: int) -> Record:
    return Record(r.ConsumerGroupMetadataKey(GROUP), r.ConsumerGroupMetadataValue(epoch, metadata_hash))


def tombstones(member_id: str) -> list[Record]:
    """What is written when a member goes."""
    return [
        Record(r.ConsumerGroupCurrentMemberAssignmentKey(GROUP, member_id), None),
        Record(r.ConsumerGroupTargetAssignmentMemberKey(GROUP, member_id), None),
        Record(r.ConsumerGroupMemberMetadataKey(GROUP, member_id), None),
    ]


def session_timer(member_id: str) -> Hashable:
    return ("consumer-session", GROUP, member_id)


def rebalance_timer(member_id: str) -> Hashable:
    return ("consumer-rebalance", GROUP, member_id)


def partitions_of(partitions: Partitions) -> Mapping[UUID, list[int]]:
    return {topic: sorted(numbers) for topic, numbers in partitions.items()}


def group_of(*members: str) -> ConsumerContext:
    """A group of these members that has settled."""
    context = ConsumerContext()
    for member in members:
        context.enroll(member)
    context.settle_consumers()
    return context
