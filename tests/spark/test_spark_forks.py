"""The Python processes that plan streaming queries: a daemon forks them, and none outlives its query or its driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException

from compat.waiting import until
from spark.conftest import Topics, drain, table

pytestmark = pytest.mark.spark


def test_queries_are_planned_in_forks_that_end_with_them(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    topics.fill(topic, 1)
    java = topics.spark.sparkContext._gateway.proc.pid
    until(lambda: not _planners(java), "earlier queries have ended")
    running = []
    for name in "ab":
        stream = topics.stream(topic, startingOffsets="earliest").writeStream.format("noop")
        running.append(stream.option("checkpointLocation", str(tmp_path / name)).start())
        running[-1].processAllAvailable()
    assert len(_planners(java)) == 2
    for query in running:
        query.stop()
    until(lambda: not _planners(java), "no process is left")


def test_a_query_fails_with_its_planner_and_continues_with_a_new_one(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    topics.fill(topic, 10)
    frame = topics.stream(topic, startingOffsets="earliest")
    drain(frame, tmp_path)
    java = topics.spark.sparkContext._gateway.proc.pid
    until(lambda: not _planners(java), "earlier queries have ended")
    stream = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "other"))
    query = stream.start()
    query.processAllAvailable()
    for pid in [*_planners(java), *_daemons(java)]:
        os.kill(pid, signal.SIGKILL)
    with pytest.raises(StreamingQueryException):
        query.awaitTermination(60)
    topics.fill(topic, 10, first=10)
    drain(frame, tmp_path)
    assert table(topics.spark, tmp_path) == list(range(20))
    assert _daemons(java)


DRIVER = """
import sys
from ottla.spark import session

spark = session("doomed", master="local[1]", fast=True, log_level="off")
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2], "startingOffsets": "earliest"}
stream = spark.readStream.format("ottla").options(**options, maxOffsetsPerTrigger="2000").load().writeStream
query = stream.format("noop").option("checkpointLocation", sys.argv[3]).start()
query.processAllAvailable()
print("ready", flush=True)
query.awaitTermination()
"""


@pytest.mark.long
@pytest.mark.parametrize("victim", ["python", "java"])
def test_a_killed_driver_leaves_no_process(topics: Topics, tmp_path: Path, victim: str) -> None:
    topic = topics.make()
    topics.fill(topic, 2500)  # one large batch, which needs a worker, and a small one
    command = [sys.executable, "-c", DRIVER, topics.servers, topic, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as driver:
        assert driver.stdout is not None
        assert driver.stdout.readline() == b"ready\n"
        there = [driver.pid, *_descendants(driver.pid)]
        java = next(pid for pid in there if b"SparkSubmit" in _command(pid))
        assert _planners(java)
        os.kill(driver.pid if victim == "python" else java, signal.SIGKILL)
        left = [pid for pid in there if pid != driver.pid]
        until(lambda: not any(map(_runs, left)), "no process is left")
        driver.kill()


def _daemons(java: int) -> list[int]:
    return [pid for pid in _children(java) if b"ottla.spark.daemon\0pyspark.sql.streaming" in _command(pid)]


def _planners(java: int) -> list[int]:
    return [fork for daemon in _daemons(java) for fork in _children(daemon)]


def _descendants(pid: int) -> list[int]:
    return [found for child in _children(pid) for found in (child, *_descendants(child))]


def _children(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:  # the thread has ended
            continue
    return found


def _command(pid: int) -> bytes:
    """Empty if the process has ended."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def _runs(pid: int) -> bool:
    return bool(_command(pid))
