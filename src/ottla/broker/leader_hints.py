"""Who leads a partition, told with an error so that a client need not ask (KIP-951)."""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.node import Call, Node
from ottla.errors import FencedLeaderEpoch, KafkaError, NotLeaderOrFollower
from ottla.metadata.values import NO_LEADER
from ottla.protocol.codec import Message

_MOVED = (NotLeaderOrFollower, FencedLeaderEpoch)


def leader_hint(node: Node, topic: str | None, index: int, error: KafkaError) -> Message:
    """Return the field ``current_leader`` if the error is about the leader, else nothing."""
    if not isinstance(error, _MOVED) or topic is None or not node.exists(topic, index):
        return {}
    state = node.metadata.topics[topic].states[index]
    if state.leader in (NO_LEADER, node.id):
        return {}
    return {"current_leader": {"leader_id": state.leader, "leader_epoch": state.leader_epoch}}


def leader_addresses(node: Node, call: Call, partitions: Iterable[Message]) -> list[Message]:
    """Return the field ``node_endpoints``: the addresses of the leaders in these partitions of a response."""
    wanted = {each["current_leader"]["leader_id"] for each in partitions if "current_leader" in each}
    return [
        {"node_id": each.broker_id, "host": each.host, "port": each.port, "rack": each.rack}
        for each in (node.brokers(call.connection) if wanted else ())
        if each.broker_id in wanted
    ]
