"""OffsetForLeaderEpoch: the end offset of an epoch. Clients use it to detect truncation."""

from __future__ import annotations

from ottla.broker.authorization import check
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.errors import KafkaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need

API = ApiKey.OFFSET_FOR_LEADER_EPOCH
DESCRIBE = need("offset_for_leader_epoch", Operation.DESCRIBE, ResourceType.TOPIC)


async def handle(node: Node, call: Call, request: Struct) -> Message:
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _partition(node, call, topic.topic, entry) async for entry in with_pauses(topic.partitions)
                ],
            }
            async for topic in with_pauses(request.topics)
        ]
    }


def _partition(node: Node, call: Call, topic: str, entry: Struct) -> Message:
    try:
        check(node, call, DESCRIBE, topic)
        partition = node.leading(topic, entry.partition)
        partition.check_epoch(entry.current_leader_epoch)
        if entry.leader_epoch == partition.leader_epoch:
            epoch, end_offset = partition.leader_epoch, partition.log.log_end_offset
        else:
            epoch, end_offset = partition.log.end_offset_for_epoch(entry.leader_epoch)
    except KafkaError as error:
        return {"partition": entry.partition, "error_code": error.code}
    return {"partition": entry.partition, "leader_epoch": epoch, "end_offset": end_offset}
