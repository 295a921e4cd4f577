"""BrokerHeartbeat: a broker asks the controller to take its leaderships before it stops. For brokers only."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.metadata.brokers import begin_controlled_shutdown, current_broker
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.BROKER_HEARTBEAT
LAST = 1
ONLY_IN_CLUSTER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    try:
        if not request.want_shut_down:
            current_broker(node.metadata, request.broker_id, request.broker_epoch)
            return {"is_caught_up": True, "is_fenced": False}
        remaining = await node.controller.run(
            begin_controlled_shutdown, node.metadata, request.broker_id, request.broker_epoch
        )
    except errors.KafkaError as error:
        return {"error_code": error.code}
    return {"is_caught_up": True, "is_fenced": False, "should_shut_down": not remaining}
