"""The declaration of a pipeline: frozen dataclasses with the same names as in a TOML file. Does not need Spark.

    Pipeline(
        name="orders",
        checkpoint="state/orders",
        bootstrap_servers="localhost:9092",
        sources=[Source(name="orders", topics=["orders"], schema="id BIGINT NOT NULL, total DOUBLE")],
        steps=[Dedupe(name="unique", keys=["id"], within="1 hour"), Sql(name="large", sql="SELECT * FROM unique")],
        sinks=[FileSink(name="table", format="parquet", path="tables/orders")],
        dead_letters=DeadLetters(topic="orders.dead"),
    )

To add a key, add a field: the checks and the reference in docs/pipelines.md use its type, default and `doc`.
Constructors check nothing, so that `check` can report all problems at once.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

from ottla.errors import OttlaError

#: Columns with the origin of a record, which every source adds.
ORIGIN = ("_topic", "_partition", "_offset", "_timestamp", "_key")
#: Column names that a schema must not use.
RESERVED = (*ORIGIN, "_headers", "_value", "_parsed", "_failed", "_broken", "_letter", "_letter_id", "_unmet")
DEAD_LETTERS = "dead-letters"
#: Formats of Spark's own file sink, which numbers its batches in the table. Delta and Iceberg know the query, too.
LOGGED = ("parquet", "csv", "json", "orc")
SHARED = "shared"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """A problem in a declaration: where it is, what is wrong, and what to do."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class DeclarationError(OttlaError):
    """The declaration of a pipeline is invalid; `problems` has all problems."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda one: (one.file, one.line or 0, one.message)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Where:
    """The line of a declaration, and the lines of its keys."""

    file: str = "pipeline"
    line: int | None = None
    keys: Mapping[str, int] = field(default_factory=dict)

    def problem(self, message: str, key: str | None = None) -> Problem:
        return Problem(self.file, self.keys.get(key or "", self.line), message)


def doc(text: str, **more: Any) -> dict[str, Any]:
    """Metadata of a field: `least` is the minimum, `time` marks a duration, `file` an existing file, `sql` a "query" or
    an "expression" in SQL, and `example` is for the message about a missing key."""
    return {"doc": text, **more}


def _caller() -> Where:
    """The place of the constructor call; the TOML reader replaces it."""
    frame = sys._getframe(2)  # 0 is this function, 1 the constructor
    return Where(frame.f_code.co_filename, frame.f_lineno)


ValueFormat = Literal["json", "avro", "csv", "text", "bytes"]
SourceFormat = Literal["json", "avro", "protobuf", "csv", "text", "bytes"]
FileFormat = Literal["parquet", "csv", "json", "orc", "delta", "iceberg"]
OutputMode = Literal["append", "update", "complete"]
Deliver = Literal["exactly-once", "at-least-once"]
Otherwise = Literal["warn", "drop", "dead-letter", "fail"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A stream of one or more topics: one row per record, with the columns of the schema and of the origin."""

    title: ClassVar[str] = "[[source]]"
    where: Where = field(default_factory=_caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name that steps and sinks use.", example='"orders"'))
    topics: Sequence[str] = field(
        default=(), metadata=doc("The topics to read. Use exactly one of topics, pattern and assign.")
    )
    pattern: str | None = field(default=None, metadata=doc("A regular expression that matches full topic names."))
    assign: Mapping[str, Sequence[int]] | None = field(
        default=None, metadata=doc("Single partitions: `{orders = [0, 1]}`.")
    )
    format: SourceFormat = field(default="json", metadata=doc("The format of the values."))
    schema: str | None = field(
        default=None,
        metadata=doc(
            "The columns as Spark DDL: `id BIGINT NOT NULL, total DOUBLE`. Required for json and csv. A record without "
            "a value for a NOT NULL column is broken. text and bytes have one column, `value`."
        ),
    )
    schema_file: str | None = field(
        default=None,
        metadata=doc(
            "A file with the schema: DDL (.ddl, .sql, .txt), Spark's JSON (.json), or Avro (.avsc).", file=True
        ),
    )
    confluent_header: bool = field(
        default=False,
        metadata=doc("avro: values begin with the five-byte header of a schema registry. Requires schema_id."),
    )
    schema_id: int | None = field(
        default=None,
        metadata=doc("avro: the id of schema_file in the registry. A record with another id is broken.", least=0),
    )
    writer_schemas: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc(
            'avro: the files of other schemas by id: `{6 = "order-v1.avsc"}`. Their records are converted to '
            "schema_file by Avro's rules: fields are matched by name, and new fields need a default."
        ),
    )
    registry: str | None = field(
        default=None,
        metadata=doc(
            "avro, json, protobuf: the URL of the schema registry whose header the values have. protobuf, and avro "
            "without schema_file, have the columns of the latest version. All compatible versions are read."
        ),
    )
    subject: str | None = field(
        default=None, metadata=doc("registry: the subject. Default: the only topic with `-value`.")
    )
    message: str | None = field(
        default=None, metadata=doc("protobuf: the message of the values. Default: the first one in the schema.")
    )
    options: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc('Options of Spark\'s JSON or CSV reader: `{sep = ";"}`, `{timestampFormat = "…"}`.'),
    )
    require: Sequence[str] = field(
        default=(),
        metadata=doc("SQL conditions on the columns. A record is broken if one of them is false.", sql="expression"),
    )
    null_values: Literal["broken", "skip", "keep"] = field(
        default="broken",
        metadata=doc("What to do with records without a value (tombstones). keep is only for text and bytes."),
    )
    on_error: Literal["dead-letters", "fail", "skip"] | None = field(
        default=None,
        metadata=doc(
            "What to do with broken records. Default: dead-letters if the pipeline declares them, otherwise fail."
        ),
    )
    event_time: str | None = field(
        default=None, metadata=doc("The column with the event time; `_timestamp` is the record timestamp.")
    )
    watermark: str | None = field(
        default=None,
        metadata=doc("How late an event may be: `10 minutes`. A later dedupe must use the same duration.", time=True),
    )
    starting_offsets: str | Mapping[str, Mapping[str, int]] = field(
        default="earliest",
        metadata=doc(
            "Where a new pipeline starts: `earliest`, `latest`, `committed`, or `{orders = {0 = 23, 1 = -2}}`."
        ),
    )
    starting_timestamp: int | None = field(
        default=None, metadata=doc("Start at this time instead, in epoch milliseconds.", least=0)
    )
    group_id: str | None = field(
        default=None,
        metadata=doc(
            "Commit finished offsets to this group, for lag monitors. The shared read uses this name. A sink that "
            "reads by itself uses `<group_id>.<sink>`; without a shared read, the first sink uses this name."
        ),
    )
    max_offsets_per_trigger: int | None = field(
        default=None, metadata=doc("The maximum number of records per micro-batch.", least=1)
    )
    min_partitions: int | None = field(default=None, metadata=doc("The minimum number of Spark tasks.", least=1))
    fail_on_data_loss: bool = field(
        default=True,
        metadata=doc("Fail if records were deleted before they were read; false: log a warning and continue."),
    )
    include_headers: bool = field(default=False, metadata=doc("Add the column `_headers`."))
    isolation: Literal["read_committed", "read_uncommitted"] = field(
        default="read_committed", metadata=doc("read_committed skips records of open and aborted transactions.")
    )
    bootstrap_servers: str | None = field(default=None, metadata=doc("Overrides the pipeline's cluster."))
    kafka: Mapping[str, str] = field(default_factory=dict, metadata=doc("Additional client configs."))


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table for joins."""

    title: ClassVar[str] = "[[table]]"
    where: Where = field(default_factory=_caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name that steps use.", example='"customers"'))
    format: Literal["parquet", "csv", "json", "orc", "delta", "iceberg", "topic"] = field(
        default="parquet", metadata=doc("The format.")
    )
    path: str | None = field(default=None, metadata=doc("The file or directory; required unless format is topic."))
    topic: str | None = field(default=None, metadata=doc("topic: the topic. It is read to its current end."))
    value_format: ValueFormat = field(default="json", metadata=doc("topic: the format of the values."))
    latest: bool = field(
        default=True, metadata=doc("topic: keep only the last record of each key, without deleted keys.")
    )
    schema: str | None = field(
        default=None, metadata=doc("The columns as Spark DDL; not required for formats with a schema, such as parquet.")
    )
    schema_file: str | None = field(default=None, metadata=doc("A file with the schema.", file=True))
    confluent_header: bool = field(default=False, metadata=doc("topic with avro: like for a source."))
    schema_id: int | None = field(default=None, metadata=doc("topic with avro: like for a source.", least=0))
    writer_schemas: Mapping[str, str] = field(default_factory=dict, metadata=doc("topic with avro: like for a source."))
    options: Mapping[str, str] = field(
        default_factory=dict, metadata=doc("Options of Spark's reader: `{header = true}` for CSV.")
    )
    refresh: str | None = field(
        default=None,
        metadata=doc(
            "Keep the rows in memory, and read the table again after this time: `10 minutes`. Without it, every "
            "micro-batch reads the files that existed when the pipeline started, or the whole topic.",
            time=True,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Step:
    """A transformation. Later steps and sinks use its result by `name`."""

    title: ClassVar[str] = "[[step]]"
    where: Where = field(default_factory=_caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name of the result.", example='"cleaned"'))
    input: str | None = field(
        default=None,
        metadata=doc("The input: a source or an earlier step. Default: the previous step, or the only source."),
    )


@dataclass(frozen=True, kw_only=True)
class Sql(Step):
    """A SQL query over sources, tables and earlier steps."""

    title: ClassVar[str] = "[[step]] with sql"
    sql: str | None = field(default=None, metadata=doc("The query: `SELECT … FROM orders`.", sql="query"))
    sql_file: str | None = field(default=None, metadata=doc("A file with the query.", file=True, sql="query"))


@dataclass(frozen=True, kw_only=True)
class Python(Step):
    """A function that takes a DataFrame and returns one."""

    title: ClassVar[str] = "[[step]] with python"
    python: str = field(
        metadata=doc(
            "`module:function`. The directory of the declaration is on the import path.", example='"cleaning:clean"'
        )
    )
    arguments: Mapping[str, Any] = field(default_factory=dict, metadata=doc("Keyword arguments of the function."))


@dataclass(frozen=True, kw_only=True)
class Dedupe(Step):
    """Removes repeated events by key. Events that are late by more than `within` are dropped."""

    title: ClassVar[str] = "[[step]] with dedupe"
    keys: Sequence[str] = field(metadata=doc("The columns that identify an event. In TOML: `dedupe`.", key="dedupe"))
    within: str = field(
        metadata=doc(
            "The maximum time between repeats: `1 hour`. This is also the watermark of the stream.",
            time=True,
            example='"1 hour"',
        )
    )
    event_time: str | None = field(
        default=None, metadata=doc("The event time. Default: that of the source, or `_timestamp`.")
    )


@dataclass(frozen=True, kw_only=True)
class Window(Step):
    """Aggregates over time windows. The result has window_start, window_end, the groups and the aggregates."""

    title: ClassVar[str] = "[[step]] with window"
    window: str = field(metadata=doc("The length of a window: `1 minute`.", time=True, example='"1 minute"'))
    aggregate: Mapping[str, str] = field(
        metadata=doc('Columns and SQL aggregates: `{orders = "count(*)", total = "sum(total)"}`.', sql="expression")
    )
    slide: str | None = field(
        default=None, metadata=doc("The interval between window starts. Default: the window length.", time=True)
    )
    group_by: Sequence[str] = field(default=(), metadata=doc("Group by these columns."))
    event_time: str | None = field(
        default=None, metadata=doc("The event time. Default: that of the source, or `_timestamp`.")
    )
    watermark: str | None = field(
        default=None,
        metadata=doc("How late an event may be, if neither the source nor a dedupe sets it.", time=True),
    )


@dataclass(frozen=True, kw_only=True)
class Session(Step):
    """Aggregates over sessions: events of a group without a long gap. The result is like that of a window."""

    title: ClassVar[str] = "[[step]] with session"
    session: str = field(
        metadata=doc(
            "The gap that ends a session: `30 minutes`. A session ends this long after its last event.",
            time=True,
            example='"30 minutes"',
        )
    )
    group_by: Sequence[str] = field(metadata=doc("The columns whose values have sessions of their own."))
    aggregate: Mapping[str, str] = field(
        metadata=doc('Columns and SQL aggregates: `{clicks = "count(*)"}`.', sql="expression")
    )
    event_time: str | None = field(
        default=None, metadata=doc("The event time. Default: that of the source, or `_timestamp`.")
    )
    watermark: str | None = field(
        default=None,
        metadata=doc("How late an event may be, if neither the source nor a dedupe sets it.", time=True),
    )


@dataclass(frozen=True, kw_only=True)
class Join(Step):
    """Adds the columns of a table, or joins another stream within a time bound."""

    title: ClassVar[str] = "[[step]] with join"
    join: str = field(metadata=doc("A table, or a source or earlier step to join as a stream.", example='"customers"'))
    on: Sequence[str] = field(metadata=doc("The join columns, which have the same names on both sides."))
    how: Literal["inner", "left", "right", "full", "semi", "anti"] | None = field(
        default=None,
        metadata=doc(
            "left keeps rows of the input without a match, right rows of the other stream, full both. right and full "
            "are for streams, anti is for tables. Default: left for tables, inner for streams."
        ),
    )
    prefix: str | None = field(
        default=None,
        metadata=doc("Put this before the names of the added columns, except those of `on`: `payment_`."),
    )
    within: str | Mapping[str, str] | None = field(
        default=None,
        metadata=doc(
            "Streams: the maximum time between two matching events, such as `1 hour`. Different bounds: "
            '`{before = "0 seconds", after = "1 hour"}` matches events of the other stream from 0 seconds before to 1 '
            "hour after the event of the input."
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Expect:
    """A rule for the rows of a source or step. Its users see only the rows that the rule leaves."""

    title: ClassVar[str] = "[[expect]]"
    where: Where = field(default_factory=_caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name in reports and metrics.", example='"positive_total"'))
    input: str | None = field(
        default=None, metadata=doc("The source or step. Default: the last step, or the only source.")
    )
    that: str = field(
        metadata=doc(
            "A SQL condition on the columns. A row for which it is false breaks the rule; as in CHECK of SQL, NULL is "
            "not false.",
            example='"total >= 0"',
            sql="expression",
        )
    )
    otherwise: Otherwise = field(
        default="warn",
        metadata=doc(
            "What to do with a row that breaks the rule. warn: count it; drop: remove it; dead-letter: send its record "
            "to the dead letters (input must be a source); fail: stop the pipeline before the batch is written."
        ),
    )
    at_most: int | str | None = field(
        default=None,
        metadata=doc(
            "Stop the run with exit code 4 if more rows than this break the rule: a number of rows of a run, or a "
            'percentage such as `"1%"`. See [limits](#limits).'
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Sink:
    """The destination of a stream."""

    title: ClassVar[str] = "[[sink]]"
    where: Where = field(default_factory=_caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name.", example='"table"'))
    input: str | None = field(
        default=None, metadata=doc("The input: a source or a step. Default: the last step, or the only source.")
    )
    mode: OutputMode | None = field(
        default=None,
        metadata=doc("append: write final rows; update: write changed rows; complete: write all rows each time."),
    )
    max_delay: str | None = field(
        default=None,
        metadata=doc(
            "How long the other sinks of a shared read wait for this one: `30 seconds`. Records are stored below "
            "`checkpoint` for it first, and it writes them as soon as it can. Default: they wait until it is done.",
            time=True,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class FileSink(Sink):
    """Files in a directory, exactly once by Spark's file log, or a Delta or Iceberg table."""

    title: ClassVar[str] = "[[sink]] with format parquet, csv, json, orc, delta, iceberg"
    format: FileFormat = field(default="parquet", metadata=doc("The format; delta and iceberg require their packages."))
    path: str | None = field(default=None, metadata=doc("The directory."))
    table: str | None = field(default=None, metadata=doc("delta and iceberg: the catalog name, instead of path."))
    partition_by: Sequence[str] = field(default=(), metadata=doc("Write one directory per value of these columns."))
    origin: bool | None = field(
        default=None,
        metadata=doc(
            "Keep `_topic`, `_partition`, `_offset`, `_timestamp` and `_key`, which the audit needs. "
            "Default: true if the columns exist, except for CSV and JSON."
        ),
    )
    options: Mapping[str, str] = field(default_factory=dict, metadata=doc("Options of Spark's writer."))


