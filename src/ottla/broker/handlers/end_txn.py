"""EndTxn: commit or abort a transaction. v2 tells a fenced producer by its own error; v5 is the second version of the
protocol (KIP-890): the answer has the id and the epoch for the next transaction."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.transactions.messages import FIRST_VERSION, SECOND_VERSION, EndRequest

API = ApiKey.END_TXN
FENCED_FROM, SECOND_FROM = 2, 5


async def handle(node: Node, call: Call, request: Struct) -> Message:
    try:
        second = call.api_version >= SECOND_FROM
        transactional_id = request.transactional_id
        shard = node.transactions.of(transactional_id)
        wish = EndRequest(
            transactional_id=transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            committed=request.committed,
            version=SECOND_VERSION if second else FIRST_VERSION,
            spare_producer_id=await node.transactions.spare_producer_id(transactional_id) if second else -1,
        )
        answer = await shard.run(shard.coordinator.end, wish)
    except errors.KafkaError as error:
        return {"error_code": error.code}
    code = answer.error_code
    if code == errors.ProducerFenced.code and call.api_version < FENCED_FROM:
        code = errors.InvalidProducerEpoch.code
    return {"error_code": code, "producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}
