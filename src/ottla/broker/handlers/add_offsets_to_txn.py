"""AddOffsetsToTxn: add the offsets of a group to a transaction. v2 adds PRODUCER_FENCED.

Producers of the second transaction protocol do not send it: TxnOffsetCommit adds the offsets.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.verification import without_fenced
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
        add_request = AddPartitionsRequest(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            partitions=frozenset({TopicPartition(CONSUMER_OFFSETS, node.groups.shards.index_of(request.group_id))}),
        )
        code = await node.transactions.add_partitions(add_request)
    except errors.KafkaError as error:
        code = error.code
    return {"error_code": code if call.api_version >= FENCED_FROM else without_fenced(code)}
