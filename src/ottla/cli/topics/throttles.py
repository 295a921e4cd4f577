"""Limit the rate of a reassignment, as Kafka's own tool does: replicas on the topics, rates on the brokers."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ottla.clients.admin.asynchronous import AsyncAdmin
from ottla.clients.admin.values import ConfigChange, ConfigResource
from ottla.clients.cluster.leaders import by_topic
from ottla.types import TopicPartition

_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_LEADERS, _FOLLOWERS = "leader.replication.throttled.replicas", "follower.replication.throttled.replicas"


async def limit(
    admin: AsyncAdmin,
    now: Mapping[TopicPartition, Sequence[int]],
    planned: Mapping[TopicPartition, Sequence[int]],
    rate: int,
) -> None:
    """Let new replicas of these partitions copy, and the old ones send, at most `rate` bytes per second."""
    changes: dict[ConfigResource | str, dict[str, ConfigChange]] = {}
    for topic, keys in by_topic(planned).items():
        senders = [f"{key.partition}:{broker}" for key in keys for broker in now[key]]
        copiers = [f"{key.partition}:{broker}" for key in keys for broker in planned[key] if broker not in now[key]]
        changes[topic] = {_LEADERS: ",".join(senders), _FOLLOWERS: ",".join(copiers)}
    for broker in sorted({broker for placed in (now, planned) for brokers in placed.values() for broker in brokers}):
        changes[ConfigResource.broker(broker)] = dict.fromkeys(_RATES, rate)
    await admin.alter_configs(changes)


async def lift(admin: AsyncAdmin, topics: Collection[str]) -> list[str]:
    """Remove the limits of these topics, and those of the brokers if nothing is being copied; returns the topics."""
    if not topics:
        return []
    described = await admin.describe_configs(sorted(topics))
    limited = [
        resource.name
        for resource, configs in described.items()
        if any(name in configs and configs[name].differs for name in (_LEADERS, _FOLLOWERS))
    ]
    if not limited:
        return []
    changes: dict[ConfigResource | str, dict[str, ConfigChange]] = {
        name: {_LEADERS: None, _FOLLOWERS: None} for name in limited
    }
    if not await admin.list_partition_reassignments():
        for node in (await admin.describe_cluster()).nodes:
            changes[ConfigResource.broker(node.id)] = dict.fromkeys(_RATES)
    await admin.alter_configs(changes)
    return limited
