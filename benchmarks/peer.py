"""A broker in its own process: start, kill, restart, and its costs.

Benchmarks and tests use the interface of `Peer`. A subclass prepares the data directory and supplies the command line.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Self

HOST = "127.0.0.1"
_API_VERSIONS_V0 = struct.pack(">ihhih", 10, 18, 0, 1, -1)


class Unavailable(RuntimeError):
    """This broker cannot run on this machine. The message says what is missing."""


class Peer:
    """A single-node broker on a loopback address that stays the same across restarts.

    The data is in `data_dir`, or in a temporary directory that is deleted with the context. The process ends with the
    thread that started it, so that a killed benchmark leaves nothing behind.
    """

    name = "broker"
    start_timeout = 60.0
    replication_factor = 1

    def __init__(
        self,
        config: Mapping[str, object] | None = None,
        *,
        port: int = 0,
        data_dir: Path | str | None = None,
    ) -> None:
        self.config = {name: str(value) for name, value in (config or {}).items()}
        self.port = port or free_port()
        self._given_data_dir = Path(data_dir) if data_dir is not None else None
        self._work_dir: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    # For subclasses.

    def prepare(self) -> None:
        """Prepare the data directory for the first start."""

    def command(self) -> list[str]:
        raise TypeError(f"{type(self).__name__} has no command line")

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    # For users.

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def work_dir(self) -> Path:
        """The directory of the log and the config file. The data is below it by default."""
        if self._work_dir is None:
            raise RuntimeError(f"{self.name} was not opened: use it in a with statement")
        return self._work_dir

    @property
    def data_dir(self) -> Path:
        return self._given_data_dir or self.work_dir / "data"

    @property
    def output(self) -> Path:
        """The file with stdout and stderr of the process."""
        return self.work_dir / "output.txt"

    def __enter__(self) -> Self:
        try:
            self.open()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def open(self) -> None:
        """Prepare the data directory without starting the process."""
        self._work_dir = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self.data_dir.mkdir(parents=True, exist_ok=True)
        self.prepare()

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._work_dir is not None:
            shutil.rmtree(self._work_dir, ignore_errors=True)
            self._work_dir = None

    def launch(self) -> None:
        """Start the process without waiting. `start` also waits until it responds."""
        if self._process is not None:
            raise RuntimeError(f"{self.name} is already running with pid {self._process.pid}")
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*_dies_with_parent(), *self.command()],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.work_dir,
                env=self.environment(),
                start_new_session=True,
            )

    def start(self) -> None:
        self.launch()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait for a response to ApiVersions."""
        deadline = time.monotonic() + self.start_timeout
        while not answers(self.port):
            if self._running().poll() is not None:
                raise RuntimeError(f"{self.name} ended with code {self._running().returncode}\n{self._last_output()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not answer in {self.start_timeout:g} s\n{self._last_output()}")
            time.sleep(0.02)

    def ask_to_stop(self) -> None:
        """Request a clean shutdown (SIGTERM)."""
        self._running().send_signal(signal.SIGTERM)

    def stop(self, timeout: float = 60.0) -> None:
        """Request a clean shutdown (SIGTERM) and wait for it."""
        self.ask_to_stop()
        process = self._running()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.name} did not stop within {timeout:g} s of SIGTERM") from None
        self._process = None

    def kill(self) -> None:
        """Send SIGKILL. Do nothing if the process does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cpu_seconds(self) -> float:
        """Return the user and system time so far, including current and past children."""
        return cpu_seconds_of(self.pid)

    def resident_bytes(self) -> int:
        return resident_bytes_of(self.pid)

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process

    def _last_output(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines()
        return "\n".join(lines[-30:])


def cpu_seconds_of(pid: int) -> float:
    """Return the CPU time of a process and its descendants."""
    return sum(_cpu_seconds(each) for each in _with_descendants(pid))


def resident_bytes_of(pid: int) -> int:
    """Return the resident memory of a process and its descendants."""
    return sum(_resident_bytes(each) for each in _with_descendants(pid))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def answers(port: int, timeout: float = 1.0) -> bool:
    """Return whether a server on this port responds to ApiVersions."""
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.sendall(_API_VERSIONS_V0)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


def machine_cpu_seconds() -> float:
    """Return the CPU time of the whole machine so far, including time taken by the hypervisor."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = Path("/proc/stat").read_text().split()[1:9]
    ticks = sum(map(int, (user, nice, system, irq, softirq, steal)))
    return ticks / os.sysconf("SC_CLK_TCK")


def _dies_with_parent() -> list[str]:
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def _with_descendants(pid: int) -> list[int]:
    found = [pid]
    for parent in found:
        with contextlib.suppress(OSError):
            for task in Path(f"/proc/{parent}/task").iterdir():
                found += [int(child) for child in (task / "children").read_text().split()]
    return found


def _cpu_seconds(pid: int) -> float:
    """Return utime, stime and, for children that were waited for, cutime and cstime."""
    try:
        after_name = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(ticks) for ticks in after_name[11:15]) / os.sysconf("SC_CLK_TCK")


def _resident_bytes(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")