@dataclass(frozen=True, kw_only=True)
class TopicSink(Sink):
    """A topic on this or another cluster."""

    title: ClassVar[str] = "[[sink]] with format topic"
    topic: str = field(metadata=doc("The topic.", example='"large-orders"'))
    deliver: Deliver = field(
        default="exactly-once",
        metadata=doc(
            "exactly-once uses transactions, consumers need read_committed; at-least-once may repeat records."
        ),
    )
    key: str | None = field(
        default=None, metadata=doc("SQL for the key. Default: the column `key`, or no key.", sql="expression")
    )
    value: str | None = field(
        default=None,
        metadata=doc(
            "SQL for the value. Default: the column `value` if it is the only one besides `key`, or all as JSON.",
            sql="expression",
        ),
    )
    origin: bool = field(
        default=False,
        metadata=doc("Add the headers `origin-topic`, `origin-partition` and `origin-offset` for the audit."),
    )
    bootstrap_servers: str | None = field(default=None, metadata=doc("Overrides the pipeline's cluster."))
    kafka: Mapping[str, str] = field(default_factory=dict, metadata=doc("Additional client configs."))


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(Sink):
    """Prints rows on the terminal."""

    title: ClassVar[str] = "[[sink]] with format console"
    rows: int = field(default=20, metadata=doc("The maximum number of rows per micro-batch.", least=1))
    truncate: bool = field(default=True, metadata=doc("Truncate long values."))


