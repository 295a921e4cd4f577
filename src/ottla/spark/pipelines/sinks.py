"""Turn declared sinks into stream writers. A new sink is a dataclass in `declaration/sinks.py` and a function here."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines import keyed
from ottla.spark.pipelines.checkpoints import query_id
from ottla.spark.pipelines.columns import check_columns
from ottla.spark.pipelines.databases.sink import write_database
from ottla.spark.pipelines.declaration import (
    ORIGIN,
    ConsoleSink,
    DatabaseSink,
    DeadLetters,
    FileSink,
    JdbcSink,
    LakeSink,
    Pipeline,
    Sink,
    TopicSink,
)
from ottla.spark.pipelines.jdbc.sink import write_jdbc
from ottla.spark.pipelines.lakes.sink import write_lake
from ottla.spark.pipelines.options import as_settings, write_options
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.times import AVAILABLE_NOW, ONCE, interval
from ottla.spark.pipelines.written import Writer, guard
from ottla.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

#: The classes of Spark's file formats.
_FILE_FORMATS = {
    "parquet": "ParquetFileFormat",
    "csv": "CSVFileFormat",
    "json": "JsonFileFormat",
    "orc": "OrcFileFormat",
}


def shape(sink: Sink, frame: DataFrame) -> DataFrame:
    """Select the columns that the sink writes."""
    if isinstance(sink, TopicSink):
        return _records(sink, frame)
    if isinstance(sink, FileSink):
        check_columns(sink.partition_by, frame, "partition_by", "the input")
        return frame if _keeps_origin(sink, frame) else frame.drop(*ORIGIN)
    if isinstance(sink, LakeSink):
        check_columns(sink.partition_by, frame, "partition_by", "the input")
    if isinstance(sink, JdbcSink | LakeSink | DatabaseSink):
        return keyed.shape(sink, frame)
    return frame


def start(pipeline: Pipeline, sink: Sink | DeadLetters, frame: DataFrame, name: str, where: str, trigger: str) -> Any:
    """Start the query of a sink, with its checkpoint at `where`, unless its output belongs to another checkpoint."""
    query = guard(frame.sparkSession, pipeline, sink, name, where)
    writer = frame.writeStream.queryName(f"{pipeline.name}.{name}").option("checkpointLocation", where)
    writer = writer.outputMode(output_mode(sink, frame))
    writer = triggered(writer, trigger)
    if isinstance(sink, TopicSink) and sink.mode == "update":
        return writer.foreachBatch(_write_changed(pipeline, sink, where)).start()
    if isinstance(sink, TopicSink):
        return writer.format("ottla").options(**write_options(pipeline, sink, sink.topic)).start()
    if isinstance(sink, DeadLetters):
        return writer.format("ottla").options(**write_options(pipeline, sink, None)).start()
    if isinstance(sink, FileSink):
        return _files(pipeline, sink, writer)
    if isinstance(sink, ConsoleSink):
        options = as_settings({"numRows": sink.rows, "truncate": sink.truncate})
        return writer.format("console").options(**options).start()
    if isinstance(sink, DatabaseSink):
        return writer.foreachBatch(write_database(sink, pipeline, frame, query)).start()
    if isinstance(sink, LakeSink):
        return writer.foreachBatch(write_lake(pipeline, sink, frame, query)).start()
    assert isinstance(sink, JdbcSink)
    return writer.foreachBatch(write_jdbc(sink, frame, query)).start()


def output_mode(sink: Sink | DeadLetters, frame: DataFrame) -> str:
    """Spark's output mode. A table with keys gets changed rows where the query allows it, otherwise final ones."""
    mode = (sink.mode if isinstance(sink, Sink) else None) or "append"
    if isinstance(sink, LakeSink | DatabaseSink) and sink.keys:
        return "update" if supports(frame, "Update") else "append"
    return "complete" if mode == "overwrite" else mode


def supports(frame: DataFrame, mode: str) -> bool:
    """Whether Spark can write a stream in a mode: `Append`, `Update` or `Complete`."""
    from pyspark.errors import PySparkException

    session: Any = frame.sparkSession
    if not hasattr(session, "_jvm"):
        return mode == "Append"
    jvm, plan = session._jvm, frame._jdf.queryExecution().analyzed()
    wanted = getattr(jvm.org.apache.spark.sql.streaming.OutputMode, mode)()
    try:
        jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, wanted)
    except PySparkException:
        return False
    return True


# ── Batches of a shared read ─────────────────────────────────────────────────────────────────────────────────────────


def batch_writer(
    pipeline: Pipeline, sink: Sink | DeadLetters, writer: Writer, run_id: str, sample: Callable[[], DataFrame]
) -> Callable[[DataFrame, int], None]:
    """A function that writes the shaped rows of a numbered batch, and does nothing if they were written before.

    `writer` has the id of the sink (`written.sink_id`), under which it stores the numbers of its batches. `sample`
    makes a frame with the columns of a batch.
    """
    if isinstance(sink, LakeSink):
        return write_lake(pipeline, sink, sample(), writer)
    if isinstance(sink, DatabaseSink):
        return write_database(sink, pipeline, sample(), writer)
    if isinstance(sink, TopicSink | DeadLetters):
        return _write_topic(pipeline, sink, writer.query, run_id)
    if isinstance(sink, FileSink):
        return _write_files(pipeline, sink)
    if isinstance(sink, JdbcSink):
        return _write_database(sink, writer)
    assert isinstance(sink, ConsoleSink)
    return _print_rows(sink)


