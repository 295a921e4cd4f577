"""The declared form of a pipeline: frozen dataclasses, the same words as in a TOML file. Nothing here needs Spark.

    Pipeline(
        name="orders",
        checkpoint="state/orders",
        bootstrap_servers="localhost:9092",
        sources=[Source(name="orders", topics=["orders"], schema="id BIGINT NOT NULL, total DOUBLE")],
        steps=[Dedupe(name="unique", keys=["id"], within="1 hour"), Sql(name="large", sql="SELECT * FROM unique")],
        sinks=[FileSink(name="table", format="parquet", path="tables/orders")],
        dead_letters=DeadLetters(topic="orders.dead"),
    )

A new key is a new field here: its type, default and `doc` give the checks (`check.py`) and the reference in
docs/pipelines.md. Constructors check nothing, so that all problems are told at once: see `check`.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from ottla.errors import OttlaError

#: Where a record comes from: columns that every source adds to what it has read.
ORIGIN = ("_topic", "_partition", "_offset", "_timestamp", "_key")
#: Names that a schema cannot use.
RESERVED = (*ORIGIN, "_headers", "_value", "_parsed", "_failed", "_broken")
DEAD_LETTERS = "dead-letters"


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """What is wrong in a declaration, where, and what to do about it."""

    file: str
    line: int | None
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class DeclarationError(OttlaError):
    """A pipeline cannot be run as it is declared; `problems` has everything that was found."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(problems, key=lambda one: (one.file, one.line or 0, one.message)))
        super().__init__("\n".join(map(str, self.problems)))


@dataclass(frozen=True, slots=True)
class Where:
    """The place of a declaration: of the whole and of its keys."""

    file: str = "pipeline"
    line: int | None = None
    keys: Mapping[str, int] = field(default_factory=dict)

    def problem(self, message: str, key: str | None = None) -> Problem:
        return Problem(self.file, self.keys.get(key or "", self.line), message)


def doc(text: str, **more: Any) -> dict[str, Any]:
    """What a field says of itself: `least` is the smallest number, `time` a length of time, `file` must exist,
    `needed` says so although there is a default, `example` is for the message about a missing key."""
    return {"doc": text, **more}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """A part of a declaration, which knows the line that it was written in."""

    #: The table of the TOML file, for messages and the reference.
    title: ClassVar[str] = ""
    where: Where = field(default_factory=Where, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        caller = sys._getframe(2)  # 0 is this, 1 the constructor
        object.__setattr__(self, "where", Where(caller.f_code.co_filename, caller.f_lineno))

    def problem(self, message: str, key: str | None = None) -> Problem:
        return self.where.problem(message, key)


ValueFormat = Literal["json", "avro", "csv", "text", "bytes"]
FileFormat = Literal["parquet", "csv", "json", "orc", "delta", "iceberg"]
OutputMode = Literal["append", "update", "complete"]
Deliver = Literal["exactly-once", "at-least-once"]


@dataclass(frozen=True, kw_only=True)
class Source(Declared):
    """Topics that are read as a stream: one row a record, with the columns of the schema and those of the origin."""

    title: ClassVar[str] = "[[source]]"
    name: str = field(metadata=doc("The name of the stream in steps and sinks.", example='"orders"'))
    topics: Sequence[str] = field(default=(), metadata=doc("The topics to read. One of topics, pattern, assign."))
    pattern: str | None = field(default=None, metadata=doc("A regular expression for whole names of topics."))
    assign: Mapping[str, Sequence[int]] | None = field(
        default=None, metadata=doc("Some partitions only: `{orders = [0, 1]}`.")
    )
    format: ValueFormat = field(default="json", metadata=doc("What the values are."))
    schema: str | None = field(
        default=None,
        metadata=doc(
            "The columns as Spark DDL: `id BIGINT NOT NULL, total DOUBLE`. A record without a value for a NOT NULL "
            "column is broken. For json and csv; text and bytes have one column `value`."
        ),
    )
    schema_file: str | None = field(
        default=None,
        metadata=doc(
            "The same from a file: DDL (.ddl, .sql, .txt), Spark's JSON (.json), or an Avro schema (.avsc).", file=True
        ),
    )
    confluent_header: bool = field(
        default=False,
        metadata=doc("avro: values begin with the five bytes of a schema registry, which are passed over."),
    )
    options: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc('Options of Spark\'s JSON or CSV reader: `{sep = ";"}`, `{timestampFormat = "…"}`.'),
    )
    require: Sequence[str] = field(
        default=(), metadata=doc("SQL conditions on the columns: a record for which one is false is broken.")
    )
    null_values: Literal["broken", "skip", "keep"] = field(
        default="broken",
        metadata=doc("Records without a value (tombstones) are broken, passed over, or (text, bytes) kept."),
    )
    on_error: Literal["dead-letters", "fail", "skip"] | None = field(
        default=None,
        metadata=doc(
            "What becomes of broken records. Without it: to the dead letters if there is such a section, else the "
            "pipeline fails."
        ),
    )
    event_time: str | None = field(
        default=None, metadata=doc("The column with the time of the event; `_timestamp` is that of the record.")
    )
    watermark: str | None = field(
        default=None,
        metadata=doc("How late an event may be: `10 minutes`. A dedupe behind it has the same time.", time=True),
    )
    starting_offsets: str | Mapping[str, Mapping[str, int]] = field(
        default="earliest",
        metadata=doc(
            "Where a new pipeline begins: `earliest`, `latest`, `committed`, or `{orders = {0 = 23, 1 = -2}}`."
        ),
    )
    starting_timestamp: int | None = field(
        default=None, metadata=doc("The same by time, in milliseconds since 1970.", least=0)
    )
    group_id: str | None = field(
        default=None,
        metadata=doc(
            "The group that finished offsets are committed to, for lag monitors. The first sink uses this name, every "
            "other `<group_id>.<sink>`, because each reads for itself."
        ),
    )
    max_offsets_per_trigger: int | None = field(
        default=None, metadata=doc("At most so many records a micro-batch.", least=1)
    )
    min_partitions: int | None = field(default=None, metadata=doc("At least so many tasks.", least=1))
    fail_on_data_loss: bool = field(
        default=True, metadata=doc("Fail when records are gone before they were read; false: warn and go on.")
    )
    include_headers: bool = field(default=False, metadata=doc("Add the column `_headers`."))
    isolation: Literal["read_committed", "read_uncommitted"] = field(
        default="read_committed", metadata=doc("Whether records of open and aborted transactions are left out.")
    )
    bootstrap_servers: str | None = field(default=None, metadata=doc("Another cluster than the pipeline's."))
    kafka: Mapping[str, str] = field(default_factory=dict, metadata=doc("More settings of the client."))


