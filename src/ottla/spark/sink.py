"""The writers: send rows to topics as columns. Worker processes keep their producers.

At least once: a task returns when all of its rows are acknowledged, and fails if one of them fails. Spark repeats
failed tasks and micro-batches, so rows can be written twice. Within one attempt the producer is idempotent.
`exactly_once.py` has exactly once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from ottla.spark.options import OptionError, WriteOptions
from ottla.spark.processes import hush, settle

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.clients.columns import ColumnsFuture
    from ottla.clients.producer.blocking import Producer
    from ottla.spark.exactly_once import Write

hush()  # a process that commits or aborts imports only this module

#: The maximum number of unacknowledged tables.
IN_FLIGHT = 16
#: Local properties with the query, its run and the micro-batch.
_PROPERTIES = ("sql.streaming.queryId", "spark.jobGroup.id", "streaming.sql.batchId")

_producers: dict[tuple[tuple[str, str], ...], Producer] = {}


@dataclass
class Written(WriterCommitMessage):
    """The number of rows that a task has written."""

    rows: int


def check_columns(schema: StructType, options: WriteOptions) -> tuple[str, ...]:
    """The written columns; others are ignored, as in Spark's Kafka sink."""
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise OptionError(
            f"the column value is missing (string or binary); the columns are {', '.join(fields) or 'none'}"
        )
    if options.topic is None and "topic" not in fields:
        raise OptionError("no topic: set the option topic, or add a topic column")
    for name, kinds in (
        ("value", (StringType, BinaryType)),
        ("key", (StringType, BinaryType)),
        ("topic", (StringType,)),
        ("partition", (IntegerType,)),
    ):
        if name in fields and not isinstance(fields[name], kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise OptionError(f"column {name} has type {fields[name].simpleString()}: cast it to {wanted}")
    if "headers" in fields and not _are_headers(fields["headers"]):
        raise OptionError(
            f"column headers has type {fields['headers'].simpleString()}: "
            "convert it to array<struct<key:string,value:binary>>"
        )
    names = ("key", "value", "headers", "partition", *(() if options.topic else ("topic",)))
    return tuple(name for name in names if name in fields)


def _are_headers(kind: Any) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    parts = [(field.name, field.dataType.typeName()) for field in kind.elementType.fields]
    return parts == [("key", "string"), ("value", "binary")]


def write_rows(options: WriteOptions, columns: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Written:
    """Write all rows and wait until they are acknowledged."""
    from ottla.clients.producer.blocking import Producer

    key = tuple(sorted(options.producer_config().items()))
    producer = _producers.pop(key, None) or Producer(options.producer_config())
    try:
        rows = send_tables(producer, tables_of(options, columns, batches))
    except BaseException:
        producer.close(0)  # Spark repeats the task, so unsent rows are useless
        raise
    _producers[key] = producer
    return Written(rows)


def send_tables(producer: Producer, tables: Iterable[tuple[str, pa.RecordBatch]]) -> int:
    """Send rows and wait for all acknowledgements; returns the number of rows."""
    waiting: list[ColumnsFuture] = []
    rows = 0
    for topic, table in tables:
        waiting.append(producer.send_arrow(topic, table))
        rows += table.num_rows
        while len(waiting) > IN_FLIGHT:
            waiting.pop(0).result()
    producer.flush()
    for future in waiting:
        future.result()
    return rows


def tables_of(
    options: WriteOptions, columns: Sequence[str], batches: Iterator[pa.RecordBatch]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The written columns of a task's rows, by topic."""
    for batch in batches:
        yield from _by_topic(options, batch.select(list(columns)))


def _by_topic(options: WriteOptions, batch: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    if options.topic is not None:
        if batch.num_rows:
            yield options.topic, batch
        return
    import pyarrow.compute as pc

    topics = batch.column("topic")
    if topics.null_count:
        raise OptionError("a row has no topic: fill the column, or set the option topic")
    names = pc.unique(topics).to_pylist()
    rows = batch.drop_columns(["topic"])
    for name in names:
        yield name, rows if len(names) == 1 else rows.filter(pc.equal(topics, name))


def _write(
    options: WriteOptions, columns: Sequence[str], batches: Iterator[pa.RecordBatch], write: Write | None
) -> Any:
    settle()
    if write is None:
        return write_rows(options, columns, batches)
    from ottla.spark.exactly_once import write_task

    return write_task(options, write, _task().partitionId(), tables_of(options, columns, batches))


def _task() -> TaskContext:
    found = TaskContext.get()
    if found is None:
        raise RuntimeError("write must be called in a Spark task")
    return found


class _Writer:
    """Shared by both writers: commit or abort the transactions at the end of a job."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def _commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        if self._options.exactly_once:
            from ottla.spark.exactly_once import commit_all

            commit_all(self._options, messages)

    def _abort(self, messages: Sequence[WriterCommitMessage | None], write: Write | None) -> None:
        if self._options.exactly_once:
            from ottla.spark.exactly_once import abort_all

            abort_all(self._options, messages, write)


class BatchWriter(_Writer, DataSourceArrowWriter):
    """`write`: rows are visible at once; with exactly-once, at the end of the job."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        super().__init__(options, columns)
        self._job = options.txn_run_id or uuid4().hex
        """Created during planning; the same in all tasks."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return _write(self._options, self._columns, iterator, self._which())

    def _which(self) -> Write | None:
        options = self._options
        if not options.exactly_once:
            return None
        from ottla.spark.exactly_once import Write

        if options.txn_app_id is None or options.txn_version is None:
            return Write(f"{options.id_prefix}-{self._job}", self._job, 0, decides=False)
        return Write(f"{options.id_prefix}-{options.txn_app_id}-{options.topic or ''}", self._job, options.txn_version)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages, self._which())


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """`writeStream`: a repeated micro-batch is written again; with exactly-once, only if necessary."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Any:
        return _write(self._options, self._columns, iterator, self._which())

    def _which(self) -> Write | None:
        if not self._options.exactly_once:
            return None
        from ottla.spark.exactly_once import Write

        query, run, batch = (_task().getLocalProperty(name) for name in _PROPERTIES)
        if query is None or run is None or batch is None:
            raise RuntimeError(f"the task has no {', '.join(_PROPERTIES)}: it does not belong to a streaming query")
        return Write(f"{self._options.id_prefix}-{query}", run, int(batch))

    def commit(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        self._commit(messages)

    def abort(self, messages: list[WriterCommitMessage | None], batch_id: int) -> None:
        self._abort(messages, None)
