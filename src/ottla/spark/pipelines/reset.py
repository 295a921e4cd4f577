"""Start flows of a pipeline again from the beginning: move their checkpoints and tables aside.

    plan = plan_reset(load("orders.toml"), ["table"])
    reset(plan)

Nothing is deleted but committed offsets: a checkpoint and a table get another name beside the old one. The checkpoint
goes first. If the rest fails, the next run refuses the old table instead of writing a part of the rows into a new one.
"""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from ottla.clients.admin.blocking import Admin
from ottla.errors import OttlaError
from ottla.spark.options import COMMITTED, EXACTLY_ONCE
from ottla.spark.pipelines.changes.sinks import with_keys
from ottla.spark.pipelines.checkpoints import CheckpointError, read_id
from ottla.spark.pipelines.databases.names import Name
from ottla.spark.pipelines.databases.statements import Statements
from ottla.spark.pipelines.declaration import (
    ConsoleSink,
    DatabaseSink,
    DeadLetters,
    FileSink,
    JdbcSink,
    LakeSink,
    Pipeline,
    Sink,
    TopicSink,
)
from ottla.spark.pipelines.jdbc.sink import BATCHES, stage_of
from ottla.spark.pipelines.lakes.iceberg import IcebergLake
from ottla.spark.pipelines.lakes.opening import open_lake
from ottla.spark.pipelines.places import Local
from ottla.spark.pipelines.run_lock import local_path
from ottla.spark.pipelines.runner import admin_config, reads
from ottla.spark.pipelines.shared.layout import LATE, READERS, Readers, State, shared_directory
from ottla.spark.pipelines.status import FlowPlace, flows_of, groups_for
from ottla.spark.pipelines.written import LOG, ledger_group, shared_ledger_group, sink_id
from ottla.types import TopicPartition

ASK_MS = 10_000


