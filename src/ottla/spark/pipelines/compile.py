"""Compile a pipeline to Structured Streaming queries.

    for flow in compile_pipeline(load("orders.toml"), spark):
        query = flow.start()

A source is read once for all sinks that can share the read, and for its dead letters (see `shared/`). Every other sink
has a query of its own: it has state of its own (windows, joins of streams), writes changed rows, or joined later. With
`read = "separate"`, all of them have. A broken record has one dead letter, no matter how many sinks there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ottla.spark.pipelines import rules, sinks, sources
from ottla.spark.pipelines.changes.sinks import with_keys
from ottla.spark.pipelines.checks.modes import input_of, source_of
from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.columns import StepError
from ottla.spark.pipelines.declaration import (
    DeadLetters,
    DeclarationError,
    Declared,
    Pipeline,
    Problem,
    Sink,
    Source,
)
from ottla.spark.pipelines.shared import layout
from ottla.spark.pipelines.shared.layout import LayoutError, State, how_to_reset, letters_name
from ottla.spark.pipelines.shared.plans import Shareable, add_frames, shareable
from ottla.spark.pipelines.shared.starting import SharedRead
from ottla.spark.pipelines.sql_errors import problem_of
from ottla.spark.pipelines.tables import Refresher
from ottla.spark.pipelines.times import AVAILABLE_NOW, ONCE, interval
from ottla.spark.sessions import activate, settle_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery


@dataclass(frozen=True, slots=True)
class Flow:
    """One query of a pipeline, not yet started."""

    name: str
    """The sink's name, `dead-letters.<source>`, or `shared.<source>`."""
    readers: Mapping[str, Sink | DeadLetters]
    """The sinks that it writes, by name; dead letters are `dead-letters.<source>`."""
    sources: tuple[Source, ...]
    """The sources that it reads; all of them if SQL is involved."""
    checkpoint: str
    groups: Mapping[str, str]
    """The group of each source, by source name, for sources with a group."""
    frame: DataFrame = field(repr=False)
    """The written rows, with the sink's columns; for a shared read, the rows that are read."""
    starter: Callable[[], StreamingQuery] = field(repr=False)
    shared: SharedRead | None = field(default=None, repr=False)
    views: Mapping[str, DataFrame] = field(default_factory=dict, repr=False)
    """The sources, tables and steps, by name. Other flows may have the same ones."""

    def start(self) -> StreamingQuery:
        """Start the query; its name is `<pipeline>.<flow>`."""
        return self.starter()

    @property
    def sink(self) -> Sink | DeadLetters | None:
        """The sink, unless several share the query."""
        return None if self.shared is not None else next(iter(self.readers.values()))


def compile_pipeline(pipeline: Pipeline, spark: SparkSession, *, trigger: str | None = None) -> list[Flow]:
    """The queries of a pipeline: the shared reads, then the sinks in order, then the dead letters.

    `trigger` overrides the declared one, such as `available-now`. The pipeline is checked first. Invalid SQL raises
    `DeclarationError` with the line of its step.
    """
    problems = check(pipeline)
    if problems:
        raise DeclarationError(problems)
    when = trigger or pipeline.trigger
    if when not in (AVAILABLE_NOW, ONCE):
        interval(when)
    settle_environment(spark)
    return _Compiler(with_keys(pipeline), spark, when).flows()


def groups_of(pipeline: Pipeline, reader: str, *, shared: Sequence[str] = ()) -> dict[str, str]:
    """The group of each source for a sink or dead letters that read by themselves.

    Every query needs its own group. A shared read uses the name of the group as it is: `shared` has the names of the
    sources with one. The others add the name of the sink, except the first sink without a shared read.
    """
    first = pipeline.sinks[0].name
    return {
        source.name: source.group_id if reader == first and source.name not in shared else f"{source.group_id}.{reader}"
        for source in pipeline.sources
        if source.group_id
    }


