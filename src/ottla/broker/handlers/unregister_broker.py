"""UnregisterBroker: forget a broker that was stopped and will not come back."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.metadata.brokers import unregister_broker
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.UNREGISTER_BROKER
TO_CONTROLLER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    try:
        await node.controller.run(unregister_broker, node.metadata, request.broker_id)
    except errors.KafkaError as error:
        return {"error_code": error.code, "error_message": str(error)}
    return {"error_message": None}
