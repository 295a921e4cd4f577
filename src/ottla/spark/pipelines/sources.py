"""Turn declared sources and tables into DataFrames: good records with their origin, and dead letters."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ottla.clients.consumer.dead_letter_steps import MAX_MESSAGE_CHARACTERS, PREFIX
from ottla.spark.pipelines import rules
from ottla.spark.pipelines.declaration import ORIGIN, DeadLetters, Dedupe, Pipeline, Source, Table
from ottla.spark.pipelines.formats import FAILED, PARSED, VALUE, Format
from ottla.spark.pipelines.options import as_settings, read_options, table_options
from ottla.spark.pipelines.rules import observe_dead
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.steps import apply, time_column
from ottla.spark.pipelines.times import interval

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

BROKEN_CLASS = "ottla.spark.pipelines.BrokenRecord"
#: Columns of a shared stream: the content of a broken record, and its place. A schema must not use these names.
BROKEN, BROKEN_ID = "_letter", "_letter_id"


def stream(
    pipeline: Pipeline, source: Source, spark: SparkSession, group_id: str | None, *, with_rules: bool = True
) -> DataFrame:
    """The good records of a source: the columns of the schema, then those of the origin."""
    return watermarked(source, _good(pipeline, source, spark, group_id, with_rules=with_rules))


def _good(
    pipeline: Pipeline, source: Source, spark: SparkSession, group_id: str | None, *, with_rules: bool = True
) -> DataFrame:
    form = Format(pipeline, source, with_rules=with_rules)
    parsed = _counted(source, form, _parsed(pipeline, source, form, spark, group_id))
    checked = _failing(source, form, parsed) if _fails(pipeline, source) else parsed.where(form.good())
    return checked.select(*_columns(source, form))


def watermarked(source: Source, frame: DataFrame) -> DataFrame:
    """Add the declared watermark of the source."""
    if source.watermark and source.event_time:
        return frame.withWatermark(source.event_time, interval(source.watermark))
    return frame


def dead_letters(
    pipeline: Pipeline, source: Source, letters: DeadLetters, spark: SparkSession, group_id: str | None
) -> DataFrame:
    """The broken records of a source as rows of `format("ottla")`: unchanged, with the reason in headers."""
    form = Format(pipeline, source)
    parsed = _parsed(pipeline, source, form, spark, group_id, headers=True)
    return _letters(pipeline, source, form, letters, parsed.where(_broken(form)))


# ── Good and broken records in one stream ────────────────────────────────────────────────────────────────────────


def shared_stream(pipeline: Pipeline, source: Source, spark: SparkSession, group_id: str | None) -> DataFrame:
    """The records of a source, parsed once: like `stream`, and broken ones with their content in the column BROKEN.

    BROKEN is null for good records, so only broken ones keep their raw value. It is missing if the source has no dead
    letters. There is no watermark yet. Of the rules, only those that send dead letters are applied.
    """
    from pyspark.sql import functions as fn

    if not pipeline.sends_dead_letters(source):
        return _good(pipeline, source, spark, group_id)
    form = Format(pipeline, source)
    parsed = _counted(source, form, _parsed(pipeline, source, form, spark, group_id, headers=True))
    content = {
        "value": fn.col(VALUE),
        "headers": fn.col("_headers"),
        "timestamp": fn.col("_timestamp"),
        "failed": fn.col(FAILED) if form.require else fn.lit(None).cast("array<int>"),
        "error": fn.col(f"{PARSED}.error") if form.decodes else fn.lit(None).cast("string"),
    }
    broken = fn.when(fn.expr(_broken(form)), fn.struct(*[value.alias(name) for name, value in content.items()]))
    return parsed.select(*_columns(source, form), broken.alias(BROKEN))


def deduplicated(pipeline: Pipeline, source: Source, step: Dedupe, frame: DataFrame, spark: SparkSession) -> DataFrame:
    """Remove repeated good records from a shared stream.

    Broken records pass: each has a key of its own, and no event time, so it is never late and moves no watermark.
    """
    from pyspark.sql import functions as fn

    if BROKEN in frame.columns:
        time = time_column(pipeline, step, frame)
        is_good = fn.col(BROKEN).isNull()
        place = fn.concat_ws("-", "_topic", "_partition", "_offset")
        frame = frame.withColumn(time, fn.when(is_good, fn.col(quoted(time))))
        frame = frame.withColumn(BROKEN_ID, fn.when(~is_good, place))
        step = replace(step, keys=[*step.keys, BROKEN_ID], input=source.name)
    return apply(pipeline, step, {source.name: watermarked(source, frame)}, spark).drop(BROKEN_ID)


def ruled(pipeline: Pipeline, name: str, frame: DataFrame) -> DataFrame:
    """Apply the rules of a source, or of a dedupe right after it, to the good records of a shared stream."""
    return rules.apply(pipeline, name, frame, only=f"{BROKEN} IS NULL" if BROKEN in frame.columns else "true")


def good_rows(frame: DataFrame) -> DataFrame:
    """The good records of a shared stream or of one of its batches, as `stream` has them."""
    return frame.where(f"{BROKEN} IS NULL").drop(BROKEN) if BROKEN in frame.columns else frame


def broken_rows(pipeline: Pipeline, source: Source, letters: DeadLetters, frame: DataFrame) -> DataFrame:
    """The broken records of a batch of a shared stream, as `dead_letters` has them."""
    form = Format(pipeline, source)
    raw = frame.where(f"{BROKEN} IS NOT NULL").selectExpr(
        *[name for name in ORIGIN if name != "_timestamp"],
        f"{BROKEN}.timestamp AS _timestamp",
        f"{BROKEN}.headers AS _headers",
        f"{BROKEN}.value AS {VALUE}",
        f"{BROKEN}.failed AS {FAILED}",
        f"struct({BROKEN}.error AS error) AS {PARSED}",
    )
    return _letters(pipeline, source, form, letters, raw)


# ── Parts of the above ───────────────────────────────────────────────────────────────────────────────────────────


def _parsed(
    pipeline: Pipeline,
    source: Source,
    form: Format,
    spark: SparkSession,
    group_id: str | None,
    *,
    headers: bool = False,
) -> DataFrame:
    parsed = form.parse(_raw(pipeline, source, spark, group_id, headers=headers))
    return parsed.where(f"{VALUE} IS NOT NULL") if form.nulls == "skip" else parsed


def _counted(source: Source, form: Format, parsed: DataFrame) -> DataFrame:
    """Count the rules that send dead letters."""
    if not form.rules:
        return parsed
    return observe_dead(parsed, source.name, form.rules, readable=form.readable(), failed=FAILED)


def _columns(source: Source, form: Format) -> list[str]:
    return [*map(quoted, form.columns), *ORIGIN, *(["_headers"] if source.include_headers else [])]


def _fails(pipeline: Pipeline, source: Source) -> bool:
    return source.on_error == "fail" or (source.on_error is None and pipeline.dead_letters is None)


def _failing(source: Source, form: Format, parsed: DataFrame) -> DataFrame:
    from pyspark.sql import functions as fn

    return parsed.where(fn.expr(f"IF({form.good()}, true, CAST(raise_error({_failure(source)}) AS BOOLEAN))"))


def _broken(form: Format) -> str:
    return f"NOT coalesce({form.good()}, false)"


def _letters(pipeline: Pipeline, source: Source, form: Format, letters: DeadLetters, broken: DataFrame) -> DataFrame:
    from pyspark.sql import functions as fn

    broken = broken.withColumn(PARSED, form.reason())
    headers: dict[str, Column] = {
        "topic": fn.col("_topic"),
        "partition": fn.col("_partition"),
        "offset": fn.col("_offset"),
        "timestamp": fn.unix_millis("_timestamp"),
        "group": fn.lit(source.group_id or pipeline.name),
        "attempts": fn.lit(0),
        "error-class": fn.lit(BROKEN_CLASS),
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
    return parsed.where(form.good()).select(*_columns(source, form)), parsed.where(_broken(form)).select(*ORIGIN)


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
