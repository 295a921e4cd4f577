"""Apply the rules of `[[expect]]` to frames, count the rows that break them, and read the counts.

    frame = rules.apply(pipeline, "orders", frame)          # counts, drops, fails; dead letters: see formats.py
    rules.counts_of(progress["observedMetrics"])            # {"positive": Counted(rows=100, violations=3)}

The counts of an input are one observation of Spark, and arrive with the progress of a batch. Spark evaluates no later
filter before an observation, so a rule sees all rows of its input. A frame that is not a stream has no progress: there
`apply` observes nothing, and `count` counts in a job of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines.checks.modes import input_of
from ottla.spark.pipelines.columns import StepError
from ottla.spark.pipelines.declaration import DEAD_LETTERS, ORIGIN, Expect, Pipeline
from ottla.spark.pipelines.limits import NOT_ALL, Counted, Limit, parse_limit
from ottla.spark.pipelines.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: The prefix of the names of our observations.
OBSERVED = "ottla.rules."
#: The count of all rows in an observation. Names of rules have no space.
ROWS = "all rows"
UNMET = "_unmet"
_SHOWN = 200


def rules_of(pipeline: Pipeline, name: str) -> list[Expect]:
    """The rules for a source or step, except those that send dead letters."""
    return [one for one in pipeline.expects if input_of(pipeline, one) == name and one.otherwise != "dead-letter"]


def dead_letter_rules(pipeline: Pipeline, name: str) -> list[Expect]:
    """The rules for a source that send dead letters."""
    return [one for one in pipeline.expects if input_of(pipeline, one) == name and one.otherwise == "dead-letter"]


def limits_of(pipeline: Pipeline) -> dict[str, Limit]:
    """The limit of each rule that has one, and of the dead letters of each source, by the name of their flow."""
    found = {one.name: parse_limit(one.at_most) for one in pipeline.expects if one.at_most is not None}
    letters = pipeline.dead_letters
    if letters is not None:
        limit = NOT_ALL if letters.at_most is None else parse_limit(letters.at_most)
        for source in pipeline.sources:
            if pipeline.sends_dead_letters(source):
                found[f"{DEAD_LETTERS}.{source.name}"] = limit
    return found


def unmet(conditions: Iterable[str], only: str = "true") -> str:
    """SQL for the numbers of the false conditions; unknown is not false, as in SQL's CHECK."""
    numbers = (f"IF(({only}) AND ({one}) <=> false, {number}, NULL)" for number, one in enumerate(conditions))
    return f"array_compact(array({', '.join(numbers)}))"


def check_condition(rule: Expect, frame: DataFrame) -> None:
    """Raise StepError if the condition is not true or false; Spark raises its own errors for unknown columns."""
    from pyspark.sql import functions as fn

    kind = frame.select(fn.expr(rule.that).alias("that")).schema["that"].dataType.simpleString()
    if kind not in ("boolean", "void"):
        raise StepError(f"that must be true or false, but {rule.that} is of type {kind}", "that")


def apply(pipeline: Pipeline, name: str, frame: DataFrame, *, only: str = "true") -> DataFrame:
    """The rows of a source or step that its rules leave; in a stream, the rules are counted on the way.

    `only` is SQL that is true for the rows that the rules apply to. The others pass.
    """
    from pyspark.sql import functions as fn

    found = rules_of(pipeline, name)
    if not found:
        return frame
    marked = frame.withColumn(UNMET, fn.expr(unmet((one.that for one in found), only)))
    for number, rule in enumerate(found):
        if rule.otherwise == "fail":
            fails = fn.raise_error(_failure(rule, frame)).cast("boolean")
            marked = marked.where(fn.when(fn.array_contains(UNMET, number), fails).otherwise(fn.lit(True)))
    if frame.isStreaming:
        marked = marked.observe(OBSERVED + name, *_counts(found, only))
    dropped = [number for number, rule in enumerate(found) if rule.otherwise == "drop"]
    if dropped:
        marked = marked.where(f"NOT arrays_overlap({UNMET}, array({', '.join(map(str, dropped))}))")
    return marked.drop(UNMET)


def count(pipeline: Pipeline, name: str, frame: DataFrame) -> dict[str, Counted]:
    """Count the rules of a step in a frame that is not a stream; `frame` has the rows before the rules."""
    from pyspark.sql import functions as fn

    found = rules_of(pipeline, name)
    marked = frame.select(fn.expr(unmet(one.that for one in found)).alias(UNMET))
    (row,) = marked.agg(*_counts(found)).collect()
    return counts_of({OBSERVED + name: row.asDict()})


def _counts(found: Sequence[Expect], only: str = "true") -> list[Column]:
    from pyspark.sql import functions as fn

    rows = fn.expr(f"count_if({only})").alias(ROWS)
    return [rows, *(_count(rule, number) for number, rule in enumerate(found))]


def kept(pipeline: Pipeline, name: str, frame: DataFrame) -> DataFrame:
    """The rows of a batch frame that the rules leave; nothing is counted, and no rule fails."""
    dropping = [one.that for one in rules_of(pipeline, name) if one.otherwise == "drop"]
    return frame.where(f"size({unmet(dropping)}) = 0") if dropping else frame


def observe_dead(
    frame: DataFrame,
    source: str,
    found: Mapping[int, Expect],
    *,
    readable: str,
    failed: str,
) -> DataFrame:
    """Count the rules of a source that send dead letters.

    `failed` is the column with the numbers of the false conditions, and `readable` is true for records with a row.
    """
    from pyspark.sql import functions as fn

    counts = [_count(rule, number, failed, f"AND ({readable})") for number, rule in found.items()]
    rows = fn.expr(f"count_if({readable})").alias(ROWS)
    return frame.observe(f"{OBSERVED}{source}.{DEAD_LETTERS}", rows, *counts)


def _count(rule: Expect, number: int, numbers: str = UNMET, more: str = "") -> Column:
    from pyspark.sql import functions as fn

    return fn.expr(f"count_if(array_contains({numbers}, {number}) {more})").alias(rule.name)


def _failure(rule: Expect, frame: DataFrame) -> Column:
    """The message: with the origin of the record, or else with the row."""
    from pyspark.sql import functions as fn

    text = fn.lit(f"rule {rule.name}: {rule.that} is false for ")
    if set(ORIGIN[:3]) <= set(frame.columns):
        place = (fn.col("_topic"), fn.lit("-"), fn.col("_partition"), fn.lit(" at offset "), fn.col("_offset"))
        return fn.concat(text, fn.lit("the record of "), *place)
    row = fn.to_json(fn.struct(*[quoted(name) for name in frame.columns]))
    return fn.concat(text, fn.lit("the row "), fn.left(row, fn.lit(_SHOWN)))


def counts_of(observed: Mapping[str, Any] | None) -> dict[str, Counted]:
    """The counts of each rule in Spark's observations.

    >>> counts_of({"ottla.rules.orders": {"all rows": 100, "positive": 3}, "mine": {"rows": 1}})
    {'positive': Counted(rows=100, violations=3)}
    """
    found: dict[str, Counted] = {}
    for name, metrics in (observed or {}).items():
        if name.startswith(OBSERVED) and isinstance(metrics, Mapping):
            rows = int(metrics.get(ROWS) or 0)
            found |= {rule: Counted(rows, int(count or 0)) for rule, count in metrics.items() if rule != ROWS}
    return found
