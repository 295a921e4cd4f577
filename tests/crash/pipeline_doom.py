"""Kill a Spark application with SIGKILL at the n-th call of a function of the data source, in any process.

A kill from outside rarely hits the time between two related steps; this does. The harness puts a `sitecustomize` that
calls `install` on the driver's PYTHONPATH; the JVM, its planning processes and its workers inherit the environment:

    OTTLA_DOOM         the point, a name of POINTS
    OTTLA_DOOM_COUNT   the number of the call, counted over all processes
    OTTLA_DOOM_VICTIM  machine: all processes of the driver's session; self: only the calling process
    OTTLA_PLANT        plant a bug: sinks of a shared read forget the batches of earlier runs
    OTTLA_DOOM_FILE    its size is the number of calls so far; FILE.note is written when the point is reached

Nothing of this is in ottla itself. Every worker runs this module, so it imports little.
"""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

MACHINE, SELF = "machine", "self"
_SOURCE, _READING, _SINK = "ottla.spark.source", "ottla.spark.reading", "ottla.spark.sink"
_ONCE, _PREPARED = "ottla.spark.exactly_once", "ottla.clients.producer.prepared"
_LAKES = "ottla.spark.pipelines.lakes"
_DATABASES = "ottla.spark.pipelines.databases"
DATABASES = ("postgres", "sqlite", "duckdb")
_WRITING, _BACKLOG = "ottla.spark.pipelines.shared.writing", "ottla.spark.pipelines.shared.backlog"


class Point(NamedTuple):
    """A point between two steps of a micro-batch."""

    module: str
    function: str
    moment: str
    """before, after, or between: after the first of several concurrent calls."""
    most: int
    """The number of calls in the first one or two micro-batches; n is at most this."""
    sink: str = ""
    """The kind of sink that comes to it (`--sink`); empty: all."""


#: In the order of a micro-batch.
POINTS = {
    "looked for records": Point(_SOURCE, "StreamReader.latestOffset", "after", 6),
    "offsets written": Point(_SOURCE, "StreamReader.partitions", "before", 4),
    "planned": Point(_SOURCE, "StreamReader.partitions", "after", 4),
    "task reads": Point(_READING, "read_ranges", "before", 10),
    "task begins": Point(_ONCE, "write_task", "before", 8),
    "ledger taken": Point(_ONCE, "_own_ledger", "after", 3),
    "id taken over": Point(_PREPARED, "PreparingProducer.take_over", "after", 8),
    "before first send": Point(_SINK, "send_tables", "before", 5),
    "after flush": Point(_PREPARED, "PreparingProducer.prepare", "before", 5),
    "task prepared": Point(_ONCE, "write_task", "after", 7),
    "before decision": Point(_ONCE, "decide", "before", 3),
    "decision not committed": Point(_PREPARED, "PreparingProducer.commit_transaction", "before", 4),
    "decision committed": Point(_PREPARED, "PreparingProducer.commit_transaction", "after", 4),
    "before first EndTxn": Point(_ONCE, "_commit", "before", 3),
    "between two EndTxns": Point(_PREPARED, "end_transaction", "between", 2),
    "after last EndTxn": Point(_ONCE, "_commit", "after", 3),
    "sink committed": Point(_ONCE, "commit_all", "after", 3),
    "shared batch computed": Point(_WRITING, "_count_broken", "after", 3),
    "one sink of a shared batch done": Point(_WRITING, "SharedWriter._blaming", "after", 8),
    "late records stored": Point(_BACKLOG, "Backlog.add", "after", 3),
    "late batch written": Point(_BACKLOG, "Backlog._done", "before", 3),
    "late batch forgotten": Point(_BACKLOG, "Backlog._done", "after", 3),
    "delta file written": Point(f"{_LAKES}.delta", "DeltaFiles.write", "after", 9, "delta"),
    "delta before commit": Point(f"{_LAKES}.delta", "DeltaLake.commit", "before", 5, "delta"),
    "delta committed": Point(f"{_LAKES}.delta", "DeltaLake.commit", "after", 5, "delta"),
    "delta upsert begins": Point(f"{_LAKES}.sink", "LakeWriter._change", "before", 3, "delta"),
    "iceberg file written": Point(f"{_LAKES}.iceberg", "IcebergFiles.write", "after", 9, "iceberg"),
    "iceberg before commit": Point(f"{_LAKES}.iceberg", "IcebergLake.commit", "before", 5, "iceberg"),
    "iceberg committed": Point(f"{_LAKES}.iceberg", "IcebergLake.commit", "after", 5, "iceberg"),
    "iceberg upsert written": Point(f"{_LAKES}.sink", "LakeWriter._change", "after", 3, "iceberg"),
    **{
        f"{form} {name}": Point(f"{_DATABASES}.{module}", function, moment, 5, form)
        for name, module, function, moment in (
            ("rows staged", "connections", "Connection.ingest", "after"),
            ("before move", "sink", "DatabaseWriter._move", "before"),
            ("moved", "sink", "DatabaseWriter._move", "after"),
            ("committed", "sink", "DatabaseWriter.write", "after"),
        )
        for form in DATABASES
    },
    "postgres all tasks done": Point(f"{_DATABASES}.sink", "copy_from_tasks", "after", 5, "postgres"),
}
#: Points that only a shared read comes to.
SHARED_POINTS = [name for name, point in POINTS.items() if point.module in (_WRITING, _BACKLOG)]


