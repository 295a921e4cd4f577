"""DeleteRecords: move the log start offset forward. -1 means the high watermark."""

from __future__ import annotations

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.DELETE_RECORDS
TO_HIGH_WATERMARK = -1


def handle(node: Node, call: Call, request: Struct) -> Message:
    return {
        "topics": [
            {"name": topic.name, "partitions": [_delete(node, topic.name, entry) for entry in topic.partitions]}
            for topic in request.topics
        ]
    }


def _delete(node: Node, topic: str, entry: Struct) -> Message:
    try:
        partition = node.leading(topic, entry.partition_index)
        if "delete" not in partition.log.config.cleanup_policy:
            raise errors.PolicyViolation(f"The topic '{topic}' is compacted. Add delete to its cleanup.policy first.")
        offset = partition.high_watermark if entry.offset == TO_HIGH_WATERMARK else entry.offset
        if not 0 <= offset <= partition.high_watermark:
            raise errors.OffsetOutOfRange(
                f"The offset {offset} is not between 0 and the high watermark {partition.high_watermark}."
            )
        low_watermark = partition.log.delete_records(offset)
    except errors.KafkaError as error:
        return {"partition_index": entry.partition_index, "low_watermark": -1, "error_code": error.code}
    return {"partition_index": entry.partition_index, "low_watermark": low_watermark}
