"""The data source over Spark Connect: batch and streaming, reading and writing."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from spark.conftest import Topics

needs_grpc = pytest.mark.skipif(
    importlib.util.find_spec("grpc") is None or importlib.util.find_spec("grpc_status") is None,
    reason="pip install 'pyspark[connect]'",
)
pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300), needs_grpc]
TESTS = Path(__file__).parents[1]


def test_everything_over_connect(servers: str, topics: Topics, tmp_path: Path) -> None:
    topic, output = topics.make(2), topics.make(2)
    for partition in range(2):
        topics.fill(topic, 150, partition=partition, first=partition * 150)
    job = subprocess.run(
        [sys.executable, "-m", "spark.connect_job", servers, topic, output, str(tmp_path)],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert job.returncode == 0, job.stderr[-4000:]
    found = json.loads(job.stdout.splitlines()[-1])
    assert found == {
        "session": "pyspark.sql.connect.session",
        "count": 300,
        "streamed": 300,
        "table": 300,
        "written": 600,
    }
    assert topics.values(output) == sorted([*range(300), *range(300)])
