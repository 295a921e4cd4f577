"""A few rounds of `make crash`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.crash.broker_process import ROOT

ROUNDS = 4
SECONDS = 170


@pytest.mark.timeout(SECONDS + 10)
def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    """Producers of three libraries, with and without idempotence: every acknowledged record is at its offset.

    Runs in a separate process, because the clients leave sockets open when a broker dies.
    """
    command = [sys.executable, "-m", "tests.crash.torture", "--rounds", str(ROUNDS), "--seed", "1"]
    command += ["--directory", str(tmp_path / "torture")]
    run = subprocess.run(
        command, cwd=ROOT, timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout
    assert f"{ROUNDS} rounds" in run.stdout
