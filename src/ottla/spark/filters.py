"""Narrow a batch query by filters on topic, partition, offset or timestamp. No I/O.

Filters on topic, partition and offset are exact; Spark does not apply them again. A lower bound of the timestamp only
narrows: reading starts at the first record that is new enough, but older ones may follow. An upper bound does not help,
because timestamps are not sorted within a partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql.datasource import (
    DataSourceReader,
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from ottla.types import Millis

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
#: Columns that every record has.
_FILLED = ("topic", "partition", "offset")
_ENDLESS = 2**63 - 1


@dataclass
class Narrowing:
    """The ranges that can contain matching rows."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    first_partition: int = 0
    last_partition: int = _ENDLESS
    first_offset: int = 0
    last_offset: int = _ENDLESS
    since: Millis | None = None
    """Skip the records before the first one at or after this time."""

    def take(self, one: Filter) -> bool:
        """Narrow by a filter; returns whether that is exact, so that Spark can skip it."""
        path: tuple[str, ...] = getattr(one, "attribute", ())
        if len(path) != 1:
            return False
        if isinstance(one, IsNotNull):
            return path[0] in _FILLED
        column, value = path[0], getattr(one, "value", None)
        if column == "timestamp":
            self._narrow_time(one, value)
            return False
        if column == "topic":
            return self._choose_topics(one, value)
        if column == "partition":
            return self._choose_partitions(one, value)
        return column == "offset" and self._choose_offsets(one, value)

    def _narrow_time(self, one: Filter, value: Any) -> None:
        # A time without a zone depends on the session's zone, which is unknown here.
        if not isinstance(value, datetime) or value.tzinfo is None:
            return
        micros = (value - _EPOCH) // _MICROSECOND
        if isinstance(one, GreaterThanOrEqual | EqualTo | EqualNullSafe):
            since = -(-micros // 1000)
        elif isinstance(one, GreaterThan):
            since = micros // 1000 + 1
        else:
            return
        self.since = max(since, self.since or 0, 0)

    def _choose_topics(self, one: Filter, value: Any) -> bool:
        wanted = _wanted(one, value, str)
        if wanted is None:
            return False
        self.topics = wanted if self.topics is None else self.topics & wanted
        return True

    def _choose_partitions(self, one: Filter, value: Any) -> bool:
        wanted = _wanted(one, value, int)
        if wanted is not None:
            self.partitions = wanted if self.partitions is None else self.partitions & wanted
            return True
        bounds = _bounds(one, value)
        if bounds is None:
            return False
        self.first_partition = max(self.first_partition, bounds[0])
        self.last_partition = min(self.last_partition, bounds[1])
        return True

    def _choose_offsets(self, one: Filter, value: Any) -> bool:
        wanted = _wanted(one, value, int)
        bounds = _bounds(one, value) if wanted is None else (min(wanted, default=1), max(wanted, default=0))
        if bounds is None:
            return False
        self.first_offset = max(self.first_offset, bounds[0])
        self.last_offset = min(self.last_offset, bounds[1])
        # The range between several offsets contains others.
        return wanted is None or len(wanted) <= 1

    def has(self, topic: str, partition: int) -> bool:
        """Whether rows of a partition can match."""
        return (
            (self.topics is None or topic in self.topics)
            and (self.partitions is None or partition in self.partitions)
            and self.first_partition <= partition <= self.last_partition
        )

    def between(self, start: int, end: int) -> tuple[int, int]:
        """Narrow a range of offsets; an empty range has equal ends."""
        start = min(max(start, self.first_offset), end)
        return start, max(min(end, self.last_offset + 1), start)


def _wanted(one: Filter, value: Any, kind: type) -> frozenset[Any] | None:
    values = value if isinstance(one, In) else (value,) if isinstance(one, EqualTo | EqualNullSafe) else None
    if values is None or not all(type(each) is kind for each in values):
        return None
    return frozenset(values)


def _bounds(one: Filter, value: Any) -> tuple[int, int] | None:
    if type(value) is not int:
        return None
    if isinstance(one, GreaterThan):
        return value + 1, _ENDLESS
    if isinstance(one, GreaterThanOrEqual):
        return value, _ENDLESS
    if isinstance(one, LessThan):
        return 0, value - 1
    return (0, value) if isinstance(one, LessThanOrEqual) else None


@dataclass
class PushedFilters:
    """`pushFilters` of a reader, as a callable.

    Without spark.sql.python.filterPushdown.enabled, Spark rejects readers that define this method, even for queries
    without filters. It checks `__func__`, so this class shows the function of the base class.
    """

    narrowing: Narrowing = field(default_factory=Narrowing)

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __call__(self, filters: Iterable[Filter]) -> list[Filter]:
        """Return the filters that Spark still has to apply."""
        return [one for one in filters if not self.narrowing.take(one)]
