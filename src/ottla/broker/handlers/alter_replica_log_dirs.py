"""AlterReplicaLogDirs: the directory of replicas on this broker.

A replica stays where it is, so a request succeeds if it asks for that. Kafka would move it to another directory.
"""

from __future__ import annotations

import logging
from pathlib import Path

from ottla import errors
from ottla.broker.large_requests import with_pauses
from ottla.broker.node import Call, Node
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.ALTER_REPLICA_LOG_DIRS
logger = logging.getLogger("ottla.broker")


async def handle(node: Node, call: Call, request: Struct) -> Message:
    results: dict[str, list[Message]] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            answers = results.setdefault(topic.name, [])
            wanted, indexes = Path(directory.path), with_pauses(topic.partitions)
            answers += [_result(node, wanted, topic.name, index) async for index in indexes]
    return {"results": [{"topic_name": name, "partitions": answers} for name, answers in results.items()]}


def refuse(request: Struct, error: errors.KafkaError) -> Message:
    """Answer each partition with the same error."""
    topics = (topic for directory in request.dirs for topic in directory.topics)
    return {
        "results": [
            {
                "topic_name": topic.name,
                "partitions": [{"partition_index": index, "error_code": error.code} for index in topic.partitions],
            }
            for topic in topics
        ]
    }


def _result(node: Node, wanted: Path, topic: str, index: int) -> Message:
    try:
        _check(node, wanted, topic, index)
    except errors.KafkaError as error:
        logger.info("%s-%d cannot be moved to %s: %s", topic, index, wanted, error)
        return {"partition_index": index, "error_code": error.code}
    return {"partition_index": index}


def _check(node: Node, wanted: Path, topic: str, index: int) -> None:
    known = {path.absolute(): path for path in node.logs.data_dirs}
    if wanted not in known:
        raise errors.LogDirNotFound(f"It is not one of {', '.join(map(str, known))}.")
    if known[wanted] in node.logs.failed_dirs:
        raise errors.KafkaStorageError(f"The directory has failed: {node.logs.failed_dirs[known[wanted]]}.")
    if node.partition(topic, index).log.directory.parent.absolute() != wanted:
        raise errors.InvalidRequest("ottla does not move replicas between directories of a broker.")
