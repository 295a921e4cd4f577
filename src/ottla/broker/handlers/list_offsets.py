"""ListOffsets: the offset at a point in time, or at one of the ends.

v2 brings isolation levels; v4 leader epochs; v7 the largest timestamp (-3); v8 the local start (-4); v9 the end of
tiered
storage (-5), which there is none of; v11 the earliest offset that is not tiered yet (-6).
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from ottla import errors
from ottla.broker.node import Call, Node
from ottla.broker.partition import Partition
from ottla.broker.turns import in_turns
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.records import CorruptBatch
from ottla.storage.verification import SegmentUnverified

API = ApiKey.LIST_OFFSETS
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
#: The version that brought each of the special timestamps.
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1


class Found(NamedTuple):
    """An offset, with the timestamp and leader epoch of what is there."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


async def handle(node: Node, call: Call, request: Struct) -> Message:
    asked = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    repeated = {key for key, count in asked.items() if count > 1}
    topics = []
    for topic in request.topics:
        partitions = []
        async for partition in in_turns(topic.partitions):
            twice = (topic.name, partition.partition_index) in repeated
            partitions.append(await _answer(node, call, request, topic.name, partition, twice))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _answer(node: Node, call: Call, request: Struct, name: str, asked: Struct, twice: bool) -> Message:
    try:
        if twice:
            raise errors.InvalidRequest(f"The partition {name}-{asked.partition_index} is asked for twice.")
        partition = node.partition(name, asked.partition_index)
        partition.check_epoch(asked.current_leader_epoch)
        end = partition.readable_end(read_committed=request.isolation_level == READ_COMMITTED)
        found = await _find(partition, asked.timestamp, end, call.api_version)
    except errors.KafkaError as error:
        return {"partition_index": asked.partition_index, "error_code": error.code}
    return {"partition_index": asked.partition_index, **found._asdict()}


async def _find(partition: Partition, timestamp: int, end: int, version: int) -> Found:
    log = partition.log
    if timestamp < 0 and version < SINCE.get(timestamp, 2**15):
        raise errors.UnsupportedVersion(f"The timestamp {timestamp} means nothing in version {version}.")
    if timestamp == LATEST:
        return Found(end, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL, EARLIEST_PENDING_UPLOAD):
        return Found(log.log_start_offset, leader_epoch=log.epochs.epoch_of(log.log_start_offset))
    if timestamp == LATEST_TIERED:
        return Found()
    while True:
        try:
            if timestamp == MAX_TIMESTAMP:
                found = log.max_timestamp_offset()
            else:
                found = log.offset_for_timestamp(timestamp, end_offset=end)
            return Found() if found is None else Found(*found)
        except CorruptBatch as problem:
            # A batch is taken by its header and CRC; that its records cannot be read shows here.
            raise errors.CorruptMessage(f"A batch of {log.topic_partition} cannot be searched: {problem}") from problem
        except SegmentUnverified as unverified:
            await asyncio.get_running_loop().run_in_executor(None, unverified.segment.verify)
