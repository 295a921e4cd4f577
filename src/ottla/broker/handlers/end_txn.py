"""EndTxn: commit or abort a transaction.

v2 adds PRODUCER_FENCED. v5 is the second transaction protocol (KIP-890): the response has the id and epoch of the next
transaction.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.verification import without_fenced
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
        end_request = EndRequest(
            transactional_id=transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            committed=request.committed,
            version=SECOND_VERSION if second else FIRST_VERSION,
            spare_producer_id=await node.transactions.spare_producer_id(transactional_id) if second else -1,
        )
        response = await shard.run(shard.coordinator.end, end_request)
    except errors.KafkaError as error:
        return {"error_code": error.code}
    code = response.error_code if call.api_version >= FENCED_FROM else without_fenced(response.error_code)
    return {"error_code": code, "producer_id": response.producer_id, "producer_epoch": response.producer_epoch}
