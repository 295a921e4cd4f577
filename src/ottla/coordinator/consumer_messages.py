"""What a coordinator is asked and answers in the consumer protocol (KIP-848): frozen values for every version."""

from __future__ import annotations

from typing import NamedTuple
from uuid import UUID

from ottla.coordinator.records import TopicPartitions
from ottla.types import Millis

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member goes for a while, and its partitions wait for it."""


class ConsumerHeartbeatRequest(NamedTuple):
    """ConsumerGroupHeartbeat. What is None has not changed since the last one."""

    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout: Millis = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: tuple[TopicPartitions, ...] | None = None
    """What the member has."""
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = True
    """Version 1 and later: the member makes its own id."""

    @property
    def is_full(self) -> bool:
        """Whether the member tells everything, as after an error, and so must be told everything."""
        subscribes = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout != -1 and subscribes and self.topic_partitions is not None


class ConsumerHeartbeatResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval: Millis = 0
    assignment: tuple[TopicPartitions, ...] | None = None
    """None when it has not changed."""


class NamedPartitions(NamedTuple):
    topic_id: UUID
    topic_name: str
    partitions: tuple[int, ...]


class DescribedConsumer(NamedTuple):
    member_id: str
    instance_id: str | None
    rack_id: str | None
    member_epoch: int
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str
    assignment: tuple[NamedPartitions, ...]
    target_assignment: tuple[NamedPartitions, ...]
    member_type: int
    """0 for the classic protocol, 1 for the consumer protocol; version 1 and later."""


class DescribedConsumerGroup(NamedTuple):
    """ConsumerGroupDescribe of one group."""

    group_id: str
    error_code: int = 0
    error_message: str | None = None
    group_state: str = ""
    group_epoch: int = 0
    assignment_epoch: int = 0
    assignor_name: str = ""
    members: tuple[DescribedConsumer, ...] = ()
