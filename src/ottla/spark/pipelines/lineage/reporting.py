"""Send the events of a run to an OpenLineage collector: START, RUNNING from time to time, then COMPLETE, FAIL or ABORT.

Each event describes the run completely, so one that is lost takes nothing with it. Nothing here waits for the
collector, and no problem with it reaches the pipeline: it is a warning in the log.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.clients.admin.blocking import Admin
from ottla.errors import OttlaError
from ottla.exporter.delivery import NotTaken
from ottla.spark.pipelines.checks.modes import input_of
from ottla.spark.pipelines.declaration import Lineage, Pipeline, Sink, Source, TopicSink
from ottla.spark.pipelines.lineage import datasets
from ottla.spark.pipelines.lineage.columns import of_topic, trace
from ottla.spark.pipelines.lineage.datasets import Dataset
from ottla.spark.pipelines.lineage.queries import Column, Read
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.runner import Ending, admin_config, reads
from ottla.spark.pipelines.sinks import shape
from ottla.spark.pipelines.times import millis

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from pyspark.sql import DataFrame

    from ottla.spark.pipelines.compile import Flow

log = logging.getLogger("ottla.spark")
#: To list the topics of a pattern.
_LIST_MS = 5_000
_LONGEST_TRACE = 10_000


class LineageError(OttlaError):
    """The configuration of OpenLineage is not usable."""


def client_of(lineage: Lineage) -> OpenLineageClient:
    """OpenLineage's client, with the declared transport or its own configuration. Raises LineageError."""
    from openlineage.client import OpenLineageClient

    try:
        client = OpenLineageClient(config={"transport": dict(lineage.transport)} if lineage.transport else None)
    except Exception as error:  # transports raise what they like
        raise LineageError(f"{_place(lineage)}: OpenLineage does not accept the transport: {error}") from None
    if client.transport.kind == "console" and not lineage.transport and not client.config.transport:
        raise LineageError(
            f"{_place(lineage)}: OpenLineage is not configured: set transport, such as "
            'transport = {type = "http", url = "http://localhost:5000"}, or OPENLINEAGE_URL'
        )
    return client


def _place(lineage: Lineage) -> str:
    return str(lineage.where.problem("[lineage]", "transport"))


def sender(client: OpenLineageClient) -> Callable[[Any], None]:
    """A function for `DeliveryThread.outlet`."""

    def send(event: Any) -> None:
        try:
            client.emit(event)
        except Exception as error:  # transports raise what they like
            raise NotTaken(f"{type(error).__name__}: {error}") from None

    return send


