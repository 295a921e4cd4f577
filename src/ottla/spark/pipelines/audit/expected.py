"""Which records of its sources a sink must have: the pipeline's own rules and steps, as a batch over the topics.

The result has a row for each record that must be in the sink or in the dead letters. All other records were filtered:
by a rule, a WHERE, an inner join, or because the source skips them. Dedupe is left out here; the audit finds duplicates
by the keys of the dedupe.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.spark.pipelines import rules, sources, steps
from ottla.spark.pipelines.audit.declared import PLACE, NotAuditable, Upstream, missing_origin, upstream_of
from ottla.spark.pipelines.checks.modes import input_of, joins_stream
from ottla.spark.pipelines.columns import StepError
from ottla.spark.pipelines.declaration import Dedupe, Join, Pipeline, Python, Sink, Source, Sql, Step
from ottla.spark.pipelines.options import read_options
from ottla.spark.pipelines.schemas import quoted
from ottla.spark.pipelines.shared.plans import named_views
from ottla.spark.pipelines.sql_errors import read_error
from ottla.types import Millis

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_ROW_BY_ROW = (Sql, Python, Join, Dedupe)
_READING = ("kafka.", "subscribe", "assign", "includeHeaders")


def expected_records(
    pipeline: Pipeline, sink: Sink, spark: SparkSession, *, since: Millis | None = None, until: Millis | None = None
) -> DataFrame:
    """Rows with _topic, _partition, _offset, and id if a dedupe is before the sink; raises NotAuditable."""
    return _Steps(pipeline, upstream_of(pipeline, sink), spark, since, until).run(sink)


@dataclass
class _Steps:
    pipeline: Pipeline
    upstream: Upstream
    spark: SparkSession
    since: Millis | None
    until: Millis | None
    views: dict[str, DataFrame] = field(default_factory=dict)
    broken: list[DataFrame] = field(default_factory=list)
    ids: DataFrame | None = None

    def run(self, sink: Sink) -> DataFrame:
        with named_views(self.spark) as name_view:
            for table in self.pipeline.tables:
                self.views[table.name] = sources.table(self.pipeline, table, self.spark)
                name_view(table.name, self.views[table.name])
            for source in self.upstream.sources:
                self.views[source.name] = self._source(source)
                name_view(source.name, self.views[source.name])
            for step in self.upstream.steps:
                self.views[step.name] = rules.kept(self.pipeline, step.name, self._step(step))
                name_view(step.name, self.views[step.name])
        found = self._places(self.views[input_of(self.pipeline, sink) or ""], f"the input of sink {sink.name}")
        for one in self.broken:
            found = found.unionByName(one.select(*PLACE))
        return found if self.ids is None else found.join(self.ids, list(PLACE), "left")

    def _source(self, source: Source) -> DataFrame:
        given = read_options(self.pipeline, source, None)
        options = {name: value for name, value in given.items() if name.startswith(_READING)}
        times = {"startingTimestamp": self.since, "endingTimestamp": self.until}
        options |= {name: str(value) for name, value in times.items() if value is not None}
        if self.since is not None:
            options["startingOffsetsByTimestampStrategy"] = "latest"
        # Retention may delete records while they are read.
        raw = self.spark.read.format("ottla").options(**{**options, "failOnDataLoss": "false"}).load()
        good, broken = sources.batch(self.pipeline, source, raw)
        if source.on_error != "skip":
            self.broken.append(broken)
        return rules.kept(self.pipeline, source.name, good)

    def _step(self, step: Step) -> DataFrame:
        if not isinstance(step, _ROW_BY_ROW) or joins_stream(self.pipeline, step):
            raise NotAuditable(f"step {step.name} makes rows from several records, so no row belongs to one record")
        if isinstance(step, Dedupe):
            frame = self.views[input_of(self.pipeline, step) or ""]
            self.ids = self._ids(step, frame)
            return frame
        from pyspark.errors import PySparkException

        try:
            return steps.apply(self.pipeline, step, self.views, self.spark)
        except (StepError, PySparkException) as error:
            text = str(error) if isinstance(error, StepError) else read_error(str(error)).message
            raise NotAuditable(f"step {step.name} does not work as a batch: {text}") from None

    def _ids(self, step: Dedupe, frame: DataFrame) -> DataFrame:
        """The key of each record as text; Spark's dedupe treats nulls as equal, too."""
        from pyspark.sql import functions as fn

        self._places(frame, f"the input of step {step.name}")
        key = fn.to_json(fn.struct(*map(quoted, step.keys)))
        return frame.select(*PLACE, key.alias("id")).dropDuplicates(list(PLACE))

    def _places(self, frame: DataFrame, what: str) -> DataFrame:
        missing = missing_origin(frame.columns)
        if missing:
            raise NotAuditable(f"{what} has no {missing}: add it to the SELECT of the steps before it")
        return frame.select(*PLACE)
