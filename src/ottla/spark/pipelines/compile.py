"""Compile a pipeline to Structured Streaming: one query per sink, and one for the dead letters of each source.

    for flow in compile_pipeline(load("orders.toml"), spark):
        query = flow.start()

Separate queries read a source several times. In return, every sink is exactly once by itself: it remembers its batches
by the numbers of its own checkpoint (Spark's file log, transactions for topics, a database table). In a shared query,
a failing sink would repeat the batches of the others, and a slow sink would delay them. A separate query for dead
letters writes one letter per broken record, no matter how many sinks there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.spark.pipelines import rules, sinks, sources, steps
from ottla.spark.pipelines.checks.modes import input_of, source_of
from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.columns import StepError
from ottla.spark.pipelines.declaration import (
    DEAD_LETTERS,
    DeadLetters,
    DeclarationError,
    Declared,
    Pipeline,
    Problem,
    Sink,
    Source,
)
from ottla.spark.pipelines.sql_errors import problem_of
from ottla.spark.pipelines.times import AVAILABLE_NOW, ONCE, interval
from ottla.spark.sessions import activate

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True, slots=True)
class Flow:
    """One query of a pipeline, not yet started."""

    name: str
    """The sink's name, or `dead-letters.<source>`."""
    sink: Sink | DeadLetters
    sources: tuple[Source, ...]
    """The sources that it reads; all of them if SQL is involved."""
    checkpoint: str
    groups: Mapping[str, str]
    """The group of each source, by source name, for sources with a group."""
    frame: DataFrame = field(repr=False)
    """The written rows, with the sink's columns."""
    starter: Callable[[], StreamingQuery] = field(repr=False)

    def start(self) -> StreamingQuery:
        """Start the query; its name is `<pipeline>.<flow>`."""
        return self.starter()


def compile_pipeline(pipeline: Pipeline, spark: SparkSession, *, trigger: str | None = None) -> list[Flow]:
    """The queries of a pipeline: the sinks in order, then the dead letters.

    `trigger` overrides the declared one, such as `available-now`. The pipeline is checked first. Invalid SQL raises
    `DeclarationError` with the line of its step.
    """
    problems = check(pipeline)
    if problems:
        raise DeclarationError(problems)
    when = trigger or pipeline.trigger
    if when not in (AVAILABLE_NOW, ONCE):
        interval(when)
    return _Compiler(pipeline, spark, when).flows()


def groups_of(pipeline: Pipeline, flow: str) -> dict[str, str]:
    """The group of each source in a flow. Every query reads separately and needs its own group."""
    first = pipeline.sinks[0].name
    return {
        source.name: source.group_id if flow == first else f"{source.group_id}.{flow}"
        for source in pipeline.sources
        if source.group_id
    }


