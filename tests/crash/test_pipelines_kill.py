"""Two important rounds of `make crash-pipelines`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from tests.crash.broker_process import ROOT

#: Rows are written but not decided; decided, and one of the transactions is committed.
FAULTS = "after flush,between two EndTxns"
SECONDS = 400


@pytest.mark.cluster
@pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed")
@pytest.mark.timeout(SECONDS + 10)
def test_a_pipeline_delivers_exactly_once_under_kill_9() -> None:
    command = [sys.executable, "-m", "tests.crash.pipelines", "--rounds", "2", "--seed", "3", "--faults", FAULTS]
    run = subprocess.run(
        command, cwd=ROOT, timeout=SECONDS, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(run.stdout)
    assert run.returncode == 0
    assert "each is there exactly once, and the audit says so" in run.stdout
