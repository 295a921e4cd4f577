"""ListOffsets: the offset at a timestamp, or at the start or end of the log.

v2 adds isolation levels; v4 leader epochs; v5 OFFSET_NOT_AVAILABLE; v7 the largest timestamp (-3); v8 the local start
(-4); v9 the end of tiered storage (-5); v11 the earliest offset that is not tiered yet (-6). ottla has no tiered
storage, so nothing is found for the last two.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import NamedTuple

from ottla import errors
from ottla.broker.authorization import check
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.broker.partition import Partition
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct
from ottla.records import CorruptBatch
from ottla.security.acls import Operation, ResourceType
from ottla.security.permissions import need
from ottla.storage.verification import SegmentUnverified

API = ApiKey.LIST_OFFSETS
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -1, -2, -3, -4, -5, -6
#: The first version with each special timestamp.
SINCE = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
READ_COMMITTED = 1
#: The first version with OFFSET_NOT_AVAILABLE.
NOT_AVAILABLE_SINCE = 5
DESCRIBE = need("list_offsets", Operation.DESCRIBE, ResourceType.TOPIC)


class Found(NamedTuple):
    """An offset, with the timestamp and leader epoch of its record."""

    offset: int = -1
    timestamp: int = -1
    leader_epoch: int = -1


async def handle(node: Node, call: Call, request: Struct) -> Message:
    counts = Counter((topic.name, each.partition_index) for topic in request.topics for each in topic.partitions)
    topics = []
    async for topic in with_pauses(request.topics):
        partitions = []
        async for partition in with_pauses(topic.partitions):
            twice = counts[topic.name, partition.partition_index] > 1
            partitions.append(await _partition(node, call, request, topic.name, partition, twice))
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


async def _partition(node: Node, call: Call, request: Struct, name: str, entry: Struct, twice: bool) -> Message:
    try:
        if twice:
            raise errors.InvalidRequest(
                f"The partition {name}-{entry.partition_index} is in the request more than once."
            )
        check(node, call, DESCRIBE, name)
        partition = node.leading(name, entry.partition_index)
        partition.check_epoch(entry.current_leader_epoch)
        end = partition.readable_end(read_committed=request.isolation_level == READ_COMMITTED)
        found = await _find(partition, entry.timestamp, end, call.api_version)
    except errors.KafkaError as error:
        return {"partition_index": entry.partition_index, "error_code": error.code}
    return {"partition_index": entry.partition_index, **found._asdict()}


async def _find(partition: Partition, timestamp: int, end: int, version: int) -> Found:
    log = partition.log
    if timestamp < 0 and version < SINCE.get(timestamp, 2**15):
        raise errors.UnsupportedVersion(
            f"The timestamp {timestamp} is not supported in version {version} of ListOffsets."
        )
    if timestamp == LATEST:
        _check_end_is_known(partition, version)
        return Found(end, leader_epoch=partition.leader_epoch)
    if timestamp in (EARLIEST, EARLIEST_LOCAL):
        return Found(log.log_start_offset, leader_epoch=log.epochs.epoch_of(log.log_start_offset))
    if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
        return Found()
    while True:
        try:
            if timestamp == MAX_TIMESTAMP:
                found = log.max_timestamp_offset()
            else:
                found = log.offset_for_timestamp(timestamp, end_offset=end)
            if found is None or found.offset >= end:
                _check_end_is_known(partition, version)
                return Found()
            return Found(*found)
        except CorruptBatch as problem:
            # An append checks only the header and the CRC of a batch. Unreadable records show up here.
            raise errors.CorruptMessage(f"A batch of {log.topic_partition} cannot be searched: {problem}") from problem
        except SegmentUnverified as unverified:
            await asyncio.get_running_loop().run_in_executor(None, unverified.segment.verify)


def _check_end_is_known(partition: Partition, version: int) -> None:
    """Raise a retriable error while a new leader does not know what was committed before it."""
    if partition.leader is None or partition.leader.knows_high_watermark:
        return
    problem = f"The new leader of {partition.topic}-{partition.index} does not know yet what is committed. Try again."
    if version < NOT_AVAILABLE_SINCE:
        raise errors.LeaderNotAvailable(problem)
    raise errors.OffsetNotAvailable(problem)
