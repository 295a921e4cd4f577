"""The writers: rows of a batch or a micro-batch to topics, as columns, by producers that a worker process keeps.

At least once: a task returns when all of its rows are acknowledged, and an error of any of them fails the task. Spark
runs a failed task or micro-batch again, and then rows that had been written are written once more. Within one attempt
the producer is idempotent, so that its own retries repeat nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, StringType, StructType

from ottla.spark.options import OptionError, WriteOptions

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.clients.blocking_producer import Producer
    from ottla.clients.columns import ColumnsFuture

#: So many tables may be on their way before the oldest is waited for.
IN_FLIGHT = 16

_producers: dict[tuple[tuple[str, str], ...], Producer] = {}


@dataclass
class Written(WriterCommitMessage):
    """How many rows a task has written."""

    rows: int


def check_columns(schema: StructType, options: WriteOptions) -> tuple[str, ...]:
    """The columns of the rows that are written; others are left out, as by Spark's own sink."""
    fields = {field.name: field.dataType for field in schema.fields}
    if "value" not in fields:
        raise OptionError(f"a column called value is needed, of text or bytes; there are {', '.join(fields) or 'none'}")
    if options.topic is None and "topic" not in fields:
        raise OptionError("where to write is not known: set the option topic, or give the rows a column called topic")
    for name, kinds in (
        ("value", (StringType, BinaryType)),
        ("key", (StringType, BinaryType)),
        ("topic", (StringType,)),
        ("partition", (IntegerType,)),
    ):
        if name in fields and not isinstance(fields[name], kinds):
            wanted = " or ".join(kind.typeName() for kind in kinds)
            raise OptionError(f"column {name} is of type {fields[name].simpleString()}: cast it to {wanted}")
    if "headers" in fields and not _are_headers(fields["headers"]):
        raise OptionError(
            f"column headers is of type {fields['headers'].simpleString()}: "
            "make it array<struct<key:string,value:binary>>"
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
    from ottla.clients.blocking_producer import Producer

    key = tuple(sorted(options.producer_config().items()))
    producer = _producers.pop(key, None) or Producer(options.producer_config())
    waiting: list[ColumnsFuture] = []
    rows = 0
    try:
        for batch in batches:
            for topic, part in _by_topic(options, batch.select(list(columns))):
                waiting.append(producer.send_arrow(topic, part))
                rows += part.num_rows
            while len(waiting) > IN_FLIGHT:
                waiting.pop(0).result()
        producer.flush()
        for future in waiting:
            future.result()
    except BaseException:
        producer.close(0)  # Spark may try again, and what is not sent yet is of no use then
        raise
    _producers[key] = producer
    return Written(rows)


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


class BatchWriter(DataSourceArrowWriter):
    """`write`: rows are visible as soon as they are written, also those of a job that fails later."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, self._columns, iterator)


class StreamWriter(DataSourceStreamArrowWriter):
    """`writeStream`: a micro-batch that is run again is written again."""

    def __init__(self, options: WriteOptions, columns: tuple[str, ...]) -> None:
        self._options = options
        self._columns = columns

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return write_rows(self._options, self._columns, iterator)
