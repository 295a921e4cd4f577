"""A few rounds of ``python -m tests.crash.exactly_once``."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.crash.broker_process import ROOT

ROUNDS = 2
SECONDS = 170


@pytest.mark.timeout(SECONDS + 10)
def test_every_input_is_copied_exactly_once_whoever_is_killed() -> None:
    """Run in a separate process, because the clients leave sockets open when a broker dies."""
    command = [sys.executable, "-m", "tests.crash.exactly_once", "--rounds", str(ROUNDS), "--seed", "1"]
    run = subprocess.run(
        command, cwd=ROOT, timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout
    assert f"{ROUNDS} rounds" in run.stdout
