"""A broker in a process of its own, whichever one it is: start, kill, restart, what it costs.

`Peer` is the face that the benchmarks and the tests see. A subclass says what to prepare in the data
directory and which command line to run; change it there, and keep everything here true for every broker.
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
    """This broker cannot be run on this machine; the message says what is missing."""


class Peer:
    """One single-node broker on a loopback address that stays the same over restarts.

    With `data_dir` the data is kept there, otherwise in a temporary directory that goes with the context.
    The process dies with the thread that started it, so that a killed benchmark leaves nothing behind.
    """

    name = "broker"
    start_timeout = 60.0

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

    # What a subclass says.

    def prepare(self) -> None:
        """Make the data directory ready for the first start."""

    def command(self) -> list[str]:
        raise TypeError(f"{type(self).__name__} has no command line")

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    # What everybody uses.

    @property
    def bootstrap_servers(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int:
        return self._running().pid

    @property
    def work_dir(self) -> Path:
        """Where the log and the config file of this peer are; the data is below it unless given."""
        if self._work_dir is None:
            raise RuntimeError(f"{self.name} was not opened: use it in a with statement")
        return self._work_dir

    @property
    def data_dir(self) -> Path:
        return self._given_data_dir or self.work_dir / "data"

    @property
    def output(self) -> Path:
        """The file with what the process wrote to stdout and stderr."""
        return self.work_dir / "output.txt"

    def __enter__(self) -> Self:
        self._work_dir = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        try:
            self.data_dir.mkdir(parents=True, exist_ok=True)
            self.prepare()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        if self._work_dir is not None:
            shutil.rmtree(self._work_dir, ignore_errors=True)
            self._work_dir = None

    def launch(self) -> None:
        """Start the process and return at once; `start` also waits until it answers."""
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
        """Wait until an ApiVersions request is answered."""
        deadline = time.monotonic() + self.start_timeout
        while not answers(self.port):
            if self._running().poll() is not None:
                raise RuntimeError(f"{self.name} ended with code {self._running().returncode}\n{self._last_output()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name} did not answer in {self.start_timeout:g} s\n{self._last_output()}")
            time.sleep(0.02)

    def stop(self, timeout: float = 60.0) -> None:
        """Ask for a clean shutdown (SIGTERM) and wait for it."""
        process = self._running()
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise RuntimeError(f"{self.name} did not stop within {timeout:g} s of SIGTERM") from None
        self._process = None

    def kill(self) -> None:
        """SIGKILL; nothing happens when it does not run."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def cpu_seconds(self) -> float:
        """User and system time so far, of the process and of the children it has or had."""
        return sum(_cpu_seconds(pid) for pid in _with_descendants(self.pid))

    def resident_bytes(self) -> int:
        return sum(_resident_bytes(pid) for pid in _with_descendants(self.pid))

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError(f"{self.name} is not running")
        return self._process

    def _last_output(self) -> str:
        lines = self.output.read_text(errors="replace").splitlines()
        return "\n".join(lines[-30:])


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def answers(port: int, timeout: float = 1.0) -> bool:
    """Whether somebody on this port answers an ApiVersions request."""
    try:
        with socket.create_connection((HOST, port), timeout) as connection:
            connection.sendall(_API_VERSIONS_V0)
            return len(connection.recv(8)) == 8
    except OSError:
        return False


def machine_cpu_seconds() -> float:
    """What everything on this machine has used so far, with what the hypervisor took away."""
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
    """utime, stime and, of children that were waited for, cutime, cstime."""
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
