"""What a declaration says about the audit of a sink. Does not need Spark."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ottla.spark.audit.positions import AuditError
from ottla.spark.audit.report import AuditReport
from ottla.spark.pipelines.declaration import (
    ORIGIN,
    DatabaseSink,
    Dedupe,
    FileSink,
    JdbcSink,
    Join,
    LakeSink,
    Pipeline,
    Sink,
    Source,
    Sql,
    Step,
    TopicSink,
)
from ottla.spark.pipelines.shared.layout import names_before
from ottla.types import Millis

#: The columns that say from which record a row is.
PLACE = ORIGIN[:3]
_LATEST = -1


class NotAuditable(AuditError):
    """The rows of a sink cannot be compared with records."""


@dataclass(frozen=True, slots=True)
class Upstream:
    """What a sink depends on."""

    sources: tuple[Source, ...]
    steps: tuple[Step, ...]

    @property
    def dedupe(self) -> Dedupe | None:
        """The last dedupe before the sink."""
        return next((one for one in reversed(self.steps) if isinstance(one, Dedupe)), None)


def upstream_of(pipeline: Pipeline, sink: Sink) -> Upstream:
    """The sources and steps of a sink, in their order."""
    names = names_before(pipeline, sink)
    return Upstream(
        tuple(one for one in pipeline.sources if one.name in names),
        tuple(one for one in pipeline.steps if one.name in names),
    )


def check_fits(sink: Sink) -> None:
    """Raise NotAuditable if rows of the sink do not say from which record they are."""
    if (sink.mode or "append") != "append":
        raise NotAuditable(f"with mode {sink.mode}, its rows change")
    if isinstance(sink, FileSink):
        if sink.format == "csv":
            raise NotAuditable("CSV files do not name their columns")
        if sink.origin is False or (sink.origin is None and sink.format == "json"):
            raise NotAuditable("its files have no _topic, _partition and _offset: set origin = true for new files")
    elif isinstance(sink, TopicSink | JdbcSink | DatabaseSink | LakeSink):
        if not isinstance(sink, TopicSink) and sink.keys:
            raise NotAuditable("with keys, later rows replace earlier ones")
        if not sink.origin and not (isinstance(sink, LakeSink) and sink.origin is None):
            raise NotAuditable("its rows do not say from which record they are: set origin = true for new rows")
    else:
        raise NotAuditable("it keeps no rows")


def missing_origin(columns: Iterable[str]) -> str:
    """
    >>> missing_origin(["id", "_offset"]), missing_origin(PLACE)
    ('_topic and _partition', '')
    """
    known = set(columns)
    return " and ".join(", ".join(one for one in PLACE if one not in known).rsplit(", ", 1))


def since_of(source: Source, topic: str, since: Millis | None) -> Millis | None:
    """The first time to audit; raises NotAuditable if the source began at an offset that nobody knows any more."""
    begins = source.starting_offsets
    open_end = begins != "earliest" if isinstance(begins, str) else _LATEST in begins.get(topic, {}).values()
    if since is None and open_end and source.starting_timestamp is None:
        raise NotAuditable(
            f"source {source.name} begins at {begins if isinstance(begins, str) else 'the end (-1)'}, so its first "
            "record is not known: use --since with a later time"
        )
    return max((one for one in (since, source.starting_timestamp) if one is not None), default=None)


def starts_of(source: Source, topic: str) -> dict[int, int]:
    """The declared first offsets."""
    if isinstance(source.starting_offsets, str) or source.starting_timestamp is not None:
        return {}
    return {int(one): max(offset, 0) for one, offset in source.starting_offsets.get(topic, {}).items()}


def notes_of(report: AuditReport, upstream: Upstream) -> Iterator[str]:
    total, dedupe = report.total, upstream.dedupe
    if total.filtered:
        yield (
            "filtered records are those that the rules and steps of the pipeline remove when they run again over the "
            "source now; the audit cannot tell whether they were right to do so"
        )
    tables = [one.join for one in upstream.steps if isinstance(one, Join)]
    if (total.filtered or total.lost) and (tables or any(isinstance(one, Sql) for one in upstream.steps)):
        names = f"tables ({', '.join(tables)})" if tables else "tables in SQL"
        yield f"{names} were read now: if they have changed, records may be filtered or lost here, and were not then"
    if dedupe is not None and total.lost:
        yield f"dedupe also drops events that are later than {dedupe.within}, which count as lost here"
    if dedupe is not None and total.repeated:
        yield f"dedupe keeps repeats that are more than {dedupe.within} apart, which count as repeated here"
