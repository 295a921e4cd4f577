"""Everything that can be known to be wrong with a pipeline before Spark starts, all at once.

`check` takes a pipeline however it was made. A part whose values do not even fit their types is not looked into
further, so that one mistake gives one message.
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

from ottla.spark.options import OptionError, ReadOptions, WriteOptions
from ottla.spark.pipelines.check_functions import function_problems
from ottla.spark.pipelines.check_modes import mode_problems
from ottla.spark.pipelines.check_values import value_problems
from ottla.spark.pipelines.declaration import (
    DEAD_LETTERS,
    RESERVED,
    DeadLetters,
    Declared,
    Dedupe,
    FileSink,
    Join,
    Pipeline,
    Problem,
    Python,
    Sink,
    Source,
    Sql,
    Step,
    Table,
    TopicSink,
    Window,
)
from ottla.spark.pipelines.options import kafka_problems, read_options, write_options
from ottla.spark.pipelines.schemas import Schema, SchemaError, from_ddl, from_file
from ottla.spark.pipelines.times import AVAILABLE_NOW, ONCE, interval
from ottla.suggestions import did_you_mean

_Part = TypeVar("_Part", bound=Declared)
_VIEW = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SINK = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*")
_SHARED = "sources, tables and steps share their names"
_TIMES = ("timestamp", "timestamp_ntz")
_WITH_SCHEMA = ("json", "csv")


def check(pipeline: Pipeline) -> list[Problem]:
    """What is wrong, in the order of the lines; nothing if the pipeline can be tried."""
    return sorted(_Check(pipeline).problems())


class _Check:
    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._wrong: set[int] = set()
        """Parts whose values do not fit."""

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
        for sink in self._sound(self._pipeline.sinks):
            yield from self._sink(sink)
        if self._pipeline.dead_letters and id(self._pipeline.dead_letters) not in self._wrong:
            yield from self._dead_letters(self._pipeline.dead_letters)
        if not self._wrong:
            yield from mode_problems(self._pipeline)

    def _parts(self) -> list[Declared]:
        pipeline = self._pipeline
        letters = [pipeline.dead_letters] if pipeline.dead_letters else []
        return [*pipeline.sources, *pipeline.tables, *pipeline.steps, *pipeline.sinks, *letters]

    def _sound(self, parts: Iterable[_Part]) -> list[_Part]:
        return [part for part in parts if id(part) not in self._wrong]

    def _whole(self) -> Iterator[Problem]:
        pipeline = self._pipeline
        if not pipeline.sources:
            yield pipeline.problem("there is no source: add [[source]] with name, topics and format", "source")
        if not pipeline.sinks:
            yield pipeline.problem("there is no sink: add [[sink]] with name and format", "sink")
        if pipeline.trigger not in (AVAILABLE_NOW, ONCE):
            try:
                interval(pipeline.trigger)
            except ValueError as error:
                near = did_you_mean(pipeline.trigger, (AVAILABLE_NOW, ONCE))
                yield pipeline.problem(f"trigger is {AVAILABLE_NOW}, {ONCE}, or {str(error)[3:]}.{near}", "trigger")
        for name, message in kafka_problems(pipeline.kafka):
            yield pipeline.problem(message, f"kafka.{name}")
        for name in pipeline.spark:
            if not name.startswith("spark."):
                yield pipeline.problem(
                    f"names of Spark's configuration begin with spark.: spark.{name}?", f"spark.{name}"
                )

    def _names(self) -> Iterator[Problem]:
        pipeline = self._pipeline
        yield from _distinct(
            [*pipeline.sources, *pipeline.tables, *pipeline.steps], _VIEW, "letters, digits and _", _SHARED
        )
        yield from _distinct(pipeline.sinks, _SINK, "letters, digits, _, . and -", "choose another")
        for sink in pipeline.sinks:
            if sink.name == DEAD_LETTERS:
                yield sink.problem(f"a sink cannot be called {DEAD_LETTERS}: that is the query of dead letters", "name")

    # ── Sources and tables ───────────────────────────────────────────────────────────────────────────────────────────

    def _source(self, source: Source) -> Iterator[Problem]:
        yield from self._reading(source)
        schema, problems = self._schema(source, source.format)
        yield from problems
        if problems:
            return
        for name in schema.names if schema else ():
            if name.lower() in RESERVED:
                yield source.problem(f"column {name} would hide where records come from: rename it", "schema")
        if source.event_time and schema:
            yield from _event_time(source, source.event_time, schema)
        if source.watermark and not source.event_time:
            yield source.problem(
                'watermark needs event_time: a column, or "_timestamp" for that of records', "watermark"
            )
        if source.on_error == DEAD_LETTERS and self._pipeline.dead_letters is None:
            yield source.problem(
                "on_error = dead-letters needs a place for them: add [dead_letters] and topic", "on_error"
            )
        if source.confluent_header and source.format != "avro":
            yield source.problem(f"confluent_header is for avro, not for {source.format}", "confluent_header")
        if source.null_values == "keep" and source.format not in ("text", "bytes"):
            yield source.problem(f"null_values = keep is for text and bytes, not for {source.format}", "null_values")
        if source.options and source.format not in _WITH_SCHEMA:
            yield source.problem(f"options are for json and csv, not for {source.format}", "options")

    def _reading(self, source: Source) -> Iterator[Problem]:
        """What the data source itself would say, in the words of the declaration."""
        given = [key for key in ("topics", "pattern", "assign") if getattr(source, key)]
        if len(given) != 1:
            found = f"{' and '.join(given)} are given" if given else "none is given"
            yield source.problem(
                f"one of topics, pattern and assign says what to read: {found}", (given or ["name"])[-1]
            )
            return
        if not (source.bootstrap_servers or self._pipeline.bootstrap_servers):
            yield source.problem('bootstrap_servers is missing, for all or for this source, such as "localhost:9092"')
            return
        for name, message in kafka_problems(source.kafka, writing=False):
            yield source.problem(message, f"kafka.{name}")
        options = read_options(self._pipeline, source, source.group_id)
        try:
            ReadOptions.of(_without_kafka(options), streaming=True)
        except OptionError as error:
            message, key = _in_our_words(str(error))
            yield source.problem(message, key)

    def _schema(self, part: Source | Table, kind: str) -> tuple[Schema | None, list[Problem]]:
        key = "schema_file" if part.schema_file else "schema"
        if part.schema and part.schema_file:
            return None, [part.problem("schema and schema_file are both given: leave one of them out", "schema_file")]
        if kind in ("text", "bytes") and (part.schema or part.schema_file):
            return None, [part.problem(f"{kind} has one column, value: leave {key} out", key)]
        if kind == "avro" and importlib.util.find_spec("fastavro") is None:
            return None, [part.problem("avro needs fastavro: pip install 'ottla[avro]'", "format")]
        if kind == "avro" and (part.schema or not (part.schema_file or "").endswith(".avsc")):
            return None, [part.problem('avro needs its schema as a file: schema_file = "….avsc"', key)]
        if kind in _WITH_SCHEMA and isinstance(part, Source) and not (part.schema or part.schema_file):
            text = f'{kind} needs a schema, such as schema = "id BIGINT NOT NULL, total DOUBLE"'
            return None, [part.problem(text)]
        try:
            return declared_schema(part, self._pipeline), []
        except SchemaError as error:
            return None, [part.problem(f"{key}: {error}", key)]

    def _table(self, table: Table) -> Iterator[Problem]:
        if table.format == "topic":
            if not table.topic:
                yield table.problem("a table that is a topic needs topic, the name of it", "format")
            elif table.path:
                yield table.problem("a topic has no path: leave path out", "path")
            if table.value_format in _WITH_SCHEMA and not (table.schema or table.schema_file):
                yield table.problem(f'{table.value_format} needs a schema, such as schema = "id BIGINT, name STRING"')
                return
            yield from self._schema(table, table.value_format)[1]
            return
        yield from self._schema(table, "")[1]
        if not table.path:
            yield table.problem("path is missing: the file or directory of the table")
        elif _is_local(path := self._pipeline.path(table.path)) and not _exists(path):
            yield table.problem(f"there is no file or directory {path}", "path")

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
                yield from self._step(step, tables)
            before.append(step.name)

    def _step(self, step: Step, tables: Sequence[str]) -> Iterator[Problem]:
        if isinstance(step, Sql):
            if step.input is not None:
                yield step.problem("a step with sql names what it reads in its FROM: leave input out", "input")
            if bool(step.sql) == bool(step.sql_file):
                yield step.problem("a step with sql has either sql or sql_file", "sql_file")
        elif isinstance(step, Join):
            if step.table not in tables:
                near = did_you_mean(step.table, tables)
                yield step.problem(f"there is no table {step.table}: add [[table]] with that name.{near}", "join")
            if not step.on:
                yield step.problem('on is empty: name columns of both sides, such as on = ["customer"]', "on")
        elif isinstance(step, Python):
            yield from function_problems(self._pipeline, step)
        elif isinstance(step, Dedupe) and not step.keys:
            yield step.problem('dedupe is empty: name the columns of the key, such as dedupe = ["id"]', "dedupe")
        elif isinstance(step, Window) and not step.aggregate:
            yield step.problem('aggregate is empty: such as aggregate = {orders = "count(*)"}', "aggregate")

    def _sink(self, sink: Sink) -> Iterator[Problem]:
        pipeline = self._pipeline
        before = [source.name for source in pipeline.sources] + [step.name for step in pipeline.steps]
        tables = [table.name for table in pipeline.tables]
        only = bool(pipeline.steps) or len(pipeline.sources) == 1
        yield from _input(sink, sink.input, before, tables, (), only)
        if isinstance(sink, FileSink):
            if bool(sink.path) == bool(sink.table):
                yield sink.problem(
                    "path is missing: the directory to write to" if not sink.path else "path or table, not both"
                )
            elif sink.table and sink.format not in ("delta", "iceberg"):
                yield sink.problem(f"table is for delta and iceberg: give path to {sink.format}", "table")
            yield from self._package(sink)
        elif isinstance(sink, TopicSink):
            yield from self._writing(sink, sink.topic)
            if "{topic}" in sink.topic:
                yield sink.problem("{topic} is for dead letters only: name the topic", "topic")

    def _package(self, sink: FileSink) -> Iterator[Problem]:
        """Delta and Iceberg come as jars: without any setting that could bring them, they are not there."""
        brought = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath", "spark.submit.pyFiles")
        if sink.format in ("delta", "iceberg") and not any(name in self._pipeline.spark for name in brought):
            example = {
                "delta": "io.delta:delta-spark_2.13:<version>",
                "iceberg": "org.apache.iceberg:iceberg-spark-runtime-<spark>_2.13:<version>",
            }[sink.format]
            yield sink.problem(
                f'{sink.format} needs its package: set "spark.jars.packages" = "{example}" under [spark]',
                "format",
            )

    def _writing(self, sink: TopicSink | DeadLetters, topic: str) -> Iterator[Problem]:
        if not (sink.bootstrap_servers or self._pipeline.bootstrap_servers):
            yield sink.problem('bootstrap_servers is missing, such as "localhost:9092"')
            return
        for name, message in kafka_problems(sink.kafka, reading=False):
            yield sink.problem(message, f"kafka.{name}")
        try:
            WriteOptions.of(_without_kafka(write_options(self._pipeline, sink, topic)))
        except OptionError as error:
            yield sink.problem(*_in_our_words(str(error)))

    def _dead_letters(self, letters: DeadLetters) -> Iterator[Problem]:
        yield from self._writing(letters, letters.topic)
        elsewhere = letters.bootstrap_servers not in (None, self._pipeline.bootstrap_servers)
        for source in self._sound(self._pipeline.sources):
            names = {letters.topic.replace("{topic}", topic) for topic in source.topics}
            if not elsewhere and names & set(source.topics):
                text = (
                    f"dead letters would go to {letters.topic}, which source {source.name} reads: they would come back"
                )
                yield letters.problem(text, "topic")


def declared_schema(part: Source | Table, pipeline: Pipeline) -> Schema | None:
    """The schema of a source or table, if it has one."""
    if part.schema_file:
        return from_file(Path(pipeline.path(part.schema_file)))
    return from_ddl(part.schema) if part.schema else None


def _parts_fit(pipeline: Pipeline) -> bool:
    kinds: tuple[tuple[object, type], ...] = (
        (pipeline.sources, Source),
        (pipeline.tables, Table),
        (pipeline.steps, Step),
        (pipeline.sinks, Sink),
    )
    return all(
        isinstance(parts, list | tuple) and all(isinstance(one, kind) for one in parts) for parts, kind in kinds
    ) and isinstance(pipeline.dead_letters, DeadLetters | None)


def _distinct(
    parts: Sequence[Source | Table | Step | Sink], form: re.Pattern[str], words: str, shared: str
) -> Iterator[Problem]:
    seen: dict[str, Declared] = {}
    for part in parts:
        given: object = part.name
        if not isinstance(given, str) or not given:
            continue
        if not form.fullmatch(part.name):
            yield part.problem(f"name is made of {words}, not {part.name!r}", "name")
        first = seen.setdefault(part.name.lower(), part)
        if first is not part:
            at = f" (line {first.where.line})" if first.where.line else ""
            yield part.problem(f"the name {part.name} is taken{at}: {shared}", "name")


def _input(
    part: Step | Sink, given: str | None, known: Sequence[str], tables: Sequence[str], later: Sequence[Step], only: bool
) -> Iterator[Problem]:
    if given is None:
        if not only and known:
            yield part.problem(f"input is missing: there are {', '.join(known)}")
    elif given not in known:
        if given in [one.name for one in later]:
            yield part.problem(f"input {given} is declared below: a step takes what is declared before it", "input")
        elif given in tables:
            yield part.problem(
                f"input {given} is a table, which stands still: join it, or take a source or step", "input"
            )
        else:
            near = did_you_mean(given, known)
            yield part.problem(f"there is no source or step {given}.{near}", "input")


def _event_time(source: Source, name: str, schema: Schema) -> Iterator[Problem]:
    found = schema.column(name)
    if name == "_timestamp":
        return
    if found is None:
        near = did_you_mean(name, (*schema.names, "_timestamp"))
        yield source.problem(f"event_time is no column of the schema: {name}.{near}", "event_time")
    elif found.type.name not in _TIMES:
        text = f"event_time is a TIMESTAMP, and {name} is {found.type.ddl().upper()}: change the schema"
        yield source.problem(f"{text}, or make the column in a step and name it there", "event_time")


def _in_our_words(message: str) -> tuple[str, str | None]:
    """A message of the data source with the keys of the declaration, and the key that it is about."""
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
    """Without the settings of the clients, which are checked one by one, and without what Spark's query brings."""
    kept = ("kafka.bootstrap.servers",)
    return {
        name: value for name, value in options.items() if name in kept or not name.startswith(("kafka.", "deliver"))
    }


def _is_local(path: str) -> bool:
    return "://" not in path and ":" not in path.split("/")[0]


def _exists(path: str) -> bool:
    if any(sign in path for sign in "*?["):
        parent = Path(path).parent
        return any(sign in str(parent) for sign in "*?[") or any(parent.glob(Path(path).name))
    return Path(path).exists()
