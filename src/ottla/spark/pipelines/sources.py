"""Turn declared sources and tables into DataFrames: good records with their origin, and dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.clients.consumer.dead_letter_steps import MAX_MESSAGE_CHARACTERS, PREFIX
from ottla.spark.pipelines.declaration import ORIGIN, DeadLetters, Pipeline, Source, Table
from ottla.spark.pipelines.formats import FAILED, PARSED, VALUE, Format
from ottla.spark.pipelines.options import as_settings, read_options, table_options
from ottla.spark.pipelines.rules import observe_dead
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.times import interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BROKEN = "ottla.spark.pipelines.BrokenRecord"


def stream(
    pipeline: Pipeline, source: Source, spark: SparkSession, group_id: str | None, *, with_rules: bool = True
) -> DataFrame:
    """The good records of a source: the columns of the schema, then those of the origin."""
    from pyspark.sql import functions as fn

    form = Format(pipeline, source, with_rules=with_rules)
    parsed = form.parse(_raw(pipeline, source, spark, group_id))
    if form.nulls == "skip":
        parsed = parsed.where(f"{VALUE} IS NOT NULL")
    if form.rules:
        parsed = observe_dead(parsed, source.name, form.rules, readable=form.readable(), failed=FAILED)
    if source.on_error == "fail" or (source.on_error is None and pipeline.dead_letters is None):
        parsed = parsed.where(fn.expr(f"IF({form.good()}, true, CAST(raise_error({_failure(source)}) AS BOOLEAN))"))
    else:
        parsed = parsed.where(form.good())
    headers = ["_headers"] if source.include_headers else []
    frame = parsed.select(*[quoted(name) for name in form.columns], *ORIGIN, *headers)
    if source.watermark and source.event_time:
        frame = frame.withWatermark(source.event_time, interval(source.watermark))
    return frame


def dead_letters(
    pipeline: Pipeline, source: Source, letters: DeadLetters, spark: SparkSession, group_id: str | None
) -> DataFrame:
    """The broken records of a source as rows of `format("ottla")`: unchanged, with the reason in headers."""
    from pyspark.sql import functions as fn

    form = Format(pipeline, source)
    parsed = form.parse(_raw(pipeline, source, spark, group_id, headers=True))
    if form.nulls == "skip":
        parsed = parsed.where(f"{VALUE} IS NOT NULL")
    broken = parsed.where(f"NOT coalesce({form.good()}, false)").withColumn(PARSED, form.reason())
    headers: dict[str, Column] = {
        "topic": fn.col("_topic"),
        "partition": fn.col("_partition"),
        "offset": fn.col("_offset"),
        "timestamp": fn.unix_millis("_timestamp"),
        "group": fn.lit(source.group_id or pipeline.name),
        "attempts": fn.lit(0),
        "error-class": fn.lit(BROKEN),
        "error-message": fn.left(fn.col(PARSED), fn.lit(MAX_MESSAGE_CHARACTERS)),
        "error-traceback": fn.lit(""),
    }
    added = [
        fn.struct(fn.lit(PREFIX + name).alias("key"), value.cast("string").cast("binary").alias("value"))
        for name, value in headers.items()
    ]
    own = fn.expr(f"filter(coalesce(_headers, array()), x -> NOT startswith(x.key, '{PREFIX}'))")
    return broken.select(
        fn.replace(fn.lit(letters.topic), fn.lit("{topic}"), fn.col("_topic")).alias("topic"),
        fn.col("_key").alias("key"),
        fn.col(VALUE).alias("value"),
        fn.concat(own, fn.array(*added)).alias("headers"),
    )


def batch(pipeline: Pipeline, source: Source, raw: DataFrame) -> tuple[DataFrame, DataFrame]:
    """The good and the broken records in a batch frame of `format("ottla")`, for the audit.

    Good records have the columns of `stream`, broken ones those of the origin.
    """
    form = Format(pipeline, source)
    headers = ["headers AS _headers"] if source.include_headers else []
    parsed = form.parse(raw.selectExpr(*_origin(), *_value(), *headers))
    if form.nulls == "skip":
        parsed = parsed.where(f"{VALUE} IS NOT NULL")
    named = ["_headers"] if source.include_headers else []
    good = parsed.where(form.good()).select(*[quoted(name) for name in form.columns], *ORIGIN, *named)
    return good, parsed.where(f"NOT coalesce({form.good()}, false)").select(*ORIGIN)


def table(pipeline: Pipeline, declared: Table, spark: SparkSession) -> DataFrame:
    """A static table for joins."""
    if declared.format == "topic":
        return _topic_table(pipeline, declared, spark)
    form = Format(pipeline, declared)
    reader = spark.read.format(declared.format).options(**as_settings(declared.options))
    if form.schema is not None:
        reader = reader.schema(form.schema.ddl())
    return reader.load(pipeline.path(declared.path or ""))


def _topic_table(pipeline: Pipeline, declared: Table, spark: SparkSession) -> DataFrame:
    """The current contents of a topic, without broken records and deleted keys."""
    from pyspark.sql import functions as fn

    form = Format(pipeline, declared)
    raw = (
        spark.read.format("ottla").options(**table_options(pipeline, declared)).load().selectExpr(*_origin(), *_value())
    )
    if declared.latest:
        # Log order applies within a partition; a key is in two partitions only if partitions were added.
        for keys, order in ((["_topic", "_partition", "_key"], "_offset"), (["_topic", "_key"], "_timestamp")):
            last = fn.max_by(fn.struct(*raw.columns), fn.col(order)).alias("last")
            raw = raw.groupBy(*keys).agg(last).select("last.*")
    return form.parse(raw).where(form.good()).select(*[quoted(name) for name in form.columns])


def _raw(
    pipeline: Pipeline, source: Source, spark: SparkSession, group_id: str | None, *, headers: bool = False
) -> DataFrame:
    reader = spark.readStream.format("ottla").options(**read_options(pipeline, source, group_id, headers=headers))
    with_headers = ["headers AS _headers"] if headers or source.include_headers else []
    return reader.load().selectExpr(*_origin(), *_value(), *with_headers)


def _origin() -> list[str]:
    return [f"{name.removeprefix('_')} AS {name}" for name in ORIGIN]


def _value() -> list[str]:
    return [f"value AS {VALUE}"]


def _failure(source: Source) -> str:
    place = "_topic, '-', _partition, ' at offset ', _offset"
    hint = "Add [dead_letters], or set on_error."
    return (
        f"concat('source {source.name}: the record of ', {place}, ' does not match the {source.format} schema. {hint}')"
    )
