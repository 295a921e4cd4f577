"""Rows a second into each kind of table: `python -m benchmarks.pipeline_sinks`.

A pipeline reads JSON records of 100 bytes and writes them to one sink, in micro-batches, to the end. Each round is a
process with its own Spark session, which writes one micro-batch before the measurement, to warm up Java. `--jars` adds
Spark's Kafka source with the jars of Delta and Iceberg (jar_sinks.py), and the ratios to them. postgres and jdbc write
to the same server, which needs Debian's postgresql. `--upsert` replaces 1 % of the rows of a table in one micro-batch.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import ottla
from benchmarks import jar_sinks
from benchmarks.jar_sinks import found_by, measured
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.peer import Unavailable
from ottla.spark.java import java_home
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
LAKES = ("delta", "iceberg")
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


def one_round(servers: str, kind: str, args: argparse.Namespace) -> dict[str, float]:
    """One round, in this process."""
    with tempfile.TemporaryDirectory(prefix="sinks-benchmark-") as name:
        directory = Path(name)
        more = {"spark.jars.packages": DRIVERS["postgresql"].package} if kind.startswith("jdbc") else {}
        spark = started(args.memory, **more)
        form = SINKS[kind.removesuffix(" upsert")].replace("TABLE", f"orders_{os.getpid()}")
        if kind.endswith(" upsert"):
            by_key = form + UPSERT
            # A database needs a unique index for upserts, which only a sink with keys creates.
            before = form if kind.startswith(LAKES) else by_key
            run_ours(spark, directory, servers, "orders", before, args.batch)
            return measured(
                lambda: run_ours(spark, directory, servers, "changes", by_key, args.records), args.records // 100
            )
        for part in ("warm", "real"):
            (directory / part).mkdir()
        run_ours(spark, directory / "warm", servers, "warm", form, args.batch)
        return measured(lambda: run_ours(spark, directory / "real", servers, "orders", form, args.batch), args.records)


def one_process(servers: str, kind: str, args: argparse.Namespace) -> dict[str, float]:
    """One round, in a process of its own. `Unavailable` says why it does not run."""
    if " jar" in kind:
        given = {"records": args.records, "batch": args.batch, "memory": args.memory}
        return jar_sinks.one_round(servers, kind, **given, java_home=java_home())
    options = [f"--records={args.records}", f"--batch={args.batch}", f"--memory={args.memory}"]
    command = [sys.executable, "-m", "benchmarks.pipeline_sinks", *options, "--one", servers, kind]
    return found_by(subprocess.run(command, capture_output=True, text=True, check=False))


def show(kind: str, rounds: list[dict[str, float]]) -> None:
    best = min(rounds, key=lambda one: one["seconds"])
    rows = best["rows"]
    java, python = (max(one[name] for one in rounds) for name in ("java_mb", "python_mb"))
    print(
        f"{kind:18} {rows / best['seconds']:>9,.0f} rows/s  {best['seconds']:6.1f} s  "
        f"{min(one['cpu'] for one in rounds) / rows * 1e6:6.1f} s of processor a million rows, at most "
        f"{java:,.0f} MB Java, {python:,.0f} MB Python",
        flush=True,
    )


def _jar(kind: str) -> str:
    """The peer of a kind: "delta upsert" → "delta jar upsert"."""
    lake, *rest = kind.split()
    return " ".join([lake, "jar", *rest])


def compare(found: dict[str, list[dict[str, float]]]) -> None:
    """Our speed and processor time as a multiple of the jar's, round by round: the median, and the extremes."""
    for kind in found:
        rivals = found.get(_jar(kind))
        if rivals is None:
            continue
        pairs = list(zip(found[kind], rivals, strict=False))
        speeds = [theirs["seconds"] / ours["seconds"] for ours, theirs in pairs]
        costs = [ours["cpu"] / theirs["cpu"] for ours, theirs in pairs]
        spread = f"({min(speeds):.2f} to {max(speeds):.2f})" if len(speeds) > 1 else ""
        print(f"{kind:18} {median(speeds):.2f} of the jar's rows/s {spread}, {median(costs):.2f} of its processor time")


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
    parser.add_argument("--jars", action="store_true", help="also Spark with the jars of Delta and Iceberg (Maven)")
    parser.add_argument("--upsert", action="store_true", help="also replace 1 %% of a table")
    parser.add_argument("--one", nargs=2, metavar=("SERVERS", "KIND"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(one_round(*args.one, args)))
        return
    kinds = args.sinks.split(",")
    kinds += [f"{kind} upsert" for kind in kinds if args.upsert and kind != "parquet"]
    if args.jars:
        kinds = [one for kind in kinds for one in (kind, *([_jar(kind)] if kind.startswith(LAKES) else []))]
    found: dict[str, list[dict[str, float]]] = {}
    with OttlaBroker() as broker, postgres(any(kind.startswith(SERVED) for kind in kinds)) as url:
        os.environ["BENCHMARK_POSTGRES"] = url
        servers = broker.bootstrap_servers
        fill(servers, "orders", range(args.records))
        fill(servers, "warm", range(min(args.batch, args.records // 4)))
        fill(servers, "changes", sorted(random.Random(7).sample(range(args.records), args.records // 100)), 1)
        for _ in range(args.rounds):
            for kind in kinds:
                try:
                    found.setdefault(kind, []).append(one_process(servers, kind, args))
                except Unavailable as reason:
                    print(f"{kind:18} does not run here: {str(reason)[:160]}", flush=True)
                    continue
                show(kind, found[kind])
    compare({kind: rounds for kind, rounds in found.items() if rounds})


if __name__ == "__main__":
    main()
