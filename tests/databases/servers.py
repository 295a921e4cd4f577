"""Throw-away database servers in temporary directories."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest


def _until(condition: Callable[[], bool], what: str, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.05)


class Server:
    """A directory, a free port, and an account to run as: the servers refuse to run as root."""

    def __init__(self, account: str) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix=f"ottla-{account}-"))
        self._as: list[str] = []
        if os.geteuid() == 0:
            shutil.chown(self.directory, account, account)
            self._as = ["runuser", "-u", account, "--"]
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    def run(self, *command: str) -> None:
        process = self.start(*command)
        assert process.wait(120) == 0, f"{command[0]} failed; see {self.directory}/output"

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        with (self.directory / "output").open("ab") as output:
            return subprocess.Popen([*self._as, *command], cwd=self.directory, stdout=output, stderr=output)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


class Postgres:
    url = "jdbc:postgresql://127.0.0.1:{port}/postgres"

    def __init__(self) -> None:
        found = [shutil.which("pg_ctl"), *sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin/pg_ctl")))]
        control = next((one for one in found if one), None)
        if control is None:
            pytest.fail("this needs a Postgres server: install it (apt-get install postgresql), or add pg_ctl to PATH")
        self._control = str(Path(control).resolve())
        self._server = Server("postgres")
        self._data = str(self._server.directory / "data")
        self.url = self.url.format(port=self._server.port)

    def start(self) -> None:
        initdb = str(Path(self._control).with_name("initdb"))
        self._server.run(initdb, "-D", self._data, "-A", "trust", "-U", "ottla", "--no-sync")
        self._run()

    def _run(self) -> None:
        where = f"-p {self._server.port} -k {self._server.directory} -c listen_addresses=127.0.0.1 -c fsync=off"
        self._server.run(self._control, "-D", self._data, "-w", "-o", where, "start")

    @property
    def plain_url(self) -> str:
        """The URL for libpq."""
        return self.url.removeprefix("jdbc:")

    def kill(self) -> None:
        """kill -9 the server and its processes."""
        main = int((Path(self._data) / "postmaster.pid").read_text().split()[0])
        children = Path(f"/proc/{main}/task/{main}/children").read_text().split()
        for pid in (main, *map(int, children)):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in (main, *map(int, children)):
            _until(partial(_is_gone, pid), "the server is dead", 60)
        # Where nobody reaps dead processes, the next server would take the old one for a living one.
        for lock in (Path(self._data) / "postmaster.pid", *self._server.directory.glob(".s.PGSQL.*.lock")):
            lock.unlink()

    def recover(self) -> None:
        """Start again after `kill`."""
        self._run()

    def stop(self) -> None:
        self._server.run(self._control, "-D", self._data, "-m", "immediate", "stop")
        shutil.rmtree(self._server.directory)


class MariaDb:
    url = "jdbc:mariadb://127.0.0.1:{port}/shop?createDatabaseIfNotExist=true"

    def __init__(self) -> None:
        found = shutil.which("mariadbd", path=f"{os.environ['PATH']}:/usr/sbin")
        if found is None or shutil.which("mariadb-install-db") is None:
            pytest.skip("MariaDB is not installed")
        self._daemon = found
        self._server = Server("mysql")
        self._process: subprocess.Popen[bytes] | None = None
        self.url = self.url.format(port=self._server.port)

    def start(self) -> None:
        here, port = self._server.directory, self._server.port
        data = f"--datadir={here}/data"
        normal = "--auth-root-authentication-method=normal"
        self._server.run("mariadb-install-db", "--no-defaults", data, normal, "--skip-test-db")
        where = (f"--port={port}", f"--socket={here}/socket", f"--pid-file={here}/pid", "--bind-address=127.0.0.1")
        self._process = self._server.start(self._daemon, "--no-defaults", data, *where)
        _until(self._answers, "MariaDB listens", 60)

    def _answers(self) -> bool:
        with socket.socket() as trying:
            return trying.connect_ex(("127.0.0.1", self._server.port)) == 0

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(60)
        shutil.rmtree(self._server.directory)