def _write_topic(
    pipeline: Pipeline, sink: TopicSink | DeadLetters, sink_id: str, run_id: str
) -> Callable[[DataFrame, int], None]:
    options = write_options(pipeline, sink, sink.topic if isinstance(sink, TopicSink) else None)
    if sink.deliver == "exactly-once":
        options |= {"txnAppId": sink_id, "txnRunId": run_id}

    def write(frame: DataFrame, batch: int) -> None:
        version = {"txnVersion": str(batch)} if "txnAppId" in options else {}
        frame.write.format("ottla").options(**options, **version).mode("append").save()

    return write


def _write_files(pipeline: Pipeline, sink: FileSink) -> Callable[[DataFrame, int], None]:
    """Spark's own file sink, which skips the batches in its log."""
    made: list[Any] = []

    def write(frame: DataFrame, batch: int) -> None:
        if not made:
            session: Any = frame.sparkSession
            jvm = session._jvm
            formats = jvm.org.apache.spark.sql.execution.datasources
            form = getattr(getattr(formats, sink.format), _FILE_FORMATS[sink.format])()
            columns = jvm.PythonUtils.toSeq(list(sink.partition_by))
            options = jvm.PythonUtils.toScalaMap(as_settings(sink.options))
            path = pipeline.path(sink.path or "")
            kind = jvm.org.apache.spark.sql.execution.streaming.sinks.FileStreamSink
            made.append(kind(session._jsparkSession, path, form, columns, options))
        made[0].addBatch(batch, frame._jdf)

    return write


def _write_database(sink: JdbcSink, writer: Writer) -> Callable[[DataFrame, int], None]:
    made: list[Callable[[DataFrame, int], None]] = []

    def write(frame: DataFrame, batch: int) -> None:
        if not made:  # its tables have the columns of the first batch
            made.append(write_jdbc(sink, frame, writer))
        made[0](frame, batch)

    return write


def _print_rows(sink: ConsoleSink) -> Callable[[DataFrame, int], None]:
    def write(frame: DataFrame, batch: int) -> None:
        line = "-" * 43
        sys.stdout.write(f"{line}\nBatch: {batch}\n{line}\n")
        frame.show(sink.rows, sink.truncate)

    return write


# ── Parts of the above ───────────────────────────────────────────────────────────────────────────────────────────────


def _files(pipeline: Pipeline, sink: FileSink, writer: DataStreamWriter) -> StreamingQuery:
    writer = writer.format(sink.format).options(**as_settings(sink.options))
    if sink.partition_by:
        writer = writer.partitionBy(*sink.partition_by)
    return writer.start(pipeline.path(sink.path or ""))


def _write_changed(pipeline: Pipeline, sink: TopicSink, where: str) -> Callable[[DataFrame, int], None]:
    """Write changed rows to a topic; Spark's Python data sources support only appended rows."""
    options = write_options(pipeline, sink, sink.topic)

    def write(frame: DataFrame, batch: int) -> None:
        activate(frame.sparkSession)
        known = {"txnAppId": query_id(frame.sparkSession, where), "txnVersion": str(batch)}
        more = known if sink.deliver == "exactly-once" else {}
        frame.write.format("ottla").options(**options, **more).mode("append").save()

    return write


def triggered(writer: DataStreamWriter, trigger: str) -> DataStreamWriter:
    """Set the declared trigger."""
    if trigger == AVAILABLE_NOW:
        return writer.trigger(availableNow=True)
    if trigger == ONCE:
        return writer.trigger(once=True)
    return writer.trigger(processingTime=interval(trigger))


def _keeps_origin(sink: FileSink, frame: DataFrame) -> bool:
    if sink.origin:
        check_columns(ORIGIN, frame, "origin", "the input")
    return sink.format not in ("csv", "json") if sink.origin is None else sink.origin


def _records(sink: TopicSink, frame: DataFrame) -> DataFrame:
    """The columns of `format("ottla")`: key, value and headers."""
    from pyspark.sql import functions as fn

    content = [quoted(name) for name in frame.columns if name not in (*ORIGIN, "_headers")]
    columns: list[Column] = []
    if sink.key is not None:
        columns.append(_content(frame, fn.expr(sink.key), "key"))
    elif "key" in frame.columns:
        columns.append(_content(frame, fn.col("key"), "key"))
    if sink.value is not None:
        value = fn.expr(sink.value)
    elif {"`value`"} <= set(content) <= {"`key`", "`value`"}:
        value = fn.col("value")
    else:
        value = fn.to_json(fn.struct(*content))
    columns.append(_content(frame, value, "value"))
    if sink.origin:
        check_columns(ORIGIN[:3], frame, "origin", "the input")
        columns.append(fn.array(*[_header(name) for name in ("topic", "partition", "offset")]).alias("headers"))
    return frame.select(*columns)


def _header(name: str) -> Column:
    from pyspark.sql import functions as fn

    text = fn.col(f"_{name}").cast("string").cast("binary")
    return fn.struct(fn.lit(f"origin-{name}").alias("key"), text.alias("value"))


def _content(frame: DataFrame, column: Column, name: str) -> Column:
    """Keep bytes, and convert other types to text; structs become JSON."""
    from pyspark.sql import functions as fn

    kind = frame.select(column.alias(name)).schema[name].dataType.typeName()
    if kind in ("binary", "string"):
        return column.alias(name)
    return (fn.to_json(column) if kind in ("struct", "array", "map") else column.cast("string")).alias(name)
