"""Rows a second into each kind of table: `python -m benchmarks.pipeline_sinks`.

A pipeline reads JSON records of 100 bytes and writes them to one sink, in micro-batches, to the end. Each round is a
process with its own Spark session, which writes one micro-batch before the measurement, to warm up Java. `--jars` adds
Spark's Kafka source with the Delta and Iceberg jars of Maven Central, where they run with this Spark. postgres and
jdbc write to the same server, which needs Debian's postgresql. `--upsert` replaces 1 % of the rows of a table in one
micro-batch.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import ottla
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.processes import JAVA, PYTHON, Watch
from ottla.spark.pipelines.jdbc.drivers import DRIVERS

PARTITIONS = 4
SIZE = 100
A_SEND = 50_000
SCHEMA = "id BIGINT NOT NULL, sequence INT NOT NULL, text STRING"
_CATALOG = 'catalog = {type = "sql", uri = "sqlite:///catalog.db", warehouse = "warehouse"}'
SINKS = {
    "parquet": 'format = "parquet"\npath = "table"',
    "delta": 'format = "delta"\npath = "table"',
    "iceberg": f'format = "iceberg"\ntable = "shop.orders"\n{_CATALOG}',
    "duckdb": 'format = "duckdb"\npath = "shop.duckdb"\ntable = "orders"',
    "sqlite": 'format = "sqlite"\npath = "shop.db"\ntable = "orders"',
    "postgres": 'format = "postgres"\nurl = "${BENCHMARK_POSTGRES}"\nuser = "ottla"\ntable = "TABLE"',
    "jdbc": 'format = "jdbc"\nurl = "jdbc:${BENCHMARK_POSTGRES}"\nuser = "ottla"\ntable = "TABLE"',
}
#: Sinks that need a Postgres server: Debian's package postgresql.
SERVED = ("postgres", "jdbc")
#: Spark's own sinks, with the package that each needs.
JARS = {
    "delta jar": "io.delta:delta-spark_4.2_2.13:4.4.0",
    "iceberg jar": "org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",
}
UPSERT = '\nkeys = ["id"]\nsequence = "sequence"'
DECLARATION = """\
name = "{topic}"
checkpoint = "state-{topic}"
bootstrap_servers = "{servers}"

[[source]]
name = "orders"
topics = ["{topic}"]
schema = "{schema}"
max_offsets_per_trigger = {batch}

[[sink]]
name = "table"
{sink}
"""


def fill(servers: str, topic: str, numbers: range | list[int], sequence: int = 0) -> None:
    """Create a topic with a record for each number."""
    import pyarrow as pa

    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic(topic, PARTITIONS))
    with ottla.Producer(bootstrap_servers=servers) as producer:
        for start in range(0, len(numbers), A_SEND):
            texts = [f'{{"id":{one},"sequence":{sequence},"text":"' for one in numbers[start : start + A_SEND]]
            made = [(text + "lorem ipsum dolor sit amet " * 4)[: SIZE - 2] + '"}' for text in texts]
            partitions = [number % PARTITIONS for number in range(len(made))]
            producer.send_arrow(topic, pa.table({"value": made, "partition": partitions})).result()


def measured(begin: float, cpu: float, watch: Watch, rows: int) -> dict[str, float]:
    used = sum(watch.seconds.values()) + time.process_time() - cpu
    return {
        "rows": rows,
        "seconds": time.monotonic() - begin,
        "cpu": used,
        "java_mb": watch.peak[JAVA] / 1e6,
        "python_mb": watch.peak[PYTHON] / 1e6,
    }


def timed(job: Callable[[], None], rows: int) -> dict[str, float]:
    with Watch(os.getpid(), without=0) as watch:
        begin, cpu = time.monotonic(), time.process_time()
        job()
    return measured(begin, cpu, watch, rows)


def started(memory: str, **more: str) -> Any:
    from ottla.spark import session

    conf = {"spark.driver.memory": memory, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", **more}
    return session("benchmark", master="local[2]", conf=conf, log_level="fatal")


def run_ours(spark: Any, directory: Path, servers: str, topic: str, sink: str, batch: int) -> None:
    from ottla.spark.pipelines import compile_pipeline, load

    file = directory / f"{topic}.toml"
    file.write_text(DECLARATION.format(servers=servers, topic=topic, schema=SCHEMA, batch=batch, sink=sink))
    for flow in compile_pipeline(load(file), spark, trigger="available-now"):
        query = flow.start()
        query.awaitTermination()


def run_theirs(spark: Any, directory: Path, servers: str, topic: str, kind: str, batch: int) -> None:
    """Spark's Kafka source, from_json, and a sink with jars."""
    given = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    read = spark.readStream.format("kafka").options(**given, maxOffsetsPerTrigger=batch).load()
    rows = read.selectExpr(
        f"from_json(cast(value AS STRING), '{SCHEMA.replace(' NOT NULL', '')}') AS found",
        "topic AS _topic",
        "partition AS _partition",
        "offset AS _offset",
        "timestamp AS _timestamp",
    ).selectExpr("found.*", "_topic", "_partition", "_offset", "_timestamp")
    writer = rows.writeStream.option("checkpointLocation", str(directory / "state")).trigger(availableNow=True)
    if kind == "iceberg jar":
        columns = (
            "id BIGINT, sequence INT, text STRING, _topic STRING, _partition INT, _offset BIGINT, _timestamp TIMESTAMP"
        )
        spark.sql(f"CREATE TABLE IF NOT EXISTS lake.shop.orders ({columns}) USING iceberg")
        query = writer.format("iceberg").toTable("lake.shop.orders")
    else:
        query = writer.format("delta").start(str(directory / "table"))
    query.awaitTermination()


