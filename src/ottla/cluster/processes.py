"""Child processes that end with their parent."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

# It waits for the end of its input. The parent never writes to it, so that is the end of the parent.
_GUARD = 'read _; kill -9 "$1" 2>/dev/null'


class ChildProcess:
    """A process that ends when this process ends, even by `kill -9`.

    It is not in this process's group: Ctrl-C in a terminal does not reach it, so the parent can stop its children in
    the right order. Its output goes to a file.
    """

    def __init__(self, command: Sequence[str], log_file: Path, env: Mapping[str, str] | None = None) -> None:
        with log_file.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, env=env
            )
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", str(self.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while the process runs. A signal is a negative number."""
        return self._process.poll()

    @property
    def is_running(self) -> bool:
        return self.exit_code is None

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process still runs."""
        self._process.send_signal(number)

    def stop(self, seconds: float) -> int:
        """Ask the process to end, kill it after this time, and return its exit code."""
        if self.is_running:
            self._process.terminate()
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._reap()

    def kill(self) -> int:
        """End the process as `kill -9` does."""
        self._process.kill()
        return self._reap()

    def _reap(self) -> int:
        code = self._process.wait()
        self._guard.kill()
        self._guard.wait()
        assert self._guard.stdin is not None, "its input is a pipe"
        self._guard.stdin.close()
        return code

    def resident_bytes(self) -> int | None:
        """The resident memory, if /proc is available."""
        with contextlib.suppress(OSError, IndexError, ValueError):
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
            return pages * os.sysconf("SC_PAGE_SIZE")
        return None
