"""Joins of a stream with a table, and of two streams within a time bound.

Spark keeps the rows of both streams until the watermarks say that no match can arrive. The result has one column with a
watermark, that of the input, because later steps allow only one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.spark.pipelines.columns import StepError, check_columns, watermarks
from ottla.spark.pipelines.declaration import ORIGIN, Join
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.times import bounds

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Columns that only the input keeps.
_OWN = (*ORIGIN, "_headers")
#: A column with metadata of its own no longer counts as event time.
_PLAIN = {"ottla.joined": True}


def join_table(step: Join, frame: DataFrame, table: DataFrame) -> DataFrame:
    """Add the columns of a table."""
    how = step.how or "left"
    _check_on(step, frame, table, f"table {step.join}")
    if how in ("semi", "anti"):
        return frame.join(table, list(step.on), how)
    names = _added(step, frame, table.columns)
    return frame.join(table.withColumnsRenamed(names), list(step.on), how)


def join_streams(step: Join, frame: DataFrame, other: DataFrame) -> DataFrame:
    """Join the events of another stream that are near in time."""
    from pyspark.sql import functions as fn

    how = step.how or "inner"
    if not other.isStreaming:
        raise StepError(f"{step.join} is not a stream: it must come from a source", "join")
    _check_on(step, frame, other, step.join)
    time, their_time = _event_time(frame, "the input"), _event_time(other, step.join)
    before, after = bounds(step.within or {})
    conditions = [f"l.{quoted(name)} = r.{quoted(name)}" for name in step.on]
    conditions.append(f"r.{quoted(their_time)} >= l.{quoted(time)} - INTERVAL {before}")
    conditions.append(f"r.{quoted(their_time)} <= l.{quoted(time)} + INTERVAL {after}")
    joined = frame.alias("l").join(other.alias("r"), fn.expr(" AND ".join(conditions)), how)
    if how == "semi":
        return joined
    names = _added(step, frame, [name for name in other.columns if name not in _OWN])
    passed = ("l", time) if how == "right" else ("r", their_time)
    return joined.select(
        *[_key(name, how) for name in step.on],
        *[_side("l", name, name, passed) for name in frame.columns if not _among(name, step.on)],
        *[_side("r", name, new, passed) for name, new in names.items()],
    )


def _key(name: str, how: str) -> Column:
    """A join column, which has the same value on both sides, or exists on one of them."""
    from pyspark.sql import functions as fn

    if how == "full":
        return fn.expr(f"coalesce(l.{quoted(name)}, r.{quoted(name)})").alias(name)
    return fn.col(f"{'r' if how == 'right' else 'l'}.{quoted(name)}")


def _side(side: str, name: str, new: str, passed: tuple[str, str]) -> Column:
    """A column under its new name; `passed` is the event time that is no longer one."""
    from pyspark.sql import functions as fn

    column = fn.col(f"{side}.{quoted(name)}")
    return column.alias(new, metadata=_PLAIN) if (side, name) == passed else column.alias(new)


def _check_on(step: Join, frame: DataFrame, other: DataFrame, name: str) -> None:
    check_columns(step.on, frame, "on")
    check_columns(step.on, other, "on", name)


def _added(step: Join, frame: DataFrame, columns: Sequence[str]) -> dict[str, str]:
    """The new columns with their new names; raises StepError if the input has one of them."""
    names = {name: f"{step.prefix or ''}{name}" for name in columns if not _among(name, step.on)}
    both = [name for name in names.values() if _among(name, frame.columns)]
    if both:
        what = f"column {both[0]}" if len(both) == 1 else f"columns {', '.join(both)}"
        verb = "exists" if len(both) == 1 else "exist"
        advice = f'set prefix, such as prefix = "{step.join}_", or rename it in a step before'
        raise StepError(f"{what} {verb} in the input and in {step.join}: {advice}", "prefix" if step.prefix else "join")
    return names


def _among(name: str, names: Sequence[str]) -> bool:
    return name.lower() in [one.lower() for one in names]


def _event_time(frame: DataFrame, name: str) -> str:
    found = list(watermarks(frame))
    if not found:
        raise StepError(
            f"{name} has no column with a watermark: set event_time and watermark of its source, and keep this column "
            "in the steps between",
            "join",
        )
    return found[0]