class ResetError(OttlaError):
    """A flow cannot be reset; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Move:
    """A directory that gets another name."""

    what: str
    path: Path
    to: Path


@dataclass(frozen=True, slots=True)
class Renamed:
    """A table of a catalog that gets another name."""

    table: str
    to: str
    rename: Callable[[], None] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Forgotten:
    """Committed offsets that are deleted, because the source would start at them."""

    group: str
    partitions: tuple[TopicPartition, ...]
    config: dict[str, object]


@dataclass(frozen=True, slots=True)
class FlowReset:
    """The plan for one flow."""

    flow: str
    moves: tuple[Move, ...]
    offsets: tuple[Forgotten, ...]
    notes: tuple[str, ...]
    """What to know or to do before the next run."""
    leaves: Path | None = None
    """The checkpoint of a shared read that it leaves, because others go on with it."""
    renames: tuple[Renamed, ...] = ()

    @property
    def undo(self) -> list[str]:
        """Shell commands that move everything back, if there was no run in between."""
        return [shlex.join(["mv", str(move.to), str(move.path)]) for move in reversed(self.moves)]


def plan_reset(pipeline: Pipeline, flows: Sequence[str], *, now: float | None = None) -> list[FlowReset]:
    """What a reset of these flows does; changes nothing. `now` is in epoch seconds."""
    when = time.strftime("%Y%m%d-%H%M%S", time.gmtime(now))
    pipeline, places = with_keys(pipeline), flows_of(pipeline)
    return [_Planner(pipeline, one, flows, places, when).plan() for one in places if one.name in flows]


class _Planner:
    def __init__(
        self, pipeline: Pipeline, flow: FlowPlace, flows: Sequence[str], places: Sequence[FlowPlace], when: str
    ) -> None:
        """`flows` are the names of all flows that are reset, `places` all flows of the pipeline."""
        self._pipeline = pipeline
        self._place = flow
        self._flow = flow.name
        self._directory = flow.directory
        self._when = when
        self._shared = [one.shares for one in places if one.shares is not None]
        readers = [one.name for one in places if one.shares == flow.shares]
        self._is_first = flow.shares is None or flow.name == readers[0]
        self._is_whole = flow.shares is None or set(readers) <= set(flows)
        """Whether the whole query of the flow is reset."""
        sinks: dict[str, Sink] = {sink.name: sink for sink in pipeline.sinks}
        self._sink: Sink | DeadLetters | None = sinks.get(flow.name, pipeline.dead_letters)

    def plan(self) -> FlowReset:
        checkpoint = self._local(self._directory, "checkpoint")
        leaves = self._leaves()
        if leaves is not None:
            moves = [*self._move("stored rows", leaves / LATE / self._flow)]
        else:
            moves = [*self._move("checkpoint", checkpoint)] if self._is_first and self._is_whole else []
        moves += self._tables()
        return FlowReset(
            self._flow,
            tuple(moves),
            tuple(self._offsets()),
            tuple(self._notes(checkpoint, leaves)),
            leaves,
            tuple(self._renames()),
        )

    def _leaves(self) -> Path | None:
        """The checkpoint of a shared read that the flow leaves, or has left, and that others use."""
        for source, known in State.of(self._pipeline).readers.items():
            if self._flow in known.left or (self._flow in known.readers and not self._is_whole):
                return self._local(shared_directory(self._pipeline, source), "checkpoint")
        return None

    def _local(self, where: str, what: str) -> Path:
        path = local_path(where)
        if path is None:
            raise ResetError(
                f"flow {self._flow}: the {what} {where} is not a local directory, so it cannot be moved here. Stop the "
                f"pipeline, and move its checkpoint {self._directory} and then its table to other names yourself"
            )
        return path

    def _move(self, what: str, path: Path) -> Iterator[Move]:
        if os.path.lexists(path):
            to = path.with_name(f"{path.name}.before-{self._when}")
            if os.path.lexists(to):
                raise ResetError(f"{to} exists already: wait a second, and try again")
            yield Move(what, path, to)

    def _tables(self) -> Iterator[Move]:
        sink = self._sink
        if (where := _directory_of(sink)) is None or sink is None:
            return
        path = self._local(self._pipeline.path(where), "table")
        for what, inner in self._others(sink):
            if inner.resolve().is_relative_to(path.resolve()):
                raise ResetError(
                    f"flow {self._flow}: the table {path} contains {what} {inner}, so it cannot be moved. Move the "
                    "files of the table away yourself, or set another path for the sink"
                )
        for move in self._move("table", path):
            yield move
            if (path / LOG).is_dir():
                # It has absolute paths, so that Spark would not find the files in their new place.
                yield Move("file log", move.to / LOG, move.to / f"{LOG}.old")

    def _renames(self) -> Iterator[Renamed]:
        sink = self._sink
        if isinstance(sink, LakeSink) and sink.table:
            lake = open_lake(self._pipeline, sink)
            if isinstance(lake, IcebergLake) and lake.columns() is not None:
                to = f"{sink.table}_before_{self._when.replace('-', '_')}"
                yield Renamed(sink.table, to, partial(lake.rename, to))

    def _others(self, sink: Sink | DeadLetters) -> Iterator[tuple[str, Path]]:
        """Directories that must stay where they are."""
        pipeline = self._pipeline
        yield "the directory of the pipeline", pipeline.directory
        if (checkpoint := local_path(pipeline.path(pipeline.checkpoint))) is not None:
            yield "the checkpoint", checkpoint
        for one in pipeline.sinks:
            where = _directory_of(one)
            path = local_path(pipeline.path(where)) if where else None
            if path is not None and one is not sink:
                yield f"the table of sink {one.name}", path

    def _offsets(self) -> Iterator[Forgotten]:
        for source in self._pipeline.sources:
            group = groups_for(self._pipeline, self._place, self._shared).get(source.name)
            if source.starting_offsets != COMMITTED or group is None:
                continue
            config = {**admin_config(self._pipeline, source), "default.api.timeout.ms": ASK_MS}
            with Admin(config) as admin:
                found = [key for key in admin.list_group_offsets(group) if reads(source, key.topic)]
            if found:
                yield Forgotten(group, tuple(sorted(found)), config)

    def _notes(self, checkpoint: Path, leaves: Path | None) -> Iterator[str]:
        sink, query = self._sink, _known_id(checkpoint)
        if query is not None and self._place.shares is not None:
            query = sink_id(query, self._flow)
        if leaves is not None:
            yield "it has a query of its own from then on, because the sinks that it shared the read with are ahead"
        if isinstance(sink, FileSink | LakeSink):
            yield "the table is empty until the next run; rows whose records were deleted stay only in the old table"
        elif isinstance(sink, JdbcSink | DatabaseSink):
            yield from _database_notes(sink, query)
        elif isinstance(sink, TopicSink | DeadLetters):
            yield f"the records stay in topic {sink.topic}, and the next run writes them a second time"
            if query is not None and sink.deliver == EXACTLY_ONCE:
                group = (ledger_group if self._place.shares is None else shared_ledger_group)(sink, query)
                yield f"the group {group} of the old checkpoint expires by itself"
        elif isinstance(sink, ConsoleSink):
            yield "the next run prints all rows again"
        yield from self._starts()

    def _starts(self) -> Iterator[str]:
        """Sources that do not start at the first record."""
        for source in self._pipeline.sources:
            if source.starting_timestamp is not None:
                yield f"source {source.name} starts at starting_timestamp {source.starting_timestamp}"
            elif source.starting_offsets not in ("earliest", COMMITTED):
                yield f"source {source.name} starts at starting_offsets {_text(source.starting_offsets)}, as declared"


def _directory_of(sink: Sink | DeadLetters | None) -> str | None:
    """The directory of a sink's table, if it has one."""
    return sink.path if isinstance(sink, FileSink | LakeSink) else None


