"""Child processes end with their parent, and a local ZooKeeper keeps its data."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from ottla.cluster.processes import ChildProcess

_PARENT = """
import sys, time
from pathlib import Path
from ottla.cluster.processes import ChildProcess
print(ChildProcess(["sleep", "600"], Path(sys.argv[1])).pid, flush=True)
time.sleep(600)
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "log")], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert is_alive(child)
        parent.kill()
    deadline = time.monotonic() + 30
    while is_alive(child):
        assert time.monotonic() < deadline, "the child still runs"
        time.sleep(0.01)


def test_a_child_is_stopped_or_killed(tmp_path: Path) -> None:
    script = "trap 'echo bye; exit 3' TERM; echo hello; while :; do sleep 0.01; done"
    child = ChildProcess(["/bin/sh", "-c", script], tmp_path / "log")
    while "hello" not in (tmp_path / "log").read_text():
        assert child.is_running
        time.sleep(0.01)
    assert child.stop(10) == 3
    assert not child.is_running
    assert (tmp_path / "log").read_text() == "hello\nbye\n"
    deaf = ChildProcess(["/bin/sh", "-c", "trap '' TERM; sleep 600 & echo $! && wait; wait"], tmp_path / "deaf")
    while not (tmp_path / "deaf").read_text():
        time.sleep(0.01)
    assert deaf.stop(0.05) == -signal.SIGKILL
    os.kill(int((tmp_path / "deaf").read_text()), signal.SIGKILL)
