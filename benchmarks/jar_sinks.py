"""Spark's Kafka source into Delta and Iceberg tables, with jars: the peers of benchmarks/pipeline_sinks.py.

A jar works only with the Spark that it was made for, so each peer has a Python environment of its own, with that
PySpark. `environment` makes it once, in the cache of benchmarks/maven.py. The peer is then a process of that
environment: `python -m benchmarks.jar_sinks OPTIONS`, where OPTIONS is `Options` as JSON. Therefore this module needs
only PySpark and what is in this folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import maven, spark_connector
from benchmarks.peer import Unavailable
from benchmarks.processes import JAVA, PYTHON, Watch

SCHEMA = "id BIGINT, sequence INT, text STRING"
#: Where a record comes from. Iceberg reserves the name `_partition` and then refuses MERGE, hence another prefix.
ORIGIN = "from_topic STRING, from_partition INT, from_offset BIGINT, from_timestamp TIMESTAMP"


@dataclass(frozen=True)
class Peer:
    """A table format with jars: the Spark and the jars that fit together, and how a table is named."""

    spark: str
    jar: str
    using: str
    table: str
    conf: Mapping[str, str]

    def jars(self) -> list[Path]:
        """The jars for `spark.jars`. `Unavailable` says why there are none."""
        return [
            *spark_connector.jars(self.spark),
            *maven.directory(self.jar.replace(":", "-"), [self.jar]).glob("*.jar"),
        ]


PEERS = {
    "delta jar": Peer(
        "4.2.0",
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "delta",
        "delta.`DIRECTORY/table`",
        {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        },
    ),
    "iceberg jar": Peer(
        "4.1.3",
        "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
        "iceberg",
        "lake.shop.NAME",
        {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": "DIRECTORY/warehouse",
        },
    ),
}
#: The line of an exception of Java, of Java in Python, or of Python. Libraries may complain after it.
_CAUSE = re.compile(r"Caused by: |: |(?!nanobind)[A-Za-z_][\w.]*: ")
_MERGE = """\
MERGE INTO {table} AS old USING changes AS new ON old.id = new.id
WHEN MATCHED AND new.sequence >= old.sequence THEN UPDATE SET *
WHEN NOT MATCHED THEN INSERT *"""


@dataclass(frozen=True)
class Options:
    """What one round does: `kind` is a name of PEERS, with " upsert" to replace rows of a table."""

    servers: str
    kind: str
    jars: str
    records: int
    batch: int
    memory: str


def one_round(servers: str, kind: str, *, records: int, batch: int, memory: str, java_home: Path) -> dict[str, float]:
    """Run one round in the environment of the peer. `Unavailable` says why it does not run."""
    peer = PEERS[kind.removesuffix(" upsert")]
    jars = ",".join(map(str, peer.jars()))
    options = json.dumps(asdict(Options(servers, kind, jars, records, batch, memory)))
    python = environment(peer.spark)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    command = [str(python), "-m", "benchmarks.jar_sinks", options]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=env | {"JAVA_HOME": str(java_home)})
    return found_by(done)


def found_by(done: subprocess.CompletedProcess[str]) -> dict[str, float]:
    """What the process of a round has measured. `Unavailable` says why it failed."""
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        causes = [line for line in said if _CAUSE.match(line)]
        raise Unavailable((causes or said)[-1].strip())
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def environment(spark: str) -> Path:
    """The Python of an environment with this PySpark, made if it does not exist."""
    target = maven.cache() / f"pyspark-{spark}"
    python = target / "bin" / "python"
    if not (target / "complete").exists():
        print(f"installing PySpark {spark} for a peer, in {target}", flush=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", f"pyspark=={spark}"]
        for command in ([sys.executable, "-m", "venv", "--clear", str(target)], pip):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
                raise Unavailable(f"PySpark {spark} cannot be installed: {said[-1]}")
        (target / "complete").touch()
    return python


def measured(job: Callable[[], None], rows: int) -> dict[str, float]:
    """Run a job, and tell its time, its CPU time and its peak memory, with all child processes."""
    with Watch(os.getpid(), without=0) as watch:
        begin, cpu = time.monotonic(), time.process_time()
        job()
        seconds, own = time.monotonic() - begin, time.process_time() - cpu
    return {
        "rows": rows,
        "seconds": seconds,
        "cpu": sum(watch.seconds.values()) + own,
        "java_mb": watch.peak[JAVA] / 1e6,
        "python_mb": watch.peak[PYTHON] / 1e6,
    }


def _session(peer: Peer, options: Options, directory: Path) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").appName("benchmark")
    conf = {
        "spark.jars": options.jars,
        "spark.driver.memory": options.memory,
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        **{name: value.replace("DIRECTORY", str(directory)) for name, value in peer.conf.items()},
    }
    for name, value in conf.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("FATAL")
    return spark


def _run(spark: Any, options: Options, topic: str, table: str, state: Path, *, merge: bool, batch: int) -> None:
    given = {"kafka.bootstrap.servers": options.servers, "subscribe": topic, "startingOffsets": "earliest"}
    read = spark.readStream.format("kafka").options(**given, maxOffsetsPerTrigger=batch).load()
    rows = read.selectExpr(
        f"from_json(cast(value AS STRING), '{SCHEMA}') AS found",
        "topic AS from_topic",
        "partition AS from_partition",
        "offset AS from_offset",
        "timestamp AS from_timestamp",
    ).selectExpr("found.*", "from_topic", "from_partition", "from_offset", "from_timestamp")
    writer = rows.writeStream.option("checkpointLocation", str(state)).trigger(availableNow=True)

    def merged(frame: Any, _batch: int) -> None:
        frame.createOrReplaceTempView("changes")
        frame.sparkSession.sql(_MERGE.format(table=table))

    if merge:
        query = writer.foreachBatch(merged).start()
    elif table.startswith("delta."):  # a path is no name for `toTable`
        query = writer.format("delta").start(table.removeprefix("delta.").strip("`"))
    else:
        query = writer.toTable(table)
    query.awaitTermination()


def _one_round(options: Options) -> dict[str, float]:
    upsert = options.kind.endswith(" upsert")
    peer = PEERS[options.kind.removesuffix(" upsert")]
    with tempfile.TemporaryDirectory(prefix="sinks-benchmark-") as name:
        directory = Path(name)
        spark = _session(peer, options, directory)

        def run(topic: str, into: str, *, merge: bool = False) -> None:
            table = peer.table.replace("DIRECTORY", f"{directory}/{into}").replace("NAME", into)
            spark.sql(f"CREATE TABLE IF NOT EXISTS {table} ({SCHEMA}, {ORIGIN}) USING {peer.using}")
            batch = options.records if merge else options.batch
            _run(spark, options, topic, table, directory / f"state-{into}-{topic}", merge=merge, batch=batch)

        if upsert:
            run("orders", "real")
            return measured(lambda: run("changes", "real", merge=True), options.records // 100)
        run("warm", "warm")
        return measured(lambda: run("orders", "real"), options.records)


if __name__ == "__main__":
    print(json.dumps(_one_round(Options(**json.loads(sys.argv[1])))))
