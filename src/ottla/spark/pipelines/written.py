"""Refuse to start a query whose output has more batches than its checkpoint.

Every exactly-once sink remembers the numbers of the batches that it has written: Spark's file sink in
`_spark_metadata` of the table, a topic sink in its ledger, a jdbc sink in `ottla_batches`, Delta and Iceberg in the
commit. A batch with a known number is skipped, because it was written before a crash. That is wrong if the numbers come
from another checkpoint: a new one starts at 0, and one from a backup goes back, so that new rows would be skipped and
lost without an error.

A healthy output has no batch after the last *planned* one of the checkpoint (`offsets`). `check_written` is that rule.
Spark's file log does not say which query wrote it, so a table also gets the file `_ottla_writer` with the query's id.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid5

from ottla.clients.admin.blocking import Admin
from ottla.spark.ledger import Ledger
from ottla.spark.options import EXACTLY_ONCE, ID_PREFIX
from ottla.spark.pipelines.checkpoints import CheckpointError, last_planned, query_id, read_id
from ottla.spark.pipelines.declaration import DeadLetters, FileSink, Pipeline, Sink, TopicSink
from ottla.spark.pipelines.failures import WrittenError
from ottla.spark.pipelines.places import Place, place
from ottla.spark.pipelines.runner import admin_config
from ottla.spark.pipelines.stateful import check_state

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG = "_spark_metadata"
WRITER = "_ottla_writer"
_BATCH = re.compile(r"(\d+)(\.compact)?")


@dataclass(frozen=True, slots=True)
class Writer:
    """The query that writes an output."""

    pipeline: str
    sink: str
    query: str
    checkpoint: str
    planned: int = -1
    """The last planned batch of the checkpoint; -1 if it is new."""
    file: str = ""
    """The file of the pipeline, for advice."""

    @property
    def reset(self) -> str:
        """How to start again."""
        if not Path(self.file).is_file():
            return f"move the output and the checkpoint {self.checkpoint} away"
        return f"run `ottla pipeline reset {shlex.quote(self.file)} --sink {self.sink}`"


def check_written(what: str, written: int, writer: Writer, *, instead: str = "") -> None:
    """Refuse an output with batches that its query has not planned.

    `written` is the last batch in the output, or -1. `instead` is another way out than a reset.

    >>> check_written("the table t", 7, Writer("orders", "table", "", "state/table", planned=7))    # may be repeated
    """
    planned = writer.planned
    if written <= planned:
        return
    if planned < 0:
        why = f"the checkpoint {writer.checkpoint} is new"
        advice = f"To start again from the beginning, {writer.reset}{instead}"
    else:
        why = f"the checkpoint {writer.checkpoint} ends at batch {planned}: one of them is from a backup or a copy"
        advice = f"Restore both from the same time. Or, to start again from the beginning, {writer.reset}"
    raise WrittenError(
        f"{what} has batches up to {written}, but {why}. The batches {planned + 1} to {written} would be skipped and "
        f"their rows lost. {advice}"
    )


def last_written(names: Iterable[str]) -> int:
    """The last batch in the names of a file log, or -1.

    >>> last_written(["8", "9.compact", "10", ".10.crc"]), last_written([])
    (10, -1)
    """
    return max((int(found[1]) for name in names if (found := _BATCH.fullmatch(name))), default=-1)


def claim_table(table: Place, where: str, writer: Writer) -> None:
    """Refuse a table that another query or checkpoint has written; otherwise mark it as written by this query."""
    what = f"the table {where}"
    check_written(what, last_written(table.names(LOG)), writer, instead=", or set another path for the sink")
    owner = _owner(table)
    if owner is None:
        known = {"pipeline": writer.pipeline, "sink": writer.sink, "query": writer.query}
        owner = writer if table.create(WRITER, json.dumps(known)) else _owner(table)
    if owner is not None and owner.query != writer.query:
        raise WrittenError(
            f"{what} belongs to sink {owner.sink} of pipeline {owner.pipeline} with another checkpoint. Two queries "
            "with one table lose rows: each skips the batch numbers of the other. Set another path for the sink. Or, "
            f"if nothing else writes this table, {writer.reset} to start again from the beginning"
        )


def _owner(table: Place) -> Writer | None:
    text = table.read(WRITER)
    if text is None:
        return None
    try:
        found = json.loads(text)
        return Writer(str(found["pipeline"]), str(found["sink"]), str(found["query"]), "")
    except (ValueError, KeyError, TypeError):
        return Writer("(unknown)", "(unknown)", "", "")


def guard(
    spark: SparkSession, pipeline: Pipeline, sink: Sink | DeadLetters, name: str, where: str, *, shared: bool = False
) -> Writer | None:
    """Check the checkpoint and the output of a query before it starts; returns the query, None with Spark Connect.

    `shared`: the query writes other sinks, too, so the result has the id of the sink.
    """
    checkpoint = place(where, spark)
    if checkpoint is None or not hasattr(spark, "_jsparkSession"):
        return None  # the directories are on the server
    writer = Writer(pipeline.name, name, "", where, last_planned(checkpoint.names("offsets")), pipeline.where.file)
    try:
        known = read_id(checkpoint, where)
    except CheckpointError as error:
        raise WrittenError(
            f"{error}. Restore this file from a backup. Or, to start again from the beginning, {writer.reset}"
        ) from None
    if isinstance(sink, Sink):
        check_state(checkpoint, where, pipeline, sink, is_new=writer.planned < 0, reset=writer.reset)
    writer = replace(writer, query=known or query_id(spark, where))
    if isinstance(sink, FileSink) and sink.path:
        path = pipeline.path(sink.path)
        table = place(path, spark)
        assert table is not None, "the session is classic"
        claim_table(table, path, writer)
    elif isinstance(sink, TopicSink | DeadLetters) and sink.deliver == EXACTLY_ONCE and known is not None:
        what = "the dead letter topic" if isinstance(sink, DeadLetters) else f"topic {sink.topic}"
        group = shared_ledger_group(sink, sink_id(known, name)) if shared else ledger_group(sink, known)
        check_written(what, last_decided(pipeline, sink, group), writer)
    return replace(writer, query=sink_id(writer.query, name)) if shared else writer


def last_decided(pipeline: Pipeline, sink: TopicSink | DeadLetters, group: str) -> int:
    """The last batch in a ledger, or -1."""
    with Admin(admin_config(pipeline, sink)) as admin:
        return Ledger.newest(group, admin.list_group_offsets(group).values()).batch


def ledger_group(sink: TopicSink | DeadLetters, query: str) -> str:
    """The group with the ledger; changed rows are written in batch jobs, whose ledgers have the topic in the name."""
    changed = isinstance(sink, TopicSink) and sink.mode == "update"
    return f"{ID_PREFIX}-{query}" + (f"-{sink.topic}" if changed else "")


def shared_ledger_group(sink: TopicSink | DeadLetters, sink_id: str) -> str:
    """The group with the ledger of a sink of a shared read, which is written in batch jobs."""
    return f"{ID_PREFIX}-{sink_id}-{sink.topic if isinstance(sink, TopicSink) else ''}"


def sink_id(query: str, name: str) -> str:
    """The id under which a sink of a shared read stores its batches.

    >>> sink_id("5c1cf2a0-6a0e-4a2f-9d6e-1f2d3c4b5a69", "table")
    'c3fccdd9-850b-50a4-8163-028043b9490d'
    """
    return str(uuid5(UUID(query), name))
