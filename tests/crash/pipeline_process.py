"""`ottla pipeline run` as an application that can be killed in whole or in part: driver, JVM, workers, executors.

It runs in its own session, which identifies its processes. On a standalone cluster, its executors belong to the
sessions of the cluster's workers.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.spark.cluster import Cluster

from .broker_process import ROOT
from .pipeline_doom import MACHINE, kill_session, session_members

#: These make the JVM start faster. They do not change what it writes to disk.
JAVA = {
    "JAVA_TOOL_OPTIONS": os.environ.get("JAVA_TOOL_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto")
}
SITECUSTOMIZE = """\
import os

if "OTTLA_WRITES" in os.environ:
    from tests.crash import pipeline_doom

    pipeline_doom.install()
"""
#: For batches of a few rows: to compile a query, or to plan it again on the way, takes longer than to run it.
CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
}
GONE_SECONDS = 30.0


class Stuck(AssertionError):
    """The pipeline makes no progress."""


class Application:
    """One run of a pipeline."""

    def __init__(
        self, file: Path, directory: Path, *, master: str, doom: Mapping[str, str], cluster: Cluster | None = None
    ) -> None:
        """`directory` is for logs; `doom` has the variables of pipeline_doom.py without the names of files."""
        directory.mkdir(parents=True, exist_ok=True)
        self._cluster = cluster
        self._writes = directory / "writes"
        self._log_file = directory / "driver.log"
        self._doom_file = directory / "doom"
        self.is_doomed_as_a_whole = doom.get("OTTLA_DOOM_VICTIM") == MACHINE
        (directory / "sitecustomize.py").write_text(SITECUSTOMIZE)
        command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "--master", master]
        command += ["--interval", "1", "--log", str(directory / "spark.log"), "--stop-timeout", "20"]
        given = {
            **doom,
            "OTTLA_DOOM_FILE": str(self._doom_file),
            "OTTLA_WRITES": str(self._writes),
            "PYTHONPATH": os.pathsep.join([str(directory), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        }
        # The workers of a cluster do not inherit the environment of the driver.
        executors = {f"spark.executorEnv.{name}": value for name, value in given.items()} if cluster else {}
        for name, value in {**CONF, **executors}.items():
            command += ["--conf", f"{name}={value}"]
        environment = {
            **os.environ,
            **given,
            **JAVA,
            "SPARK_LOCAL_DIRS": str(directory / "spark"),
        }
        with self._log_file.open("ab") as log:
            self.process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    @property
    def code(self) -> int | None:
        return self.process.poll()

    @property
    def was_struck(self) -> str | None:
        """The note of the killed process, if it wrote one."""
        note = Path(f"{self._doom_file}.note")
        return note.read_text().strip() if note.exists() else None

    @property
    def calls(self) -> int:
        return self._doom_file.stat().st_size if self._doom_file.exists() else 0

    def writes(self) -> list[tuple[str, str, int]]:
        """What the sinks for tables did: `("begin", "all_delta", 7)`."""
        lines = self._writes.read_text().splitlines() if self._writes.exists() else []
        return [(moment, sink, int(batch)) for moment, sink, batch in map(str.split, lines)]

    def members(self) -> list[int]:
        """The processes that end with the driver."""
        return session_members(self.process.pid)

    def everywhere(self) -> list[int]:
        """The processes of this machine and of the cluster."""
        sessions = [] if self._cluster is None else self._cluster.worker_sessions
        return self.members() + [pid for session in sessions for pid in session_members(session)]

    def kill_all(self) -> None:
        """Kill all processes, like a power cut."""
        kill_session(self.process.pid)
        self.process.wait()

    def kill_driver(self) -> None:
        self.process.kill()
        self.process.wait()

    def kill_java(self) -> bool:
        """The driver's JVM."""
        return _kill(self._javas(executors=False)[:1])

    def kill_executor(self) -> bool:
        return _kill(self._javas(executors=True)[:1])

    def kill_worker(self) -> bool:
        """A Python worker, preferably a busy one."""
        daemons = {pid for pid in self.everywhere() if _is_daemon(pid)}
        first = {pid for pid in daemons if _parent(pid) not in daemons}
        workers = [pid for pid in self.everywhere() if _parent(pid) in first]
        return _kill(sorted(workers, key=_cpu, reverse=True)[:1])

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def wait(self, seconds: float) -> bool:
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def leftovers(self, seconds: float = GONE_SECONDS) -> list[str]:
        """Kill and return the processes that still run after the driver has ended."""
        deadline = time.monotonic() + seconds
        while (left := self.members()) and time.monotonic() < deadline:
            time.sleep(0.1)
        names = [_command(pid)[:160] for pid in left]
        kill_session(self.process.pid)
        return names

    def close(self) -> None:
        self.kill_all()

    def last_words(self, lines: int = 15) -> str:
        return "\n".join(self._log_file.read_text("utf-8", "replace").splitlines()[-lines:])

    def _javas(self, *, executors: bool) -> list[int]:
        found = [(pid, _command(pid)) for pid in (self.everywhere() if executors else self.members())]
        javas = [
            (pid, command) for pid, command in found if "org.apache.spark" in command and "python" not in command[:60]
        ]
        return [pid for pid, command in javas if ("CoarseGrainedExecutorBackend" in command) == executors]


@dataclass
class Flow:
    """The checkpoint of one query."""

    directory: Path

    def last(self, log: str) -> int:
        try:
            names = [path.name for path in (self.directory / log).iterdir()]
        except FileNotFoundError:
            return -1
        return max((int(name) for name in names if name.isdecimal()), default=-1)

    @property
    def finished(self) -> int:
        return self.last("commits") + 1

    @property
    def is_unfinished(self) -> bool:
        return self.last("offsets") > self.last("commits")


def _kill(pids: list[int]) -> bool:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
    return bool(pids)


def _is_daemon(pid: int) -> bool:
    return "ottla.spark.daemon" in _command(pid) or "pyspark.daemon" in _command(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
    except OSError:
        return ""


def _stat(pid: int) -> list[str]:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _parent(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[1]) if fields else 0


def _cpu(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[11]) + int(fields[12]) if fields else 0
