"""Heartbeat: a member is alive, and learns of a rebalance. v3 brought static members."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.coordinator.messages import HeartbeatRequest
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.HEARTBEAT


async def handle(node: Node, call: Call, request: Struct) -> Message:
    wish = HeartbeatRequest(
        group_id=request.group_id,
        generation_id=request.generation_id,
        member_id=request.member_id,
        group_instance_id=request.group_instance_id,
    )
    try:
        answer = await node.groups.run(wish.group_id, lambda group: group.heartbeat, wish)
    except errors.CoordinatorLoadInProgress:
        # As Kafka does: whether the member is known will be seen, and some clients give up at any other answer.
        return {"error_code": 0}
    except errors.KafkaError as error:
        return {"error_code": error.code}
    return {"error_code": answer.error_code}
