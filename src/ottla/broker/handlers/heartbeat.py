"""Heartbeat: keep a member alive and report rebalances to it. v3 adds static members."""

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
    heartbeat = HeartbeatRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    return node.groups.ask(heartbeat.group_id, Coordinator.heartbeat, heartbeat, _message)


def _message(response: HeartbeatResponse | errors.KafkaError) -> Message:
    if not isinstance(response, errors.KafkaError):
        return {"error_code": response.error_code}
    # Like Kafka: the membership is checked after the load, and some clients give up on any other response.
    return {"error_code": 0 if isinstance(response, errors.CoordinatorLoadInProgress) else response.code}
