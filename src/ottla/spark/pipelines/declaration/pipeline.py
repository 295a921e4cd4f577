"""A whole declaration, with what is about all of its parts: rules, lineage and events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias, TypeVar

from ottla.spark.pipelines.declaration.base import DEAD_LETTERS, Where, caller, doc
from ottla.spark.pipelines.declaration.sinks import DeadLetters, Sink
from ottla.spark.pipelines.declaration.sources import Source, Table
from ottla.spark.pipelines.declaration.steps import Step

Otherwise = Literal["warn", "drop", "dead-letter", "fail"]


@dataclass(frozen=True, kw_only=True)
class Expect:
    """A rule for the rows of a source or step. Its users see only the rows that the rule leaves."""

    title: ClassVar[str] = "[[expect]]"
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name in reports and metrics.", example='"positive_total"'))
    input: str | None = field(
        default=None, metadata=doc("The source or step. Default: the last step, or the only source.")
    )
    that: str = field(
        metadata=doc(
            "A SQL condition on the columns. A row for which it is false breaks the rule; as in CHECK of SQL, NULL is "
            "not false.",
            example='"total >= 0"',
            sql="expression",
        )
    )
    otherwise: Otherwise = field(
        default="warn",
        metadata=doc(
            "What to do with a row that breaks the rule. warn: count it; drop: remove it; dead-letter: send its record "
            "to the dead letters (input must be a source); fail: stop the pipeline before the batch is written."
        ),
    )
    at_most: int | str | None = field(
        default=None,
        metadata=doc(
            "Stop the run with exit code 4 if more rows than this break the rule: a number of rows of a run, or a "
            'percentage such as `"1%"`. See [limits](#limits).'
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """Events of OpenLineage about each run: what it reads and writes, and which columns come from which."""

    title: ClassVar[str] = "[lineage]"
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
    namespace: str = field(default="ottla", metadata=doc("The namespace of the job; its name is that of the pipeline."))
    transport: Mapping[str, Any] = field(
        default_factory=dict,
        metadata=doc(
            'Where events go, as in OpenLineage\'s configuration: `{type = "http", url = "http://localhost:5000"}`. '
            "Default: OpenLineage's own configuration, which is `openlineage.yml` or environment variables such as "
            "`OPENLINEAGE_URL`."
        ),
    )
    every: str = field(default="1 minute", metadata=doc("How often a running pipeline is reported.", time=True))


@dataclass(frozen=True, kw_only=True)
class Events:
    """Where to tell that the pipeline stops or stalls, or that dead letters rise. Use one or more places."""

    title: ClassVar[str] = "[events]"
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
    webhook: str | None = field(
        default=None, metadata=doc("Post each event to this address. `${env:NAME}` keeps a secret out of the file.")
    )
    log: str | None = field(default=None, metadata=doc("Append each event to this file, as a line of JSON."))
    topic: str | None = field(default=None, metadata=doc("Write each event to this topic of the pipeline's cluster."))
    stalled: str = field(
        default="5 minutes", metadata=doc("A flow stalls if it works this long without finishing a batch.", time=True)
    )
    quiet: str = field(
        default="1 minute", metadata=doc("After an event about dead letters, tell of more of them together.", time=True)
    )
    repeat: str = field(default="1 hour", metadata=doc("Tell again of a flow that still stalls.", time=True))


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """Sources, steps and sinks, and settings for all of them."""

    title: ClassVar[str] = "the file"
    where: Where = field(default_factory=caller, init=False, repr=False, compare=False)
    name: str = field(metadata=doc("The name of the pipeline.", example='"orders"'))
    checkpoint: str = field(
        metadata=doc(
            "The directory with the progress of each sink. Keep it: `ottla pipeline reset` starts sinks again.",
            example='"state/orders"',
        )
    )
    bootstrap_servers: str | None = field(default=None, metadata=doc("The cluster: `localhost:9092`."))
    trigger: str = field(
        default="0 seconds",
        metadata=doc(
            "When micro-batches run: an interval such as `10 seconds` (0: as soon as records arrive), `available-now` "
            "(process all current records, then stop), or `once` (the same in one micro-batch)."
        ),
    )
    read: Literal["shared", "separate"] = field(
        default="shared",
        metadata=doc(
            "shared: read and parse a source once for all sinks and dead letters that keep no state of their own; "
            "separate: a query for each of them."
        ),
    )
    kafka: Mapping[str, str] = field(
        default_factory=dict,
        metadata=doc('Client configs, without the prefix `kafka.`: `"security.protocol" = "SSL"`.'),
    )
    spark: Mapping[str, str] = field(default_factory=dict, metadata=doc("Spark settings."))
    sources: Sequence[Source] = field(metadata=doc("At least one.", key="source"))
    tables: Sequence[Table] = field(default=(), metadata=doc("Tables for joins.", key="table"))
    steps: Sequence[Step] = field(default=(), metadata=doc("Transformations, in order.", key="step"))
    expects: Sequence[Expect] = field(default=(), metadata=doc("Rules for rows.", key="expect"))
    sinks: Sequence[Sink] = field(metadata=doc("At least one.", key="sink"))
    dead_letters: DeadLetters | None = field(default=None, metadata=doc("The topic for broken records."))
    lineage: Lineage | None = field(default=None, metadata=doc("Events of OpenLineage."))
    events: Events | None = field(default=None, metadata=doc("Where to tell of problems."))
    directory: Path = field(default_factory=Path, init=False, repr=False, compare=False)
    """The base of relative paths: the directory of the file, or the working directory."""

    def path(self, text: str) -> str:
        """Resolve a path relative to `directory`; absolute paths and URLs stay unchanged."""
        if "://" in text or text.startswith(("/", "file:", "hdfs:", "s3:", "dbfs:")):
            return text
        return str((self.directory / text).resolve())

    def checkpoint_of(self, sink: str, source: str | None = None) -> str:
        """The checkpoint directory of a sink's query; `source` for the dead letters of a source."""
        return "/".join([self.path(self.checkpoint).rstrip("/"), sink, *([source] if source else [])])

    def sends_dead_letters(self, source: Source) -> bool:
        return self.dead_letters is not None and source.on_error in (None, DEAD_LETTERS)


Declared: TypeAlias = Source | Table | Step | Expect | Sink | DeadLetters | Lineage | Events | Pipeline


_Part = TypeVar("_Part", bound=Declared)


def changed(part: _Part, **changes: Any) -> _Part:
    """A copy that keeps its place in the file, for error messages."""
    found = replace(part, **changes)
    object.__setattr__(found, "where", part.where)
    if isinstance(part, Pipeline):
        object.__setattr__(found, "directory", part.directory)
    return found
