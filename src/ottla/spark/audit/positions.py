"""Which offsets of a topic are audited, and how far its pipeline is: asked of the cluster, or read in a checkpoint.

The order of questions matters while the pipeline runs: first the end of the source, then how far the pipeline is, and
only then the target. So everything before the position must be in the target, and nothing produced meanwhile is missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.clients.admin.blocking import Admin
from ottla.errors import OttlaError
from ottla.spark.lookup import Lookup
from ottla.spark.options import Offsets, ReadOptions
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AuditError(OttlaError):
    """The audit cannot be made as it was asked for."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a partition: the log begins at `earliest`, and `start` to `end` (not included) is audited."""

    partition: int
    earliest: int
    start: int
    end: int
    position: int | None = None
    """The next offset that the pipeline will process, if that is known."""


def source_bounds(options: ReadOptions) -> list[Bounds]:
    """What is to be audited now, by the start and the end in the options of the source."""
    lookup = Lookup(options)
    try:
        keys = lookup.existing()
        earliest, latest = lookup.earliest(keys), lookup.latest(keys)
        start, end = lookup.start(keys), lookup.end(keys)
    finally:
        lookup.close()
    return [_bounds(key.partition, earliest[key], latest[key], start[key], end[key]) for key in keys]


def _bounds(partition: int, earliest: int, latest: int, start: int, end: int) -> Bounds:
    end = min(end, latest)
    return Bounds(partition, earliest, min(max(start, earliest), end), end)


def with_positions(bounds: Iterable[Bounds], positions: Mapping[int, int]) -> list[Bounds]:
    """A partition of which nothing is known was not begun."""
    return [
        Bounds(one.partition, one.earliest, one.start, one.end, positions.get(one.partition, one.earliest))
        for one in bounds
    ]


def group_positions(options: ReadOptions, group: str, topic: str) -> dict[int, int]:
    """What a group has committed for the partitions of a topic."""
    with Admin(options.admin_config()) as admin:
        found = {key: one.offset for key, one in admin.list_group_offsets(group).items() if one.offset >= 0}
    return _of_topic(found, topic, f"group {group} has committed no offset of topic {topic}")


def checkpoint_positions(spark: SparkSession, checkpoint: str, topic: str) -> dict[int, int]:
    """The end of the last micro-batch that a query has finished, by its checkpoint, wherever Spark can read it."""
    finished = _newest(_files(spark, checkpoint, "commits"))
    if finished is None:
        raise AuditError(f"the checkpoint {checkpoint} has no finished micro-batch: the query has done nothing yet")
    text = _files(spark, checkpoint, "offsets").get(finished)
    if text is None:
        raise AuditError(f"the checkpoint {checkpoint} has no offsets of micro-batch {finished}, which it has finished")
    return _of_topic(read_offset_log(text), topic, f"the query of checkpoint {checkpoint} does not read topic {topic}")


def _of_topic(offsets: Offsets, topic: str, otherwise: str) -> dict[int, int]:
    found = {key.partition: offset for key, offset in offsets.items() if key.topic == topic}
    if not found:
        raise AuditError(f"{otherwise}: without that nothing could be called lost")
    return found


def _files(spark: SparkSession, checkpoint: str, folder: str) -> dict[str, str]:
    from pyspark.errors import AnalysisException

    try:
        frame = spark.read.text(f"{checkpoint.rstrip('/')}/{folder}", wholetext=True)
        rows = frame.selectExpr("_metadata.file_name name", "value").collect()
    except AnalysisException:
        raise AuditError(
            f"{checkpoint} is no checkpoint of a streaming query: it has no folder named {folder}"
        ) from None
    return {row["name"]: row["value"] for row in rows}


def _newest(names: Iterable[str]) -> str | None:
    """
    >>> _newest(["9", "10", "8.compact"])
    '10'
    """
    return max((name for name in names if name.isdecimal()), key=int, default=None)


def read_offset_log(text: str) -> Offsets:
    """The offsets of all topics in a file of Spark's offset log: a version, the batch's settings, a line a source.

    >>> read_offset_log('v1\\n{"batchWatermarkMs":0}\\n{"orders":{"0":23}}\\n-')
    {TopicPartition(topic='orders', partition=0): 23}
    """
    found: Offsets = {}
    for line in text.splitlines()[2:]:
        for topic, partitions in _object(_source_line(line)).items():
            for partition, offset in _object(partitions).items():
                if partition.isdecimal() and type(offset) is int:
                    # A topic that several sources read is done as far as the slowest.
                    key = TopicPartition(topic, int(partition))
                    found[key] = min(offset, found.get(key, offset))
    return found


def _source_line(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
