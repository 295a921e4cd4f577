"""Which sinks share a read. No Spark.

    <checkpoint>/table/                the checkpoint of a sink that reads by itself
    <checkpoint>/shared/orders/        the checkpoint of the shared read of source orders, with Spark's files and
        readers.json                   the sinks that share it: {"readers": ["table"], "left": {"copies": 7}}
        late/table/12/                 records of batch 12 that sink table, which has max_delay, has not written yet

The sinks are fixed when the shared read first starts, because a sink that joined later would miss the earlier records.
So a new sink reads by itself, and so does a sink with a checkpoint of its own from an older version. A sink that has
left (it was removed, say) cannot come back: it would miss the records in between, or repeat the earlier ones.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.spark.pipelines.checks.modes import input_of, joins_stream
from ottla.spark.pipelines.declaration import (
    DEAD_LETTERS,
    SHARED,
    Dedupe,
    Join,
    Latest,
    Pipeline,
    Python,
    Sink,
    Source,
    Sql,
    Step,
)
from ottla.spark.pipelines.places import place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

READERS = "readers.json"
LATE = "late"


class LayoutError(OttlaError):
    """A checkpoint does not fit the pipeline."""


@dataclass(frozen=True, slots=True)
class Readers:
    """The contents of `readers.json`."""

    readers: tuple[str, ...]
    """The sinks, and `dead-letters.<source>`."""
    left: Mapping[str, int] = field(default_factory=dict)
    """Former readers, with the last batch that they have."""

    @classmethod
    def parse(cls, text: str, where: str) -> Readers:
        """
        >>> Readers.parse('{"readers": ["table"], "left": {"copies": 7}}', "state").left
        {'copies': 7}
        """
        try:
            found = json.loads(text)
            return cls(tuple(map(str, found["readers"])), {str(name): int(one) for name, one in found["left"].items()})
        except (ValueError, KeyError, TypeError, AttributeError):
            raise LayoutError(f"{where}/{READERS} is damaged: restore it from a backup") from None

    def text(self) -> str:
        return json.dumps({"readers": list(self.readers), "left": dict(self.left)})

    def now(self, readers: Sequence[str], last: int) -> Readers:
        """The readers from the next batch on; those that are gone leave after batch `last`.

        >>> Readers(("table", "copies")).now(["table"], 7)
        Readers(readers=('table',), left={'copies': 7})
        """
        gone = {name: last for name in self.readers if name not in readers}
        return Readers(tuple(readers), {**self.left, **gone})

    def without(self, reader: str) -> Readers:
        """Forget a reader, as if it had never shared."""
        readers = tuple(name for name in self.readers if name != reader)
        return Readers(readers, {name: one for name, one in self.left.items() if name != reader})


def shared_name(source: str) -> str:
    """The name of the flow that reads a source for several sinks."""
    return f"{SHARED}.{source}"


def letters_name(source: str) -> str:
    """The name of the flow that writes the dead letters of a source."""
    return f"{DEAD_LETTERS}.{source}"


def shared_directory(pipeline: Pipeline, source: str) -> str:
    """The checkpoint of the shared read of a source."""
    return pipeline.checkpoint_of(SHARED, source)


def own_directory(pipeline: Pipeline, reader: str) -> str:
    """The checkpoint of a sink, or of `dead-letters.<source>`, that reads by itself."""
    for source in pipeline.sources:
        if reader == letters_name(source.name):
            return pipeline.checkpoint_of(DEAD_LETTERS, source.name)
    return pipeline.checkpoint_of(reader)


def chosen(able: Sequence[str], own: Iterable[str], known: Readers | None) -> list[str]:
    """The readers that share, of those that are `able` to; `own` have a checkpoint of their own.

    >>> chosen(["table", "copies", "new"], ["new"], None), chosen(["table"], [], None)
    (['table', 'copies'], [])
    >>> chosen(["table", "copies", "new"], [], Readers(("table", "copies")))
    ['table', 'copies']
    """
    if known is not None:
        return [name for name in able if name in known.readers]
    apart = set(own)
    found = [name for name in able if name not in apart]
    return found if len(found) > 1 else []


def check_alone(reader: str, source: str, known: Readers | None, reset: str) -> None:
    """Refuse that a present or former reader of a shared read reads by itself: its rows would be repeated.

    `reset` says how to start it from the beginning.
    """
    if known is not None and reader in known.left:
        raise LayoutError(
            f"{reader} was removed from the shared read of source {source} after batch {known.left[reader]}, so it "
            f"cannot go on from there. To start it from the beginning, {reset}"
        )
    if known is not None and reader in known.readers:
        raise LayoutError(
            f"{reader} is part of the shared read of source {source}, but now it needs a query of its own: its steps "
            "keep state, or its mode or format, or read of the pipeline has changed. Undo that. Or, to start it from "
            f"the beginning, {reset}"
        )


@dataclass(frozen=True, slots=True)
class State:
    """What the checkpoint of a pipeline says about its readers."""

    apart: frozenset[str]
    """Readers with a checkpoint of their own."""
    readers: Mapping[str, Readers]
    """Of each source with a shared read."""

    @classmethod
    def of(cls, pipeline: Pipeline, spark: SparkSession | None = None) -> State:
        """Read it. Without Spark, a checkpoint that is not local seems to be new."""
        letters = [letters_name(source.name) for source in pipeline.sources]
        names = [*(sink.name for sink in pipeline.sinks), *letters]
        apart = frozenset(name for name in names if _is_checkpoint(own_directory(pipeline, name), spark))
        found: dict[str, Readers] = {}
        for source in pipeline.sources:
            where = shared_directory(pipeline, source.name)
            directory = place(where, spark)
            text = None if directory is None else directory.read(READERS)
            if text is not None:
                found[source.name] = Readers.parse(text, where)
        return cls(apart, found)

    def source_of(self, reader: str) -> str | None:
        """The source whose shared read has this reader."""
        return next((source for source, one in self.readers.items() if reader in one.readers), None)


def _is_checkpoint(where: str, spark: SparkSession | None) -> bool:
    directory = place(where, spark)
    return directory is not None and not {"metadata", "offsets"}.isdisjoint(directory.names())


def how_to_reset(pipeline: Pipeline, reader: str) -> str:
    """Advice: how to start a reader from the beginning."""
    file = pipeline.where.file
    if not Path(file).is_file():
        return "load the pipeline from a file, and run `ottla pipeline reset` with it"
    return f"run `ottla pipeline reset {shlex.quote(file)} --sink {reader}`"


# ── What to expect before the first run ──────────────────────────────────────────────────────────────────────────────


def could_share(sink: Sink) -> bool:
    """Whether a sink's mode allows it."""
    return sink.mode in (None, "append", "upsert")


