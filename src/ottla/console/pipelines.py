"""The pipelines that a console shows: their files, their status, and jobs that run commands for them.

Nothing here imports Spark. A file is read when a page asks for it, and again when it has changed. What reads files is
imported then: it takes as long as all other pages together.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from ottla.errors import OttlaError
from ottla.types import Millis

if TYPE_CHECKING:
    from ottla.spark.pipelines.audit.stored import StoredAudit
    from ottla.spark.pipelines.declaration import Pipeline
    from ottla.spark.pipelines.status import Status
    from ottla.spark.pipelines.stored_run import StoredRun

SHOWN_LINES = 200
STOP_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class PipelineFile:
    """A file with a pipeline, or with problems."""

    key: str
    """Its name in addresses."""
    path: Path
    pipeline: Pipeline | None = None
    problems: tuple[str, ...] = ()
    is_of_console: bool = True
    """Whether it uses the cluster of the console because it names none."""

    @property
    def name(self) -> str:
        return self.key if self.pipeline is None else self.pipeline.name


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known about a pipeline now."""

    status: Status
    run: StoredRun | None
    audit: StoredAudit | None
    problems: tuple[str, ...] = ()


class Pipelines:
    """The pipelines of `--pipelines`: files, and the .toml files of directories."""

    def __init__(self, paths: Sequence[Path], servers: str, kafka: Mapping[str, str]) -> None:
        """`servers` and `kafka` are for pipelines that name no cluster."""
        self._paths = paths
        self._servers = servers
        self._kafka = kafka
        self._loaded: dict[Path, tuple[int, PipelineFile]] = {}
        self._lock = threading.Lock()

    def files(self) -> list[PipelineFile]:
        """All pipelines, in the order of their names."""
        with self._lock:
            found = {}
            for path in self._all():
                keys = chain([path.stem], (f"{path.stem}-{number}" for number in count(2)))
                key = next(one for one in keys if one not in found)
                found[key] = self._file(path, key)
        return sorted(found.values(), key=lambda one: one.name)

    def find(self, key: str) -> PipelineFile | None:
        return next((one for one in self.files() if one.key == key), None)

    def _all(self) -> list[Path]:
        found: dict[Path, None] = {}
        for path in self._paths:
            found.update(dict.fromkeys(sorted(path.glob("*.toml")) if path.is_dir() else [path]))
        return list(found)

    def _file(self, path: Path, key: str) -> PipelineFile:
        try:
            changed = path.stat().st_mtime_ns
        except OSError:
            changed = 0
        known = self._loaded.get(path)
        if known is None or known[0] != changed or known[1].key != key:
            self._loaded[path] = known = changed, self._read(path, key)
        return known[1]

    def _read(self, path: Path, key: str) -> PipelineFile:
        from ottla.spark.pipelines.declaration import DeclarationError
        from ottla.spark.pipelines.loading import load

        try:
            own = load(path, default_servers=self._servers)
            if own.bootstrap_servers != self._servers:
                return PipelineFile(key, path, own, is_of_console=False)
            return PipelineFile(key, path, load(path, default_servers=self._servers, kafka=self._kafka))
        except DeclarationError as error:
            return PipelineFile(key, path, problems=tuple(map(str, error.problems)))


def facts_of(pipeline: Pipeline, *, ask: bool = True) -> Facts:
    """Read the checkpoints and, if asked to, the brokers. It blocks."""
    from ottla.spark.pipelines.audit.stored import stored_audit
    from ottla.spark.pipelines.status import status_of
    from ottla.spark.pipelines.stored_run import stored_run

    problems: list[str] = []
    run: StoredRun | None = None
    audit: StoredAudit | None = None
    try:
        run = stored_run(pipeline)
    except OttlaError as error:
        problems.append(str(error))
    try:
        audit = stored_audit(pipeline)
    except OttlaError as error:
        problems.append(str(error))
    # The pages are read again and again: the offsets tell well enough how many dead letters there are.
    status = status_of(pipeline, ask=ask, counted=0)
    return Facts(status, run, audit, (*problems, *status.problems))


# ── jobs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(slots=True)
class Job:
    """A command that runs, or has run, in a process of its own."""

    title: str
    arguments: tuple[str, ...]
    started_at: Millis
    process: subprocess.Popen[str]
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=SHOWN_LINES))
    """The last lines of its output."""
    ended_at: Millis | None = None

    @property
    def code(self) -> int | None:
        """The exit code; None while it runs."""
        return None if self.ended_at is None else self.process.returncode


class Jobs:
    """The last job of each kind for each pipeline; they end with the console."""

    def __init__(self) -> None:
        self._jobs: dict[tuple[str, str], Job] = {}

    def of(self, pipeline: str, kind: str) -> Job | None:
        return self._jobs.get((pipeline, kind))

    def start(self, pipeline: str, kind: str, title: str, arguments: Sequence[str]) -> Job:
        """Run `ottla ARGUMENTS`. Raises OttlaError if a job of this kind runs for the pipeline."""
        before = self.of(pipeline, kind)
        if before is not None and before.code is None:
            raise OttlaError(f"{before.title} runs already: wait for its end")
        process = subprocess.Popen(
            [sys.executable, "-m", "ottla", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        job = Job(title, tuple(arguments), _now(), process)
        self._jobs[pipeline, kind] = job
        threading.Thread(target=_follow, args=(job,), name=f"ottla-{kind}", daemon=True).start()
        return job

    def close(self) -> None:
        running = [job.process for job in self._jobs.values() if job.code is None]
        for process in running:
            process.terminate()
        for process in running:
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()


def _follow(job: Job) -> None:
    assert job.process.stdout is not None
    with job.process.stdout as output:
        for line in output:
            job.lines.append(line.rstrip()[:1_000])
    job.process.wait()
    job.ended_at = _now()


def _now() -> Millis:
    return time.time_ns() // 1_000_000
