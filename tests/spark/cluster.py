"""A standalone Spark cluster from the pip package: a master and workers on loopback, as processes.

    with Cluster(workers=2) as cluster:
        cluster.master          # spark://127.0.0.1:41234, for --master

`python -m tests.spark.cluster` keeps one up until it is interrupted. Its processes are ended by their own ids, and die
with the process that started them.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
START_SECONDS = 60.0
#: Enough for a master, a worker or an executor of a test.
MEMORY = "512m"
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class Cluster:
    """One master, and workers with one core each."""

    def __init__(self, workers: int = 2, environment: Mapping[str, str] | None = None) -> None:
        """`environment` is for all processes, also executors."""
        self._workers = workers
        self._environment = dict(environment or {})
        self._port, self._page = free_port(), free_port()
        self._directory = Path(tempfile.mkdtemp(prefix="spark-cluster-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def master(self) -> str:
        return f"spark://{HOST}:{self._port}"

    def __enter__(self) -> Self:
        try:
            self._start("master", "master.Master", "--port", str(self._port), "--webui-port", str(self._page))
            self._wait(workers=0)
            self._start_workers()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes.values()):  # a worker stops its executors
            process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(self._directory, ignore_errors=True)

    @property
    def worker_sessions(self) -> list[int]:
        """The session of each worker. Its executors and their Python processes belong to it."""
        return [process.pid for name, process in self._processes.items() if name != "master"]

    def revive(self, *killed: int) -> None:
        """Wait for the end of workers that were killed, and start them again."""
        for name, process in list(self._processes.items()):
            if process.pid in killed:
                process.wait(START_SECONDS)
                del self._processes[name]
        self._start_workers()

    def _start_workers(self) -> None:
        for number in range(self._workers):
            name, place = f"worker-{number}", str(self._directory / f"work-{number}")
            if name not in self._processes:
                sizes = ["--cores", "1", "--memory", "1g", "--webui-port", "0"]
                self._start(name, "worker.Worker", *sizes, "--work-dir", place, self.master)
        self._wait(workers=self._workers)

    def _start(self, name: str, role: str, *arguments: str) -> None:
        import pyspark

        from ottla.spark.java import java_home

        home = Path(pyspark.__file__).parent
        setpriv = shutil.which("setpriv")
        dies_with_us = [setpriv, "--pdeathsig", "TERM"] if setpriv else []
        with (self._directory / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                [
                    *dies_with_us,
                    home / "bin" / "spark-class",
                    f"org.apache.spark.deploy.{role}",
                    "--host",
                    HOST,
                    *arguments,
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    **os.environ,
                    "SPARK_HOME": str(home),
                    "JAVA_HOME": str(java_home()),
                    "SPARK_LOCAL_IP": HOST,
                    "SPARK_DAEMON_MEMORY": MEMORY,
                    "SPARK_DAEMON_JAVA_OPTS": QUICK,
                    "SPARK_LOCAL_DIRS": str(self._directory / f"{name}-local"),
                    **self._environment,
                },
            )

    def _wait(self, *, workers: int) -> None:
        """Wait until the master has this many workers."""
        deadline = time.monotonic() + START_SECONDS
        while self.alive_workers() < workers:
            for process in self._processes.values():
                if process.poll() is not None:
                    raise RuntimeError(f"a process of the cluster ended with {process.returncode}\n{self._logs()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"the cluster was not up after {START_SECONDS:g} s\n{self._logs()}")
            time.sleep(0.1)

    def alive_workers(self) -> int:
        """The master's number of workers; -1 without a master."""
        try:
            with urllib.request.urlopen(f"http://{HOST}:{self._page}/json/", timeout=5) as answer:
                return int(json.load(answer)["aliveworkers"])
        except (OSError, ValueError, KeyError):
            return -1

    def executors(self) -> list[int]:
        """The numbers of the workers that have run a task."""
        return [number for number in range(self._workers) if any((self._directory / f"work-{number}").glob("app-*/*"))]

    def _logs(self) -> str:
        return "\n".join(path.read_text(errors="replace")[-3000:] for path in sorted(self._directory.glob("*.log")))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def main() -> None:
    with Cluster() as cluster:
        print(cluster.master, flush=True)
        signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))
        try:
            signal.pause()
        except KeyboardInterrupt:
            pass


if __name__ == "__main__":
    main()
