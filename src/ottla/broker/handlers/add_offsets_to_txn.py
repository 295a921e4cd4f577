"""AddOffsetsToTxn: a transaction reaches to the offsets of a group. v2 tells a fenced producer by its own error.

In the second version of the protocol producers leave it out, and TxnOffsetCommit does it.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.metadata.machine import CONSUMER_OFFSETS
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.transactions.messages import AddPartitionsRequest
from ottla.types import TopicPartition

API = ApiKey.ADD_OFFSETS_TO_TXN
FENCED_FROM = 2


async def handle(node: Node, call: Call, request: Struct) -> Message:
    try:
        await node.groups.shards.ready()
        wish = AddPartitionsRequest(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=frozenset({TopicPartition(CONSUMER_OFFSETS, node.groups.shards.index_of(request.group_id))}),
        )
        code = await node.transactions.add_partitions(wish)
    except errors.KafkaError as error:
        code = error.code
    if code == errors.ProducerFenced.code and call.api_version < FENCED_FROM:
        code = errors.InvalidProducerEpoch.code
    return {"error_code": code}
