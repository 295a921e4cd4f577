"""Compare shared and separate reads of a pipeline: `python -m benchmarks.pipelines`.

A pipeline with a table, two topics and dead letters processes the same records with `read = "shared"` and
`read = "separate"`, in micro-batches, to the end. Each round is a process with its own Spark session, which first
processes a part of the records to warm up. The modes take turns. The result is the best round in records per second,
the lowest CPU time, and the peak memory of Spark's Java and Python processes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ottla
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.processes import JAVA, PYTHON, Watch
from benchmarks.values import values

PARTITIONS = 4
SIZE = 100
#: Every n-th record is broken.
BROKEN = 100
MODES = ("shared", "separate")
DECLARATION = """\
name = "orders"
checkpoint = "state"
bootstrap_servers = "{servers}"
read = "{read}"

[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT NOT NULL, sequence INT NOT NULL, text STRING"
max_offsets_per_trigger = {batch}

[[step]]
name = "few"
sql = "SELECT id, sequence FROM orders WHERE sequence % 10 = 0"

[[sink]]
name = "table"
input = "orders"
format = "parquet"
path = "table"

[[sink]]
name = "copies"
input = "orders"
format = "topic"
topic = "{copies}"
key = "id"

[[sink]]
name = "few"
input = "few"
format = "topic"
topic = "{few}"

[dead_letters]
topic = "{dead}"
"""


def fill(servers: str, records: int) -> int:
    """Create the topic, with broken records; returns the number of records."""
    import pyarrow as pa

    payloads = [one[:-3] if number % BROKEN == 0 else one[:-2] + b'"}' for number, one in enumerate(values(SIZE))]
    table = pa.table({"value": payloads, "partition": [number % PARTITIONS for number in range(len(payloads))]})
    rounds = -(-records // len(payloads))
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic("orders", PARTITIONS))
    with ottla.Producer(bootstrap_servers=servers) as producer:
        for future in [producer.send_arrow("orders", table) for _ in range(rounds)]:
            future.result()
    return rounds * len(payloads)


def run(servers: str, read: str, batch: int, memory: str, cores: int) -> dict[str, float]:
    """One round, in this process."""
    from ottla.spark import session
    from ottla.spark.pipelines import compile_pipeline, load
    from ottla.spark.pipelines.runner import Runner, board_of, listen

    with tempfile.TemporaryDirectory(prefix="pipelines-benchmark-") as name:
        topics = {one: f"{one}-{os.getpid()}" for one in ("copies", "few", "dead")}
        with ottla.Admin(bootstrap_servers=servers) as admin:
            admin.create_topics([ottla.NewTopic(topic, PARTITIONS) for topic in topics.values()])
        file = Path(name) / "orders.toml"
        file.write_text(DECLARATION.format(servers=servers, read=read, batch=batch, **topics))
        pipeline = load(file)
        conf = {"spark.driver.memory": memory, "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2"}
        spark = session("benchmark", master=f"local[{cores}]", conf=conf, log_level="fatal")
        try:
            # The first micro-batch warms up Java.
            flows = compile_pipeline(pipeline, spark, trigger="available-now")
            board = board_of(pipeline, flows)
            listen(spark, board)
            with Watch(os.getpid(), without=0) as watch:
                began = time.monotonic()
                ending = Runner(flows, board, ends=True, sleep=lambda _: time.sleep(0.02)).run()
                wall = time.monotonic() - began
            assert ending.failure is None, ending.failure
            batches = max(flow.batches for flow in board.flows())
            return {
                "records": min(flow.rows for flow in board.flows()),
                "seconds": wall,
                "cpu": sum(watch.seconds.values()),
                "java_mb": watch.peak[JAVA] / 1e6,
                "python_mb": watch.peak[PYTHON] / 1e6,
                "batches": batches,
                "dead_letters": board.dead_letters,
            }
        finally:
            spark.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--batch", type=int, default=250_000, help="records per micro-batch")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--memory", default="2g", help="spark.driver.memory")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--one", nargs=2, metavar=("SERVERS", "MODE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run(args.one[0], args.one[1], args.batch, args.memory, args.cores)))
        return
    found: dict[str, list[dict[str, float]]] = {mode: [] for mode in MODES}
    with OttlaBroker() as broker:
        records = fill(broker.bootstrap_servers, args.records)
        for _ in range(args.rounds):
            for mode in MODES:
                options = ["--batch", args.batch, "--memory", args.memory, "--cores", args.cores]
                command = [sys.executable, "-m", "benchmarks.pipelines", *map(str, options)]
                command += ["--one", broker.bootstrap_servers, mode]
                told = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
                found[mode].append(json.loads(told.splitlines()[-1]))
                show(mode, found[mode][-1:], records)
    print()
    for mode in MODES:
        show(mode, found[mode], records)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2))


def show(mode: str, rounds: list[dict[str, float]], records: int) -> None:
    best = min(rounds, key=lambda one: one["seconds"])
    assert best["records"] == records, f"{best['records']} of {records} records were read"
    cpu = min(one["cpu"] for one in rounds) / records * 1_000_000
    java, python = (max(one[name] for one in rounds) for name in ("java_mb", "python_mb"))
    print(
        f"{mode:9} {records / best['seconds']:>9,.0f} records/s  {cpu:6.2f} s of processor a million records, at most "
        f"{java:,.0f} MB Java, {python:,.0f} MB Python, {best['dead_letters']:,.0f} dead letters",
        flush=True,
    )


if __name__ == "__main__":
    main()
