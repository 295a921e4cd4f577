"""Two rounds of `make crash-transactions`."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.crash.broker_process import ROOT

ROUNDS = 2
SECONDS = 150


@pytest.mark.timeout(SECONDS + 10)
def test_everything_is_copied_exactly_once_under_kill_9() -> None:
    command = [sys.executable, "-m", "tests.crash.transactions", "--rounds", str(ROUNDS), "--seed", "3"]
    run = subprocess.run(
        command, cwd=ROOT, timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(run.stdout)
    assert run.returncode == 0, run.stdout
    assert "every input is there exactly once" in run.stdout
