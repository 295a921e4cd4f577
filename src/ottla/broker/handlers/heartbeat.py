"""Heartbeat: a member is alive, and learns of a rebalance. v3 brought static members."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.coordinator import Coordinator
from ottla.coordinator.messages import HeartbeatRequest, HeartbeatResponse
from ottla.net.server.connection import Later
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.HEARTBEAT


def handle(node: Node, call: Call, request: Struct) -> Message | Later:
    wish = HeartbeatRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    return node.groups.ask(wish.group_id, Coordinator.heartbeat, wish, _told)


def _told(answer: HeartbeatResponse | errors.KafkaError) -> Message:
    if not isinstance(answer, errors.KafkaError):
        return {"error_code": answer.error_code}
    # As Kafka does: whether the member is known will be seen, and some clients give up at any other answer.
    return {"error_code": 0 if isinstance(answer, errors.CoordinatorLoadInProgress) else answer.code}
