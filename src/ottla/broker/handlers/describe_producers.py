"""DescribeProducers: the idempotent and transactional producers known to a partition."""

from __future__ import annotations

from ottla.broker.authorization import check
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.errors import KafkaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.DESCRIBE_PRODUCERS
READ = need("describe_producers", Operation.READ, ResourceType.TOPIC)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _describe(node, call, topic.name, index) async for index in with_pauses(topic.partition_indexes)
                ],
            }
            async for topic in with_pauses(request.topics)
        ]
    }


def _describe(node: Node, call: Call, topic: str, index: int) -> Message:
    try:
        check(node, call, READ, topic)
        partition = node.leading(topic, index)
    except KafkaError as error:
        return {
            "partition_index": index,
            "error_code": error.code,
            "error_message": str(error),
            "active_producers": [],
        }
    return {
        "partition_index": index,
        "active_producers": [
            {
                "producer_id": producer.producer_id,
                "producer_epoch": producer.producer_epoch,
                "last_sequence": producer.last_sequence,
                "last_timestamp": producer.last_timestamp,
                "coordinator_epoch": producer.coordinator_epoch,
                "current_txn_start_offset": producer.current_txn_start_offset,
            }
            for producer in partition.log.active_producers()
        ],
    }
