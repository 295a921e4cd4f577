"""Requests and responses of the consumer protocol (KIP-848): one frozen value for all versions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple
from uuid import UUID

from ottla.coordinator.records import TopicPartitions
from ottla.types import Millis

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member leaves for a while and keeps its partitions."""


class ConsumerHeartbeatRequest(NamedTuple):
    """ConsumerGroupHeartbeat. A field that is None has not changed since the last request."""

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
    """The partitions that the member owns."""
    client_id: str = ""
    client_host: str = ""
    requires_member_id: bool = True
    """From version 1 on the member generates its id."""
    sees: Callable[[str], bool] | None = None
    """Whether the member may know a topic that a regular expression matches; None if it may know all."""

    @property
    def is_full(self) -> bool:
        """Whether every field is set, as after an error. The response must be complete then, too."""
        subscribes = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.rebalance_timeout != -1 and subscribes and self.topic_partitions is not None


class ConsumerHeartbeatResponse(NamedTuple):
    error_code: int = 0
    error_message: str | None = None
    member_id: str | None = None
    member_epoch: int = 0
    heartbeat_interval: Millis = 0
    assignment: tuple[TopicPartitions, ...] | None = None
    """None if it has not changed."""


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
    """0 for the classic protocol, 1 for the consumer protocol; from version 1 on."""


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
