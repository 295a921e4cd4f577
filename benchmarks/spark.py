"""Reading and writing topics by Spark: `python -m benchmarks.spark [--records 1000000] [--connector VERSION]`.

Each figure is the best of the rounds, on one session with as many cores as `--cores` says, against an ottla broker in a
process of its own. With `--connector` Spark's own Kafka connector of that version is got from Maven Central, and
takes turns with ours on the same topic in the same session; what counts then are the ratios.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from uuid import uuid4

import pyarrow as pa

import ottla
from benchmarks.ottla_broker import OttlaBroker
from benchmarks.values import values
from ottla.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PARTITIONS = 4
SIZES = (100, 1_000)
CONNECTOR = "org.apache.spark:spark-sql-kafka-0-10_2.13"


class Contest:
    """The jobs that are timed; each takes the format to use."""

    def __init__(self, spark: SparkSession, servers: str, size: int, records: int) -> None:
        self.spark, self.servers, self.size, self.records = spark, servers, size, records
        self.topic = f"in-{size}"
        self._fill()

    def _fill(self) -> None:
        payloads = values(self.size)
        with ottla.Admin(bootstrap_servers=self.servers) as admin:
            admin.create_topics(ottla.NewTopic(self.topic, PARTITIONS))
        table = pa.table({"value": payloads, "partition": [number % PARTITIONS for number in range(len(payloads))]})
        with ottla.Producer(bootstrap_servers=self.servers) as producer:
            for _ in range(-(-self.records // len(payloads))):
                producer.send_arrow(self.topic, table)
        self.records = -(-self.records // len(payloads)) * len(payloads)

    @property
    def _options(self) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.servers, "subscribe": self.topic}

    def read(self, source: str) -> None:
        frame = self.spark.read.format(source).options(**self._options).load()
        frame.write.format("noop").mode("overwrite").save()

    def stream(self, source: str) -> None:
        """Ten micro-batches."""
        options = {**self._options, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(-(-self.records // 10))}
        frame = self.spark.readStream.format(source).options(**options).load()
        frame.writeStream.format("noop").trigger(availableNow=True).start().awaitTermination()

    def write(self, sink: str) -> None:
        frame = self.spark.range(self.records).selectExpr(f"repeat('x', {self.size}) value")
        options = {"kafka.bootstrap.servers": self.servers, "topic": f"out-{uuid4().hex[:8]}"}
        frame.write.format(sink).mode("append").options(**options).save()


def timed(job: Callable[[str], None], name: str) -> float:
    began = time.monotonic()
    job(name)
    return time.monotonic() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--connector", metavar="VERSION", help="of Spark's own Kafka connector, to run beside ours")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args()
    conf = {"spark.jars.packages": f"{CONNECTOR}:{args.connector}"} if args.connector else {}
    formats = ["ottla", "kafka"] if args.connector else ["ottla"]
    spark = session("benchmark", master=f"local[{args.cores}]", conf=conf)
    figures: dict[str, float] = {}
    with OttlaBroker() as broker:
        for size in SIZES:
            contest = Contest(spark, broker.bootstrap_servers, size, args.records * SIZES[0] // size)
            for job in (contest.read, contest.stream, contest.write):
                best = dict.fromkeys(formats, float("inf"))
                for _ in range(args.rounds):
                    for name in formats:
                        best[name] = min(best[name], timed(job, name))
                for name, seconds in best.items():
                    figures[f"{job.__name__} {size} B {name}"] = round(contest.records / seconds)
    spark.stop()
    if args.json:
        print(json.dumps(figures, indent=2))
        return
    for what, rate in figures.items():
        print(f"{what:24} {rate:>12,} records/s")


if __name__ == "__main__":
    main()