@dataclass(frozen=True, kw_only=True)
class Table(Declared):
    """Something that stands still, to join with: it is read when the pipeline starts."""

    title: ClassVar[str] = "[[table]]"
    name: str = field(metadata=doc("The name of the table in steps.", example='"customers"'))
    format: Literal["parquet", "csv", "json", "orc", "delta", "iceberg", "topic"] = field(
        default="parquet", metadata=doc("What it is.")
    )
    path: str | None = field(default=None, metadata=doc("The file or directory; needed unless it is a topic."))
    topic: str | None = field(default=None, metadata=doc("topic: its name. It is read to its end."))
    value_format: ValueFormat = field(default="json", metadata=doc("topic: what the values are."))
    latest: bool = field(default=True, metadata=doc("topic: only the last record of each key, and no deleted ones."))
    schema: str | None = field(default=None, metadata=doc("The columns as Spark DDL; parquet and others know theirs."))
    schema_file: str | None = field(default=None, metadata=doc("The same from a file.", file=True))
    options: Mapping[str, str] = field(
        default_factory=dict, metadata=doc("Options of Spark's reader: `{header = true}` for CSV.")
    )


@dataclass(frozen=True, kw_only=True)
class Step(Declared):
    """What makes one stream of another; `name` is what later steps and sinks call the result."""

    title: ClassVar[str] = "[[step]]"
    name: str = field(metadata=doc("The name of the result.", example='"cleaned"'))
    input: str | None = field(
        default=None, metadata=doc("What it takes: a source or an earlier step. Without it: what is declared before.")
    )


@dataclass(frozen=True, kw_only=True)
class Sql(Step):
    """A query over sources, tables and earlier steps, by their names."""

    title: ClassVar[str] = "[[step]] with sql"
    sql: str | None = field(default=None, metadata=doc("The query: `SELECT … FROM orders`."))
    sql_file: str | None = field(default=None, metadata=doc("The same from a file.", file=True))


@dataclass(frozen=True, kw_only=True)
class Python(Step):
    """A function that takes a DataFrame and returns one."""

    title: ClassVar[str] = "[[step]] with python"
    python: str = field(
        metadata=doc("`module:function`; the directory of the declaration is on the path.", example='"cleaning:clean"')
    )
    arguments: Mapping[str, Any] = field(default_factory=dict, metadata=doc("Keyword arguments for it."))


@dataclass(frozen=True, kw_only=True)
class Dedupe(Step):
    """Removes repeated events by key. Events that are late by more than `within` are left out."""

    title: ClassVar[str] = "[[step]] with dedupe"
    keys: Sequence[str] = field(metadata=doc("The columns that name an event. In TOML: `dedupe`.", key="dedupe"))
    within: str = field(
        metadata=doc(
            "How far apart repeats may be: `1 hour`. It is the stream's watermark too.",
            time=True,
            example='"1 hour"',
        )
    )
    event_time: str | None = field(
        default=None, metadata=doc("By which time. Without it: that of the source, or else `_timestamp`.")
    )


