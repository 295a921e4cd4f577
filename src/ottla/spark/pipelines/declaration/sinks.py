"""Declared sinks, and the topic for broken records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ottla.spark.pipelines.declaration.base import Deliver, Where, caller, doc

FileFormat = Literal["parquet", "csv", "json", "orc"]
LakeFormat = Literal["delta", "iceberg"]
DatabaseFormat = Literal["postgres", "sqlite", "duckdb"]
OutputMode = Literal["append", "update", "complete", "upsert", "overwrite"]


#: Keys of all sinks whose rows can have keys.
_SEQUENCE = doc(
    "With keys: the column that says which of two rows is newer, such as a version or a time. An older row never "
    "replaces a newer one. Default: rows are in the order of the topic."
)
_DELETE_WHEN = doc(
    "With keys: a SQL condition. Rows for which it is true delete the stored row: `op = 'd'`.", sql="expression"
)
_EXCLUDE = doc("Columns that are not stored, such as those that only delete_when needs.")
_ORIGIN = doc("Keep `_topic`, `_partition`, `_offset` and `_timestamp` as columns.")


@dataclass(frozen=True, kw_only=True)
class Sink:
    """The destination of a stream."""

    title: ClassVar[str] = "[[sink]]"
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name.", example='"table"'))
    input: str | None = field(
        default=None, metadata=doc("The input: a source or a step. Default: the last step, or the only source.")
    )
    mode: OutputMode | None = field(
        default=None,
        metadata=doc(
            "append: write final rows; update: write changed rows; complete: write all rows each time. Tables: append; "
            "upsert: replace the rows with the same keys; overwrite: replace all rows each time."
        ),
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
    """Files in a directory, exactly once by Spark's file log."""

    title: ClassVar[str] = "[[sink]] with format parquet, csv, json, orc"
    format: FileFormat = field(default="parquet", metadata=doc("The format."))
    path: str | None = field(default=None, metadata=doc("The directory."))
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
class LakeSink(Sink):
    """A Delta or Iceberg table. Each micro-batch is one commit that also stores its number: exactly once."""

    title: ClassVar[str] = "[[sink]] with format delta, iceberg"
    format: LakeFormat = field(metadata=doc("The format.", example='"delta"'))
    path: str | None = field(
        default=None, metadata=doc("delta: the directory or URL of the table, such as `s3://lake/orders`.")
    )
    table: str | None = field(default=None, metadata=doc("iceberg: the table in the catalog, such as `shop.orders`."))
    catalog: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc(
            "iceberg: the catalog, with the properties of pyiceberg, such as `type` (sql, rest, hive, glue), `uri` and "
            "`warehouse`. `name` is the name of a catalog in `.pyiceberg.yaml`."
        ),
    )
    storage: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc(
            "The object store: the storage options of deltalake, or the FileIO properties of pyiceberg. Write secrets "
            "as `${env:NAME}` or `${file:path}`."
        ),
    )
    keys: Sequence[str] = field(
        default=(),
        metadata=doc(
            "Columns that identify a row: a row replaces the stored one with the same values. They must not be NULL. "
            "Required for mode upsert, which is then the default."
        ),
    )
    sequence: str | None = field(default=None, metadata=_SEQUENCE)
    delete_when: str | None = field(default=None, metadata=_DELETE_WHEN)
    exclude: Sequence[str] = field(default=(), metadata=_EXCLUDE)
    partition_by: Sequence[str] = field(
        default=(),
        metadata=doc("The partition columns of a new table. An existing table must have the same ones."),
    )
    origin: bool | None = field(
        default=None,
        metadata=doc(
            "Keep `_topic`, `_partition`, `_offset` and `_timestamp`, which the audit needs. Default: true if the "
            "columns exist and there are no keys."
        ),
    )
    properties: Mapping[str, str] = field(
        default_factory=dict, metadata=doc('Table properties of a new table: `{"delta.appendOnly" = true}`.')
    )


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
    sequence: str | None = field(default=None, metadata=_SEQUENCE)
    delete_when: str | None = field(default=None, metadata=_DELETE_WHEN)
    exclude: Sequence[str] = field(default=(), metadata=_EXCLUDE)
    origin: bool = field(default=False, metadata=_ORIGIN)
    driver: str | None = field(default=None, metadata=doc("The Java class, if Spark cannot derive it from the URL."))
    user: str | None = field(default=None, metadata=doc("The database user."))
    password: str | None = field(
        default=None, metadata=doc("The password; use `${PASSWORD}` to read it from the environment.")
    )
    options: Mapping[str, str] = field(default_factory=dict, metadata=doc("Options of Spark's JDBC writer."))


@dataclass(frozen=True, kw_only=True)
class DatabaseSink(Sink):
    """A table of Postgres, SQLite or DuckDB, without jars. Each micro-batch is one transaction."""

    title: ClassVar[str] = "[[sink]] with format postgres, sqlite, duckdb"
    format: DatabaseFormat = field(
        metadata=doc("The database. Each needs its package: `pip install 'ottla[postgres]'`.")
    )
    url: str | None = field(
        default=None,
        metadata=doc("postgres: the URL, with parameters of libpq: `postgresql://host/db?sslmode=verify-full`."),
    )
    path: str | None = field(default=None, metadata=doc("sqlite, duckdb: the file; created if missing."))
    table: str = field(
        metadata=doc("The table; created if missing. It may have a schema: `shop.orders`.", example='"orders"')
    )
    keys: Sequence[str] = field(
        default=(),
        metadata=doc(
            "Columns that identify a row: a row replaces the stored one with the same values. They must not be NULL. "
            "The table needs a unique index on them; a new table has it. Required for mode upsert."
        ),
    )
    sequence: str | None = field(default=None, metadata=_SEQUENCE)
    delete_when: str | None = field(default=None, metadata=_DELETE_WHEN)
    exclude: Sequence[str] = field(default=(), metadata=_EXCLUDE)
    origin: bool = field(default=False, metadata=_ORIGIN)
    user: str | None = field(default=None, metadata=doc("postgres: the database user."))
    password: str | None = field(
        default=None,
        repr=False,
        metadata=doc(
            "postgres: the password, as `${env:NAME}` or `${file:path}`: the driver reads it when a query starts."
        ),
    )
    options: Mapping[str, str] = field(
        default_factory=dict,
        repr=False,
        metadata=doc(
            'postgres: parameters of libpq: `{sslmode = "verify-full", sslrootcert = "/etc/ca.pem"}`. duckdb: its '
            'settings: `{memory_limit = "4GB"}`.'
        ),
    )


@dataclass(frozen=True, kw_only=True)
class DeadLetters:
    """The topic for broken records: unchanged, with the reason and their origin in headers."""

    title: ClassVar[str] = "[dead_letters]"
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
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


SINKS: dict[str, type[Sink]] = {
    **dict.fromkeys(("parquet", "csv", "json", "orc"), FileSink),
    **dict.fromkeys(("delta", "iceberg"), LakeSink),
    "topic": TopicSink,
    "console": ConsoleSink,
    "jdbc": JdbcSink,
    **dict.fromkeys(("postgres", "sqlite", "duckdb"), DatabaseSink),
}
