"""The audited offsets of a topic, and the position of its pipeline, from the cluster or a checkpoint.

The order matters while the pipeline is running: read the end of the source first, then the position, then the target.
So everything before the position must be in the target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.clients.admin.blocking import Admin
from ottla.errors import OttlaError
from ottla.spark.lookup import Lookup
from ottla.spark.offsets import parse_offsets
from ottla.spark.options import Offsets, ReadOptions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class AuditError(OttlaError):
    """The audit cannot run with these arguments."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The offsets of a partition: the log starts at `earliest`; `start` to `end` (exclusive) is audited."""

    partition: int
    earliest: int
    start: int
    end: int
    position: int | None = None
    """The next offset of the pipeline, if known."""


def source_bounds(options: ReadOptions) -> list[Bounds]:
    """The audited offsets, by the start and end in the options."""
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
    """Add positions; without one, a partition was not started."""
    return [
        Bounds(one.partition, one.earliest, one.start, one.end, positions.get(one.partition, one.earliest))
        for one in bounds
    ]


def group_positions(options: ReadOptions, group: str, topic: str) -> dict[int, int]:
    """The committed offsets of a group for a topic."""
    with Admin(options.admin_config()) as admin:
        found = {key: one.offset for key, one in admin.list_group_offsets(group).items() if one.offset >= 0}
    return _of_topic(found, topic, f"group {group} has no committed offsets for topic {topic}")


def checkpoint_positions(spark: SparkSession, checkpoint: str, topic: str) -> dict[int, int]:
    """The end of the last finished micro-batch in a checkpoint, on any path that Spark can read."""
    finished = _newest(_files(spark, checkpoint, "commits"))
    if finished is None:
        raise AuditError(f"checkpoint {checkpoint} has no finished micro-batch yet")
    text = _files(spark, checkpoint, "offsets").get(finished)
    if text is None:
        raise AuditError(f"checkpoint {checkpoint} has no offsets of the finished micro-batch {finished}")
    return _of_topic(read_offset_log(text), topic, f"the query of checkpoint {checkpoint} does not read topic {topic}")


def _of_topic(offsets: Offsets, topic: str, otherwise: str) -> dict[int, int]:
    found = {key.partition: offset for key, offset in offsets.items() if key.topic == topic}
    if not found:
        raise AuditError(f"{otherwise}, so lost records cannot be determined")
    return found


def _files(spark: SparkSession, checkpoint: str, folder: str) -> dict[str, str]:
    from pyspark.errors import AnalysisException

    try:
        frame = spark.read.text(f"{checkpoint.rstrip('/')}/{folder}", wholetext=True)
        rows = frame.selectExpr("_metadata.file_name name", "value").collect()
    except AnalysisException:
        raise AuditError(
            f"{checkpoint} is not a checkpoint of a streaming query: it has no directory {folder}"
        ) from None
    return {row["name"]: row["value"] for row in rows}


def _newest(names: Iterable[str]) -> str | None:
    """
    >>> _newest(["9", "10", "8.compact"])
    '10'
    """
    return max((name for name in names if name.isdecimal()), key=int, default=None)


def read_offset_log(text: str) -> Offsets:
    """Parse a file of Spark's offset log: a version, the settings of the batch, and a line per source.

    >>> read_offset_log('v1\\n{"batchWatermarkMs":0}\\n{"orders":{"0":23}}\\n-')
    {TopicPartition(topic='orders', partition=0): 23}
    """
    found: Offsets = {}
    for line in text.splitlines()[2:]:
        for key, offset in (parse_offsets(line) or {}).items():
            # If several sources read a topic, the slowest one counts.
            found[key] = min(offset, found.get(key, offset))
    return found
