"""A job runs unchanged on a standalone cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.cluster import Cluster
from spark.conftest import Topics

pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300)]
RECORDS, PARTITIONS = 2_000, 4
PIPELINE = """\
name = "copy"
checkpoint = "state"

[[source]]
name = "numbers"
topics = ["{topic}"]
schema = "number BIGINT NOT NULL"
max_offsets_per_trigger = 600

[[sink]]
name = "table"
format = "parquet"
path = "table"

[[sink]]
name = "copies"
format = "topic"
topic = "{output}"
value = "cast(number as string)"

[dead_letters]
topic = "{dead}"
"""


def test_pipeline_on_a_standalone_cluster(spark: SparkSession, servers: str, topics: Topics, tmp_path: Path) -> None:
    topic, output, dead = topics.make(PARTITIONS), topics.make(PARTITIONS), topics.make()
    for partition in range(PARTITIONS):
        for number in range(partition, RECORDS, PARTITIONS):
            topics.producer.send(topic, f'{{"number": {number}}}'.encode(), partition=partition)
    topics.producer.send(topic, b"broken", partition=0)
    topics.producer.flush()
    file = tmp_path / "copy.toml"
    file.write_text(PIPELINE.format(topic=topic, output=output, dead=dead))
    with Cluster(workers=2) as cluster:
        command = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "--once", "-b", servers, "--quiet"]
        memory = ["--conf", "spark.driver.memory=512m", "--conf", "spark.executor.memory=512m"]
        job = subprocess.run(
            [*command, *memory, "--master", cluster.master], capture_output=True, text=True, timeout=240, check=False
        )
        assert job.returncode == 0, job.stdout[-2000:] + job.stderr[-4000:]
        assert cluster.executors() == [0, 1]
    rows = spark.read.parquet(str(tmp_path / "table")).collect()
    assert sorted(row.number for row in rows) == list(range(RECORDS))
    committed = {"kafka_isolation_level": "read_committed"}
    assert topics.values(output, **committed) == list(range(RECORDS))
    assert [row.value for row in topics.read(dead).collect()] == [b"broken"]
