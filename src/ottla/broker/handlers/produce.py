"""Produce: append batches to partitions.

v3 brings record batches of magic 2, the only kind that is taken; v8 explains errors by record; v13 names topics by id.
The answer to acks=0 is none, and an error is told by closing the connection, as Kafka does.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable
from typing import Any

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.net.connection import CloseConnection
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.records import BATCH_OVERHEAD, MAGIC
from ottla.storage.log import Log
from ottla.types import Millis

API = ApiKey.PRODUCE
#: Versions 0 to 2 are gone, here as in Kafka 4, which says otherwise all the same: librdkafka before 2.8 takes a
#: broker that
#: does not name them for one that cannot compress.
ADVERTISED_FIRST = 0
#: Where a batch has the lower byte of its attributes, and the bit in it that says it belongs to a transaction.
ATTRIBUTES, TRANSACTIONAL, MAGIC_AT = 22, 0x10, 16
logger = logging.getLogger("ottla.broker")
#: Logs whose new records must be on disk before the answer, and up to which offset.
Flushes = list[tuple[Log, int]]


def handle(node: Node, call: Call, request: Struct) -> Message | Awaitable[Message | None] | None:
    now = node.clock.now()
    flushes: Flushes = []
    responses = [
        {
            "name": topic.name,
            "topic_id": topic.topic_id,
            "partition_responses": [
                _append(node, request, topic, data, flushes, now=now) for data in topic.partition_data
            ],
        }
        for topic in request.topic_data
    ]
    if request.acks == 0:
        _close_on_errors(responses)
        return None
    answer: Message = {"responses": responses}
    return _flushed(node, flushes, answer) if flushes else answer


def _append(node: Node, request: Struct, topic: Struct, data: Struct, flushes: Flushes, *, now: Millis) -> Message:
    try:
        _check(request, data)
        name = topic.name or node.topic_by_id(topic.topic_id).name
        partition = node.partition(name, data.index)
        info = partition.append(data.records, now=now)
    except errors.KafkaError as error:
        node.metrics.produce_failed(error.name)
        return _refused(data.index, error)
    node.metrics.produced(name, len(data.records))
    if info.flush_due:
        flushes.append((partition.log, info.last_offset + 1))
    return {
        "index": data.index,
        "base_offset": info.base_offset,
        "log_append_time": info.log_append_time,
        "log_start_offset": info.log_start_offset,
        "record_errors": (),
    }


def _check(request: Struct, data: Struct) -> None:
    if request.acks not in (-1, 0, 1):
        raise errors.InvalidRequiredAcks(f"acks must be 0, 1 or -1 (all), not {request.acks}.")
    if request.transactional_id is not None:
        raise errors.InvalidTxnState(f"The transactional id {request.transactional_id!r} has no transaction here.")
    if data.records is None:
        raise errors.InvalidRecord("The request has no records for the partition.")
    is_batch = len(data.records) >= BATCH_OVERHEAD and data.records[MAGIC_AT] == MAGIC
    if is_batch and data.records[ATTRIBUTES] & TRANSACTIONAL:
        raise errors.TransactionalIdAuthorizationFailed("A transactional batch needs a transactional id.")


def _refused(index: int, error: errors.KafkaError) -> Message:
    return {
        "index": index,
        "error_code": error.code,
        "base_offset": -1,
        "record_errors": [
            {"batch_index": at, "batch_index_error_message": message} for at, message in _record_errors(error)
        ],
        "error_message": str(error),
    }


def _record_errors(error: errors.KafkaError) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = getattr(error, "record_errors", [])
    return found


def _close_on_errors(responses: list[dict[str, Any]]) -> None:
    for topic in responses:
        for partition in topic["partition_responses"]:
            if partition.get("error_code"):
                raise CloseConnection(
                    f"a produce request with acks=0 to {topic['name']}-{partition['index']} failed: "
                    f"{partition['error_message']}"
                )


async def _flushed(node: Node, flushes: Flushes, answer: Message) -> Message:
    try:
        for log, offset in flushes:
            await node.logs.flusher.flushed(log, offset)
    except errors.KafkaStorageError as error:
        logger.error("%s", error)
        for topic in answer["responses"]:
            topic["partition_responses"] = [_refused(p["index"], error) for p in topic["partition_responses"]]
    return answer
