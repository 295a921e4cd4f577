"""Find all problems in a pipeline that can be found before Spark starts.

A part with values of a wrong type is not checked further, so that one mistake gives one message.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar

from ottla.errors import ConfigError
from ottla.spark.options import OptionError, ReadOptions, WriteOptions
from ottla.spark.pipelines.checks.avro import registry_problems
from ottla.spark.pipelines.checks.databases import database_problems
from ottla.spark.pipelines.checks.functions import function_problems
from ottla.spark.pipelines.checks.joins import join_problems
from ottla.spark.pipelines.checks.lakes import keyed_problems, lake_problems
from ottla.spark.pipelines.checks.latest import latest_problems, latest_sink_problems
from ottla.spark.pipelines.checks.modes import input_of, mode_problems
from ottla.spark.pipelines.checks.monitoring import events_problems, lineage_problems
from ottla.spark.pipelines.checks.registry import registry_source_problems
from ottla.spark.pipelines.checks.rules import limit_problems, rule_problems
from ottla.spark.pipelines.checks.sql import statement_problems
from ottla.spark.pipelines.checks.values import value_problems
from ottla.spark.pipelines.debezium import ADDED, TIME
from ottla.spark.pipelines.declaration import (
    DEAD_LETTERS,
    RESERVED,
    SHARED,
    DatabaseSink,
    DeadLetters,
    Declared,
    Dedupe,
    Events,
    Expect,
    FileSink,
    JdbcSink,
    Join,
    LakeSink,
    Latest,
    Lineage,
    Pipeline,
    Problem,
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
from ottla.spark.pipelines.options import kafka_problems, read_options, write_options
from ottla.spark.pipelines.registry import columns
from ottla.spark.pipelines.schemas import Schema, SchemaError, SchemaUnreachable, from_ddl, from_file
from ottla.spark.pipelines.shared.layout import could_share
from ottla.spark.pipelines.times import AVAILABLE_NOW, ONCE, interval
from ottla.suggestions import did_you_mean

_Part = TypeVar("_Part", bound=Declared)
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
#: Not a field of a struct, and not a column of the origin.
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_SINK = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SHARED = "sources, tables and steps need distinct names"
_TIMES = ("timestamp", "timestamp_ntz")
_WITH_SCHEMA = ("json", "csv", "debezium")
_PATTERN = "*?["


def check(pipeline: Pipeline) -> list[Problem]:
    """All problems in the order of lines; empty if the pipeline is valid."""
    return sorted(_Check(pipeline).problems())


class _Check:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._wrong: set[int] = set()
        """The ids of parts with values of a wrong type."""

    def problems(self) -> Iterator[Problem]:
        found = value_problems(self._pipeline, self._pipeline)
        yield from found
        if not _parts_fit(self._pipeline):
            return
        for part in self._parts():
            problems = value_problems(part, self._pipeline)
            if problems:
                self._wrong.add(id(part))
            yield from problems
        yield from self._names()
        if not found:
            yield from self._whole()
        for source in self._sound(self._pipeline.sources):
            yield from self._source(source)
        for table in self._sound(self._pipeline.tables):
            yield from self._table(table)
        yield from self._steps()
        for rule in self._sound(self._pipeline.expects):
            yield from self._rule(rule)
        for sink in self._sound(self._pipeline.sinks):
            yield from self._sink(sink)
        if self._pipeline.dead_letters and id(self._pipeline.dead_letters) not in self._wrong:
            yield from self._dead_letters(self._pipeline.dead_letters)
        for lineage in self._sound([self._pipeline.lineage] if self._pipeline.lineage else []):
            yield from lineage_problems(lineage)
        for events in self._sound([self._pipeline.events] if self._pipeline.events else []):
            yield from events_problems(events)
        if not self._wrong:
            yield from mode_problems(self._pipeline)

    def _parts(self) -> list[Declared]:
        pipeline = self._pipeline
        single = [one for one in (pipeline.dead_letters, pipeline.lineage, pipeline.events) if one is not None]
        return [
            *pipeline.sources,
            *pipeline.tables,
            *pipeline.steps,
            *pipeline.expects,
            *pipeline.sinks,
            *single,
        ]

    def _sound(self, parts: Iterable[_Part]) -> list[_Part]:
        return [part for part in parts if id(part) not in self._wrong]

    def _whole(self) -> Iterator[Problem]:
        pipeline = self._pipeline
        if not pipeline.sources:
            yield pipeline.where.problem(
                "the pipeline has no source: add [[source]] with name, topics and format", "source"
            )
        if not pipeline.sinks:
            yield pipeline.where.problem("the pipeline has no sink: add [[sink]] with name and format", "sink")
        if pipeline.trigger not in (AVAILABLE_NOW, ONCE):
            try:
                interval(pipeline.trigger)
            except ValueError as error:
                near = did_you_mean(pipeline.trigger, (AVAILABLE_NOW, ONCE))
                yield pipeline.where.problem(
                    f"trigger must be {AVAILABLE_NOW}, {ONCE}, or {str(error).removeprefix('must be ')}.{near}",
                    "trigger",
                )
        for name, message in kafka_problems(pipeline.kafka):
            yield pipeline.where.problem(message, f"kafka.{name}")
        for name in pipeline.spark:
            if not name.startswith("spark."):
                yield pipeline.where.problem(f"Spark settings start with spark.: write spark.{name}", f"spark.{name}")

    def _names(self) -> Iterator[Problem]:
        pipeline = self._pipeline
        yield from _distinct(
            [*pipeline.sources, *pipeline.tables, *pipeline.steps], _VIEW, "letters, digits and _", _SHARED
        )
        yield from _distinct(pipeline.sinks, _SINK, "letters, digits, _, . and -", "choose another")
        yield from self._same_paths()
        yield from _distinct(pipeline.expects, _SINK, "letters, digits, _, . and -", "choose another")
        for sink in pipeline.sinks:
            first = str(sink.name).partition(".")[0]
            if first in (DEAD_LETTERS, SHARED):
                yield sink.where.problem(f"the name {first} is reserved: rename the sink", "name")

    def _same_paths(self) -> Iterator[Problem]:
        seen: dict[str, FileSink] = {}
        for sink in self._sound(self._pipeline.sinks):
            if isinstance(sink, FileSink) and sink.path:
                first = seen.setdefault(self._pipeline.path(sink.path).rstrip("/"), sink)
                if first is not sink:
                    yield sink.where.problem(
                        f"sink {first.name} writes to the same path: each would skip batches of the other and lose "
                        "rows. Set another path, or combine both inputs with UNION ALL in one sink",
                        "path",
                    )

    # ── Sources and tables ───────────────────────────────────────────────────────────────────────────────────────────

    def _source(self, source: Source) -> Iterator[Problem]:
        yield from self._reading(source)
        schema, problems = self._schema(source, source.format)
        yield from problems
        if problems:
            return
        for name in schema.names if schema else ():
            if name.lower() in (*RESERVED, *(ADDED if source.format == "debezium" else ())):
                yield source.where.problem(f"column {name} is reserved for the origin of records: rename it", "schema")
        if source.event_time and schema:
            yield from _event_time(source, source.event_time, schema)
        if source.watermark and not source.event_time:
            yield source.where.problem(
                'watermark requires event_time: a column, or "_timestamp" for the record timestamp', "watermark"
            )
        if source.on_error == DEAD_LETTERS and self._pipeline.dead_letters is None:
            yield source.where.problem("on_error = dead-letters requires [dead_letters] with a topic", "on_error")
        yield from registry_problems(self._pipeline, source, source.format)
        if source.null_values == "keep" and source.format not in ("text", "bytes"):
            yield source.where.problem(
                f"null_values = keep requires format text or bytes, not {source.format}", "null_values"
            )
        if source.options and source.format not in _WITH_SCHEMA:
            text = f"options require format json, csv or debezium, not {source.format}"
            yield source.where.problem(text, "options")

    def _reading(self, source: Source) -> Iterator[Problem]:
        """Problems that the data source would report, with the keys of the declaration."""
        given = [key for key in ("topics", "pattern", "assign") if getattr(source, key)]
        if len(given) != 1:
            found = f"{' and '.join(given)} are set" if given else "none is set"
            yield source.where.problem(
                f"set exactly one of topics, pattern and assign: {found}", (given or ["name"])[-1]
            )
            return
        if not (source.bootstrap_servers or self._pipeline.bootstrap_servers):
            yield source.where.problem(
                'bootstrap_servers is missing: set it for the pipeline or this source, such as "localhost:9092"'
            )
            return
        options = read_options(self._pipeline, source, source.group_id, secrets=False)
        yield from self._kafka(source, partial(ReadOptions.of, options, streaming=True), writing=False)
        try:
            ReadOptions.of(_without_kafka(options), streaming=True)
        except OptionError as error:
            yield self._wrong_option(source, error)

    def _wrong_option(self, part: Source | TopicSink | DeadLetters, error: OptionError) -> Problem:
        message, key = _translated(str(error))
        inherited = key == "bootstrap_servers" and part.bootstrap_servers is None
        return (self._pipeline if inherited else part).where.problem(message, key)

    def _schema(self, part: Source | Table, kind: str) -> tuple[Schema | None, list[Problem]]:
        registered = isinstance(part, Source) and part.registry
        key = "schema_file" if part.schema_file else "registry" if registered else "schema"
        if part.schema and part.schema_file:
            return None, [part.where.problem("schema and schema_file are both set: remove one", "schema_file")]
        if kind in ("text", "bytes") and (part.schema or part.schema_file):
            return None, [part.where.problem(f"{kind} has the fixed column value: remove {key}", key)]
        if kind == "avro" and importlib.util.find_spec("fastavro") is None:
            return None, [part.where.problem("avro requires fastavro: pip install 'ottla[avro]'", "format")]
        if isinstance(part, Source) and (problems := list(registry_source_problems(part))):
            return None, problems
        if key != "registry" and kind == "avro" and (part.schema or not (part.schema_file or "").endswith(".avsc")):
            return None, [part.where.problem('avro requires a schema file: schema_file = "….avsc"', key)]
        if kind in _WITH_SCHEMA and isinstance(part, Source) and not (part.schema or part.schema_file):
            text = f'{kind} requires a schema, such as schema = "id BIGINT NOT NULL, total DOUBLE"'
            return None, [part.where.problem(text)]
        try:
            return declared_schema(part, self._pipeline), []
        except SchemaError as error:
            is_passing = isinstance(error, SchemaUnreachable)
            return None, [part.where.problem(f"{key}: {error}", key, is_passing=is_passing)]

    def _table(self, table: Table) -> Iterator[Problem]:
        if table.format == "topic":
            if not table.topic:
                yield table.where.problem("a table with format topic requires topic", "format")
            elif table.path:
                yield table.where.problem("a topic has no path: remove path", "path")
            if table.value_format in _WITH_SCHEMA and not (table.schema or table.schema_file):
                yield table.where.problem(
                    f'{table.value_format} requires a schema, such as schema = "id BIGINT, name STRING"'
                )
                return
            problems = self._schema(table, table.value_format)[1]
            yield from problems or registry_problems(self._pipeline, table, table.value_format)
            return
        yield from self._schema(table, "")[1] or registry_problems(self._pipeline, table, "")
        if not table.path:
            yield table.where.problem("path is missing: set the file or directory of the table")
        elif _is_local(path := self._pipeline.path(table.path)) and not _exists(path):
            yield table.where.problem(f"file or directory {path} not found", "path")
        elif table.refresh and any(sign in table.path for sign in _PATTERN):
            text = "refresh cannot find new files of a pattern: put the files into a directory, and use it as path"
            yield table.where.problem(text, "path")

    # ── Steps and sinks ──────────────────────────────────────────────────────────────────────────────────────────────

    def _steps(self) -> Iterator[Problem]:
        pipeline = self._pipeline
        before = [source.name for source in pipeline.sources]
        tables = [table.name for table in pipeline.tables]
        for number, step in enumerate(pipeline.steps):
            if id(step) not in self._wrong and type(step) is not Step:
                if not isinstance(step, Sql):
                    only = number > 0 or len(before) == 1
                    yield from _input(step, step.input, before, tables, pipeline.steps[number:], only)
                if isinstance(step, Join):
                    later = [one.name for one in pipeline.steps[number:]]
                    yield from join_problems(pipeline, step, tables, before, later)
                yield from self._step(step)
                yield from self._columns(step)
            before.append(step.name)

    def _step(self, step: Step) -> Iterator[Problem]:
        if isinstance(step, Sql):
            if step.input is not None:
                yield step.where.problem("a SQL step names its inputs in FROM: remove input", "input")
            if bool(step.sql) == bool(step.sql_file):
                yield step.where.problem("a SQL step requires either sql or sql_file", "sql_file")
            yield from statement_problems(self._pipeline, step)
        elif isinstance(step, Python):
            yield from function_problems(self._pipeline, step)
        elif isinstance(step, Latest):
            yield from latest_problems(self._pipeline, step)
        elif isinstance(step, Dedupe) and not step.keys:
            yield step.where.problem('dedupe is empty: name the key columns, such as dedupe = ["id"]', "dedupe")
        elif isinstance(step, Window | Session) and not step.aggregate:
            yield step.where.problem(
                'aggregate is empty: add columns, such as aggregate = {orders = "count(*)"}', "aggregate"
            )
        elif isinstance(step, Session) and not step.group_by:
            yield step.where.problem('group_by is empty: Spark needs one, such as group_by = ["user"]', "group_by")

    def _columns(self, step: Step) -> Iterator[Problem]:
        """Columns of a step right after a source, whose schema is known without Spark."""
        given = input_of(self._pipeline, step)
        source = next((one for one in self._sound(self._pipeline.sources) if one.name == given), None)
        schema = None if source is None else self._schema(source, source.format)[0]
        if source is None or schema is None:
            return
        known = {name.lower() for name in schema.names}
        for key, names in _named(step).items():
            for name in names:
                if _PLAIN.fullmatch(name) and name.lower() not in known:
                    near = did_you_mean(name, schema.names)
                    has = f"{source.name} has {', '.join(schema.names)}"
                    yield step.where.problem(f"{key}: column {name} does not exist.{near} {has}", key)

    def _rule(self, rule: Expect) -> Iterator[Problem]:
        problems = list(self._end_input(rule))
        yield from problems or rule_problems(self._pipeline, rule)

    def _end_input(self, part: Expect | Sink) -> Iterator[Problem]:
        """Problems with the input of a part that may use all steps."""
        pipeline = self._pipeline
        before = [source.name for source in pipeline.sources] + [step.name for step in pipeline.steps]
        tables = [table.name for table in pipeline.tables]
        only = bool(pipeline.steps) or len(pipeline.sources) == 1
        yield from _input(part, part.input, before, tables, (), only)

    def _sink(self, sink: Sink) -> Iterator[Problem]:
        yield from self._end_input(sink)
        yield from latest_sink_problems(self._pipeline, sink)
        if isinstance(sink, FileSink) and not sink.path:
            yield sink.where.problem("path is missing: set the output directory")
        if sink.max_delay is not None and (self._pipeline.read == "separate" or not could_share(sink)):
            yield sink.where.problem(
                "max_delay has no effect: this sink reads by itself, so no other sink waits for it. Remove max_delay",
                "max_delay",
            )
        if isinstance(sink, TopicSink):
            yield from self._writing(sink, sink.topic)
            if "{topic}" in sink.topic:
                yield sink.where.problem("{topic} works only for dead letters: name the topic", "topic")
        elif isinstance(sink, JdbcSink):
            yield from keyed_problems(sink)
            if not sink.url.startswith("jdbc:"):
                text = f"url must start with jdbc:, such as jdbc:postgresql://host/db, not {sink.url}"
                yield sink.where.problem(text, "url")
        elif isinstance(sink, LakeSink):
            yield from lake_problems(sink)
        elif isinstance(sink, DatabaseSink):
            yield from database_problems(self._pipeline, sink)

    def _writing(self, sink: TopicSink | DeadLetters, topic: str) -> Iterator[Problem]:
        if not (sink.bootstrap_servers or self._pipeline.bootstrap_servers):
            yield sink.where.problem('bootstrap_servers is missing, such as "localhost:9092"')
            return
        options = write_options(self._pipeline, sink, topic, secrets=False)
        yield from self._kafka(sink, partial(WriteOptions.of, options), reading=False)
        try:
            WriteOptions.of(_without_kafka(options))
        except OptionError as error:
            yield self._wrong_option(sink, error)

    def _kafka(
        self, part: Source | TopicSink | DeadLetters, together: Callable[[], object], **kinds: bool
    ) -> Iterator[Problem]:
        """The problems of client configs: of single ones, or else of the part's and the pipeline's together."""
        alone = list(kafka_problems(part.kafka, **kinds))
        for name, message in alone:
            yield part.where.problem(message, f"kafka.{name}")
        if alone or any(kafka_problems(self._pipeline.kafka)):
            return
        try:
            together()
        except ConfigError as error:
            yield part.where.problem(str(error), "kafka")
        except OptionError:
            pass  # Another check reports it.

    def _dead_letters(self, letters: DeadLetters) -> Iterator[Problem]:
        yield from self._writing(letters, letters.topic)
        yield from limit_problems(letters)
        elsewhere = letters.bootstrap_servers not in (None, self._pipeline.bootstrap_servers)
        for source in self._sound(self._pipeline.sources):
            names = {letters.topic.replace("{topic}", topic) for topic in source.topics}
            if not elsewhere and names & set(source.topics):
                text = f"source {source.name} reads {letters.topic}, so dead letters would loop: use another topic"
                yield letters.where.problem(text, "topic")


def declared_schema(part: Source | Table, pipeline: Pipeline) -> Schema | None:
    """The declared schema of a source or table, if any; that of a registry is asked for."""
    if part.schema_file:
        return from_file(Path(pipeline.path(part.schema_file)))
    if isinstance(part, Source) and part.registry and part.format in ("avro", "protobuf"):
        return columns(part)
    return from_ddl(part.schema) if part.schema else None


def _parts_fit(pipeline: Pipeline) -> bool:
    kinds: tuple[tuple[object, type], ...] = (
        (pipeline.sources, Source),
        (pipeline.tables, Table),
        (pipeline.steps, Step),
        (pipeline.expects, Expect),
        (pipeline.sinks, Sink),
    )
    single: tuple[tuple[object, type], ...] = (
        (pipeline.dead_letters, DeadLetters),
        (pipeline.lineage, Lineage),
        (pipeline.events, Events),
    )
    return all(
        isinstance(parts, list | tuple) and all(isinstance(one, kind) for one in parts) for parts, kind in kinds
    ) and all(part is None or isinstance(part, kind) for part, kind in single)


def _distinct(
    parts: Sequence[Source | Table | Step | Expect | Sink], form: re.Pattern[str], words: str, shared: str
) -> Iterator[Problem]:
    seen: dict[str, Declared] = {}
    for part in parts:
        given: object = part.name
        if not isinstance(given, str) or not given:
            continue
        if not form.fullmatch(part.name):
            yield part.where.problem(f"name must consist of {words}, not {part.name!r}", "name")
        first = seen.setdefault(part.name.lower(), part)
        if first is not part:
            at = f" (line {first.where.line})" if first.where.line else ""
            yield part.where.problem(f"the name {part.name} is already used{at}: {shared}", "name")


def _input(
    part: Step | Expect | Sink,
    given: str | None,
    known: Sequence[str],
    tables: Sequence[str],
    later: Sequence[Step],
    only: bool,
) -> Iterator[Problem]:
    if given is None:
        if not only and known:
            yield part.where.problem(f"input is missing: choose one of {', '.join(known)}")
    elif given not in known:
        if given in [one.name for one in later]:
            yield part.where.problem(f"input {given} is declared later: move it before this step", "input")
        elif given in tables:
            yield part.where.problem(f"input {given} is a table: join it, or use a source or step as input", "input")
        else:
            near = did_you_mean(given, known)
            yield part.where.problem(f"source or step {given} does not exist.{near}", "input")


def _named(step: Step) -> dict[str, Sequence[str]]:
    """The columns that a step names, by key."""
    if isinstance(step, Dedupe):
        return {"dedupe": step.keys}
    if isinstance(step, Latest):
        return {"latest": step.keys, "sequence": step.order}
    return {"group_by": step.group_by} if isinstance(step, Window | Session) else {}


def _event_time(source: Source, name: str, schema: Schema) -> Iterator[Problem]:
    found = schema.column(name)
    if name == "_timestamp" or (source.format == "debezium" and name == TIME):
        return
    if found is None:
        near = did_you_mean(name, (*schema.names, "_timestamp"))
        yield source.where.problem(f"event_time {name} is not a column of the schema.{near}", "event_time")
    elif found.type.name not in _TIMES:
        text = f"event_time must be a TIMESTAMP, but {name} is {found.type.ddl().upper()}: change the schema"
        yield source.where.problem(f"{text}, or set event_time in a step that has such a column", "event_time")


def _translated(message: str) -> tuple[str, str | None]:
    """Translate option names in a message to the keys of the declaration; returns the key, too."""
    names = {
        "startingOffsets": "starting_offsets",
        "startingTimestamp": "starting_timestamp",
        "subscribePattern": "pattern",
        "subscribe": "topics",
        "maxOffsetsPerTrigger": "max_offsets_per_trigger",
        "kafka.bootstrap.servers": "bootstrap_servers",
        "group.id": "group_id",
    }
    key = None
    for theirs, ours in names.items():
        if theirs in message:
            message, key = message.replace(f"option {theirs}", ours).replace(theirs, ours), key or ours
    return message, key


def _without_kafka(options: dict[str, str]) -> dict[str, str]:
    """Drop client configs, which are checked separately, and `deliver`."""
    kept = ("kafka.bootstrap.servers",)
    return {
        name: value for name, value in options.items() if name in kept or not name.startswith(("kafka.", "deliver"))
    }


def _is_local(path: str) -> bool:
    return "://" not in path and ":" not in path.split("/")[0]


def _exists(path: str) -> bool:
    if any(sign in path for sign in _PATTERN):
        parent = Path(path).parent
        return any(sign in str(parent) for sign in "*?[") or any(parent.glob(Path(path).name))
    return Path(path).exists()