@dataclass(frozen=True, kw_only=True)
class JdbcSink(Sink):
    """A database table. Each micro-batch is one transaction that also stores its number: exactly once."""

    title: ClassVar[str] = "[[sink]] with format jdbc"
    url: str = field(
        metadata=doc("The JDBC URL: `jdbc:postgresql://host/db`.", example='"jdbc:postgresql://localhost/shop"')
    )
    table: str = field(metadata=doc("The table; created if missing.", example='"orders"'))
    keys: Sequence[str] = field(
        default=(),
        metadata=doc(
            "Columns that identify a row: a row replaces the stored one with the same values. They must not be NULL. "
            "The table needs a unique index on them; a new table has it. Required for mode update."
        ),
    )
    sequence: str | None = field(
        default=None,
        metadata=doc(
            "With keys: the column that says which of two rows is newer, such as a version or a time. An older row "
            "never replaces a newer one. Default: rows are in the order of the topic."
        ),
    )
    delete_when: str | None = field(
        default=None,
        metadata=doc(
            "With keys: a SQL condition. Rows for which it is true delete the stored row: `op = 'd'`.",
            sql="expression",
        ),
    )
    exclude: Sequence[str] = field(
        default=(), metadata=doc("Columns that are not stored, such as those that only delete_when needs.")
    )
    origin: bool = field(
        default=False, metadata=doc("Keep `_topic`, `_partition`, `_offset` and `_timestamp` as columns.")
    )
    driver: str | None = field(default=None, metadata=doc("The Java class, if Spark cannot derive it from the URL."))
    user: str | None = field(default=None, metadata=doc("The database user."))
    password: str | None = field(
        default=None, metadata=doc("The password; use `${PASSWORD}` to read it from the environment.")
    )
    options: Mapping[str, str] = field(default_factory=dict, metadata=doc("Options of Spark's JDBC writer."))


