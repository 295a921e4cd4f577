"""InitProducerId: an id for an idempotent producer, or the id and the next epoch of a transactional one.

v3 lets a producer tell the id and epoch that it has (KIP-360); v4 tells a fenced producer by its own error. v6, which
lets others prepare transactions, is not offered, as Kafka 4.2 does not.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.transactions.messages import InitRequest, InitResponse

API = ApiKey.INIT_PRODUCER_ID
LAST = 5
FENCED_FROM = 4


async def handle(node: Node, call: Call, request: Struct) -> Message:
    try:
        _check(request)
        if request.transactional_id is None:
            # Without a transactional id Kafka gives a new id every time, whatever the producer had.
            return {"producer_id": await node.producer_ids.next(), "producer_epoch": 0}
        answer = await _init(node, request)
    except errors.KafkaError as error:
        return {"error_code": error.code, "producer_epoch": -1}
    code = answer.error_code
    if code == errors.ProducerFenced.code and call.api_version < FENCED_FROM:
        code = errors.InvalidProducerEpoch.code
    return {"error_code": code, "producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}


async def _init(node: Node, request: Struct) -> InitResponse:
    transactional_id = request.transactional_id
    await node.transactions.shards.ready()
    spare = await node.transactions.spare_producer_id(transactional_id)
    shard = node.transactions.of(transactional_id)
    wish = InitRequest(
        transactional_id=transactional_id,
        timeout=request.transaction_timeout,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        spare_producer_id=spare,
    )
    return await shard.run(shard.coordinator.init_producer_id, wish)


def _check(request: Struct) -> None:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise errors.InvalidRequest("A producer id and an epoch are given together, or neither of them.")
    if request.transactional_id == "":
        raise errors.InvalidRequest("A transactional id cannot be empty.")
