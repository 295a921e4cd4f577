"""Adjustments of Spark's Python processes, tested without Spark."""

from __future__ import annotations

import gc
import subprocess
import sys

from ottla.spark import processes
from ottla.spark.sessions import on_this_machine


def run_as(module: str, program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process whose main module has the name of one of Spark's."""
    named = f"import sys, types\nsys.modules['__main__'].__spec__ = types.SimpleNamespace(name={module!r})\n"
    return subprocess.run([sys.executable, "-c", named + program], capture_output=True, text=True, check=False)


HUNG_UP = """\
import traceback
from ottla.spark.processes import hush
hush()
try:
    raise {error}
except BaseException:
    traceback.print_exc()
"""


def test_only_the_daemon_is_hushed_and_only_when_spark_hung_up() -> None:
    daemon = "pyspark.daemon"
    assert run_as(daemon, HUNG_UP.format(error="BrokenPipeError")).stderr == ""
    assert "ValueError: real" in run_as(daemon, HUNG_UP.format(error="ValueError('real')")).stderr
    assert "BrokenPipeError" in run_as("user.program", HUNG_UP.format(error="BrokenPipeError")).stderr


LAST_BYTES = """\
import socket
from pyspark import daemon
from ottla.spark.processes import hush
sys.modules["pyspark_task"] = types.SimpleNamespace(main=lambda infile, outfile: outfile.write(b"last"))
sys.argv.append("pyspark_task")
ours, sparks = socket.socketpair()
sparks.close()
{hush}
daemon.worker(ours, True)
"""


def test_the_daemon_does_not_tell_that_spark_left_before_the_last_bytes() -> None:
    told = "PySpark daemon failed to flush the output"
    assert told in run_as("user.program", LAST_BYTES.format(hush="")).stderr
    assert told not in run_as("user.program", LAST_BYTES.format(hush="hush(daemon)")).stderr


LEAVING = """\
from ottla.spark.processes import leave_if_hung_up
try:
    raise {error}
finally:
    leave_if_hung_up()
"""


def test_a_stream_reader_leaves_quietly_when_spark_is_gone() -> None:
    reader = "pyspark.sql.streaming.python_streaming_source_runner"
    gone = run_as(reader, LEAVING.format(error="EOFError"))
    assert (gone.returncode, gone.stderr) == (0, "")
    assert run_as(reader, LEAVING.format(error="ValueError")).returncode == 1
    assert run_as("user.program", LEAVING.format(error="EOFError")).returncode == 1


def test_only_workers_settle() -> None:
    before = gc.get_freeze_count()
    processes.settle()
    assert gc.get_freeze_count() == before
    frozen = run_as(
        "pyspark.daemon", "import gc\nfrom ottla.spark.processes import settle\nsettle()\nprint(gc.get_freeze_count())"
    )
    assert int(frozen.stdout) > 1000


def test_what_runs_on_this_machine() -> None:
    masters = ("local[2]", "spark://127.0.0.1:7077", "spark://localhost:1,127.0.0.1:2", "spark://big:7077", "yarn")
    assert [on_this_machine(one) for one in masters] == [True, True, True, False, False]
