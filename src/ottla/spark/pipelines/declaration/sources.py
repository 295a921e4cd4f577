"""Declared sources, and tables for joins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from ottla.spark.pipelines.declaration.base import ValueFormat, Where, caller, doc

SourceFormat = Literal["json", "avro", "protobuf", "csv", "text", "bytes", "debezium"]


@dataclass(frozen=True, kw_only=True)
class Source:
    """A stream of one or more topics: one row per record, with the columns of the schema and of the origin."""

    title: ClassVar[str] = "[[source]]"
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
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
            "The columns as Spark DDL: `id BIGINT NOT NULL, total DOUBLE`. Required for json, csv and debezium. A "
            "record without a value for a NOT NULL column is broken. text and bytes have one column, `value`."
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
        metadata=doc(
            "What to do with records without a value (tombstones). keep is only for text and bytes. debezium always "
            "skips them."
        ),
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
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
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
