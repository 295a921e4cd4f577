"""Which replica a consumer should read from (KIP-392), as Kafka's RackAwareReplicaSelector decides."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.partition import Partition

if TYPE_CHECKING:
    from ottla.broker.node import Node


def nearest_replica(node: Node, partition: Partition, rack: str, offset: int) -> int | None:
    """Return the follower in a consumer's rack that it should read from, None for the replica that it has asked.

    Only followers that are in sync and have the offset count, so the consumer does not fall behind with a slow one.
    """
    leader = partition.leader
    if leader is None or node.config.broker_rack == rack:
        return None
    brokers = node.metadata.brokers
    found = [
        (progress.log_end_offset, progress.caught_up_at, broker_id)
        for broker_id, progress in leader.followers.items()
        if broker_id in leader.state.isr
        and progress.log_start_offset <= offset <= progress.log_end_offset
        and (broker := brokers.get(broker_id)) is not None
        and broker.is_active
        and broker.rack == rack
    ]
    return max(found)[2] if found else None
