"""DescribeLogDirs: the data directories and the sizes of their partitions, or that a directory has failed."""

from __future__ import annotations

import shutil
from collections import defaultdict
from pathlib import Path

from ottla.broker.node import Call, Node
from ottla.broker.partition import Partition
from ottla.errors import KafkaStorageError
from ottla.protocol.apis import ApiKey
from ottla.protocol.codec import Message, Struct

API = ApiKey.DESCRIBE_LOG_DIRS


def handle(node: Node, call: Call, request: Struct) -> Message:
    by_dir: dict[Path, dict[str, list[Partition]]] = {path: {} for path in node.logs.data_dirs}
    for partition in _requested(node, request):
        topics = by_dir.setdefault(partition.log.directory.parent, {})
        topics.setdefault(partition.topic, []).append(partition)
    return {"results": [_directory(node, path, topics) for path, topics in by_dir.items()]}


def _requested(node: Node, request: Struct) -> list[Partition]:
    if request.topics is None:
        return list(node.local())
    wanted = defaultdict(set)
    for topic in request.topics:
        wanted[topic.topic].update(topic.partitions)
    return [
        partition for name, indexes in wanted.items() for partition in node.local(name) if partition.index in indexes
    ]


def _directory(node: Node, path: Path, topics: dict[str, list[Partition]]) -> Message:
    try:
        usage = shutil.disk_usage(path)
    except OSError:
        usage = None
    if usage is None or path in node.logs.failed_dirs:
        return {"error_code": KafkaStorageError.code, "log_dir": str(path.absolute()), "topics": []}
    return {
        "log_dir": str(path.absolute()),
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": p.index, "partition_size": p.log.size, "offset_lag": 0} for p in partitions
                ],
            }
            for name, partitions in topics.items()
        ],
        "total_bytes": usage.total,
        "usable_bytes": usage.free,
    }
