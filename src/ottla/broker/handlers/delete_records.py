"""DeleteRecords: move the log start offset forward, on all replicas that are alive. -1 means the high watermark."""

from __future__ import annotations

import asyncio
from asyncio import Future

from ottla import errors
from ottla.broker.authorization import check
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.broker.partition import Partition
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need
from ottla.types import Millis

API = ApiKey.DELETE_RECORDS
TO_HIGH_WATERMARK = -1
DELETE = need("delete_records", Operation.DELETE, ResourceType.TOPIC)
#: Responses for partitions whose followers still have the records, with the futures they wait for.
Waits = list[tuple[Message, Partition, Future[None]]]


async def handle(node: Node, call: Call, request: Struct) -> Message:
    waits: Waits = []
    response: Message = {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _delete(node, call, topic.name, entry, waits) async for entry in with_pauses(topic.partitions)
                ],
            }
            async for topic in with_pauses(request.topics)
        ]
    }
    return await _when_deleted(waits, response, request.timeout) if waits else response


def _delete(node: Node, call: Call, topic: str, entry: Struct, waits: Waits) -> Message:
    try:
        check(node, call, DELETE, topic)
        partition = node.leading(topic, entry.partition_index)
        if "delete" not in partition.log.config.cleanup_policy:
            raise errors.PolicyViolation(f"The topic '{topic}' is compacted. Add delete to its cleanup.policy first.")
        offset = partition.high_watermark if entry.offset == TO_HIGH_WATERMARK else entry.offset
        if not 0 <= offset <= partition.high_watermark:
            raise errors.OffsetOutOfRange(
                f"The offset {offset} is not between 0 and the high watermark {partition.high_watermark}."
            )
        partition.log.delete_records(offset)
    except errors.KafkaError as error:
        return _failed(entry.partition_index, error)
    message: Message = {"partition_index": entry.partition_index, "low_watermark": partition.low_watermark}
    if (pending := partition.deleted(offset)) is not None:
        waits.append((message, partition, pending))
    return message


async def _when_deleted(waits: Waits, response: Message, timeout_ms: Millis) -> Message:
    await asyncio.wait([pending for _, _, pending in waits], timeout=max(0, timeout_ms) / 1000)
    for message, partition, pending in waits:
        message["low_watermark"] = partition.low_watermark
        if not pending.done():
            pending.cancel()
            message["error_code"] = errors.RequestTimedOut.code
        elif isinstance(failure := pending.exception(), errors.KafkaError):
            message.update(_failed(partition.index, failure))
    return response


def _failed(index: int, error: errors.KafkaError) -> Message:
    return {"partition_index": index, "low_watermark": -1, "error_code": error.code}
