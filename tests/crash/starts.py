"""Start a pipeline with four flows again and again on a loaded machine: no start may fail.

    python -m tests.crash.starts --starts 100 [--unprepared]

All flows share one map with the environment of the data source. Spark adds names to it when a query starts, and a query
that is sending its tasks at that moment fails ("Illegal size 5 of collection, expected 6"). This happens only at the
first start in a Java process, so the names are removed before each start here. `--unprepared` leaves out what prevents
the failure (`sessions.settle_environment`), to show how often it happens.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla import Admin, NewTopic, Producer

from .broker_process import BrokerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECORDS = 40
GIVE_UP_SECONDS = 300.0
DECLARATION = """\
name = "starts"
checkpoint = "state-{number}"
bootstrap_servers = "{servers}"
read = "separate"

[[source]]
name = "numbers"
topics = ["numbers"]
schema = "n BIGINT NOT NULL"

[[sink]]
name = "one"
path = "one-{number}"
format = "parquet"

[[sink]]
name = "two"
path = "two-{number}"
format = "parquet"

[[sink]]
name = "three"
path = "three-{number}"
format = "parquet"

[dead_letters]
topic = "dead"
"""


def _spin() -> None:
    while True:
        pass


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep the processors busy."""
    spinning = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(processes)]
    for one in spinning:
        one.start()
    try:
        yield
    finally:
        for one in spinning:
            one.kill()


def forget(spark: SparkSession) -> Any:
    """Bring the environment of the data source into the state of a new Java process; returns it."""
    from ottla.spark.sessions import _STREAM_ENVIRONMENT

    session: Any = spark
    manager = session._jsparkSession.sessionState().dataSourceManager()
    environment = manager.lookupDataSource("ottla").dataSourceCls().envVars()
    for name in _STREAM_ENVIRONMENT:
        environment.remove(name)
    return environment


def start(spark: SparkSession, servers: str, directory: Path, number: int, *, prepared: bool) -> str | None:
    """Start all flows, and wait for their end; returns the error, if any."""
    from ottla.spark.pipelines import compile_pipeline
    from ottla.spark.pipelines import load as load_pipeline
    from ottla.spark.pipelines.runner import Runner, board_of

    file = directory / "starts.toml"
    file.write_text(DECLARATION.format(servers=servers, number=number))
    pipeline = load_pipeline(file)
    forget(spark)
    flows = compile_pipeline(pipeline, spark, trigger="available-now")
    assert len(flows) == 4
    if not prepared:
        forget(spark)
    board = board_of(pipeline, flows)
    ending = Runner(flows, board, ends=True).run()
    if ending.failure is not None:
        return ending.failure.cause
    rows = {flow.name: flow.rows for flow in board.flows()}
    return None if set(rows.values()) == {RECORDS} else f"not all records were read: {rows}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--starts", type=int, default=100)
    parser.add_argument("--load", type=int, default=4, help="busy processes beside it (default: 4)")
    parser.add_argument("--unprepared", action="store_true", help="leave out what prevents the failure")
    args = parser.parse_args()
    from ottla.spark import session

    failed = 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="ottla-starts-") as name, load(args.load):
        directory = Path(name)
        broker = BrokerProcess(directory / "data", directory / "broker.log", {})
        broker.start()
        conf = {"spark.driver.memory": "512m"}
        spark = session("starts", master="local[4]", fast=True, log_level="off", conf=conf)
        try:
            servers = broker.bootstrap_servers
            with Admin(bootstrap_servers=servers) as admin, Producer(bootstrap_servers=servers) as producer:
                admin.create_topics([NewTopic("numbers", 4), NewTopic("dead", 1)])
                for number in range(RECORDS):
                    producer.send("numbers", b'{"n": %d}' % number, partition=number % 4)
            for number in range(args.starts):
                error = start(spark, servers, directory, number, prepared=not args.unprepared)
                failed += error is not None
                at = time.monotonic() - begin
                if error is not None or (number + 1) % 10 == 0:
                    print(f"start {number + 1}, {at:.0f} s: {error or 'fine so far'}", flush=True)
        finally:
            spark.stop()
            broker.close()
    print(f"{failed} of {args.starts} starts with four flows failed, in {time.monotonic() - begin:.0f} s")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
