"""A standalone cluster runs what one machine runs: only the master is another."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.cluster import Cluster
from spark.conftest import Topics, table

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300)]
TESTS = Path(__file__).parents[1]
RECORDS, PARTITIONS = 2_000, 4


def test_job_on_standalone_cluster(spark: SparkSession, servers: str, topics: Topics, tmp_path: Path) -> None:
    topic, output = topics.make(PARTITIONS), topics.make(PARTITIONS)
    for partition in range(PARTITIONS):
        share = RECORDS // PARTITIONS
        topics.fill(topic, share, partition=partition, first=partition * share)
    with Cluster(workers=2) as cluster:
        job = subprocess.run(
            [sys.executable, "-m", "spark.cluster_job", cluster.master, servers, topic, output, str(tmp_path)],
            cwd=TESTS,
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert job.returncode == 0, job.stderr[-4000:]
        assert cluster.executors() == [0, 1]
        assert job.stdout.strip() == cluster.master
    assert job.stderr == ""
    assert table(spark, tmp_path) == list(range(RECORDS))
    assert topics.values(output) == list(range(RECORDS))
