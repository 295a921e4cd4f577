"""WriteTxnMarkers: write transaction markers to partitions. v2 has the version of the transaction protocol.

The broker's own coordinators do not use it. It serves `kafka-transactions.sh abort` and `ottla transactions abort`,
which end transactions that no coordinator knows.
"""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.partition import EndOfTransaction
from ottla.broker.transactions import write_marker
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.types import TopicPartition

API = ApiKey.WRITE_TXN_MARKERS


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {"markers": [await _marker(node, marker) for marker in request.markers]}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each partition with the same error."""
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {"partition_index": index, "error_code": error.code} for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    }


async def _marker(node: Node, marker: Struct) -> Message:
    end = EndOfTransaction(
        marker.producer_id,
        marker.producer_epoch,
        marker.transaction_result,
        marker.coordinator_epoch,
        marker.transaction_version,
    )
    return {
        "producer_id": marker.producer_id,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": index,
                        "error_code": await _write(node, TopicPartition(topic.name, index), end),
                    }
                    for index in topic.partition_indexes
                ],
            }
            for topic in marker.topics
        ],
    }


async def _write(node: Node, place: TopicPartition, end: EndOfTransaction) -> int:
    if end.producer_id < 0 or end.producer_epoch < 0:
        return errors.InvalidRequest.code
    try:
        await write_marker(node, place, end)
    except errors.KafkaError as error:
        return error.code
    return 0
