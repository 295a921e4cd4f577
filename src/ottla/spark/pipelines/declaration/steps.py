"""Declared steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from ottla.spark.pipelines.declaration.base import Where, caller, doc


@dataclass(frozen=True, kw_only=True)
class Step:
    """A transformation. Later steps and sinks use its result by `name`."""

    title: ClassVar[str] = "[[step]]"
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
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
class Latest(Step):
    """Applies changes: the newest row of each key, or all versions of it. The sinks store the result."""

    title: ClassVar[str] = "[[step]] with latest"
    keys: Sequence[str] = field(
        metadata=doc("The columns that identify a row. In TOML: `latest`.", key="latest", example='["id"]')
    )
    sequence: str | Sequence[str] = field(
        metadata=doc(
            "The column that says which of two changes is newer: a whole number, a date, a timestamp or text. Several "
            'columns are compared one after the other: `["ts", "lsn"]`.',
            example='"ts"',
        )
    )
    deletes: str | None = field(
        default=None,
        metadata=doc("A SQL condition. A change for which it is true deletes the row: `op = 'd'`.", sql="expression"),
    )
    history: bool = field(
        default=False,
        metadata=doc("Keep all versions of a row, with valid_from and valid_to. Default: keep the newest one."),
    )
    exclude: Sequence[str] = field(
        default=(), metadata=doc("Columns that are not stored, such as those that only deletes needs.")
    )

    @property
    def order(self) -> list[str]:
        """The columns of `sequence`."""
        return [self.sequence] if isinstance(self.sequence, str) else list(self.sequence)


STEPS: dict[str, type[Step]] = {
    "sql": Sql,
    "sql_file": Sql,
    "python": Python,
    "dedupe": Dedupe,
    "window": Window,
    "session": Session,
    "join": Join,
    "latest": Latest,
}
