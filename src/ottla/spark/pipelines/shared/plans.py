"""Find the sinks that can share the read of a source: those whose steps keep no state.

A batch of a shared read is an ordinary table, and the steps run on it. That gives the same rows as a stream only if
the steps handle every row by itself. Spark's own plan of the stream says so: `keeps_no_state` knows the operators that
do. A dedupe right after the source can be part of the shared stream (`Head`), if it is what most sinks need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines import rules, steps
from ottla.spark.pipelines.checks.modes import input_of
from ottla.spark.pipelines.columns import StepError
from ottla.spark.pipelines.declaration import Dedupe, Pipeline, Sink, Source, Sql, Step
from ottla.spark.pipelines.shared.layout import could_share, has_late_rules, inputs_of, sql_of
from ottla.spark.pipelines.sinks import shape, supports

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Operators of Spark's analyzed plans that handle every row of a stream by itself.
_BY_ROW = frozenset(
    {
        "CTERelationDef",
        "CTERelationRef",
        "CollectMetrics",
        "DeserializeToObject",
        "EventTimeWatermark",
        "Filter",
        "Generate",
        "Join",  # with a table; see `_is_by_row`
        "MapElements",
        "MapInArrow",
        "MapInPandas",
        "MapPartitions",
        "Project",
        "Repartition",
        "RepartitionByExpression",
        "ResolvedHint",
        "SerializeFromObject",
        "StreamingRelationV2",
        "SubqueryAlias",
        "TypedFilter",
        "Union",
        "View",
        "WithCTE",
    }
)


@dataclass(frozen=True, slots=True)
class Head:
    """Where a shared stream ends and the steps of its sinks begin: a source, or a dedupe right after it."""

    source: Source
    dedupe: Dedupe | None = None

    @property
    def name(self) -> str:
        """The name by which steps and sinks use it."""
        return self.source.name if self.dedupe is None else self.dedupe.name


@dataclass(frozen=True, slots=True)
class Shareable:
    """The sinks that can share a head, and the steps that each of them needs."""

    head: Head
    steps: Mapping[str, Sequence[Step]]
    """By sink."""

    def rows(
        self,
        pipeline: Pipeline,
        sinks: Iterable[Sink],
        good: DataFrame,
        tables: Mapping[str, DataFrame],
        *,
        ruled: dict[str, DataFrame] | None = None,
    ) -> dict[str, DataFrame]:
        """What the sinks write of the good rows of a batch, by sink. `tables` are in the session of the rows.

        `ruled` gets the results of steps with rules, before the rules.
        """
        sinks, seen = list(sinks), {} if ruled is None else ruled

        def after(name: str, frame: DataFrame) -> DataFrame:
            if rules.rules_of(pipeline, name):
                seen[name] = frame
            return rules.apply(pipeline, name, frame)

        wanted = {step.name: step for sink in sinks for step in self.steps[sink.name]}
        steps = [wanted[step.name] for step in pipeline.steps if step.name in wanted]
        # The session is that of one query, so nobody else's views have the names.
        views = frames(pipeline, good.sparkSession, tables, {self.head.name: good}, steps, after=after, restore=False)
        return {sink.name: shape(sink, views[input_of(pipeline, sink) or ""]) for sink in sinks}


def shareable(
    pipeline: Pipeline, spark: SparkSession, streams: Mapping[str, DataFrame], tables: Mapping[str, DataFrame]
) -> list[Shareable]:
    """For each head that some sinks can share: these sinks. `streams` has the good records of every source."""
    sinks = [sink for sink in pipeline.sinks if could_share(sink)]
    found = []
    for head in _heads(pipeline):
        trial = _Trial(pipeline, spark, head, streams, tables)
        able = {sink.name: tuple(trial.needed(sink)) for sink in sinks if trial.can_share(sink)}
        if able:
            found.append(Shareable(head, able))
    return found


def _heads(pipeline: Pipeline) -> Iterator[Head]:
    for source in pipeline.sources:
        yield Head(source)
        for step in pipeline.steps:
            if isinstance(step, Dedupe) and input_of(pipeline, step) == source.name:
                yield Head(source, step)


class _Trial:
    """Compile the steps twice: with only the head as a stream, and with everything but the head."""

    def __init__(
        self,
        pipeline: Pipeline,
        spark: SparkSession,
        head: Head,
        streams: Mapping[str, DataFrame],
        tables: Mapping[str, DataFrame],
    ) -> None:
        self._pipeline, self._spark, self._head = pipeline, spark, head
        stream = streams[head.source.name]
        still = {name: spark.createDataFrame([], frame.schema) for name, frame in streams.items()}
        steps = pipeline.steps
        self._alone = frames(pipeline, spark, tables, {**still, head.name: stream}, steps, around=_tolerating)
        others = {**streams, head.name: spark.createDataFrame([], stream.schema)}
        self._without = frames(pipeline, spark, tables, others, steps, around=_tolerating)

    def can_share(self, sink: Sink) -> bool:
        """Whether a sink reads the head and no other stream, and its steps keep no state."""
        name = input_of(self._pipeline, sink) or ""
        if not self._is_free(name) or has_late_rules(self._pipeline, sink, self.needed(sink)):
            return False
        return self._alone[name].isStreaming and keeps_no_state(self._alone[name])

    def needed(self, sink: Sink) -> Iterator[Step]:
        """The steps between the head and the sink, in order. SQL from files is read now, not for each batch."""
        wanted = {input_of(self._pipeline, sink)}
        found: list[Step] = []
        for step in reversed(self._pipeline.steps):
            if step.name in wanted and step.name != self._head.name and self._is_free(step.name):
                found.append(step)
                wanted |= inputs_of(self._pipeline, step)
        for step in reversed(found):
            if isinstance(step, Sql):
                yield replace(step, sql=sql_of(self._pipeline, step), sql_file=None)
            else:
                yield replace(step, input=input_of(self._pipeline, step))

    def _is_free(self, name: str) -> bool:
        """Whether a result depends on no stream but the head."""
        without = self._without.get(name)
        return name in self._alone and without is not None and not without.isStreaming


def frames(
    pipeline: Pipeline,
    spark: SparkSession,
    tables: Mapping[str, DataFrame],
    given: Mapping[str, DataFrame],
    wanted: Sequence[Step],
    *,
    around: Callable[[Step], AbstractContextManager[None]] = lambda step: nullcontext(),
    after: Callable[[str, DataFrame], DataFrame] = lambda name, frame: frame,
    restore: bool = True,
) -> dict[str, DataFrame]:
    """The tables, `given` frames and results of steps by name; see `add_frames`."""
    views = {**tables, **given}
    add_frames(pipeline, spark, views, wanted, around=around, after=after, restore=restore)
    return views


def add_frames(
    pipeline: Pipeline,
    spark: SparkSession,
    views: dict[str, DataFrame],
    wanted: Sequence[Step],
    *,
    around: Callable[[Step], AbstractContextManager[None]],
    after: Callable[[str, DataFrame], DataFrame] = lambda name, frame: frame,
    restore: bool = True,
) -> None:
    """Add the results of steps to `views`, unless they are there. `around` handles errors; what fails is left out.

    `after` changes the result of a step. SQL needs views in the session, which are removed afterwards if `restore`.
    """
    with named_views(spark) if restore else nullcontext(_replace_view) as name_view:
        for name, frame in views.items():
            name_view(name, frame)
        for step in [one for one in wanted if one.name not in views]:
            found = None
            with around(step):
                found = steps.apply(pipeline, step, views, spark)
            if found is not None:
                views[step.name] = after(step.name, found)
                name_view(step.name, views[step.name])


def _tolerating(_step: Step) -> AbstractContextManager[None]:
    from pyspark.errors import PySparkException

    return suppress(PySparkException, StepError, KeyError)


def _replace_view(name: str, frame: DataFrame) -> None:
    frame.createOrReplaceTempView(name)


@contextmanager
def named_views(spark: SparkSession) -> Iterator[Callable[[str, DataFrame], None]]:
    """Register views for SQL while frames are built, and restore earlier views."""
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


# ── Spark's plans ────────────────────────────────────────────────────────────────────────────────────────────────────


def keeps_no_state(frame: DataFrame) -> bool:
    """Whether a stream handles every row by itself, and Spark can append its rows."""
    # Spark refuses some joins of a stream with a table, such as a left join with the stream on the right.
    return _is_by_row(frame._jdf.queryExecution().analyzed()) and supports(frame, "Append")


def _is_by_row(node: Any) -> bool:
    if not node.isStreaming():
        return True
    kind = node.getClass().getSimpleName()
    inputs, subqueries = scala_list(node.children()), scala_list(node.subqueries())
    if kind not in _BY_ROW or any(one.isStreaming() for one in subqueries):
        return False
    if kind == "Join" and all(one.isStreaming() for one in inputs):
        return False
    return all(map(_is_by_row, inputs))


def scala_list(found: Any) -> list[Any]:
    """A Scala sequence."""
    return [found.apply(number) for number in range(found.size())]
