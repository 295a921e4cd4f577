"""Classify each record with Spark joins and windows; nothing is collected here.

`classify` joins the source, the target and the dead letters to one row per record, plus a row for target rows without a
record. `summed` counts by partition and time. `report.Counts` and docs/audit.md explain the statuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from ottla.clients.consumer.dead_letter_steps import PREFIX
from ottla.spark.audit.positions import Bounds
from ottla.types import Millis

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: The first aggregation uses slots of this length; the bar width is chosen when the time range is known.
SLOT_MS: Millis = 100
PLACE = ("partition", "offset")
ORIGIN, KEY = "origin", "key"
#: The statuses of records, and of rows without a record.
RECORD_STATUSES = ("arrived", "duplicates", "dead", "pending", "filtered", "unkeyed", "lost")
ROW_STATUSES = ("expired", "outside", "unknown")


@dataclass(frozen=True, slots=True)
class Rules:
    """How to match and judge records."""

    match: str
    """ORIGIN or KEY."""
    has_key: bool = False
    """Records have an `id`; records with the same id are duplicates."""
    keep_repeats: bool = False
    """Expect a target row for each record, including repeated ids."""
    is_cut: bool = False
    """The start of the source is missing, so target rows may belong to deleted records."""
    order: str | None = None
    late_after: Millis | None = None

    @property
    def is_distinct(self) -> bool:
        return self.has_key and not self.keep_repeats


# ── the three sides ───────────────────────────────────────────────────────────────────────────────────────────────


def source_side(records: DataFrame, key: str | None, *, ordered_by_key: bool) -> DataFrame:
    """The columns partition, offset, timestamp (milliseconds), id and order_key of the source."""
    return records.select(
        "partition",
        "offset",
        F.unix_millis("timestamp").alias("timestamp"),
        (F.expr(key) if key is not None else F.lit(None).cast("string")).alias("id"),
        (F.col("key") if ordered_by_key else F.lit(None).cast("binary")).alias("order_key"),
        F.lit(True).alias("is_record"),
        F.lit(True).alias("is_expected"),
    )


def with_expected(source: DataFrame, expected: DataFrame) -> DataFrame:
    """Keep the expectation to the records in `expected` (partition, offset, id), and take their ids from there."""
    known = expected.dropDuplicates(list(PLACE)).withColumn("is_expected", F.lit(True))
    found = source.drop("id", "is_expected").join(known, list(PLACE), "left")
    return found.withColumn("is_expected", F.coalesce("is_expected", F.lit(False)))


def target_side(
    rows: DataFrame, match: Sequence[Column], *, arrival: Column | None, place: tuple[Column, Column] | None
) -> DataFrame:
    """The matching columns, the number of rows, and the time and place of the first one."""
    time = F.unix_millis(arrival) if arrival is not None else F.lit(None).cast("bigint")
    partition, offset = place if place is not None else (F.lit(None).cast("int"), F.lit(None).cast("bigint"))
    first = F.struct(time.alias("at"), partition.alias("partition"), offset.alias("offset"))
    return (
        rows.select(*match, first.alias("first"))
        .groupBy(*_names(match))
        .agg(F.count("*").alias("rows"), F.min("first").alias("first"))
    )


def _names(columns: Sequence[Column]) -> list[str]:
    return ["id"] if len(columns) == 1 else list(PLACE)


def dead_side(letters: DataFrame, topic: str) -> DataFrame:
    """The origins of dead letters; `letters` needs headers."""
    theirs = letters.where(header(f"{PREFIX}topic") == topic)
    return theirs.select(*header_place(PREFIX)).distinct().withColumn("is_dead", F.lit(True))


def header(name: str) -> Column:
    """The last header of this name, as text."""
    named = F.filter("headers", lambda one: one["key"] == name)
    return F.try_element_at(named, F.lit(-1))["value"].cast("string")


def header_place(prefix: str) -> list[Column]:
    """The partition and offset in the headers."""
    return [
        header(f"{prefix}partition").try_cast("int").alias("partition"),
        header(f"{prefix}offset").try_cast("bigint").alias("offset"),
    ]


# ── classification ────────────────────────────────────────────────────────────────────────────────────────────────


def classify(
    spark: SparkSession,
    source: DataFrame,
    target: DataFrame,
    dead: DataFrame | None,
    bounds: Iterable[Bounds],
    rules: Rules,
) -> DataFrame:
    """One row per record, and per target row without a record: status, repeated, rows, late, out_of_order."""
    joined = source.join(target, ["id"] if rules.match == KEY else list(PLACE), "full")
    places = spark.createDataFrame(
        [(one.partition, one.earliest, one.start, one.end, one.position) for one in bounds],
        "partition int, earliest bigint, start bigint, end bigint, position bigint",
    )
    known = joined.join(F.broadcast(places), "partition", "left")
    if dead is not None:
        known = known.join(dead, list(PLACE), "left")
    else:
        known = known.withColumn("is_dead", F.lit(None).cast("boolean"))
    known = known.select(
        *PLACE,
        "timestamp",
        "id",
        "order_key",
        "first",
        "earliest",
        "start",
        "end",
        F.coalesce("is_record", F.lit(False)).alias("is_record"),
        F.coalesce("rows", F.lit(0)).alias("rows"),
        F.coalesce("is_dead", F.lit(False)).alias("is_dead"),
        F.coalesce("is_expected", F.lit(False)).alias("is_expected"),
        F.coalesce(F.col("offset") >= F.col("position"), F.lit(False)).alias("is_pending"),
    )
    ranked = _ranked(known, rules)
    found = ranked.withColumn("status", _status(rules)).withColumn("repeated", _repeated(rules))
    found = found.withColumn("unexplained", _unexplained(rules)).withColumn("delay", _delay())
    return _with_order(found.withColumn("late", _late(rules)), rules)


def _ranked(known: DataFrame, rules: Rules) -> DataFrame:
    """Rank records with the same id: first those that are in the target, or should be."""
    if not rules.has_key:
        return known.withColumn("rank", F.lit(1)).withColumn("alike", F.lit(1))
    # Records without an id are all distinct; grouping them together would put them into one task.
    alike = Window.partitionBy("id", _alone(F.col("id").isNull()))
    there = (F.col("rows") == 0) if rules.match == ORIGIN else F.lit(0)
    order = alike.orderBy(there, "is_dead", "is_pending", "timestamp", *PLACE)
    return known.withColumn("rank", F.row_number().over(order)).withColumn("alike", F.count("*").over(alike))


def _alone(condition: Column) -> Column:
    return F.when(condition, F.struct(*PLACE))


def _status(rules: Rules) -> Column:
    rows, rank = F.col("rows"), F.col("rank")
    missing = F.when(F.col("is_dead"), "dead").when(F.col("is_pending"), "pending")
    missing = missing.when(~F.col("is_expected"), "filtered")
    if rules.match == ORIGIN:
        without = F.when(F.col("offset") < F.col("earliest"), "expired").when(
            (F.col("offset") < F.col("start")) | (F.col("offset") >= F.col("end")), "outside"
        )
    else:
        missing = missing.when(F.col("id").isNull(), "unkeyed")
        without = F.when(F.lit(False), "")
    if rules.is_distinct:
        again = missing if rules.match == KEY else F.when(rows > 0, "duplicates").otherwise(missing)
        again = F.coalesce(again, F.lit("duplicates"))
        first = F.when(rows > 0, "arrived").otherwise(missing.otherwise("lost"))
        record = F.when(rank == 1, first).otherwise(again)
    else:
        arrived = rows >= rank if rules.match == KEY else rows > 0
        record = F.when(arrived, "arrived").otherwise(missing.otherwise("lost"))
    return F.when(F.col("is_record"), record).otherwise(without.otherwise("unknown"))


def _excess(rules: Rules) -> Column:
    """The number of surplus target rows, counted at one record per id."""
    rows, rank = F.col("rows"), F.col("rank")
    if rules.match == ORIGIN:
        allowed = F.when(rank == 1, 1).otherwise(0) if rules.is_distinct else F.lit(1)
        return F.greatest(rows - allowed, F.lit(0))
    allowed = F.lit(1) if rules.is_distinct else F.col("alike")
    return F.when(rank == 1, F.greatest(rows - allowed, F.lit(0))).otherwise(0)


def _may_be_older(rules: Rules) -> bool:
    """Whether a surplus row may belong to a deleted record with the same id."""
    return rules.match == KEY and rules.keep_repeats and rules.is_cut


def _repeated(rules: Rules) -> Column:
    return F.lit(0).cast("bigint") if _may_be_older(rules) else F.when(F.col("is_record"), _excess(rules)).otherwise(0)


def _unexplained(rules: Rules) -> Column:
    return F.when(F.col("is_record"), _excess(rules)).otherwise(0) if _may_be_older(rules) else F.lit(0).cast("bigint")


def _is_placed() -> Column:
    """Whether the first matching target row belongs to this record."""
    return (F.col("status") == "arrived") & (F.col("rank") == 1)


def _delay() -> Column:
    return F.when(_is_placed(), F.col("first.at") - F.col("timestamp"))


def _late(rules: Rules) -> Column:
    if rules.late_after is None:
        return F.lit(0)
    return F.coalesce((F.col("delay") > rules.late_after).cast("int"), F.lit(0))


def _with_order(found: DataFrame, rules: Rules) -> DataFrame:
    """A record is out of order if it follows one of its partition (and key) with a higher offset."""
    if rules.order is None:
        return found.withColumn("out_of_order", F.lit(0))
    placed = _is_placed() if rules.order == "partition" else _is_placed() & F.col("order_key").isNotNull()
    together = [F.when(placed, F.col("first.partition")), "partition", "order_key", _alone(~placed)]
    before = Window.partitionBy(*together).orderBy("first.offset").rowsBetween(Window.unboundedPreceding, -1)
    highest = F.max(F.when(placed, F.col("offset"))).over(before)
    return found.withColumn("out_of_order", F.coalesce((placed & (highest > F.col("offset"))).cast("int"), F.lit(0)))


# ── counting ──────────────────────────────────────────────────────────────────────────────────────────────────────


def summed(classified: DataFrame) -> DataFrame:
    """Counts by partition and time slot, with the names of `Counts`; rows without a record have no time."""
    status = F.col("status")
    records = [F.count_if(status == name).alias(name) for name in RECORD_STATUSES]
    rows = [F.sum(F.when(status == name, F.col("rows")).otherwise(0)).alias(name) for name in ROW_STATUSES]
    rows[-1] = (F.sum(F.when(status == "unknown", F.col("rows")).otherwise(F.col("unexplained")))).alias("unknown")
    slot = F.when(F.col("is_record"), F.floor(F.col("timestamp") / SLOT_MS) * SLOT_MS)
    return classified.groupBy("partition", slot.cast("bigint").alias("slot")).agg(
        F.count_if("is_record").alias("produced"),
        *records,
        *rows,
        *(F.sum(name).alias(name) for name in ("repeated", "out_of_order", "late")),
    )


def examples(classified: DataFrame, limit: int) -> DataFrame:
    """The first records of each kind of problem: kind, partition, offset, rows, timestamp."""
    status = F.col("status")
    kinds = F.array(
        F.when(status == "lost", "lost"),
        F.when(status == "unkeyed", "unkeyed"),
        F.when(F.col("repeated") > 0, "repeated"),
        F.when(F.col("out_of_order") > 0, "out_of_order"),
        F.when(F.col("late") > 0, "late"),
    )
    found = classified.select(F.explode(F.array_compact(kinds)).alias("kind"), *PLACE, "rows", "timestamp")
    first = Window.partitionBy("kind").orderBy(*PLACE)
    return found.withColumn("number", F.row_number().over(first)).where(F.col("number") <= limit).drop("number")