def _database_notes(sink: JdbcSink | DatabaseSink, query: str | None) -> Iterator[str]:
    table = sink.table if isinstance(sink, JdbcSink) else str(Name.of(sink.table))
    if sink.keys:
        yield f"the rows stay in table {sink.table}; the next run replaces those with the same keys"
    elif sink.mode == "overwrite":
        yield f"the rows stay in table {sink.table} until the next run replaces them"
    else:
        without = "it is refused" if isinstance(sink, DatabaseSink) else "it writes all rows a second time"
        yield f"run DELETE FROM {table} before the next run: otherwise {without}"
    if query is None:
        return
    clean = [f"DELETE FROM {BATCHES} WHERE query = '{query}'", f"DROP TABLE {stage_of(sink.table, query)}"]
    if isinstance(sink, DatabaseSink):
        sql = Statements(sink.format, Name.of(sink.table), query, {})
        clean = [f"DELETE FROM {sql.batches} WHERE query = '{query}'"]
        clean += [f"DROP TABLE {sql.stage}"] if sink.format == "postgres" else []
    yield f"to clean up in the database, run {'; '.join(clean)}"


def _text(offsets: Any) -> str:
    return str(offsets) if isinstance(offsets, str) else str({name: dict(one) for name, one in offsets.items()})


def _known_id(checkpoint: Path) -> str | None:
    try:
        return read_id(Local(checkpoint), str(checkpoint))
    except CheckpointError:
        return None


def reset(plan: Sequence[FlowReset]) -> None:
    """Do what the plan says. The pipeline must not be running: hold its `run_lock`."""
    for flow in plan:
        if flow.leaves is not None:
            _leave(flow.flow, flow.leaves)
        for move in [one for one in flow.moves if one.what == "checkpoint"]:
            _rename(move)
        for one in flow.offsets:
            with Admin(one.config) as admin:
                admin.delete_group_offsets(one.group, one.partitions)
        for move in [one for one in flow.moves if one.what != "checkpoint"]:
            _rename(move)
        for table in flow.renames:
            table.rename()


def _leave(flow: str, shared: Path) -> None:
    directory = Local(shared)
    text = directory.read(READERS)
    if text is not None:
        directory.replace(READERS, Readers.parse(text, str(shared)).without(flow).text())


def _rename(move: Move) -> None:
    try:
        move.path.rename(move.to)
    except OSError as error:
        raise ResetError(
            f"cannot move the {move.what} {move.path} to {move.to}: {error.strerror}. Move it yourself, then run the "
            "reset again"
        ) from None
