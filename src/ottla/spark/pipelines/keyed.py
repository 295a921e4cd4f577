"""Shape the rows of a sink that may have keys: its columns, and with keys the newest row of each key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from ottla.spark.pipelines.columns import StepError, check_columns, record_place
from ottla.spark.pipelines.declaration import ORIGIN
from ottla.spark.pipelines.schemas import quoted

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

#: Rows of one partition are in the order of their offsets.
_PLACE = ("_topic", "_partition", "_offset")
_ROW = "_ottla_row"
#: The column of `staged` rows with 1 for a row that deletes.
DELETED = "ottla_deleted"
_UNORDERED = ("array", "map", "struct", "binary", "variant")


class KeyedSink(Protocol):
    """The keys of a declaration that this module uses."""

    @property
    def keys(self) -> Sequence[str]: ...
    @property
    def sequence(self) -> str | None: ...
    @property
    def delete_when(self) -> str | None: ...
    @property
    def exclude(self) -> Sequence[str]: ...
    @property
    def origin(self) -> bool | None: ...


def shape(sink: KeyedSink, frame: DataFrame) -> DataFrame:
    """Drop what a batch does not need. With keys, the origin stays: it orders the rows."""
    for key, names in (("keys", sink.keys), ("sequence", _sequence(sink)), ("exclude", sink.exclude)):
        check_columns(names, frame, key, "the input")
    for name in _sequence(sink):
        kind = frame.select(quoted(name)).schema[0].dataType.typeName()
        if kind in _UNORDERED:
            raise StepError(f"sequence {name} is {kind}: use a number, text, date or timestamp", "sequence")
    if sink.delete_when and frame.selectExpr(f"({sink.delete_when}) AS deleted").dtypes[0][1] != "boolean":
        raise StepError(f"delete_when must be a condition: {sink.delete_when} is not true or false", "delete_when")
    if not sink.keys:
        return frame.drop(*_dropped(sink))
    if not is_ordered(sink, frame) and not _aggregates(frame._jdf.queryExecution().analyzed()):
        raise StepError(
            'the input does not say which of two rows with the same key is newer: set sequence, such as sequence = "ts"'
            f", or keep the columns {', '.join(_PLACE)} in the step before",
            "keys",
        )
    return frame.drop("_key", "_headers")


def is_ordered(sink: KeyedSink, frame: DataFrame) -> bool:
    """Whether the last row of a key is known."""
    return bool(sink.sequence) or set(_PLACE) <= set(frame.columns)


def columns_of(sink: KeyedSink, frame: DataFrame) -> list[str]:
    """The columns of the table."""
    dropped = {name.lower() for name in _dropped(sink)}
    return [name for name in frame.columns if name.lower() not in dropped]


def staged(sink: KeyedSink, frame: DataFrame) -> DataFrame:
    """The rows of a batch that change the table: with keys, one row per key, and in DELETED whether it deletes."""
    from pyspark.sql import functions as fn

    if sink.keys:
        frame = frame.where(_keys_are_set(sink, frame))
        if is_ordered(sink, frame):
            frame = _last(sink, frame)
        deletes = fn.expr(f"({sink.delete_when})") if sink.delete_when else fn.lit(False)
        frame = frame.withColumn(DELETED, fn.coalesce(deletes, fn.lit(False)).cast("int"))
    return frame.drop(*_dropped(sink))


def _last(sink: KeyedSink, frame: DataFrame) -> DataFrame:
    from pyspark.sql import Window
    from pyspark.sql import functions as fn

    names = [*_sequence(sink), *(name for name in _PLACE if name in frame.columns)]
    newest = [fn.col(quoted(name)).desc_nulls_last() for name in names]
    rows = Window.partitionBy(*map(quoted, sink.keys)).orderBy(*newest)
    return frame.withColumn(_ROW, fn.row_number().over(rows)).where(f"{_ROW} = 1").drop(_ROW)


def _keys_are_set(sink: KeyedSink, frame: DataFrame) -> Column:
    """A condition that fails the query with a message if a key is NULL."""
    from pyspark.sql import functions as fn

    condition = " AND ".join(f"{quoted(name)} IS NOT NULL" for name in sink.keys)
    names = ", ".join(sink.keys).replace("'", "")
    advice = (
        f'. A key must not be NULL: remove such rows with a step, or set require = ["{names.split(", ")[0]} IS NOT '
        'NULL"] for the source to make them dead letters'
    )
    text = f"concat('a key ({names}) is NULL', {record_place(frame.columns)}, '{advice}')"
    return fn.expr(f"IF({condition}, true, CAST(raise_error({text}) AS BOOLEAN))")


def _sequence(sink: KeyedSink) -> list[str]:
    return [sink.sequence] if sink.sequence else []


def keeps_origin(sink: KeyedSink) -> bool:
    """Whether the table has the origin of its rows, if the input has it."""
    return not sink.keys if sink.origin is None else sink.origin


def _dropped(sink: KeyedSink) -> tuple[str, ...]:
    origin = ("_key",) if keeps_origin(sink) else ORIGIN
    return (*origin, "_headers", *sink.exclude)


def _aggregates(plan: Any) -> bool:
    """Whether a plan has an aggregation, which gives one row per group and batch."""
    children = plan.children()
    return plan.nodeName() == "Aggregate" or any(_aggregates(children.apply(i)) for i in range(children.size()))
