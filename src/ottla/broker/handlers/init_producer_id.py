"""InitProducerId: an id for an idempotent producer.

v3 lets a producer keep its id and raise its epoch. Transactional ids need a transaction coordinator, which has no
API here, so that a client which asks with one has made a mistake.
"""

from __future__ import annotations

from ottla.broker.node import Call, Node
from ottla.errors import InvalidRequest, KafkaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.INIT_PRODUCER_ID
MAX_EPOCH = 2**15 - 1


async def handle(node: Node, call: Call, request: Struct) -> Message:
    try:
        _check(request)
    except KafkaError as error:
        return {"error_code": error.code, "producer_epoch": -1}
    # Without a transactional id Kafka gives a new id every time, whatever the producer had.
    return {"producer_id": await node.producer_ids.next(), "producer_epoch": 0}


def _check(request: Struct) -> None:
    if request.transactional_id is not None:
        raise InvalidRequest("Transactional ids are given out by a transaction coordinator.")
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise InvalidRequest("A producer id and an epoch are given together, or neither of them.")
