"""Compare the Spark data source with Spark's Kafka connector: `python -m benchmarks.spark`.

Both take turns on the same topics in the same session, with an ottla broker in its own process, after a warm-up
round. The result is the best round in rows/s, and the lowest CPU time per million rows of Spark's Java and Python
processes, which other load affects less. `--scale` runs one streaming query over growing numbers of records and shows
its cost and memory, for each connector in a Spark of its own. Without Maven Central, or if the connector does not run
on this Spark, only ottla is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

import ottla
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.peer import Unavailable
from benchmarks.processes import JAVA, PYTHON, Watch
from benchmarks.spark_connector import VERSION, jars
from benchmarks.values import values
from ottla.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
RECORDS = {100: 2_000_000, 1_000: 400_000}
BATCHES = 10
SMALL_BATCHES, SMALL = 30, 400
SCALE = (1_000_000, 5_000_000, 25_000_000)
SCALE_BATCH = 1_000_000
OURS, THEIRS, EXACTLY_ONCE = "ottla", "kafka", "ottla exactly-once"


@dataclass
class Figure:
    """The rounds of one job with one connector."""

    rows: int
    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    steady: list[float] = field(default_factory=list)
    """Of streams: rows/s of the micro-batches after the first, without the start of the query."""

    @property
    def rate(self) -> float:
        return self.rows / min(self.wall)

    @property
    def cpu_per_million(self) -> float:
        return min(self.cpu) / self.rows * 1_000_000


class Contest:
    """The timed jobs. Each takes the connector to use."""

    def __init__(self, spark: SparkSession, servers: str, size: int, records: int, directory: Path) -> None:
        self.spark, self.servers, self.size = spark, servers, size
        self.topic, self.directory = f"in-{size}", directory
        self.records = fill(servers, self.topic, size, records)
        self._rows = directory / f"rows-{size}"
        self._rows.mkdir()
        made = values(size)
        table = pa.table({"value": pa.array(made * (self.records // BATCHES // len(made) + 1), pa.binary())})
        for number in range(BATCHES):
            pq.write_table(
                table.slice(0, self.records // BATCHES), self._rows / f"{number}.parquet", compression="NONE"
            )

    def read_batch(self, name: str) -> None:
        self._read(self.spark.read, name).write.format("noop").mode("overwrite").save()

    def read_stream(self, name: str) -> list[Any]:
        """Run ten micro-batches and return their progress."""
        return self._to_noop(name, -(-self.records // BATCHES))

    def write_batch(self, name: str) -> None:
        frame = self.spark.read.parquet(str(self._rows))
        frame.write.format(name.split()[0]).mode("append").options(**self._sink(name, batch=True)).save()

    def write_stream(self, name: str) -> list[Any]:
        """Run ten micro-batches from files and return their progress."""
        rows = self.spark.readStream.schema("value binary").option("maxFilesPerTrigger", 1).parquet(str(self._rows))
        writer = rows.writeStream.format(name.split()[0]).options(**self._sink(name, batch=False))
        checkpoint = str(self.directory / uuid4().hex)
        query = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        query.awaitTermination()
        return list(query.recentProgress)

    def small_batches(self, name: str) -> list[float]:
        """Return the time of small micro-batches in milliseconds."""
        progress = self._to_noop(name, SMALL, until=SMALL * SMALL_BATCHES)
        return [one.durationMs["triggerExecution"] for one in progress if one.numInputRows]

    def _read(self, reader: Any, name: str, **options: object) -> Any:
        reader = reader.format(name).option("kafka.bootstrap.servers", self.servers).option("subscribe", self.topic)
        return reader.options(**options).load()

    def _to_noop(self, name: str, batch: int, until: int | None = None) -> list[Any]:
        more: dict[str, object] = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": batch}
        writer = self._read(self.spark.readStream, name, **more).writeStream.format("noop")
        if until is None:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
            return list(query.recentProgress)
        query = writer.start()
        deadline = time.monotonic() + 120
        while sum(one.numInputRows for one in query.recentProgress) < until and time.monotonic() < deadline:
            time.sleep(0.05)
        query.stop()
        return list(query.recentProgress)

    def _sink(self, name: str, *, batch: bool) -> dict[str, str]:
        options = {"kafka.bootstrap.servers": self.servers, "topic": f"out-{uuid4().hex[:8]}"}
        with ottla.Admin(bootstrap_servers=self.servers) as admin:
            admin.create_topics(ottla.NewTopic(options["topic"], PARTITIONS))
        if name == EXACTLY_ONCE:
            options["deliver"] = "exactly-once"
            if batch:
                options |= {"txnAppId": uuid4().hex, "txnVersion": "1"}
        return options


def fill(servers: str, topic: str, size: int, records: int) -> int:
    """Create a topic with at least this many records, equally in each partition. Return the number."""
    payloads = values(size)
    table = pa.table({"value": payloads, "partition": [number % PARTITIONS for number in range(len(payloads))]})
    rounds = -(-records // len(payloads))
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics(ottla.NewTopic(topic, PARTITIONS))
    with ottla.Producer(bootstrap_servers=servers) as producer:
        sent = []
        for _ in range(rounds):
            sent.append(producer.send_arrow(topic, table))
            if len(sent) > 8:
                sent.pop(0).result()
        for one in sent:
            one.result()
    return rounds * len(payloads)


def timed(job: Callable[[str], Any], name: str, broker: OttlaBroker, figure: Figure) -> None:
    with Watch(os.getpid(), without=broker.pid) as watch:
        began = time.monotonic()
        told = job(name)
        figure.wall.append(time.monotonic() - began)
    figure.cpu.append(sum(watch.seconds.values()))
    batches = [one for one in told or () if one.numInputRows][1:]
    if batches:
        spent = sum(one.durationMs["triggerExecution"] for one in batches) / 1000
        figure.steady.append(sum(one.numInputRows for one in batches) / spent)


def compare(spark: SparkSession, broker: OttlaBroker, names: list[str], args: argparse.Namespace) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with directory() as place:
        for size, records in RECORDS.items():
            contest = Contest(spark, broker.bootstrap_servers, size, int(records * args.part), place)
            for job in (contest.read_batch, contest.read_stream, contest.write_batch, contest.write_stream):
                if args.only and args.only not in job.__name__:
                    continue
                running = names if "write" in job.__name__ else [name for name in names if name != EXACTLY_ONCE]
                figures = {name: Figure(contest.records) for name in running}
                for counts in range(args.rounds + 1):
                    for name in running:
                        figure = figures[name] if counts else Figure(contest.records)
                        timed(job, name, broker, figure)
                found[f"{job.__name__.replace('_', ' ')}, {size} B"] = figures
                show(f"{job.__name__.replace('_', ' ')}, {size} B", figures)
        if not args.only or args.only in "small_batches":
            both = [name for name in names if name != EXACTLY_ONCE]
            times = {name: [] for name in both}
            for _ in range(2):
                for name in both:
                    times[name] += contest.small_batches(name)[2:]
            found["micro-batch"] = {name: statistics.median(one) for name, one in times.items()}
            told = ", ".join(f"{name} {one:.0f} ms" for name, one in found["micro-batch"].items())
            print(f"a micro-batch of {SMALL} records takes {told} (median)", flush=True)
    return found


def show(what: str, figures: dict[str, Figure]) -> None:
    theirs = figures.get(THEIRS)
    for name, one in figures.items():
        line = (
            f"{what:22} {name:19} {one.rate:>11,.0f} rows/s  {one.cpu_per_million:6.2f} s of processor a million rows"
        )
        if theirs is not None and one is not theirs:
            line += f"  x {one.rate / theirs.rate:.2f}, processor x {one.cpu_per_million / theirs.cpu_per_million:.2f}"
        if one.steady:
            line += f"; once started {max(one.steady):,.0f} rows/s"
            if theirs is not None and one is not theirs:
                line += f", x {max(one.steady) / max(theirs.steady):.2f}"
        print(line, flush=True)


def scale_each(names: list[str], sizes: list[int]) -> list[Any]:
    """Run `scale` for each connector in its own process: Java keeps the memory that one of them has used."""
    found = []
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            result = Path(place, name)
            command = [sys.executable, "-m", "benchmarks.spark", "--connector", name, "--json", str(result)]
            subprocess.run([*command, "--scale", *map(str, sizes)], check=True)
            found += [{"connector": name, **one} for one in json.loads(result.read_text())]
    return found


def scale(spark: SparkSession, broker: OttlaBroker, name: str, sizes: list[int]) -> list[dict[str, float]]:
    """Run one streaming query per number of records, in micro-batches of a million, to a sink that discards."""
    servers, found = broker.bootstrap_servers, []
    there = 0
    for number, wanted in enumerate([sizes[0], *sizes]):  # the first one warms up Java and is not counted
        with ottla.Admin(bootstrap_servers=servers) as admin:
            if there:
                admin.delete_topics("scale")
        there = fill(servers, "scale", 100, wanted)
        reader = spark.readStream.format(name).option("kafka.bootstrap.servers", servers)
        frame = reader.option("subscribe", "scale").options(
            startingOffsets="earliest", maxOffsetsPerTrigger=SCALE_BATCH
        )
        with Watch(os.getpid(), without=broker.pid) as watch:
            began = time.monotonic()
            query = frame.load().writeStream.format("noop").trigger(availableNow=True).start()
            query.awaitTermination()
            wall = time.monotonic() - began
        rows = sum(one.numInputRows for one in query.recentProgress)
        cpu = sum(watch.seconds.values()) / there * 1_000_000
        one = {"records": there, "seconds": wall, "cpu_per_million": cpu}
        one |= {"java_mb": watch.peak[JAVA] / 1e6, "python_mb": watch.peak[PYTHON] / 1e6}
        if not number:
            continue
        found.append(one)
        print(
            f"{name:6}{there:>11,} records {there / wall:>10,.0f} rows/s  {cpu:.2f} s of processor a million, at most "
            f"{one['java_mb']:.0f} MB Java + {one['python_mb']:.0f} MB Python, read {rows:,}",
            flush=True,
        )
    return found


@contextmanager
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="spark-benchmark-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def connectors(spark: SparkSession, broker: OttlaBroker) -> list[str]:
    """Return the connectors that run here."""
    found = [OURS]
    servers = broker.bootstrap_servers
    fill(servers, "trial", 1_000, 1)
    try:
        read = spark.read.format(THEIRS).option("kafka.bootstrap.servers", servers).option("subscribe", "trial").load()
        read.write.format("noop").mode("overwrite").save()
        found.append(THEIRS)
    except Exception as error:
        print(f"Spark's own connector does not run here, ottla is alone: {str(error).splitlines()[0]}")
    try:
        options = {"kafka.bootstrap.servers": servers, "topic": "trial", "deliver": "exactly-once"}
        options |= {"txnAppId": "trial", "txnVersion": "1"}
        spark.range(1).selectExpr("cast(id as string) value").write.format(OURS).options(**options).mode(
            "append"
        ).save()
        found.append(EXACTLY_ONCE)
    except Exception as error:
        print(f"exactly once is left out: {str(error).splitlines()[0]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--part", type=float, default=1.0, help="factor for the number of records")
    parser.add_argument("--only", default="", help="jobs with this in their name: read_batch, write_stream, …")
    parser.add_argument("--alone", action="store_true", help="measure only ottla")
    parser.add_argument("--scale", nargs="*", type=int, metavar="RECORDS", help="1 to 25 million records, or these")
    parser.add_argument("--connector", choices=(OURS, THEIRS), help=argparse.SUPPRESS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    args = parser.parse_args()
    found: Any
    if args.scale is not None and args.connector is None:
        found = scale_each([OURS] if args.alone else [OURS, THEIRS], args.scale or list(SCALE))
        if args.json:
            args.json.write_text(json.dumps(found, indent=2))
        return
    conf = {"spark.driver.memory": "1g", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    try:
        if not args.alone and args.connector != OURS:
            import pyspark

            conf["spark.jars"] = ",".join(map(str, jars()))
            print(f"compared with Spark's connector {VERSION} on Spark {pyspark.__version__}")
    except Unavailable as why:
        print(f"ottla is measured alone: {why}")
    spark = session("benchmark", master=f"local[{args.cores}]", conf=conf, log_level="fatal")
    with OttlaBroker() as broker:
        if args.scale is not None:
            found = scale(spark, broker, args.connector, args.scale)
        else:
            found = compare(spark, broker, connectors(spark, broker), args)
    spark.stop()
    if args.json:
        args.json.write_text(json.dumps(found, default=vars, indent=2))


if __name__ == "__main__":
    main()
