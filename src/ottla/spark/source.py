"""`format("ottla")`: the data source and its two readers. `sink.py` has the writers.

    spark.readStream.format("ottla").option("kafka.bootstrap.servers", "…").option("subscribe", "orders").load()

Spark creates these objects in several processes: one that plans a batch query, one that plans a streaming query for as
long as it runs, and the workers that run `read`. Only the options are pickled; connections are opened on first use.
Every process imports this module, but clients are imported on first use, because they dominate a worker's start time.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.errors import OttlaError
from ottla.spark.loss import report_loss
from ottla.spark.offsets import (
    Json,
    Range,
    count_between,
    from_json,
    grouped,
    is_small,
    limited,
    ranges_between,
    split,
    to_json,
)
from ottla.spark.options import Offsets, OptionError, ReadOptions, WriteOptions
from ottla.spark.planning import PLANS_EACH_QUERY
from ottla.spark.prefetching import Prefetching, install
from ottla.spark.processes import hush, leave_if_hung_up
from ottla.types import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.spark.lookup import Lookup
    from ottla.spark.sink import BatchWriter, StreamWriter

hush()
COLUMNS = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
)
_HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
HEADERS = StructField("headers", ArrayType(_HEADER))
#: A micro-batch of at most this many records is read by one task, because a task costs more than its records.
SMALL_BATCH = 1_000
#: A task of a larger batch should have this many records. Partitions with less share tasks, but all cores get one.
TASK_RECORDS = 20_000


class OttlaSource(DataSource):
    """Topics of ottla or Apache Kafka as tables and streams, with the options of Spark's Kafka source."""

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        headers = str(self.options.get("includeHeaders", "")).strip().lower() == "true"
        return StructType([*COLUMNS.fields, HEADERS]) if headers else COLUMNS

    def reader(self, schema: StructType) -> BatchReader:
        return BatchReader(ReadOptions.of(self.options, streaming=False), self._own(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        install()
        try:
            return StreamReader(ReadOptions.of(self.options, streaming=True), self._own(schema))
        except OttlaError as error:
            return FailedReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        if overwrite:
            raise OptionError('topics cannot be overwritten: use mode("append")')
        from ottla.spark.sink import BatchWriter, check_columns

        options = WriteOptions.of(self.options)
        return BatchWriter(options, check_columns(schema, options))

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """`overwrite` is Spark's word for complete mode: every batch appends the whole result, as in its Kafka sink."""
        from ottla.spark.sink import StreamWriter, check_columns

        options = WriteOptions.of(self.options, streaming=True)
        return StreamWriter(options, check_columns(schema, options))

    def _own(self, schema: StructType) -> StructType:
        own = self.schema()
        if schema.fieldNames() != own.fieldNames():
            raise OptionError(f"the columns of a topic are fixed, remove schema(…): {', '.join(own.fieldNames())}")
        return own


class RangePartition(InputPartition):
    """The ranges of one task, of different partitions."""

    def __init__(self, *wanted: Range) -> None:
        super().__init__(wanted)


class OpenPartition(RangePartition):
    """A range that ends where its partition ends when the task runs.

    Without the rules of `planning`, Spark keeps the plan of a frame, and later queries must see new records. As in
    Spark's Kafka source, a repeated task may then read more than its first attempt.
    """


def _arrow_schema(schema: StructType) -> pa.Schema:
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(schema, timezone="UTC")


def _read(options: ReadOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    if not partition.value:  # Spark's placeholder for a plan without partitions
        return iter(())
    from ottla.spark.reading import read_ranges

    return read_ranges(options, partition.value, _arrow_schema(schema))


def _planned(options: ReadOptions, start: Offsets, end: Offsets) -> list[RangePartition]:
    ranges = ranges_between(start, end)
    ranges = split(ranges, min_partitions=options.min_partitions, max_records=options.max_records)
    return [RangePartition(one) for one in ranges]


def _planned_batch(options: ReadOptions, start: Offsets, end: Offsets, cores: int | None) -> list[RangePartition]:
    """The tasks of a micro-batch: as few as keep all cores busy, if there are few records."""
    ranges = ranges_between(start, end)
    if options.min_partitions is not None or options.max_records is not None or len(ranges) < 2:
        return _planned(options, start, end)
    if is_small(ranges, SMALL_BATCH):
        return [RangePartition(*ranges)]
    tasks = max(cores or len(ranges), -(-count_between(start, end) // TASK_RECORDS))
    return [RangePartition(*group) for group in grouped(ranges, tasks)]


def _is_small_task(planned: Sequence[InputPartition]) -> bool:
    return len(planned) == 1 and is_small(planned[0].value, SMALL_BATCH)


class BatchReader(DataSourceReader):
    """Read the offsets between two bounds, fixed during planning and narrowed by filters."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        from ottla.spark.filters import PushedFilters

        self._options = options
        self._schema = schema
        self._filters = PushedFilters()
        self._plans_each_query = PLANS_EACH_QUERY in os.environ
        if self._plans_each_query:  # otherwise Spark keeps the narrowed plan for later queries
            self.pushFilters = self._filters

    def partitions(self) -> list[RangePartition]:
        from ottla.spark.lookup import Lookup

        lookup = Lookup(self._options)
        try:
            keys = lookup.existing()
            start, end = lookup.start(keys), lookup.end(keys)
            earliest, latest = lookup.earliest(keys), lookup.latest(keys)
            for key in keys:
                start[key], end[key] = self._checked(key, start[key], end[key], earliest[key], latest[key])
            self._narrow(lookup, start, end)
        finally:
            lookup.close()
        planned = _planned(self._options, start, end)
        return planned if self._plans_each_query else self._opened(planned, end)

    def _opened(self, planned: list[RangePartition], end: Offsets) -> list[RangePartition]:
        """Leave the last range of each partition open if it ends at latest, also if it is empty now."""
        last = {key: offset for key, offset in end.items() if self._options.end.is_latest(key)}
        found: list[RangePartition] = []
        for one in planned:
            (wanted,) = one.value
            is_last = last.get(wanted.key) == wanted.end
            found.append(OpenPartition(wanted) if is_last else one)
        there = {one.value[0].key for one in found}
        empty = [Range(key.topic, key.partition, offset, offset) for key, offset in last.items() if key not in there]
        return [*found, *map(OpenPartition, empty)]

    def _narrow(self, lookup: Lookup, start: Offsets, end: Offsets) -> None:
        """Skip ranges without matching rows."""
        narrowing = self._filters.narrowing
        for key in [key for key in end if not narrowing.has(key.topic, key.partition)]:
            del start[key], end[key]
        since = {} if narrowing.since is None else lookup.first_since(narrowing.since, end)
        for key in end:
            first = since.get(key, start[key])
            start[key], end[key] = narrowing.between(max(start[key], min(first, end[key])), end[key])

    def _checked(self, key: TopicPartition, start: int, end: int, earliest: int, latest: int) -> tuple[int, int]:
        if start > end:
            raise OptionError(f"partition {key}: the start offset {start} is after the end offset {end}")
        if start < earliest and start < end:
            report_loss(f"offsets {start} to {earliest} of {key} are gone: its log starts at {earliest}", self._options)
        if end > latest:
            report_loss(f"offsets {latest} to {end} of {key} do not exist: its log ends at {latest}", self._options)
        end = min(end, latest)
        return min(max(start, earliest), end), end

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if isinstance(partition, OpenPartition):
            from ottla.spark.reading import up_to_end

            partition = RangePartition(up_to_end(self._options, partition.value[0]))
        return _read(self._options, self._schema, partition)


def _list(keys: Sequence[TopicPartition], most: int = 10) -> str:
    more = f" and {len(keys) - most} more" if len(keys) > most else ""
    return ", ".join(map(str, keys[:most])) + more


class FailedReader(DataSourceStreamReader):
    """Raises an error when Spark first asks for something.

    If `streamReader` raised it, pyspark's process would fail to stop the missing reader and report that instead.
    """

    def __init__(self, error: OttlaError) -> None:
        self._error = error

    @property
    def latestOffset(self) -> Any:
        """Spark looks at its signature first of all."""
        raise self._error

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        raise self._error


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The offsets of a streaming query.

    One instance lives as long as the query; in workers, only `read` is called.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self.cores: int | None = None
        """How many tasks run at a time, if that is known and stays so."""
        self._forget()

    def _forget(self) -> None:
        self._lookup: Lookup | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._first: Offsets | None = None
        self._committed: Offsets | None = None
        self._triggered: float | None = None
        self._prefetching = Prefetching(self._options)

    def __getstate__(self) -> dict[str, Any]:
        return {"_options": self._options, "_schema": self._schema}

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        self.cores = None
        self._forget()

    @property
    def _cluster(self) -> Lookup:
        if self._lookup is None:
            from ottla.spark.lookup import Lookup

            self._lookup = Lookup(self._options)
        return self._lookup

    # ── Called by Spark ──────────────────────────────────────────────────────────────────────────────────────────

    def initialOffset(self) -> Json:
        self._first = self._cluster.start(self._cluster.existing())
        return to_json(self._first)

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_offsets is not None:
            return ReadMaxRows(self._options.max_offsets)
        if self._options.min_offsets is not None:
            return ReadMinRows(self._options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._cluster.latest(self._cluster.partitions())

    def latestOffset(self, start: Json, limit: ReadLimit) -> Json:
        """The end of the next batch; `start` for no batch now."""
        begin = from_json(start)
        self._finished(begin)
        self._latest = self._cluster.latest(self._cluster.partitions(fresh=False))
        end = self._available(begin, self._latest)
        if not isinstance(limit, ReadAllAvailable):
            if self._is_too_little(begin, end):
                return start
            if isinstance(limit, ReadMaxRows):
                end = limited(begin, end, limit.max_rows)
        if self._prefetching.is_used:
            self._read_ahead(_planned_batch(self._options, begin, end, self.cores))
        return to_json(end)

    def reportLatestOffset(self) -> Json | None:
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: Json | str, end: Json) -> list[RangePartition]:
        if isinstance(start, str):  # this version of Spark plans it in another process
            return []
        return _planned_batch(self._options, from_json(start), from_json(end), self.cores)

    def prefetched(self, planned: Sequence[InputPartition]) -> list[pa.RecordBatch] | None:
        """The records of a small batch, which Spark gets with its plan; None if tasks have to read them."""
        if not _is_small_task(planned):
            return None
        return self._prefetching.take(planned[0].value, _arrow_schema(self._schema))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self._options, self._schema, partition)

    def commit(self, end: Json) -> None:
        self._finished(from_json(end))

    def stop(self) -> None:
        if self._lookup is not None:
            self._lookup.close()
            self._lookup = None
        leave_if_hung_up()

    # ── Internal ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _read_ahead(self, planned: Sequence[InputPartition]) -> None:
        """Read a small batch while Spark writes its end into the checkpoint."""
        if _is_small_task(planned):
            self._prefetching.begin(planned[0].value, _arrow_schema(self._schema))

    def _finished(self, offsets: Offsets) -> None:
        """Commit processed offsets to the group, unless nothing was read yet."""
        if self._options.group_id is None or not offsets or offsets in (self._committed, self._first):
            return
        if self._cluster.commit(offsets):
            self._committed, self._first = offsets, None

    def _available(self, begin: Offsets, latest: Offsets) -> Offsets:
        """The end offsets, after reporting lost data."""
        self._report_gone(begin.keys() - latest.keys())
        end = dict(latest)
        if self._target is not None:
            end = {key: min(offset, self._target[key]) for key, offset in latest.items() if key in self._target}
            # A target from before a log restart must not move a partition back.
            end = {key: begin[key] if latest[key] >= begin.get(key, 0) > one else one for key, one in end.items()}
        for key in sorted(begin.keys() & latest.keys()):
            if latest[key] < begin[key]:
                report_loss(
                    f"partition {key} ends at offset {latest[key]} but was read up to {begin[key]}: it was truncated, "
                    "or its topic was deleted and created again",
                    self._options,
                )
            end.setdefault(key, begin[key])
        return end

    def _report_gone(self, gone: Set[TopicPartition]) -> None:
        deselected = sorted(key for key in gone if not self._options.topics.select(key))
        if deselected:
            report_loss(
                f"the checkpoint has partitions that the query does not read now: {_list(deselected)}. It was made "
                "with other topics (subscribe, subscribePattern, assign): name them again, or use a new "
                "checkpointLocation for other topics",
                self._options,
            )
        if deleted := sorted(gone - set(deselected)):
            report_loss(f"partitions were deleted while the query read them: {_list(deleted)}", self._options)

    def _is_too_little(self, begin: Offsets, end: Offsets) -> bool:
        """minOffsetsPerTrigger: wait for more records, up to maxTriggerDelay; never with availableNow."""
        if self._options.min_offsets is None or self._target is not None:
            return False
        now = time.monotonic()
        waited = None if self._triggered is None else (now - self._triggered) * 1000
        ready = count_between(begin, end) >= self._options.min_offsets
        if ready or waited is None or waited >= self._options.max_delay_ms:
            self._triggered = now
            return False
        return True