def sql_of(pipeline: Pipeline, step: Sql) -> str:
    """The text of a SQL step."""
    return step.sql or Path(pipeline.path(step.sql_file or "")).read_text()


def inputs_of(pipeline: Pipeline, part: Step | Sink) -> set[str]:
    """The names of the sources, steps and tables that a part uses. In SQL, that is every word that is such a name."""
    if isinstance(part, Sql):
        text = sql_of(pipeline, part)
        names = [one.name for parts in (pipeline.sources, pipeline.tables, pipeline.steps) for one in parts]
        used = {name for name in names if re.search(rf"\b{re.escape(name)}\b", text, re.IGNORECASE)}
        return used - {part.name}
    return {input_of(pipeline, part) or "", *([part.join] if isinstance(part, Join) else [])}


def expected(pipeline: Pipeline) -> dict[str, list[str]]:
    """By source, the readers that a first run lets share its read, as far as the declaration tells.

    SQL and Python steps count as stateless here. Only Spark knows: see plans.py.
    """
    if pipeline.read == "separate":
        return {}
    found = {source.name: _expected(pipeline, source) for source in pipeline.sources}
    return {source: readers for source, readers in found.items() if len(readers) > 1}


def _expected(pipeline: Pipeline, source: Source) -> list[str]:
    letters = [letters_name(source.name)] if pipeline.sends_dead_letters(source) else []
    heads: dict[str | None, list[str]] = {}
    for sink in pipeline.sinks:
        before = names_before(pipeline, sink)
        stateful = [one for one in pipeline.steps if one.name in before and not _by_row(pipeline, one)]
        others = [one.name for one in pipeline.sources if one is not source and one.name in before]
        if not could_share(sink) or source.name not in before or others or len(stateful) > 1:
            continue
        head = [one.name for one in stateful]
        if has_late_rules(pipeline, sink, [one for one in pipeline.steps if one.name in before - {*head}]):
            continue
        if not stateful:
            heads.setdefault(None, []).append(sink.name)
        elif isinstance(stateful[0], Dedupe) and input_of(pipeline, stateful[0]) == source.name:
            heads.setdefault(stateful[0].name, []).append(sink.name)
    best = max(heads.values(), key=len, default=[])
    return [*best, *letters] if best else []


def names_before(pipeline: Pipeline, sink: Sink) -> set[str]:
    """The names of the sources, steps and tables that a sink depends on."""
    found = inputs_of(pipeline, sink)
    for step in reversed(pipeline.steps):
        if step.name in found:
            found |= inputs_of(pipeline, step)
    return found


def has_late_rules(pipeline: Pipeline, sink: Sink, steps: Iterable[Step]) -> bool:
    """Whether a sink may be late, and its steps have rules: their counts would come after the end of their batch."""
    names = {input_of(pipeline, rule) for rule in pipeline.expects}
    return sink.max_delay is not None and any(step.name in names for step in steps)


def _by_row(pipeline: Pipeline, step: Step) -> bool:
    return isinstance(step, Sql | Python | Latest) or (isinstance(step, Join) and not joins_stream(pipeline, step))