class _Compiler:
    def __init__(self, pipeline: Pipeline, spark: SparkSession, trigger: str) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._trigger = trigger
        self._tables: dict[str, DataFrame] = {}
        self._views: dict[str, DataFrame] = {}
        """The sources, tables and steps of the current flow, as far as they are known."""

    def flows(self) -> list[Flow]:
        pipeline = self._pipeline
        problems: list[Problem] = []
        for one in pipeline.tables:
            with self._reporting(one, problems):
                self._tables[one.name] = sources.table(pipeline, one, self._spark)
        for source in pipeline.sources:
            self._check_dead_letter_rules(source, problems)
        found = []
        for sink in pipeline.sinks if not problems else ():
            with self._reporting(sink, problems):
                found.append(self._flow(sink, problems))
        for source in pipeline.sources if not problems else ():
            if pipeline.dead_letters is not None and pipeline.sends_dead_letters(source):
                with self._reporting(source, problems):
                    found.append(self._dead(source, pipeline.dead_letters))
        if problems:
            raise DeclarationError(list(dict.fromkeys(problems)))
        return found

    def _flow(self, sink: Sink, problems: list[Problem]) -> Flow:
        pipeline = self._pipeline
        groups = groups_of(pipeline, sink.name)
        with named_views(self._spark) as name_view:
            views = self._views = dict(self._tables)
            for name, frame in views.items():
                name_view(name, frame)
            for source in pipeline.sources:
                with self._reporting(source, problems, stop=True):
                    frame = sources.stream(pipeline, source, self._spark, groups.get(source.name))
                views[source.name] = self._ruled(source.name, frame, problems)
                name_view(source.name, views[source.name])
            for step in pipeline.steps:
                with self._reporting(step, problems, stop=True):
                    frame = steps.apply(pipeline, step, views, self._spark)
                views[step.name] = self._ruled(step.name, frame, problems)
                name_view(step.name, views[step.name])
        frame = sinks.shape(sink, views[input_of(pipeline, sink) or ""])
        if not frame.isStreaming:
            raise StepError("the input is not a stream: it must come from a source", "input")
        only = source_of(pipeline, sink)
        read = tuple(pipeline.sources) if only is None else (only,)
        return self._made(sink.name, sink, read, pipeline.checkpoint_of(sink.name), groups, frame)

    def _check_dead_letter_rules(self, source: Source, problems: list[Problem]) -> None:
        """The rules decide which records are broken, so Spark would report their mistakes as those of the source."""
        for rule in rules.dead_letter_rules(self._pipeline, source.name):
            with self._reporting(rule, problems):
                frame = sources.stream(self._pipeline, source, self._spark, None, with_rules=False)
                self._views = {source.name: frame}
                rules.check_condition(rule, frame)

    def _ruled(self, name: str, frame: DataFrame, problems: list[Problem]) -> DataFrame:
        """The rows that the rules of a source or step leave."""
        self._views[name] = frame
        for rule in rules.rules_of(self._pipeline, name):
            with self._reporting(rule, problems, stop=True):
                rules.check_condition(rule, frame)
        return rules.apply(self._pipeline, name, frame)

    def _dead(self, source: Source, letters: DeadLetters) -> Flow:
        pipeline = self._pipeline
        name = f"{DEAD_LETTERS}.{source.name}"
        groups = {key: value for key, value in groups_of(pipeline, name).items() if key == source.name}
        frame = sources.dead_letters(pipeline, source, letters, self._spark, groups.get(source.name))
        where = pipeline.checkpoint_of(DEAD_LETTERS, source.name)
        return self._made(name, letters, (source,), where, groups, frame)

    def _made(
        self,
        name: str,
        sink: Sink | DeadLetters,
        read: tuple[Source, ...],
        where: str,
        groups: Mapping[str, str],
        frame: DataFrame,
    ) -> Flow:
        def start() -> StreamingQuery:
            activate(self._spark)
            problems: list[Problem] = []
            with self._reporting(sink, problems):
                query: StreamingQuery = sinks.start(self._pipeline, sink, frame, name, where, self._trigger)
                return query
            raise DeclarationError(problems)

        used = {one.name for one in read}
        return Flow(name, sink, read, where, {key: one for key, one in groups.items() if key in used}, frame, start)

    @contextmanager
    def _reporting(self, part: Declared, problems: list[Problem], *, stop: bool = False) -> Iterator[None]:
        """Report Spark's errors about a part as problems with its line."""
        from pyspark.errors import PySparkException

        try:
            yield
        except _Stop:
            return
        except StepError as error:
            problems.append(part.where.problem(str(error), error.key))
        except PySparkException as error:
            columns = {name: frame.columns for name, frame in self._views.items()}
            problems.append(problem_of(self._pipeline, part, error, columns))
        else:
            return
        if stop:
            raise _Stop


class _Stop(Exception):
    """A problem was reported, and later parts depend on it."""


@contextmanager
def named_views(spark: SparkSession) -> Iterator[Callable[[str, DataFrame], None]]:
    """Register views for SQL while a flow is compiled, and restore earlier views."""
    before: dict[str, DataFrame | None] = {}
    known = {one.name.lower() for one in spark.catalog.listTables() if one.isTemporary}

    def name_view(name: str, frame: DataFrame) -> None:
        if name not in before:
            before[name] = spark.table(name) if name.lower() in known else None
        frame.createOrReplaceTempView(name)

    try:
        yield name_view
    finally:
        for name, frame in before.items():
            spark.catalog.dropTempView(name)
            if frame is not None:
                frame.createOrReplaceTempView(name)