@dataclass(frozen=True, kw_only=True)
class Window(Step):
    """Aggregates over windows of time. The result has window_start, window_end, the groups and the aggregates."""

    title: ClassVar[str] = "[[step]] with window"
    window: str = field(metadata=doc("The length: `1 minute`.", time=True, example='"1 minute"'))
    aggregate: Mapping[str, str] = field(metadata=doc('Column and SQL: `{orders = "count(*)", total = "sum(total)"}`.'))
    slide: str | None = field(
        default=None, metadata=doc("A window begins so often; without it, when one ends.", time=True)
    )
    group_by: Sequence[str] = field(default=(), metadata=doc("One row for each value of these columns."))
    event_time: str | None = field(
        default=None, metadata=doc("By which time. Without it: that of the source, or else `_timestamp`.")
    )
    watermark: str | None = field(
        default=None,
        metadata=doc("How late an event may be, if neither the source nor a dedupe says it.", time=True),
    )


@dataclass(frozen=True, kw_only=True)
class Join(Step):
    """Adds the columns of a table."""

    title: ClassVar[str] = "[[step]] with join"
    table: str = field(metadata=doc("The table. In TOML: `join`.", key="join", example='"customers"'))
    on: Sequence[str] = field(metadata=doc("Columns of the same name on both sides."))
    how: Literal["inner", "left", "semi", "anti"] = field(
        default="left", metadata=doc("left keeps rows without a match.")
    )


@dataclass(frozen=True, kw_only=True)
class Sink(Declared):
    """Where a stream goes. Every sink is a query of its own, with its own place in the checkpoint directory."""

    title: ClassVar[str] = "[[sink]]"
    name: str = field(
        metadata=doc("The name: of the query, and of its directory below `checkpoint`.", example='"table"')
    )
    input: str | None = field(
        default=None, metadata=doc("What it writes: a source or a step. Without it: the last step, or the only source.")
    )
    mode: OutputMode | None = field(
        default=None,
        metadata=doc("append: rows that do not change any more; update: rows that changed; complete: all, each time."),
    )


@dataclass(frozen=True, kw_only=True)
class FileSink(Sink):
    """Files in a directory, exactly once by Spark's log of files, or a Delta or Iceberg table."""

    title: ClassVar[str] = "[[sink]] with format parquet, csv, json, orc, delta, iceberg"
    format: FileFormat = field(default="parquet", metadata=doc("How; delta and iceberg need their packages."))
    path: str | None = field(default=None, metadata=doc("The directory."))
    table: str | None = field(default=None, metadata=doc("delta and iceberg: the name in a catalog, instead of path."))
    partition_by: Sequence[str] = field(default=(), metadata=doc("A directory for each value of these columns."))
    origin: bool | None = field(
        default=None,
        metadata=doc(
            "Keep `_topic`, `_partition`, `_offset`, `_timestamp` and `_key`, by which the audit finds records again. "
            "Without it: where they are there, but not in CSV and JSON."
        ),
    )
    options: Mapping[str, str] = field(default_factory=dict, metadata=doc("Options of Spark's writer."))


@dataclass(frozen=True, kw_only=True)
class TopicSink(Sink):
    """A topic, of this or another cluster."""

    title: ClassVar[str] = "[[sink]] with format topic"
    topic: str = field(metadata=doc("The topic.", example='"large-orders"'))
    deliver: Deliver = field(
        default="exactly-once",
        metadata=doc("exactly-once: in transactions, for readers with read_committed; at-least-once: may repeat."),
    )
    key: str | None = field(default=None, metadata=doc("SQL for the key. Without it: the column `key`, or none."))
    value: str | None = field(
        default=None,
        metadata=doc(
            "SQL for the value. Without it: the column `value` if there is none beside it (but `key`), or all as JSON."
        ),
    )
    origin: bool = field(
        default=False, metadata=doc("Headers `origin-topic`, `origin-partition`, `origin-offset`: for the audit.")
    )
    bootstrap_servers: str | None = field(default=None, metadata=doc("Another cluster than the pipeline's."))
    kafka: Mapping[str, str] = field(default_factory=dict, metadata=doc("More settings of the client."))


@dataclass(frozen=True, kw_only=True)
class ConsoleSink(Sink):
    """The terminal, for a look."""

    title: ClassVar[str] = "[[sink]] with format console"
    rows: int = field(default=20, metadata=doc("At most so many rows a micro-batch.", least=1))
    truncate: bool = field(default=True, metadata=doc("Cut long values."))


