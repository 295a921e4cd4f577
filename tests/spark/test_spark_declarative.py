"""The data source in Spark Declarative Pipelines: a streaming table from a topic, and a topic as sink."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ottla.spark.java import java_home
from spark.conftest import Topics

NEEDED = ("grpc", "grpc_status", "yaml")
needs_pipelines = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in NEEDED), reason="pip install 'pyspark[pipelines]'"
)
pytestmark = [pytest.mark.spark, pytest.mark.cluster, pytest.mark.timeout(300), needs_pipelines]

SPEC = """\
name: orders
storage: {storage}
libraries:
  - glob:
      include: flows.py
configuration:
  spark.sql.shuffle.partitions: "2"
"""
FLOWS = """\
from pyspark import pipelines as dp
from pyspark.sql import SparkSession

spark = SparkSession.active()
cluster = {{"kafka.bootstrap.servers": "{servers}"}}


@dp.table
def orders():
    reader = spark.readStream.format("ottla").options(**cluster, subscribe="{topic}", startingOffsets="earliest")
    return reader.load().selectExpr("cast(value as string) value", "partition", "offset")


dp.create_sink("copies", "ottla", {{**cluster, "topic": "{output}"}})


@dp.append_flow(target="copies")
def copied():
    return spark.readStream.table("orders").select("value")
"""


def test_source_and_sink_of_a_declarative_pipeline(
    spark: SparkSession, servers: str, topics: Topics, tmp_path: Path
) -> None:
    topic, output = topics.make(2), topics.make(1)
    for partition in range(2):
        topics.fill(topic, 100, partition=partition, first=partition * 100)
    (tmp_path / "spark-pipeline.yml").write_text(SPEC.format(storage=(tmp_path / "storage").as_uri()))
    (tmp_path / "flows.py").write_text(FLOWS.format(servers=servers, topic=topic, output=output))
    job = subprocess.run(
        [Path(sys.executable).parent / "spark-pipelines", "--conf", "spark.driver.memory=512m", "run"],
        cwd=tmp_path,
        env={
            **os.environ,
            "JAVA_HOME": str(java_home()),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_HOME": str(Path(importlib.util.find_spec("pyspark").origin).parent),
        },
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert job.returncode == 0, job.stdout[-3000:] + job.stderr[-3000:]
    rows = spark.read.parquet(str(tmp_path / "spark-warehouse" / "orders")).select("value").collect()
    assert sorted(int(row.value) for row in rows) == list(range(200))
    assert topics.values(output) == list(range(200))
