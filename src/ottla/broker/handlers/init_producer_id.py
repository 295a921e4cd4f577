"""InitProducerId: an id for an idempotent producer, or the id and next epoch of a transactional producer.

v3 has the producer's current id and epoch (KIP-360); v4 adds PRODUCER_FENCED. Like Kafka 4.2, ottla does not serve v6
(two-phase commit).
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.verification import without_fenced
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
            # Like Kafka: without a transactional id the producer gets a new id each time.
            return {"producer_id": await node.producer_ids.next(), "producer_epoch": 0}
        response = await _init(node, request)
    except errors.KafkaError as error:
        return {"error_code": error.code, "producer_epoch": -1}
    code = response.error_code if call.api_version >= FENCED_FROM else without_fenced(response.error_code)
    return {"error_code": code, "producer_id": response.producer_id, "producer_epoch": response.producer_epoch}


async def _init(node: Node, request: Struct) -> InitResponse:
    transactional_id = request.transactional_id
    await node.transactions.shards.ready()
    spare = await node.transactions.spare_producer_id(transactional_id)
    shard = node.transactions.of(transactional_id)
    init_request = InitRequest(
        transactional_id=transactional_id,
        timeout=request.transaction_timeout,
        producer_id=request.producer_id,
        producer_epoch=request.producer_epoch,
        spare_producer_id=spare,
    )
    return await shard.run(shard.coordinator.init_producer_id, init_request)


def _check(request: Struct) -> None:
    if (request.producer_id == -1) != (request.producer_epoch == -1):
        raise errors.InvalidRequest("Send both producer_id and producer_epoch, or set both to -1.")
    if request.transactional_id == "":
        raise errors.InvalidRequest("The transactional id is empty. Send null for a producer without transactions.")
