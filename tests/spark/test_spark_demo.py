"""`ottla demo` as a process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(250)]


def demo(*arguments: str) -> str:
    command = [sys.executable, "-m", "ottla", "demo", *arguments]
    run = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert run.stderr == ""
    return run.stdout


def test_every_order_is_accounted_for(tmp_path: Path) -> None:
    text = demo("--events", "3000", "--seconds", "3", "--out", str(tmp_path / "out"))
    assert "killed member 2" in text
    assert "read every record" in text
    assert re.search(r"audit +OK: 3,\d+ produced, .*nothing lost, nothing repeated", text)
    assert "because  session expired: member-2" in text
    assert (tmp_path / "out" / "chart.svg").read_text().startswith("<svg")
    assert list((tmp_path / "out" / "table").glob("*.parquet"))
    # The next run replaces the directory.
    assert (tmp_path / "out" / "summary.txt").read_text().strip() in text


def test_lines_of_a_file_are_accounted_for(tmp_path: Path) -> None:
    rows = [f"{number},{number * 1.5},name {number}" for number in range(500)]
    (tmp_path / "mine.csv").write_text("\n".join(["id,price,name", *rows, "only one"]) + "\n")
    text = demo("--data", str(tmp_path / "mine.csv"), "--out", str(tmp_path / "out"))
    assert "501 lines" in text
    assert "table         500 rows, no duplicates" in text
    assert "dead letters  1" in text


@pytest.mark.long
def test_a_cluster_loses_a_leader_and_no_record(tmp_path: Path) -> None:
    text = demo("--cluster", "--events", "6000", "--seconds", "10", "--out", str(tmp_path / "out"))
    line = re.search(
        r"killed broker (\d) \(kill -9\), which led (orders-\d), .*; broker (\d) leads it, .*; writing paused for", text
    )
    assert line is not None, text
    before, partition, after = line.groups()
    assert before != after
    assert f"broker {before} is back: all replicas are in sync" in text
    assert re.search(r"OK: all 6,\d+ acknowledged records are in the topic, each of them once", text)
    assert re.search(r"audit +OK: 6,\d+ produced, .*nothing lost, nothing repeated", text)
    assert f"{partition}: led by broker {after} in epoch" in text


@pytest.mark.long
def test_unsafe_settings_lose_records_and_the_audit_says_so(tmp_path: Path) -> None:
    text = demo("--cluster", "--unsafe", "--events", "6000", "--seconds", "12", "--out", str(tmp_path / "out"))
    assert "goes on alone" in text
    assert re.search(r"NOT OK: [\d,]+ of 6,\d+ acknowledged records are lost", text)
    assert "acknowledged by a leader that was alone (acks=1)" in text


def test_unsafe_needs_a_cluster(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ottla", "demo", "--unsafe", "--out", str(tmp_path / "out")]
    run = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (run.returncode, "add --cluster" in run.stderr) == (2, True)


# ── Ctrl-C ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def processes(mark: str) -> dict[int, str]:
    """The processes with this value in their environment, with their commands. A zombie has no environment."""
    found = {}
    for place in Path("/proc").iterdir():
        try:
            if place.name.isdecimal() and mark.encode() in (place / "environ").read_bytes():
                found[int(place.name)] = (place / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
    return found


def wait_until(condition: Callable[[], bool], what: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(0.05)


def is_spark(command: str) -> bool:
    return "org.apache.spark.deploy.SparkSubmit" in command


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.parametrize("cluster", [[], ["--cluster"]], ids=["single", "cluster"])
@pytest.mark.parametrize("moment", ["Spark starts", "the pipeline runs"])
def test_an_interrupt_ends_everything(tmp_path: Path, cluster: list[str], moment: str) -> None:
    mark = f"OTTLA_TEST_MARK={tmp_path}"
    log = tmp_path / "log"
    command = [sys.executable, "-m", "ottla", "demo", *cluster, "--seconds", "300", "--out", str(tmp_path / "out")]
    with log.open("wb") as output:
        program = subprocess.Popen(
            command,
            stdout=output,
            stderr=output,
            start_new_session=True,
            env={**os.environ, "OTTLA_TEST_MARK": str(tmp_path)},
        )
    try:
        if moment == "Spark starts":
            wait_until(lambda: any(map(is_spark, processes(mark).values())), moment)
        else:
            wait_until(lambda: "running on Spark" in log.read_text(), moment)
        os.killpg(program.pid, signal.SIGINT)  # as a terminal does
        assert program.wait(180) == 130, log.read_text()
        assert "error" not in log.read_text().lower(), log.read_text()
        wait_until(lambda: not processes(mark), f"the end of {processes(mark)}", 10)
    finally:
        for pid in processes(mark):
            os.kill(pid, signal.SIGKILL)
        program.wait()
