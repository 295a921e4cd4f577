"""OffsetForLeaderEpoch: where an epoch ended, for clients that check whether what they read is still there."""

from __future__ import annotations

from ottla.broker.node import Call, Node
from ottla.errors import KafkaError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.OFFSET_FOR_LEADER_EPOCH


def handle(node: Node, call: Call, request: Struct) -> Message:
    return {
        "topics": [
            {"topic": topic.topic, "partitions": [_answer(node, topic.topic, asked) for asked in topic.partitions]}
            for topic in request.topics
        ]
    }


def _answer(node: Node, topic: str, asked: Struct) -> Message:
    try:
        partition = node.partition(topic, asked.partition)
        partition.check_epoch(asked.current_leader_epoch)
        if asked.leader_epoch == partition.leader_epoch:
            epoch, end_offset = partition.leader_epoch, partition.log.log_end_offset
        else:
            epoch, end_offset = partition.log.end_offset_for_epoch(asked.leader_epoch)
    except KafkaError as error:
        return {"partition": asked.partition, "error_code": error.code}
    return {"partition": asked.partition, "leader_epoch": epoch, "end_offset": end_offset}