@dataclass(frozen=True, kw_only=True)
class JdbcSink(Sink):
    """A table of a database: each micro-batch in one transaction, which also notes its number. Exactly once."""

    title: ClassVar[str] = "[[sink]] with format jdbc"
    url: str = field(metadata=doc("As `jdbc:postgresql://host/db`.", example='"jdbc:postgresql://localhost/shop"'))
    table: str = field(metadata=doc("The table; it is made if it is not there.", example='"orders"'))
    keys: Sequence[str] = field(
        default=(), metadata=doc("Rows with the same values in these columns are replaced; needed for mode update.")
    )
    origin: bool = field(
        default=False, metadata=doc("Keep `_topic`, `_partition`, `_offset` and `_timestamp` as columns.")
    )
    driver: str | None = field(default=None, metadata=doc("The Java class, if Spark does not know it by the url."))
    user: str | None = field(default=None, metadata=doc("Who."))
    password: str | None = field(default=None, metadata=doc("Better as `${PASSWORD}`, from the environment."))
    options: Mapping[str, str] = field(default_factory=dict, metadata=doc("Options of Spark's JDBC writer."))


@dataclass(frozen=True, kw_only=True)
class DeadLetters(Declared):
    """Where broken records go: unchanged, with the reason and their origin in headers."""

    title: ClassVar[str] = "[dead_letters]"
    topic: str = field(
        metadata=doc("The topic; `{topic}` in it stands for the record's own.", example='"{topic}.dead"')
    )
    deliver: Deliver = field(default="exactly-once", metadata=doc("As for a sink that is a topic."))
    bootstrap_servers: str | None = field(default=None, metadata=doc("Another cluster than the pipeline's."))
    kafka: Mapping[str, str] = field(default_factory=dict, metadata=doc("More settings of the client."))


@dataclass(frozen=True, kw_only=True)
class Pipeline(Declared):
    """Sources, steps and sinks, and what holds for all of them."""

    title: ClassVar[str] = "the file"
    name: str = field(metadata=doc("The name of the pipeline.", example='"orders"'))
    checkpoint: str = field(
        metadata=doc(
            "The directory that says how far each sink is. Deleted, all begins anew.", example='"state/orders"'
        )
    )
    bootstrap_servers: str | None = field(default=None, metadata=doc("The brokers: `localhost:9092`."))
    trigger: str = field(
        default="0 seconds",
        metadata=doc(
            "When micro-batches run: a time such as `10 seconds` (0: as soon as there is something), `available-now` "
            "(what is there now, then end), or `once` (the same in one micro-batch)."
        ),
    )
    kafka: Mapping[str, str] = field(
        default_factory=dict, metadata=doc('Settings of the clients, without `kafka.`: `"security.protocol" = "SSL"`.')
    )
    spark: Mapping[str, str] = field(default_factory=dict, metadata=doc("Spark's configuration."))
    sources: Sequence[Source] = field(metadata=doc("At least one.", key="source"))
    tables: Sequence[Table] = field(default=(), metadata=doc("To join with.", key="table"))
    steps: Sequence[Step] = field(
        default=(), metadata=doc("In the order in which they build on each other.", key="step")
    )
    sinks: Sequence[Sink] = field(metadata=doc("At least one.", key="sink"))
    dead_letters: DeadLetters | None = field(default=None, metadata=doc("For broken records."))
    directory: Path = field(default_factory=Path, init=False, repr=False, compare=False)
    """Relative paths begin here: where the file is, or the working directory."""

    def path(self, text: str) -> str:
        """A path of the declaration as it is meant: below the file's directory, unless absolute or of a file system."""
        if "://" in text or text.startswith(("/", "file:", "hdfs:", "s3:", "dbfs:")):
            return text
        return str((self.directory / text).resolve())

    def checkpoint_of(self, sink: str, source: str | None = None) -> str:
        """The checkpoint directory of a sink's query; `source` for the dead letters of a source."""
        return "/".join([self.path(self.checkpoint).rstrip("/"), sink, *([source] if source else [])])

    def sends_dead_letters(self, source: Source) -> bool:
        return self.dead_letters is not None and source.on_error in (None, DEAD_LETTERS)


STEPS: dict[str, type[Step]] = {
    "sql": Sql,
    "sql_file": Sql,
    "python": Python,
    "dedupe": Dedupe,
    "window": Window,
    "join": Join,
}
SINKS: dict[str, type[Sink]] = {
    **dict.fromkeys(("parquet", "csv", "json", "orc", "delta", "iceberg"), FileSink),
    "topic": TopicSink,
    "console": ConsoleSink,
    "jdbc": JdbcSink,
}
