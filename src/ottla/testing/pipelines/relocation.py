"""Move a pipeline to a test: its topics to an embedded broker, its files to a temporary directory.

Names of topics, columns and steps stay the same. Sinks that need another system are captured instead (`is_captured`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from ottla.spark.pipelines.declaration import (
    FileSink,
    Pipeline,
    Sink,
    Source,
    Table,
    TopicSink,
    changed,
)
from ottla.testing.pipelines.records import plain_json

_WRITTEN = ("parquet", "orc", "json", "csv")
#: Settings of the session that are the test's own.
_KEPT_FAST = ("spark.sql.shuffle.partitions",)


def relocated(pipeline: Pipeline, servers: str, directory: Path, tables: Mapping[str, Sequence[Any]]) -> Pipeline:
    """The same pipeline on another broker, with other directories; `tables` replaces the rows of tables."""
    letters = pipeline.dead_letters
    return changed(
        pipeline,
        checkpoint=str(directory / "checkpoint"),
        bootstrap_servers=servers,
        trigger="available-now",
        read="separate",  # the rows of each sink are taken from its own query
        kafka={},
        sources=[_source(one) for one in pipeline.sources],
        tables=[_table(one, directory, tables.get(one.name)) for one in pipeline.tables],
        sinks=[changed(_sink(one, directory), max_delay=None) for one in pipeline.sinks],
        dead_letters=None if letters is None else changed(letters, bootstrap_servers=None, kafka={}),
        lineage=None,
        events=None,
    )


def is_captured(sink: Sink) -> bool:
    """Whether the test takes the rows before they are written, because writing needs another system."""
    return not isinstance(sink, TopicSink) and not (isinstance(sink, FileSink) and sink.format in _WRITTEN)


def session_settings(pipeline: Pipeline) -> dict[str, str]:
    """The pipeline's settings that a running session accepts; time is UTC unless the pipeline says otherwise."""
    own = {
        name: str(value)
        for name, value in pipeline.spark.items()
        if name.startswith("spark.sql.") and name not in _KEPT_FAST
    }
    return {"spark.sql.session.timeZone": "UTC", **own}


def _source(source: Source) -> Source:
    """Read all records of the test, a whole batch at a time."""
    return changed(
        source,
        bootstrap_servers=None,
        kafka={},
        starting_offsets="earliest",
        starting_timestamp=None,
        max_offsets_per_trigger=None,
        min_partitions=None,
    )


def _table(table: Table, directory: Path, rows: Sequence[Any] | None) -> Table:
    if rows is None:
        return table
    file = directory / "tables" / f"{table.name}.json"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text("".join(json.dumps(row, ensure_ascii=False, default=plain_json) + "\n" for row in rows))
    return changed(table, format="json", path=str(file), topic=None, options={})


def _sink(sink: Sink, directory: Path) -> Sink:
    if isinstance(sink, TopicSink):
        return changed(sink, bootstrap_servers=None, kafka={})
    if isinstance(sink, FileSink) and not is_captured(sink):
        return changed(sink, path=str(directory / "sinks" / sink.name))
    return sink


def without_tables(pipeline: Pipeline, names: Collection[str]) -> Pipeline:
    """The pipeline for a check in which the files of some tables need not exist."""
    tables = [
        changed(one, format="json", path="/", topic=None) if one.name in names else one for one in pipeline.tables
    ]
    return changed(pipeline, tables=tables)
