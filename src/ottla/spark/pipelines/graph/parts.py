"""The boxes and arrows of a pipeline."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from ottla.spark.pipelines.checks.modes import input_of, joins_stream
from ottla.spark.pipelines.declaration import (
    DEAD_LETTERS,
    ConsoleSink,
    DatabaseSink,
    Dedupe,
    FileSink,
    JdbcSink,
    Join,
    LakeSink,
    Latest,
    Pipeline,
    Python,
    Session,
    Sink,
    Source,
    Sql,
    Step,
    Table,
    TopicSink,
    Window,
)
from ottla.spark.pipelines.shared.layout import expected

SOURCE, TABLE, STEP, SINK, DEAD = "source", "table", "step", "sink", "dead"
SQL_LINES, SQL_CHARACTERS = 3, 34


@dataclass(frozen=True, slots=True)
class Box:
    """A part of the pipeline. `key` is unique: a sink may have the name of a step."""

    key: str
    kind: str
    title: str
    lines: tuple[str, ...]
    more: str = ""
    """What the mouse shows: the whole SQL or schema."""


@dataclass(frozen=True, slots=True)
class Arrow:
    start: str
    end: str
    kind: str = ""
    """The kind of the box that gives the arrow its look: a table or dead letters."""


def boxes(pipeline: Pipeline) -> list[Box]:
    shared = expected(pipeline)
    found = [_source(pipeline, one, shared.get(one.name, [])) for one in pipeline.sources]
    found += [_table(one) for one in pipeline.tables]
    found += [_step(pipeline, one) for one in pipeline.steps]
    sharing = {name for names in shared.values() for name in names}
    found += [_sink(one, reads_alone=bool(shared) and one.name not in sharing) for one in pipeline.sinks]
    letters = pipeline.dead_letters
    if letters is not None and any(map(pipeline.sends_dead_letters, pipeline.sources)):
        found.append(Box(DEAD, DEAD, "dead letters", (f"topic {letters.topic}", letters.deliver)))
    return found


def arrows(pipeline: Pipeline) -> list[Arrow]:
    known: dict[str, str] = {one.name: f"{SOURCE} {one.name}" for one in pipeline.sources}
    known |= {one.name: f"{TABLE} {one.name}" for one in pipeline.tables}
    found: list[Arrow] = []
    for step in pipeline.steps:
        key = f"{STEP} {step.name}"
        found += [_arrow(known[name], key) for name in _inputs(pipeline, step, known) if name in known]
        known[step.name] = key
    for sink in pipeline.sinks:
        name = input_of(pipeline, sink)
        if name in known:
            found.append(_arrow(known[name], f"{SINK} {sink.name}"))
    for source in pipeline.sources:
        if pipeline.sends_dead_letters(source):
            found.append(Arrow(f"{SOURCE} {source.name}", DEAD, DEAD))
    return found


def _arrow(start: str, end: str) -> Arrow:
    return Arrow(start, end, TABLE if start.startswith(f"{TABLE} ") else "")


def _inputs(pipeline: Pipeline, step: Step, known: Iterable[str]) -> Sequence[str]:
    if isinstance(step, Sql):
        return named_in(_query(pipeline, step), known)
    name = input_of(pipeline, step)
    return [*([name] if name else []), *([step.join] if isinstance(step, Join) else [])]


_NOISE = re.compile(r"--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'", re.DOTALL)
_RELATIONS = re.compile(r"\b(?:from|join)\s+((?:`?\w+`?(?:\s+(?:as\s+)?\w+)?\s*,\s*)*`?\w+`?)", re.IGNORECASE)


def named_in(sql: str, names: Iterable[str]) -> list[str]:
    """The names that a query reads from, as far as its text tells.

    >>> named_in("SELECT count(*) AS tables FROM Orders o JOIN `customers` c -- FROM tables", ["orders", "customers"])
    ['orders', 'customers']
    """
    relations = [one for found in _RELATIONS.findall(_NOISE.sub(" ", sql)) for one in found.split(",")]
    read = {one.split()[0].strip("`").lower() for one in relations if one.split()}
    return [name for name in names if name.lower() in read]


def _query(pipeline: Pipeline, step: Sql) -> str:
    if step.sql is not None:
        return step.sql
    try:
        return Path(pipeline.path(step.sql_file or "")).read_text()
    except OSError:
        return ""


# ── Texts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _source(pipeline: Pipeline, source: Source, readers: Sequence[str]) -> Box:
    topics = ", ".join([*source.topics, *(source.assign or {})]) or f"topics like {source.pattern}"
    time = f"event time {source.event_time}" if source.event_time else ""
    late = f"watermark {source.watermark}" if source.watermark else ""
    names = ["dead letters" if one.startswith(f"{DEAD_LETTERS}.") else one for one in readers]
    shared = f"one read for {', '.join(names)}" if names else ""
    lines = (f"{source.format} from {topics}", ", ".join(filter(None, (time, late))), _rules(pipeline, source), shared)
    return Box(f"{SOURCE} {source.name}", SOURCE, source.name, _some(lines), source.schema or source.schema_file or "")


def _table(table: Table) -> Box:
    where = f"topic {table.topic}" if table.format == "topic" else f"{table.format} {table.path}"
    return Box(f"{TABLE} {table.name}", TABLE, table.name, (where,), table.schema or "")


def _step(pipeline: Pipeline, step: Step) -> Box:
    lines = _some((*_step_lines(pipeline, step), _rules(pipeline, step)))
    more = _query(pipeline, step).strip() if isinstance(step, Sql) else ""
    return Box(f"{STEP} {step.name}", STEP, step.name, lines, more)


def _step_lines(pipeline: Pipeline, step: Step) -> Iterator[str]:
    if isinstance(step, Sql):
        yield from wrap(_query(pipeline, step), SQL_CHARACTERS, max_lines=SQL_LINES, placeholder=" …")
    elif isinstance(step, Python):
        yield f"python {step.python}"
    elif isinstance(step, Dedupe):
        yield f"dedupe by {', '.join(step.keys)}"
        yield f"within {step.within}"
    elif isinstance(step, Latest):
        yield f"{'all versions' if step.history else 'the latest row'} by {', '.join(step.keys)}"
        yield f"in the order of {', '.join(step.order)}"
        yield f"deletes: {step.deletes}" if step.deletes else ""
    elif isinstance(step, Window):
        slide = f", every {step.slide}" if step.slide else ""
        yield f"window {step.window}{slide}"
        yield f"by {', '.join(step.group_by)}" if step.group_by else ""
        yield ", ".join(step.aggregate)
    elif isinstance(step, Session):
        yield f"sessions with a gap of {step.session}"
        yield f"by {', '.join(step.group_by)}"
        yield ", ".join(step.aggregate)
    elif isinstance(step, Join):
        how = step.how or ("inner" if joins_stream(pipeline, step) else "left")
        yield f"{how} join {step.join}"
        yield f"on {', '.join(step.on)}"
        yield f"within {_bound(step.within)}" if step.within else ""
    else:
        yield type(step).__name__.lower()


def _bound(within: str | Mapping[str, str]) -> str:
    return within if isinstance(within, str) else ", ".join(f"{value} {name}" for name, value in within.items())


def _rules(pipeline: Pipeline, part: Source | Step) -> str:
    names = [one.name for one in pipeline.expects if input_of(pipeline, one) == part.name]
    return f"rules: {', '.join(names)}" if names else ""


def _sink(sink: Sink, *, reads_alone: bool) -> Box:
    mode = f"mode {sink.mode}" if sink.mode else ""
    read = "a read of its own" if reads_alone else ""
    return Box(f"{SINK} {sink.name}", SINK, sink.name, _some((_place(sink), mode, read)))


def _place(sink: Sink) -> str:
    if isinstance(sink, TopicSink):
        return f"topic {sink.topic}"
    if isinstance(sink, FileSink):
        return f"{sink.format} {sink.path}"
    if isinstance(sink, LakeSink):
        return f"{sink.format} {sink.path or sink.table}"
    if isinstance(sink, JdbcSink):
        return f"jdbc {sink.table}"
    if isinstance(sink, DatabaseSink):
        return f"{sink.format} {sink.table}"
    return "console" if isinstance(sink, ConsoleSink) else type(sink).__name__


def _some(lines: Iterable[str]) -> tuple[str, ...]:
    return tuple(line for line in lines if line)
