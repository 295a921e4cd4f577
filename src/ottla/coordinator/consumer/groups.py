"""The consumer groups of a shard: finds or creates the group of a request, describes groups, and replays records.

A group that a heartbeat creates becomes one of the shard's groups when its first record is replayed, and not before.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

from ottla import errors
from ottla.assignors import BY_NAME, Assignor
from ottla.coordinator import records as r
from ottla.coordinator.classic.group import ClassicGroup
from ottla.coordinator.consumer.group import ConsumerGroup
from ottla.coordinator.consumer.logged import KEYS, LoggedGroup
from ottla.coordinator.consumer.member import Member, Partitions
from ottla.coordinator.consumer.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeatRequest,
    ConsumerHeartbeatResponse,
    DescribedConsumer,
    DescribedConsumerGroup,
    NamedPartitions,
)
from ottla.coordinator.consumer.migration import upgrade
from ottla.coordinator.effects import Effects
from ottla.coordinator.group import CLASSIC, Shard


def default_assignors(names: Iterable[str]) -> tuple[Assignor, ...]:
    """Return the assignors of ``group.consumer.assignors``. The first is the default."""
    chosen = tuple(names)
    unknown = [name for name in chosen if name not in BY_NAME]
    if unknown or not chosen:
        problem = f"unknown assignor {', '.join(unknown)}" if unknown else "the list is empty"
        raise errors.ConfigError(
            f"group.consumer.assignors: {problem}. Choose from {', '.join(BY_NAME)}. "
            "Your own assignor must be passed to the coordinator as an object."
        )
    return tuple(BY_NAME[name]() for name in chosen)


class ConsumerGroups:
    """All groups of the consumer protocol in a shard."""

    def __init__(self, shard: Shard, assignors: Sequence[Assignor] | None = None) -> None:
        self.shard = shard
        chosen = default_assignors(shard.config.group_consumer_assignors) if assignors is None else assignors
        self.assignors: Mapping[str, Assignor] = {assignor.name: assignor for assignor in chosen}

    @property
    def replayers(self) -> dict[type[Any], Callable[[Any, Any, int], None]]:
        """The function that replays a record, by the type of its key."""
        return dict.fromkeys(KEYS, self.replay)

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def heartbeat(self, request: ConsumerHeartbeatRequest, fx: Effects) -> ConsumerHeartbeatResponse:
        """ConsumerGroupHeartbeat. Errors are raised; nothing may be written then."""
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
        """Let a member join. The group is created if there is none, and upgraded if it is a classic one."""
        former = self.shard.groups.get(request.group_id)
        if isinstance(former, ConsumerGroup):
            return former.consumer_heartbeat(request, fx)
        group = ConsumerGroup(self.shard, request.group_id, self.assignors)
        if isinstance(former, ClassicGroup):
            upgrade(former, group, fx)
        response = group.consumer_heartbeat(request, fx)
        # The request is valid.
        self.shard.forming[request.group_id] = group
        if isinstance(former, ClassicGroup):
            former.send_away(fx)
        return response

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
            assignment_epoch=group.logged.assignment_epoch,
            assignor_name=group.assignor_name,
            members=tuple(_described(member, group.logged, names) for member in group.members.values()),
        )

    # ── topics, timers, replay ────────────────────────────────────────────────────────────────────────────────────

    def topics_changed(self, names: Collection[str], fx: Effects, *, created: bool) -> None:
        """Topics were created, deleted or got partitions."""
        for group in self.shard.groups.values():
            if isinstance(group, ConsumerGroup):
                group.topics_changed(names, created=created, now=fx.now)

    def replay(self, key: Any, value: Any, _: int) -> None:
        """Change the logged state of a group. Its first record creates it, and its tombstone removes it."""
        group = self.shard.groups.get(key.group_id)
        if not isinstance(group, ConsumerGroup):
            # An empty classic group may only hold offsets that came earlier in the log.
            is_free = group is None or (group.type == CLASSIC and group.is_empty)
            if value is None or not is_free:
                return
            group = self.shard.groups[key.group_id] = self._created(key.group_id)
        if value is None and type(key) is r.ConsumerGroupMetadataKey:
            del self.shard.groups[key.group_id]
        else:
            group.replay(key, value)

    def _created(self, group_id: str) -> ConsumerGroup:
        forming = self.shard.forming.pop(group_id, None)
        if isinstance(forming, ConsumerGroup):
            return forming
        return ConsumerGroup(self.shard, group_id, self.assignors)


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


def _described(member: Member, logged: LoggedGroup, names: Mapping[UUID, str]) -> DescribedConsumer:
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
        target_assignment=_named(logged.target.get(member.member_id, {}), names),
        member_type=0 if member.classic is not None else 1,
    )


def _named(partitions: Partitions, names: Mapping[UUID, str]) -> tuple[NamedPartitions, ...]:
    return tuple(
        NamedPartitions(topic_id, names[topic_id], tuple(sorted(numbers)))
        for topic_id, numbers in sorted(partitions.items(), key=lambda item: names.get(item[0], ""))
        if topic_id in names
    )
