"""Kill a Spark application with SIGKILL at the n-th call of a function of the data source, in any process.

A kill from outside rarely hits the time between two related steps; this does. The harness puts a `sitecustomize` that
calls `install` on the driver's PYTHONPATH; the JVM, its planning processes and its workers inherit the environment:

    OTTLA_DOOM         the point, a name of POINTS
    OTTLA_DOOM_COUNT   the number of the call, counted over all processes
    OTTLA_DOOM_VICTIM  machine: all processes of the caller's session; self: only the calling process
    OTTLA_DOOM_FILE    its size is the number of calls so far; FILE.note is written when the point is reached
    OTTLA_WRITES       a file for what the sinks for tables do: `begin all_delta 7`, `end all_delta 7`
    OTTLA_PLANT        plant a bug: sinks of this kind forget the batches that they have written

The driver has a session of its own, and so has each worker of a standalone cluster, with its executors.

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
    """The kind of sink that comes to it (`--sink`); empty: all. Calls for other kinds do not count."""
    in_task: bool = False
    """Whether a Python worker comes to it, and not the driver."""


#: In the order of a micro-batch.
POINTS = {
    "looked for records": Point(_SOURCE, "StreamReader.latestOffset", "after", 6),
    "offsets written": Point(_SOURCE, "StreamReader.partitions", "before", 4),
    "planned": Point(_SOURCE, "StreamReader.partitions", "after", 4),
    "task reads": Point(_READING, "read_ranges", "before", 10, in_task=True),
    "task begins": Point(_ONCE, "write_task", "before", 8, in_task=True),
    "ledger taken": Point(_ONCE, "_own_ledger", "after", 3),
    "id taken over": Point(_PREPARED, "PreparingProducer.take_over", "after", 8),
    "before first send": Point(_SINK, "send_tables", "before", 5, in_task=True),
    "after flush": Point(_PREPARED, "PreparingProducer.prepare", "before", 5, in_task=True),
    "task prepared": Point(_ONCE, "write_task", "after", 7, in_task=True),
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
    **{
        f"{form} {name}": Point(f"{_LAKES}.{module}", function, moment, most, form, in_task)
        for form, files, lake in (("delta", "DeltaFiles", "DeltaLake"), ("iceberg", "IcebergFiles", "IcebergLake"))
        for name, module, function, moment, most, in_task in (
            ("file written", form, f"{files}.write", "after", 4, True),
            ("before commit", form, f"{lake}.commit", "before", 3, False),
            ("committed", form, f"{lake}.commit", "after", 3, False),
            ("upsert begins", "sink", "LakeWriter._change", "before", 2, False),
            ("upsert written", "sink", "LakeWriter._change", "after", 2, False),
        )
    },
    **{
        f"{form} {name}": Point(f"{_DATABASES}.{module}", function, moment, 3, form, in_task and form == "postgres")
        for form in DATABASES
        for name, module, function, moment, in_task in (
            ("rows staged", "connections", "Connection.ingest", "after", True),
            ("before move", "sink", "DatabaseWriter._move", "before", False),
            ("moved", "sink", "DatabaseWriter._move", "after", False),
            ("committed", "sink", "DatabaseWriter.write", "after", False),
        )
    },
    "postgres all tasks done": Point(f"{_DATABASES}.sink", "copy_from_tasks", "after", 3, "postgres"),
}
#: Points that only a shared read comes to.
SHARED_POINTS = [name for name, point in POINTS.items() if point.module in (_WRITING, _BACKLOG)]


_SHARED_BY_KINDS = (f"{_LAKES}.sink", f"{_DATABASES}.sink", f"{_DATABASES}.connections")
#: The methods that write a batch of a table.
_WRITERS = {f"{_LAKES}.sink": "LakeWriter", f"{_DATABASES}.sink": "DatabaseWriter"}
_LAST_BATCH = {"delta": (f"{_LAKES}.delta", "DeltaLake"), "iceberg": (f"{_LAKES}.iceberg", "IcebergLake")}
TOPIC = "topic"
PLANTS = (TOPIC, *_LAST_BATCH, *DATABASES)


def install() -> None:
    """Patch the functions in question when their modules are imported."""
    patches: list[tuple[str, Callable[[ModuleType], None]]] = []
    if bug := os.environ.get("OTTLA_PLANT"):
        patches.append(_planted(bug))
    if file := os.environ.get("OTTLA_WRITES"):
        for module, name in _WRITERS.items():
            patches.append((module, functools.partial(_record, name=name, file=file)))
    if name := os.environ.get("OTTLA_DOOM"):
        point = POINTS[name]
        doom = _Doom(name, int(os.environ["OTTLA_DOOM_COUNT"]))
        patches.append((point.module, functools.partial(_patch, point=point, doom=doom)))
    sys.meta_path.insert(0, _Finder(patches))


def _planted(kind: str) -> tuple[str, Callable[[ModuleType], None]]:
    """The module and the patch that let a kind of sink forget what it has written."""
    if kind == TOPIC:
        return "ottla.spark.pipelines.written", _forget_topics
    if kind in _LAST_BATCH:
        module, name = _LAST_BATCH[kind]
        return module, lambda found: setattr(getattr(found, name), "last_batch", lambda *_: -1)
    return f"{_DATABASES}.sink", functools.partial(_forget_rows, kind=kind)


def _forget_topics(module: ModuleType) -> None:
    """Every run has another id for each sink of a shared read."""
    import uuid

    run = uuid.uuid4()
    module.sink_id = lambda query, name: str(uuid.uuid5(run, name))  # type: ignore[attr-defined]


def _forget_rows(module: ModuleType, kind: str) -> None:
    original = module.DatabaseWriter._last

    def last(self: Any, connection: Any) -> int:
        return -1 if kind_of(self) == kind else original(self, connection)

    module.DatabaseWriter._last = last


def _record(module: ModuleType, name: str, file: str) -> None:
    """Write down when a batch of a table begins and ends."""
    owner = getattr(module, name)
    original = owner.write

    @functools.wraps(original)
    def write(self: Any, frame: Any, batch: int) -> None:
        _append(file, f"begin {self._sink.name} {batch}\n")
        original(self, frame, batch)
        _append(file, f"end {self._sink.name} {batch}\n")

    owner.write = write


def kind_of(owner: Any) -> str:
    """The kind of sink that an object works for."""
    place = getattr(owner, "place", None)  # of a connection
    return str(place.form if place is not None else owner._sink.format)


def _append(file: str, text: str) -> int:
    """Append to a file, and return its size; appends are atomic across processes."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(descriptor, text.encode())
        return os.lseek(descriptor, 0, os.SEEK_CUR)
    finally:
        os.close(descriptor)


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

    def is_due(self) -> bool:
        """Count a call."""
        return _append(self._file, ".") == self._count

    def strike(self) -> None:
        note = Path(f"{self._file}.{os.getpid()}")
        note.write_text(f"{self._point}, call {self._count}, {os.getsid(0)}\n")
        note.rename(f"{self._file}.note")  # complete from the first moment that it is seen
        if os.environ.get("OTTLA_DOOM_VICTIM", MACHINE) == MACHINE:
            kill_session(os.getsid(0))
        os.kill(os.getpid(), signal.SIGKILL)


class _Finder:
    """Find modules, and patch them after execution."""

    def __init__(self, patches: Sequence[tuple[str, Callable[[ModuleType], None]]]) -> None:
        self._patches = patches

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        patches = [patch for module, patch in self._patches if module == name]
        spec = importlib.machinery.PathFinder.find_spec(name, path, target) if patches else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                for patch in patches:
                    patch(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _patch(module: ModuleType, point: Point, doom: _Doom) -> None:
    *owners, name = point.function.split(".")
    owner = functools.reduce(getattr, owners, module)
    original: Callable[..., Any] = getattr(owner, name)
    if point.moment == "between":
        setattr(owner, name, _between(original, doom))
        return

    # Several kinds of sinks have some functions in common.
    shared = point.sink and point.module in _SHARED_BY_KINDS and owners

    @functools.wraps(original)
    def doomed(*args: Any, **kwargs: Any) -> Any:
        counts = not shared or kind_of(args[0]) == point.sink
        if point.moment == "before" and counts and doom.is_due():
            doom.strike()
        found = original(*args, **kwargs)
        if point.moment == "after" and counts and doom.is_due():
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
