"""Follow the columns of a pipeline from its sources and tables through the steps to its sinks.

The steps are declared, so most of it is known without Spark: a dedupe keeps columns, a window groups and aggregates, a
join adds columns, and SQL is parsed. A Python step can do anything, so nothing is known about columns behind it.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.spark.pipelines.checks.modes import input_of
from ottla.spark.pipelines.declaration import (
    DELETED,
    ORIGIN,
    VALID_FROM,
    VALID_TO,
    VERSION,
    Dedupe,
    Join,
    Latest,
    Pipeline,
    Session,
    Sql,
    Step,
    TopicSink,
    Window,
)
from ottla.spark.pipelines.lineage.queries import (
    AGGREGATION,
    FILTER,
    GROUP_BY,
    IDENTITY,
    JOIN,
    TRANSFORMATION,
    Column,
    Columns,
    Origins,
    Read,
    farther,
    merged,
    read_expression,
    read_query,
)
from ottla.spark.pipelines.shared.layout import sql_of
from ottla.spark.pipelines.steps import event_time_of

#: Rules that remove rows.
_REMOVING = ("drop", "dead-letter", "fail")


def trace(pipeline: Pipeline, views: Columns) -> dict[str, Read]:
    """For each source, table and step: which columns of sources and tables its columns are made of.

    `views` has the columns of all of them, as Spark knows them.
    """
    found: dict[str, Read] = {}
    for name in [*(one.name for one in pipeline.sources), *(one.name for one in pipeline.tables)]:
        found[name] = Read(_kept(name, views.get(name, ())))
        found[name].rows |= _removing(pipeline, name, found[name])
    for source in pipeline.sources:
        found[source.name].rows |= _used(source.require, source.name, found[source.name], FILTER)
    for step in pipeline.steps:
        columns = views.get(step.name, ())
        read = _step(pipeline, step, {name: list(one.columns) for name, one in found.items()})
        made = _through(read, found, columns)
        found[step.name] = made
        made.rows |= _removing(pipeline, step.name, made)
    return found


def _through(read: Read | None, before: dict[str, Read], columns: Sequence[str]) -> Read:
    """A step by the columns of its inputs, as a step by those of sources and tables."""
    if read is None:
        return Read(dict.fromkeys(columns))
    known = {name.lower(): one for name, one in read.columns.items()}
    made = Read({name: _followed(known.get(name.lower()), before) for name in columns})
    used = {one.view for origins in read.columns.values() for one in origins or {}} | {one.view for one, _ in read.rows}
    made.rows = {row for name in used if name in before for row in before[name].rows}
    for column, how in read.rows:
        made.rows |= {(one, how) for one in _followed({column: IDENTITY}, before) or {}}
    return made


def _followed(origins: Origins | None, before: dict[str, Read]) -> Origins | None:
    if origins is None:
        return None
    parts: list[Origins | None] = []
    for column, how in origins.items():
        behind = before[column.view].columns.get(column.name) if column.view in before else None
        parts.append(None if behind is None else {one: farther(how, other) for one, other in behind.items()})
    return merged(parts)


def _step(pipeline: Pipeline, step: Step, views: Columns) -> Read | None:
    """A step by the columns of its inputs; None if it cannot be told."""
    if isinstance(step, Sql):
        return read_query(sql_of(pipeline, step), views)
    name = input_of(pipeline, step) or ""
    columns = views.get(name, ())
    if isinstance(step, Dedupe):
        return Read(_kept(name, columns), {(Column(name, one), FILTER) for one in step.keys})
    if isinstance(step, Window | Session):
        return _window(pipeline, step, name, columns)
    if isinstance(step, Latest):
        return _latest(step, name, columns)
    if isinstance(step, Join):
        return _join(step, name, columns, views.get(step.join, ()))
    return None


def _kept(view: str, columns: Sequence[str]) -> dict[str, Origins | None]:
    return {one: {Column(view, one): IDENTITY} for one in columns}


def _window(pipeline: Pipeline, step: Window | Session, view: str, columns: Sequence[str]) -> Read:
    time = Column(view, event_time_of(pipeline, step, columns))
    bound: Origins = {time: TRANSFORMATION}
    found: dict[str, Origins | None] = {"window_start": bound, "window_end": bound}
    found |= _kept(view, step.group_by)
    found |= {name: read_expression(sql, view, columns) for name, sql in step.aggregate.items()}
    return Read(found, {(one, GROUP_BY) for one in (time, *(Column(view, name) for name in step.group_by))})


def _latest(step: Latest, view: str, columns: Sequence[str]) -> Read:
    """Rows are kept or replaced by their keys and sequence."""
    order = [Column(view, name) for name in step.order]
    found = _kept(view, columns)
    found[DELETED] = read_expression(step.deletes or "false", view, columns)
    found[VERSION] = dict.fromkeys(order, TRANSFORMATION)
    found[VALID_FROM], found[VALID_TO] = {order[0]: IDENTITY}, {order[0]: AGGREGATION}
    return Read(found, {(one, FILTER) for one in (*order, *(Column(view, name) for name in step.keys))})


def _join(step: Join, view: str, columns: Sequence[str], others: Sequence[str]) -> Read:
    found = _kept(view, columns)
    if step.how not in ("semi", "anti"):
        added = [name for name in others if name not in step.on and name not in (*ORIGIN, "_headers")]
        found |= {f"{step.prefix or ''}{name}": {Column(step.join, name): IDENTITY} for name in added}
    if step.how in ("right", "full"):
        for name in step.on:
            found[name] = merged([found.get(name), {Column(step.join, name): IDENTITY}])
    return Read(found, {(Column(one, name), JOIN) for name in step.on for one in (view, step.join)})


def _removing(pipeline: Pipeline, name: str, read: Read) -> set[tuple[Column, str]]:
    """The columns of the rules that remove rows of a source or step."""
    rules = [one.that for one in pipeline.expects if input_of(pipeline, one) == name and one.otherwise in _REMOVING]
    return _used(rules, name, read, FILTER)


def _used(expressions: Sequence[str], name: str, read: Read, how: str) -> set[tuple[Column, str]]:
    found = [read_expression(one, name, list(read.columns)) for one in expressions]
    followed = [_followed(one, {name: read}) for one in found]
    return {(column, how) for one in followed for column in one or {}}


def of_topic(sink: TopicSink, view: str, traced: Read) -> Read:
    """The fields of the records that a topic gets: those of the JSON value, or `value` if SQL makes it."""
    columns = [name for name in traced.columns if name not in (*ORIGIN, "_headers")]
    made: dict[str, Origins | None] = {}
    if sink.value is not None:
        made["value"] = _followed(read_expression(sink.value, view, columns), {view: traced})
    else:
        made |= {name: traced.columns[name] for name in columns}
    return Read(made, set(traced.rows))
