"""The consumer groups of a shard together: finds or makes the group of a request, describes groups, replays records.

The coordinator has one :class:`ConsumerGroups` and gives it what is about the consumer protocol. A group that a
heartbeat makes becomes one of the shard's when its records are replayed, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla import errors
from ottla.assignors import BY_NAME, Assignor
from ottla.coordinator import records as r
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer import ConsumerGroup
from ottla.coordinator.consumer_member import Member, Partitions
from ottla.coordinator.consumer_messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    DescribedConsumer,
    DescribedConsumerGroup,
    NamedPartitions,
)
from ottla.coordinator.consumer_migration import upgrade
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import CLASSIC, Shard


def default_assignors(names: Iterable[str]) -> tuple[Assignor, ...]:
    """Return the assignors of ``group.consumer.assignors``, the first is the default."""
    chosen = tuple(names)
    unknown = [name for name in chosen if name not in BY_NAME]
    if unknown or not chosen:
        raise errors.ConfigError(
            f"group.consumer.assignors: there is no assignor {unknown or 'at all'}; those by name are "
            f"{', '.join(BY_NAME)}. One of your own is given to the coordinator as an object."
        )
    return tuple(BY_NAME[name]() for name in chosen)


class ConsumerGroups:
    """All groups of the consumer protocol in a shard."""

    def __init__(self, shard: Shard, assignors: Sequence[Assignor] | None = None) -> None:
        self.shard = shard
        chosen = default_assignors(shard.config.group_consumer_assignors) if assignors is None else assignors
        self.assignors: Mapping[str, Assignor] = {assignor.name: assignor for assignor in chosen}
        self._unborn: ConsumerGroup | None = None
        """The group whose first records are being written."""
        self.replayers: dict[type[Any], Callable[[Any, Any, int], None]] = {
            r.ConsumerGroupMetadataKey: self._replay_metadata,
            r.ConsumerGroupPartitionMetadataKey: self._replay_partition_metadata,
            r.ConsumerGroupMemberMetadataKey: self._replay_member,
            r.ConsumerGroupTargetAssignmentMetadataKey: self._replay_target_metadata,
            r.ConsumerGroupTargetAssignmentMemberKey: self._replay_target,
            r.ConsumerGroupCurrentMemberAssignmentKey: self._replay_current,
            r.ConsumerGroupRegularExpressionKey: self._replay_regex,
        }
        """What the coordinator replays by the type of the key."""

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        """ConsumerGroupHeartbeat. What is wrong is raised, and then nothing is to be done."""
        self._check(request)
        if request.member_epoch in (LEAVE_EPOCH, LEAVE_STATIC_EPOCH):
            return self._consumer_group(request.group_id).consumer_leave(request, fx)
        if request.member_epoch == JOIN_EPOCH:
            return self._join(request, fx)
        return self._consumer_group(request.group_id).consumer_heartbeat(request, fx)

    def _check(self, request: ConsumerHeartbeatRequest) -> None:
        epoch = request.member_epoch
        if (request.requires_member_id or epoch > 0 or epoch == LEAVE_EPOCH) and not request.member_id.strip():
            raise _empty("MemberId")
        if not request.group_id.strip():
            raise _empty("GroupId")
        if request.instance_id is not None and not request.instance_id.strip():
            raise _empty("InstanceId")
        if request.rack_id is not None and not request.rack_id.strip():
            raise _empty("RackId")
        if epoch == JOIN_EPOCH:
            _check_join(request)
        if epoch == LEAVE_STATIC_EPOCH and request.instance_id is None:
            raise errors.InvalidRequest("InstanceId can't be null.")
        if epoch < LEAVE_STATIC_EPOCH:
            raise errors.InvalidRequest("MemberEpoch is invalid.")
        if request.server_assignor is not None and request.server_assignor not in self.assignors:
            known = ", ".join(self.assignors)
            raise errors.UnsupportedAssignor(
                f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {known}."
            )

    def _consumer_group(self, group_id: str) -> ConsumerGroup:
        group = self.shard.groups.get(group_id)
        if group is None:
            raise errors.GroupIdNotFound(f"Consumer group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise errors.GroupIdNotFound(f"Group {group_id} is not a consumer group.")
        return group

    def _join(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        """Let a member join its group, or a new one in place of none or of a classic one."""
        former = self.shard.groups.get(request.group_id)
        if isinstance(former, ConsumerGroup):
            return former.consumer_heartbeat(request, fx)
        group = ConsumerGroup(self.shard, request.group_id, self.assignors)
        if isinstance(former, ClassicGroup):
            upgrade(former, group, fx)
        response = group.consumer_heartbeat(request, fx)
        # Only now that nothing is wrong with the request.
        self._unborn = group
        if isinstance(former, ClassicGroup):
            former.send_away(fx)
        return response

    # ── asking ────────────────────────────────────────────────────────────────────────────────────────────────────

    def describe(self, group_id: str) -> DescribedConsumerGroup:
        """ConsumerGroupDescribe of one group."""
        if not group_id:
            return DescribedConsumerGroup(group_id=group_id, error_code=errors.InvalidGroupId.code)
        try:
            group = self._consumer_group(group_id)
        except errors.GroupIdNotFound as error:
            message = f"Group {group_id} not found." if group_id not in self.shard.groups else str(error)
            return DescribedConsumerGroup(group_id=group_id, error_code=error.code, error_message=message)
        names = {info.topic_id: name for name, info in self.shard.topics().items()}
        return DescribedConsumerGroup(
            group_id=group_id,
            group_state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=group.preferred_assignor() or group.default_assignor,
            members=tuple(_described(member, group, names) for member in group.members.values()),
        )

    # ── what happens elsewhere ────────────────────────────────────────────────────────────────────────────────────

    def topics_changed(self, names: Collection[str], fx: Effects, *, created: bool) -> None:
        """Topics were created, deleted, or got partitions; the groups act on it at their next heartbeats."""
        for group in self.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                if created:
                    group.topics_created(fx)
                if any(group.is_subscribed(name) for name in names):
                    group.topics_changed()

    # ── replay ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _replayed(self, group_id: str, *, create: bool) -> ConsumerGroup | None:
        group = self.shard.groups.get(group_id)
        if isinstance(group, ConsumerGroup):
            return group
        if not create or (group is not None and not (group.type == CLASSIC and group.is_empty)):
            return None
        # A classic group without members may only be a place for offsets that came earlier in the log.
        unborn, self._unborn = self._unborn, None
        if unborn is None or unborn.group_id != group_id:
            unborn = ConsumerGroup(self.shard, group_id, self.assignors)
        self.shard.groups[group_id] = unborn
        return unborn

    def _replay_metadata(
        self, key: r.ConsumerGroupMetadataKey, value: r.ConsumerGroupMetadataValue | None, _: int
    ) -> None:
        group = self._replayed(key.group_id, create=value is not None)
        if group is None:
            return
        if value is not None:
            group.replay_metadata(value)
        elif group.is_downgraded:
            # The record after this one says what it is now.
            self.shard.groups[key.group_id] = ClassicGroup(self.shard, key.group_id, now=0)
        else:
            del self.shard.groups[key.group_id]

    def _replay_partition_metadata(
        self, key: r.ConsumerGroupPartitionMetadataKey, value: r.ConsumerGroupPartitionMetadataValue | None, _: int
    ) -> None:
        if (group := self._replayed(key.group_id, create=value is not None)) is not None:
            group.has_partition_metadata = value is not None

    def _replay_member(
        self, key: r.ConsumerGroupMemberMetadataKey, value: r.ConsumerGroupMemberMetadataValue | None, _: int
    ) -> None:
        if (group := self._replayed(key.group_id, create=value is not None)) is not None:
            group.replay_member(key.member_id, value)

    def _replay_target_metadata(
        self,
        key: r.ConsumerGroupTargetAssignmentMetadataKey,
        value: r.ConsumerGroupTargetAssignmentMetadataValue | None,
        _: int,
    ) -> None:
        if (group := self._replayed(key.group_id, create=value is not None)) is not None:
            group.replay_target_metadata(value)

    def _replay_target(
        self,
        key: r.ConsumerGroupTargetAssignmentMemberKey,
        value: r.ConsumerGroupTargetAssignmentMemberValue | None,
        _: int,
    ) -> None:
        if (group := self._replayed(key.group_id, create=value is not None)) is not None:
            group.replay_target(key.member_id, value)

    def _replay_current(
        self,
        key: r.ConsumerGroupCurrentMemberAssignmentKey,
        value: r.ConsumerGroupCurrentMemberAssignmentValue | None,
        _: int,
    ) -> None:
        if (group := self._replayed(key.group_id, create=value is not None)) is not None:
            group.replay_current(key.member_id, value)

    def _replay_regex(
        self, key: r.ConsumerGroupRegularExpressionKey, value: r.ConsumerGroupRegularExpressionValue | None, _: int
    ) -> None:
        if (group := self._replayed(key.group_id, create=value is not None)) is not None:
            group.replay_regex(key.regular_expression, value)


def _empty(name: str) -> errors.KafkaError:
    return errors.InvalidRequest(f"{name} can't be empty.")


def _check_join(request: ConsumerHeartbeatRequest) -> None:
    if request.rebalance_timeout == -1:
        raise errors.InvalidRequest("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise errors.InvalidRequest("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise errors.InvalidRequest(
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
        )


def _described(member: Member, group: ConsumerGroup, names: Mapping[UUID, str]) -> DescribedConsumer:
    return DescribedConsumer(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=member.subscribed_topic_names,
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=_named(member.assigned, names),
        target_assignment=_named(group.target.get(member.member_id, {}), names),
        member_type=0 if member.classic is not None else 1,
    )


def _named(partitions: Partitions, names: Mapping[UUID, str]) -> tuple[NamedPartitions, ...]:
    return tuple(
        NamedPartitions(topic_id, names[topic_id], tuple(sorted(numbers)))
        for topic_id, numbers in sorted(partitions.items(), key=lambda item: names.get(item[0], ""))
        if topic_id in names
    )