def theirs(kind: str, directory: Path, memory: str) -> Any:
    from benchmarks import maven, spark_connector

    jars = [*spark_connector.jars(), *maven.directory(JARS[kind].replace(":", "-"), [JARS[kind]]).glob("*.jar")]
    more = {"spark.jars": ",".join(map(str, jars))}
    if kind == "iceberg jar":
        more |= {
            "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(directory / "warehouse"),
        }
    else:
        more |= {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        }
    return started(memory, **more)


def one_round(servers: str, kind: str, args: argparse.Namespace) -> dict[str, float]:
    """One round, in this process."""
    with tempfile.TemporaryDirectory(prefix="sinks-benchmark-") as name:
        directory = Path(name)
        if kind in JARS:
            spark = theirs(kind, directory, args.memory)
            warm, real = directory / "warm", directory / "real"
            warm.mkdir()
            real.mkdir()
            run_theirs(spark, warm, servers, "warm", kind, args.batch)
            return timed(lambda: run_theirs(spark, real, servers, "orders", kind, args.batch), args.records)
        more = {"spark.jars.packages": DRIVERS["postgresql"].package} if kind.startswith("jdbc") else {}
        spark = started(args.memory, **more)
        form = SINKS[kind.removesuffix(" upsert")].replace("TABLE", f"orders_{os.getpid()}")
        if kind.endswith(" upsert"):
            form += UPSERT
            run_ours(spark, directory, servers, "orders", form, args.batch)
            return timed(
                lambda: run_ours(spark, directory, servers, "changes", form, args.records), args.records // 100
            )
        for part in ("warm", "real"):
            (directory / part).mkdir()
        run_ours(spark, directory / "warm", servers, "warm", form, args.batch)
        return timed(lambda: run_ours(spark, directory / "real", servers, "orders", form, args.batch), args.records)


def show(kind: str, rounds: list[dict[str, float]]) -> None:
    best = min(rounds, key=lambda one: one["seconds"])
    rows = best["rows"]
    java, python = (max(one[name] for one in rounds) for name in ("java_mb", "python_mb"))
    print(
        f"{kind:15} {rows / best['seconds']:>9,.0f} rows/s  {best['seconds']:6.1f} s  "
        f"{min(one['cpu'] for one in rounds) / rows * 1e6:6.1f} s of processor a million rows, at most "
        f"{java:,.0f} MB Java, {python:,.0f} MB Python",
        flush=True,
    )


@contextmanager
def postgres(wanted: bool) -> Iterator[str]:
    """The URL of a server in a temporary directory; empty if it is not wanted, or not installed."""
    if not wanted or not (shutil.which("pg_ctl") or any(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))):
        yield ""
        return
    from tests.databases.servers import Postgres

    server = Postgres()
    server.start()
    try:
        yield server.plain_url
    finally:
        server.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--batch", type=int, default=250_000, help="records per micro-batch")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--memory", default="1g", help="spark.driver.memory")
    parser.add_argument("--sinks", default=",".join(SINKS), help=f"default: {','.join(SINKS)}")
    parser.add_argument("--jars", action="store_true", help=f"also {' and '.join(JARS)}, from Maven Central")
    parser.add_argument("--upsert", action="store_true", help="also replace 1 %% of a table")
    parser.add_argument("--one", nargs=2, metavar=("SERVERS", "KIND"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one_round(*args.one, args)))
        return
    kinds = args.sinks.split(",")
    kinds += [f"{kind} upsert" for kind in kinds if args.upsert and kind != "parquet"]
    kinds += [kind for kind in JARS if args.jars]
    found: dict[str, list[dict[str, float]]] = {}
    with OttlaBroker() as broker, postgres(any(kind.startswith(SERVED) for kind in kinds)) as url:
        os.environ["BENCHMARK_POSTGRES"] = url
        servers = broker.bootstrap_servers
        fill(servers, "orders", range(args.records))
        fill(servers, "warm", range(min(args.batch, args.records // 4)))
        fill(servers, "changes", sorted(random.Random(7).sample(range(args.records), args.records // 100)), 1)
        for _ in range(args.rounds):
            for kind in kinds:
                options = [f"--records={args.records}", f"--batch={args.batch}", f"--memory={args.memory}"]
                command = [sys.executable, "-m", "benchmarks.pipeline_sinks", *options, "--one", servers, kind]
                told = subprocess.run(command, capture_output=True, text=True, check=False)
                if told.returncode:
                    print(f"{kind:15} does not run here: {told.stderr.strip().splitlines()[-1][:160]}", flush=True)
                    continue
                found.setdefault(kind, []).append(json.loads(told.stdout.splitlines()[-1]))
                show(kind, found[kind])


if __name__ == "__main__":
    main()