class Reporter:
    """The events of one run. `send` must not wait."""

    def __init__(
        self,
        pipeline: Pipeline,
        flows: Sequence[Flow],
        send: Callable[[Any], None],
        *,
        ends: bool,
        spark_version: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ends`: the run processes the current records only."""
        from openlineage.client.event_v2 import Job, set_producer
        from openlineage.client.facet_v2 import job_type_job, processing_engine_run
        from openlineage.client.uuid import generate_new_uuid

        set_producer(f"urn:ottla:{__version__}")
        assert pipeline.lineage is not None
        self._send = send
        self._clock = clock
        self._every = millis(pipeline.lineage.every) / 1000
        self._parts = _Parts(pipeline, flows)
        self._run_id = str(generate_new_uuid())
        kind = job_type_job.JobTypeJobFacet("BATCH" if ends else "STREAMING", "OTTLA", "PIPELINE")
        self._job = Job(pipeline.lineage.namespace, pipeline.name, {"jobType": kind})
        self._engine = processing_engine_run.ProcessingEngineRunFacet(spark_version, "spark", __version__)
        self._next = self._clock() + self._every

    def started(self, board: Board) -> None:
        self._tell("START", board)

    def tick(self, board: Board) -> None:
        """Tell that the run goes on, when it is time."""
        if self._clock() >= self._next:
            self._next = self._clock() + self._every
            self._tell("RUNNING", board)

    def ended(self, board: Board, ending: Ending) -> None:
        from openlineage.client.facet_v2 import error_message_run

        message = _error(ending)
        if message is None:
            self._tell("COMPLETE" if ending.signal is None else "ABORT", board)
            return
        details = ending.failure.details[:_LONGEST_TRACE] if ending.failure is not None else None
        error = error_message_run.ErrorMessageRunFacet(message, "PYTHON", details or None)
        self._tell("FAIL", board, {"errorMessage": error})

    def _tell(self, state: str, board: Board, facets: Mapping[str, Any] | None = None) -> None:
        from openlineage.client.event_v2 import Run, RunEvent, RunState

        try:
            event = RunEvent(
                eventType=RunState[state],
                eventTime=datetime.now(UTC).isoformat(timespec="milliseconds"),
                run=Run(self._run_id, {"processing_engine": self._engine, **(facets or {})}),
                job=self._job,
                inputs=self._parts.inputs(board),
                outputs=self._parts.outputs(board),
            )
        except Exception as error:  # a lineage event is never worth a failure
            log.warning("could not make a lineage event: %s", error)
            return
        self._send(event)


def _error(ending: Ending) -> str | None:
    if ending.failure is not None:
        return "\n".join(ending.failure.lines)
    if ending.exceeded:
        return f"limit exceeded: {', '.join(one.rule for one in ending.exceeded)}"
    return None


class _Parts:
    """The inputs and outputs of a pipeline, with schemas and the origins of columns."""

    def __init__(self, pipeline: Pipeline, flows: Sequence[Flow]) -> None:
        self._pipeline = pipeline
        self._frames: dict[str, DataFrame] = {name: one for flow in flows for name, one in flow.views.items()}
        self._readers = {name: flow.sources for flow in flows for name in flow.readers}
        # A flow's sink has more than the declared one: the keys of a step with latest.
        compiled = {name: one for flow in flows for name, one in flow.readers.items() if isinstance(one, Sink)}
        self._sources = {one.name: _source_datasets(pipeline, one) for one in pipeline.sources}
        self._tables = {one.name: [datasets.of_table(pipeline, one)] for one in pipeline.tables}
        traced = trace(pipeline, {name: frame.columns for name, frame in self._frames.items()})
        self._facets = {
            name: {"schema": _schema(frame)}
            for name, frame in self._frames.items()
            if name in self._sources or name in self._tables
        }
        self._sinks = {one.name: self._sink_facets(compiled.get(one.name, one), traced) for one in pipeline.sinks}

    def inputs(self, board: Board) -> list[Any]:
        from openlineage.client.event_v2 import InputDataset

        found = []
        for name, some in {**self._sources, **self._tables}.items():
            statistics = self._read_rows(board, name) if len(some) == 1 else {}
            found += [
                InputDataset(one.namespace, one.name, statistics, facets=self._facets.get(name, {})) for one in some
            ]
        return found

    def outputs(self, board: Board) -> list[Any]:
        from openlineage.client.event_v2 import OutputDataset

        written = {one.name: one.reported_written for one in board.flows()}
        found = []
        for sink in self._pipeline.sinks:
            one = datasets.of_sink(self._pipeline, sink)
            if one is not None:
                statistics = _written(written.get(sink.name))
                found.append(OutputDataset(one.namespace, one.name, statistics, facets=self._sinks[sink.name]))
        return found + [OutputDataset(one.namespace, one.name) for one in self._letters()]

    def _letters(self) -> Iterable[Dataset]:
        letters = self._pipeline.dead_letters
        if letters is None:
            return []
        sending = [one for one in self._pipeline.sources if self._pipeline.sends_dead_letters(one)]
        read = [one for source in sending for one in self._sources[source.name]]
        return datasets.of_letters(self._pipeline, letters, read)

    def _read_rows(self, board: Board, source: str) -> dict[str, Any]:
        """The rows that were read, if a query reads only this source."""
        from openlineage.client.facet_v2 import input_statistics_input_dataset as statistics

        alone = [name for name, read in self._readers.items() if [one.name for one in read] == [source]]
        rows = [one.rows for one in board.flows() if one.name in alone and one.batches]
        return {"inputStatistics": statistics.InputStatisticsInputDatasetFacet(max(rows))} if rows else {}

    def _sink_facets(self, sink: Sink, traced: Mapping[str, Read]) -> dict[str, Any]:
        name = input_of(self._pipeline, sink) or ""
        frame, read = self._frames.get(name), traced.get(name)
        if frame is None or read is None:
            return {}
        if isinstance(sink, TopicSink):
            written = of_topic(sink, name, read)
            frame = frame.select(*written.columns) if sink.value is None else shape(sink, frame).select("value")
        else:
            frame = shape(sink, frame)
            written = Read({one: read.columns.get(one) for one in frame.columns}, read.rows)
        unknown = [one for one, origins in written.columns.items() if origins is None]
        if unknown:
            log.warning("lineage: the origin of columns of sink %s is unknown: %s", sink.name, ", ".join(unknown))
        return {"schema": _schema(frame), "columnLineage": self._column_lineage(written)}

    def _column_lineage(self, read: Read) -> Any:
        from openlineage.client.facet_v2 import column_lineage_dataset as facet

        fields = {
            name: facet.Fields([one for column, how in origins.items() for one in self._fields(column, "DIRECT", how)])
            for name, origins in read.columns.items()
            if origins is not None
        }
        whole = [one for column, how in sorted(read.rows) for one in self._fields(column, "INDIRECT", how)]
        return facet.ColumnLineageDatasetFacet(fields, whole)

    def _fields(self, column: Column, kind: str, how: str) -> list[Any]:
        from openlineage.client.facet_v2 import column_lineage_dataset as facet

        some = [*self._sources.get(column.view, ()), *self._tables.get(column.view, ())]
        return [
            facet.InputField(one.namespace, one.name, column.name, [facet.Transformation(kind, how)]) for one in some
        ]


def _source_datasets(pipeline: Pipeline, source: Source) -> list[Dataset]:
    topics: list[str] = []
    if source.pattern is not None:
        try:
            with Admin({**admin_config(pipeline, source), "default.api.timeout.ms": _LIST_MS}) as admin:
                topics = sorted(one for one in admin.list_topics() if reads(source, one))
        except OttlaError as error:
            log.warning("lineage: could not list the topics of source %s: %s", source.name, error)
    return datasets.of_source(pipeline, source, topics)


def _written(rows: int | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import output_statistics_output_dataset as statistics

    return {} if rows is None else {"outputStatistics": statistics.OutputStatisticsOutputDatasetFacet(rows)}


def _schema(frame: DataFrame) -> Any:
    from openlineage.client.facet_v2 import schema_dataset

    return schema_dataset.SchemaDatasetFacet(_schema_fields(frame.schema))


def _schema_fields(schema: Any) -> list[Any]:
    from openlineage.client.facet_v2 import schema_dataset

    return [
        schema_dataset.SchemaDatasetFacetFields(
            one.name,
            one.dataType.typeName() if hasattr(one.dataType, "fields") else one.dataType.simpleString(),
            fields=_schema_fields(one.dataType) if hasattr(one.dataType, "fields") else [],
        )
        for one in schema.fields
    ]
