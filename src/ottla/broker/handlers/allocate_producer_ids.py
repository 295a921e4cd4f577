"""AllocateProducerIds: a broker takes a block of producer ids from the controller. For brokers only."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.metadata.brokers import current_broker
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ALLOCATE_PRODUCER_IDS
ONLY_IN_CLUSTER = True


async def handle(node: Node, call: Call, request: Struct) -> Message:
    try:
        current_broker(node.metadata, request.broker_id, request.broker_epoch)
        block = await node.controller.run(node.metadata.take_producer_ids)
    except errors.KafkaError as error:
        return {"error_code": error.code, "producer_id_start": -1, "producer_id_len": 0}
    return {"producer_id_start": block.start, "producer_id_len": len(block)}