@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """The topic for broken records: unchanged, with the reason and their origin in headers."""

    title: ClassVar[str] = "[dead_letters]"
    where: Where = field(default_factory=_caller, init=False, repr=False, compare=False)
    topic: str = field(metadata=doc("The topic; `{topic}` stands for the original topic.", example='"{topic}.dead"'))
    deliver: Deliver = field(default="exactly-once", metadata=doc("Like for a topic sink."))
    at_most: int | str | None = field(
        default=None,
        metadata=doc(
            "Stop the run with exit code 4 if a source has more broken records than this, like `at_most` of a rule. "
            'Default: at least 10 records, and all of them broken; `"100%"`: no limit.'
        ),
    )
    bootstrap_servers: str | None = field(default=None, metadata=doc("Overrides the pipeline's cluster."))
    kafka: Mapping[str, str] = field(default_factory=dict, metadata=doc("Additional client configs."))


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Sources, steps and sinks, and settings for all of them."""

    title: ClassVar[str] = "the file"
    where: Where = field(default_factory=_caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name of the pipeline.", example='"orders"'))
    checkpoint: str = field(
        metadata=doc(
            "The directory with the progress of each sink. Keep it: `ottla pipeline reset` starts sinks again.",
            example='"state/orders"',
        )
    )
    bootstrap_servers: str | None = field(default=None, metadata=doc("The cluster: `localhost:9092`."))
    trigger: str = field(
        default="0 seconds",
        metadata=doc(
            "When micro-batches run: an interval such as `10 seconds` (0: as soon as records arrive), `available-now` "
            "(process all current records, then stop), or `once` (the same in one micro-batch)."
        ),
    )
    read: Literal["shared", "separate"] = field(
        default="shared",
        metadata=doc(
            "shared: read and parse a source once for all sinks and dead letters that keep no state of their own; "
            "separate: a query for each of them."
        ),
    )
    kafka: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc('Client configs, without the prefix `kafka.`: `"security.protocol" = "SSL"`.'),
    )
    spark: Mapping[str, str] = field(default_factory=dict, metadata=doc("Spark settings."))
    sources: Sequence[Source] = field(metadata=doc("At least one.", key="source"))
    tables: Sequence[Table] = field(default=(), metadata=doc("Tables for joins.", key="table"))
    steps: Sequence[Step] = field(default=(), metadata=doc("Transformations, in order.", key="step"))
    expects: Sequence[Expect] = field(default=(), metadata=doc("Rules for rows.", key="expect"))
    sinks: Sequence[Sink] = field(metadata=doc("At least one.", key="sink"))
    dead_letters: DeadLetters | None = field(default=None, metadata=doc("The topic for broken records."))
    directory: Path = field(default_factory=Path, init=False, repr=False, compare=False)
    """The base of relative paths: the directory of the file, or the working directory."""

    def path(self, text: str) -> str:
        """Resolve a path relative to `directory`; absolute paths and URLs stay unchanged."""
        if "://" in text or text.startswith(("/", "file:", "hdfs:", "s3:", "dbfs:")):
            return text
        return str((self.directory / text).resolve())

    def checkpoint_of(self, sink: str, source: str | None = None) -> str:
        """The checkpoint directory of a sink's query; `source` for the dead letters of a source."""
        return "/".join([self.path(self.checkpoint).rstrip("/"), sink, *([source] if source else [])])

    def sends_dead_letters(self, source: Source) -> bool:
        return self.dead_letters is not None and source.on_error in (None, DEAD_LETTERS)


Declared: TypeAlias = Source | Table | Step | Expect | Sink | DeadLetters | Pipeline
STEPS: dict[str, type[Step]] = {
    "sql": Sql,
    "sql_file": Sql,
    "python": Python,
    "dedupe": Dedupe,
    "window": Window,
    "session": Session,
    "join": Join,
}
SINKS: dict[str, type[Sink]] = {
    **dict.fromkeys(("parquet", "csv", "json", "orc", "delta", "iceberg"), FileSink),
    "topic": TopicSink,
    "console": ConsoleSink,
    "jdbc": JdbcSink,
}
