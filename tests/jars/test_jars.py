"""Spark with the jars of Delta and Iceberg reads the tables of pipelines, and changes rows in them."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from benchmarks import jar_sinks, maven

from ottla.spark.java import java_home
from ottla.spark.pipelines.lakes.columns import conformed
from ottla.spark.pipelines.lakes.contract import Change, Lake
from ottla.spark.pipelines.lakes.delta import DeltaLake
from ottla.spark.pipelines.lakes.iceberg import IcebergLake

STATEMENTS = Path(__file__).with_name("statements.py")
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
#: What a step with `latest` and the origin of records give.
SCHEMA = pa.schema(
    {"id": pa.int64(), "_deleted": pa.bool_(), "_topic": pa.string(), "_partition": pa.int32(), "_offset": pa.int64()}
)
Sql = Callable[..., list[list[dict[str, Any]]]]


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Lake, str, Sql]:
    """A table, its name in Spark, and what runs SQL there."""
    peer = jar_sinks.PEERS[f"{request.param} jar"]
    jars = peer.jars()
    conf = {name: value.replace("DIRECTORY", str(tmp_path)) for name, value in peer.conf.items()}
    lake: Lake
    if request.param == "delta":
        lake, name = DeltaLake(str(tmp_path / "orders"), {}), f"delta.`{tmp_path}/orders`"
    else:
        uri, warehouse = f"sqlite:///{tmp_path}/catalog.db", f"file://{tmp_path}/tables"
        catalog = {"name": "lake", "type": "sql", "uri": uri, "warehouse": warehouse}
        lake, name = IcebergLake("shop.orders", catalog, {}), "lake.shop.orders"
        jars += maven.directory("sqlite-jdbc", [SQLITE], alone=True).glob("*.jar")
        conf |= {
            "spark.sql.catalog.lake.type": "jdbc",
            "spark.sql.catalog.lake.uri": f"jdbc:sqlite:{tmp_path}/catalog.db",
            "spark.sql.catalog.lake.warehouse": warehouse,
            "spark.sql.catalog.lake.jdbc.schema-version": "V1",
        }
    conf["spark.jars"] = ",".join(map(str, jars))
    python = jar_sinks.environment(peer.spark)
    env = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_", "PYTHON"))}

    def sql(*statements: str) -> list[list[dict[str, Any]]]:
        given = json.dumps({"conf": conf, "statements": statements})
        command = [str(python), str(STATEMENTS), given]
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, env=env | {"JAVA_HOME": str(java_home())}
        )
        assert done.returncode == 0, done.stderr[-3000:]
        found: list[list[dict[str, Any]]] = json.loads(done.stdout.splitlines()[-1])
        return found

    return lake, name, sql


def append(lake: Lake, batch: int, *numbers: int) -> None:
    rows = [{"id": one, "_deleted": one > 3, "_topic": "a", "_partition": one % 2, "_offset": one} for one in numbers]
    files = lake.files()
    lake.commit(Change("q", batch, files.write(conformed(pa.Table.from_pylist(rows, SCHEMA), files.schema))))


def test_spark_with_jars_reads_and_changes_a_table(table: tuple[Lake, str, Sql]) -> None:
    lake, name, sql = table
    lake.create(SCHEMA, [])
    append(lake, 0, 1, 2, 3, 4)
    rows, *_, left = sql(
        f"SELECT * FROM {name} ORDER BY id",
        f"DELETE FROM {name} WHERE id = 1",
        f"UPDATE {name} SET _offset = 99 WHERE id = 2",
        f"SELECT id, _offset FROM {name} ORDER BY id",
    )
    partition, deleted = ("_partition", "_deleted") if isinstance(lake, DeltaLake) else ("_partition_", "_deleted_")
    assert [(one["id"], one[partition], one[deleted]) for one in rows] == [
        *((1, 1, False), (2, 0, False)),
        *((3, 1, False), (4, 0, True)),
    ]
    assert left == [{"id": 2, "_offset": 99}, {"id": 3, "_offset": 3}, {"id": 4, "_offset": 4}]
    # The pipeline goes on in the same table.
    lake.refresh()
    append(lake, 1, 5)
    ((count,),) = sql(f"SELECT count(*) AS found, sum(_offset) AS total FROM {name}")
    assert count == {"found": 4, "total": 99 + 3 + 4 + 5}