class _Compiler:
    def __init__(self, pipeline: Pipeline, spark: SparkSession, trigger: str) -> None:
        self._pipeline = pipeline
        self._spark = spark
        self._trigger = trigger
        self._tables: dict[str, DataFrame] = {}
        self._refresher: Refresher | None = None
        self._views: dict[str, DataFrame] = {}
        """The sources, tables and steps of the current flow, as far as they are known."""
        # With Spark Connect, the checkpoint is on the server, and `foreachBatch` cannot reach Java.
        self._state = State.of(pipeline, spark) if hasattr(spark, "_jsparkSession") else None

    def flows(self) -> list[Flow]:
        pipeline = self._pipeline
        problems: list[Problem] = []
        for one in pipeline.tables:
            with self._reporting(one, problems):
                self._tables[one.name] = sources.table(pipeline, one, self._spark)
        for source in pipeline.sources:
            self._check_dead_letter_rules(source, problems)
        if not problems:
            self._refresher = Refresher(pipeline, self._spark, self._tables)
            self._tables = self._refresher.frames
        shared = self._shared(problems) if not problems else []
        names = [flow.sources[0].name for flow in shared]
        apart = {name for flow in shared for name in flow.readers}
        found = list(shared)
        for sink in pipeline.sinks if not problems else ():
            if sink.name not in apart:
                with self._reporting(sink, problems):
                    self._check_alone(sink.name)
                    found.append(self._flow(sink, names, problems))
        for source in pipeline.sources if not problems else ():
            name = letters_name(source.name)
            if pipeline.dead_letters is not None and pipeline.sends_dead_letters(source) and name not in apart:
                with self._reporting(source, problems):
                    self._check_alone(name)
                    found.append(self._dead(source, pipeline.dead_letters, names))
        if problems:
            raise DeclarationError(list(dict.fromkeys(problems)))
        return found

    # ── Shared reads ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _shared(self, problems: list[Problem]) -> list[Flow]:
        pipeline, spark = self._pipeline, self._spark
        if pipeline.read == "separate" or self._state is None:
            return []
        if not _might_share(pipeline) and not self._state.readers:
            return []
        whole: dict[str, DataFrame] = {}
        for source in pipeline.sources:
            with self._reporting(source, problems):
                whole[source.name] = sources.shared_stream(pipeline, source, spark, source.group_id)
        if problems:
            return []
        streams = {
            source.name: sources.watermarked(source, sources.good_rows(whole[source.name]))
            for source in pipeline.sources
        }
        views: dict[str, DataFrame] = {}
        with self._reporting(pipeline, problems):
            views = self._check_steps(streams, problems)
        if problems:
            return []
        found = shareable(pipeline, spark, streams, self._tables)
        return [
            replace(flow, views=views)
            for source in pipeline.sources
            for flow in self._read(source, whole[source.name], found)
        ]

    def _check_steps(self, streams: Mapping[str, DataFrame], problems: list[Problem]) -> dict[str, DataFrame]:
        """The results of all steps; reports the problems of steps and sinks, with their lines."""
        views = self._frames({name: self._ruled(name, frame, problems) for name, frame in streams.items()}, problems)
        for sink in self._pipeline.sinks:
            frame = views.get(input_of(self._pipeline, sink) or "")
            if frame is not None:
                with self._reporting(sink, problems):
                    _shaped(sink, frame)
        return views

    def _frames(self, given: Mapping[str, DataFrame], problems: list[Problem]) -> dict[str, DataFrame]:
        """The results of all steps; a problem ends it, because later steps depend on it."""
        pipeline = self._pipeline
        views = self._views = {**self._tables, **given}
        try:
            add_frames(
                pipeline,
                self._spark,
                views,
                pipeline.steps,
                around=lambda step: self._reporting(step, problems, stop=True),
                after=lambda name, frame: self._ruled(name, frame, problems),
            )
        except _Stop:
            return {}
        return views

    def _read(self, source: Source, whole: DataFrame, found: Sequence[Shareable]) -> Iterator[Flow]:
        """The shared read of a source, from the head that most readers need."""
        pipeline, state = self._pipeline, self._state
        assert state is not None
        letters = [letters_name(source.name)] if pipeline.sends_dead_letters(source) else []
        known = state.readers.get(source.name)
        best: Shareable | None = None
        names: list[str] = []
        for one in [one for one in found if one.head.source is source]:
            able = [*one.steps, *letters]
            chosen = layout.chosen(able, state.apart, known)
            if len(chosen) > len(names):
                best, names = one, chosen
        if best is None:
            return
        if not set(letters) & set(names):
            whole = sources.good_rows(whole)  # the dead letters have a query of their own
        whole = sources.ruled(pipeline, source.name, whole)
        if best.head.dedupe is not None:
            whole = sources.deduplicated(pipeline, source, best.head.dedupe, whole, self._spark)
            whole = sources.ruled(pipeline, best.head.name, whole)
        readers: dict[str, Sink | DeadLetters] = {sink.name: sink for sink in pipeline.sinks if sink.name in names}
        if pipeline.dead_letters is not None and set(letters) & set(names):
            readers[letters[0]] = pipeline.dead_letters
        read = SharedRead(pipeline, self._spark, best, readers, self._tables, whole, known)
        groups = {source.name: source.group_id} if source.group_id else {}
        yield Flow(read.name, readers, (source,), read.where, groups, whole, self._starter(pipeline, read.start), read)

    def _check_alone(self, reader: str) -> None:
        known = {} if self._state is None else self._state.readers
        for source, readers in known.items():
            try:
                layout.check_alone(reader, source, readers, how_to_reset(self._pipeline, reader))
            except LayoutError as error:
                raise StepError(str(error), "name") from None

    # ── Queries of their own ──────────────────────────────────────────────────────────────────────────────────────────

    def _flow(self, sink: Sink, shared: Sequence[str], problems: list[Problem]) -> Flow:
        pipeline = self._pipeline
        groups = groups_of(pipeline, sink.name, shared=shared)
        given: dict[str, DataFrame] = {}
        for source in pipeline.sources:
            with self._reporting(source, problems, stop=True):
                frame = sources.stream(pipeline, source, self._spark, groups.get(source.name))
            given[source.name] = self._ruled(source.name, frame, problems)
        before = len(problems)
        views = self._frames(given, problems)
        if len(problems) > before:
            raise _Stop
        frame = _shaped(sink, views[input_of(pipeline, sink) or ""])
        only = source_of(pipeline, sink)
        read = tuple(pipeline.sources) if only is None else (only,)
        flow = self._made(sink.name, sink, read, pipeline.checkpoint_of(sink.name), groups, frame)
        return replace(flow, views=views)

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

    def _dead(self, source: Source, letters: DeadLetters, shared: Sequence[str]) -> Flow:
        pipeline = self._pipeline
        name = letters_name(source.name)
        groups = {key: value for key, value in groups_of(pipeline, name, shared=shared).items() if key == source.name}
        frame = sources.dead_letters(pipeline, source, letters, self._spark, groups.get(source.name))
        return self._made(name, letters, (source,), layout.own_directory(pipeline, name), groups, frame)

    def _made(
        self,
        name: str,
        sink: Sink | DeadLetters,
        read: tuple[Source, ...],
        where: str,
        groups: Mapping[str, str],
        frame: DataFrame,
    ) -> Flow:
        def start(trigger: str) -> StreamingQuery:
            query: StreamingQuery = sinks.start(self._pipeline, sink, frame, name, where, trigger)
            return query

        used = {one.name for one in read}
        groups = {key: one for key, one in groups.items() if key in used}
        return Flow(name, {name: sink}, read, where, groups, frame, self._starter(sink, start))

    def _starter(self, part: Declared, start: Callable[[str], StreamingQuery]) -> Callable[[], StreamingQuery]:
        def starter() -> StreamingQuery:
            activate(self._spark)
            problems: list[Problem] = []
            with self._reporting(part, problems):
                query = start(self._trigger)
                if self._refresher is not None:
                    self._refresher.watch(query)
                return query
            raise DeclarationError(problems)

        return starter

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


def _shaped(sink: Sink, frame: DataFrame) -> DataFrame:
    if not frame.isStreaming:
        raise StepError("the input is not a stream: it must come from a source", "input")
    return sinks.shape(sink, frame)


def _might_share(pipeline: Pipeline) -> bool:
    """Whether there is anything to share: at least two readers."""
    return len(pipeline.sinks) + any(map(pipeline.sends_dead_letters, pipeline.sources)) > 1


class _Stop(Exception):
    """A problem was reported, and later parts depend on it."""
