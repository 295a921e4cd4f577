"""Some important rounds of `make crash-pipelines`."""

from __future__ import annotations

import importlib.util
import subprocess
import sys

import pytest
from tests.crash.broker_process import ROOT

#: Rows are written but not decided; decided, and one of the transactions is committed.
FAULTS = {
    "separate": "after flush,between two EndTxns",
    "shared": "between two EndTxns,one sink of a shared batch done,late batch written",
}
SECONDS = 500

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(importlib.util.find_spec("pyspark") is None, reason="pyspark is not installed"),
    pytest.mark.timeout(SECONDS + 10),
]


def crash(faults: str, *more: str) -> subprocess.CompletedProcess[str]:
    count = str(len(faults.split(",")))
    command = [sys.executable, "-m", "tests.crash.pipelines", "--rounds", count, "--seed", "3", "--faults", faults]
    run = subprocess.run(
        [*command, *more],
        cwd=ROOT,
        timeout=SECONDS,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(run.stdout)
    return run


@pytest.mark.parametrize("read", FAULTS)
def test_a_pipeline_delivers_exactly_once_under_kill_9(read: str) -> None:
    run = crash(FAULTS[read], "--read", read)
    assert run.returncode == 0, run.stdout
    assert "each is there exactly once, and the audit says so" in run.stdout


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_tables_have_every_input_once_under_kill_9(kind: str) -> None:
    pytest.importorskip("deltalake" if kind == "delta" else "pyiceberg")
    run = crash(f"{kind} file written,{kind} before commit,{kind} committed", "--sink", kind)
    assert run.returncode == 0, run.stdout
    assert "each is there exactly once, and the audit says so" in run.stdout


@pytest.mark.long
@pytest.mark.parametrize("kind", ["sqlite", "duckdb"])
def test_databases_have_every_input_once_under_kill_9(kind: str) -> None:
    run = crash(f"{kind} rows staged,{kind} moved,{kind} committed", "--sink", kind)
    assert run.returncode == 0, run.stdout
    assert "each is there exactly once, and the audit says so" in run.stdout


@pytest.mark.long
@pytest.mark.parametrize("where", [[], ["--cluster"]], ids=["local", "cluster"])
def test_tables_of_all_kinds_under_kill_9(where: list[str]) -> None:
    """A task, the driver and the server of the database are killed, each inside the steps of another kind."""
    faults = "iceberg file written,postgres moved,duckdb committed,delta before commit,sqlite rows staged,database"
    run = crash(faults, "--sink", "all", *where)
    assert run.returncode == 0, run.stdout
    assert "each is there exactly once, and the audit says so" in run.stdout


def test_a_sink_that_forgets_its_batches_is_found() -> None:
    """A planted bug: after a kill, the repeated batch is written a second time."""
    run = crash("sink committed,machine", "--plant", "topic")
    assert run.returncode == 1
    assert "is there 2 times" in run.stdout


@pytest.mark.long
@pytest.mark.parametrize("where", [[], ["--cluster"]], ids=["local", "cluster"])
@pytest.mark.parametrize("kind", ["delta", "iceberg", "sqlite", "duckdb"])
def test_a_table_that_forgets_its_batches_is_found(kind: str, where: list[str]) -> None:
    run = crash(f"{kind} committed,{kind} committed,machine", "--sink", kind, "--plant", kind, *where)
    assert run.returncode == 1
    assert f"all_{kind}: " in run.stdout
    assert "is there 2 times" in run.stdout