def install() -> None:
    """Patch the function of the point when its module is imported."""
    if os.environ.get("OTTLA_PLANT"):
        sys.meta_path.insert(0, _Finder("ottla.spark.pipelines.written", _plant))
    name = os.environ.get("OTTLA_DOOM")
    if not name:
        return
    point = POINTS[name]
    doom = _Doom(name, int(os.environ["OTTLA_DOOM_COUNT"]))
    sys.meta_path.insert(0, _Finder(point.module, lambda module: _patch(module, point, doom)))


def _plant(module: ModuleType) -> None:
    import uuid

    run = uuid.uuid4()
    module.sink_id = lambda query, name: str(uuid.uuid5(run, name))  # type: ignore[attr-defined]


def unknown() -> list[str]:
    """The points whose functions do not exist."""
    found = []
    for name, point in POINTS.items():
        try:
            functools.reduce(getattr, point.function.split("."), importlib.import_module(point.module))
        except AttributeError:
            found.append(f"{name}: {point.module} has no {point.function}")
    return found


class _Doom:
    def __init__(self, point: str, count: int) -> None:
        self._point = point
        self._count = count
        self._file = os.environ["OTTLA_DOOM_FILE"]

    def next(self) -> int:
        """The number of this call; appends are atomic across processes."""
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            os.write(descriptor, b".")
            return os.lseek(descriptor, 0, os.SEEK_CUR)
        finally:
            os.close(descriptor)

    def is_due(self) -> bool:
        return self.next() == self._count

    def strike(self) -> None:
        Path(f"{self._file}.note").write_text(f"{self._point}, call {self._count}, in process {os.getpid()}\n")
        if os.environ.get("OTTLA_DOOM_VICTIM", MACHINE) == MACHINE:
            kill_session(os.getsid(0))
        os.kill(os.getpid(), signal.SIGKILL)


class _Finder:
    """Find the module, and patch it after execution."""

    def __init__(self, module: str, patch: Callable[[ModuleType], None]) -> None:
        self._module = module
        self._patch = patch

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._module:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                self._patch(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _patch(module: ModuleType, point: Point, doom: _Doom) -> None:
    *owners, name = point.function.split(".")
    owner = functools.reduce(getattr, owners, module)
    original: Callable[..., Any] = getattr(owner, name)
    if point.moment == "between":
        setattr(owner, name, _between(original, doom))
        return

    @functools.wraps(original)
    def doomed(*args: Any, **kwargs: Any) -> Any:
        if point.moment == "before" and doom.is_due():
            doom.strike()
        found = original(*args, **kwargs)
        if point.moment == "after" and doom.is_due():
            doom.strike()
        return found

    setattr(owner, name, doomed)


def _between(original: Callable[..., Any], doom: _Doom) -> Callable[..., Any]:
    """Make only the first call of one gather, then kill everything; earlier gathers are not affected."""
    import asyncio

    waiting: list[bool] = []

    @functools.wraps(original)
    async def doomed(*args: Any, **kwargs: Any) -> Any:
        if waiting:
            await asyncio.sleep(3600)
        if not doom.is_due():
            return await original(*args, **kwargs)
        waiting.append(True)
        found = await original(*args, **kwargs)
        doom.strike()
        return found

    return doomed


# ── Processes ────────────────────────────────────────────────────────────────────────────────────────────────────────


def session_members(session: int) -> list[int]:
    """The processes of a session; pyspark's daemon leaves the driver's process group, but not its session."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                fields = Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry))
    return found


def kill_session(session: int) -> None:
    """Stop and then kill all processes of a session, the caller last, like a power cut."""
    own = os.getpid()
    stopped: set[int] = set()
    while new := {pid for pid in session_members(session) if pid != own} - stopped:
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped |= new
    for pid in stopped:
        _send(pid, signal.SIGKILL)


def _send(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
