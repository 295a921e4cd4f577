"""Delta and Iceberg tables as sinks on a real Spark; tests/unit/spark/pipelines/lakes has what needs no Spark."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.cli.main import main
from ottla.spark.pipelines import DeclarationError, LakeSink, Pipeline, compile_pipeline, load
from ottla.spark.pipelines.audit.run import audit_pipeline
from ottla.spark.pipelines.columns import StepError
from ottla.spark.pipelines.keyed import shape
from ottla.spark.pipelines.lakes.delta import DeltaLake
from ottla.spark.pipelines.lakes.iceberg import IcebergLake
from ottla.spark.pipelines.lakes.opening import open_lake
from ottla.spark.pipelines.lakes.reading import read_lake
from ottla.spark.pipelines.lakes.sink import LakeWriter
from ottla.spark.pipelines.written import WrittenError
from spark.test_spark_pipelines import run, send
from spark.upsert_cases import SCHEMA, Changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark
pytest.importorskip("deltalake", reason="needs pip install 'ottla[delta]'")
pytest.importorskip("pyiceberg", reason="needs pip install 'ottla[iceberg]'")

HEAD = """\
name = "changes"
checkpoint = "state"
bootstrap_servers = "{servers}"

[[source]]
name = "changes"
topics = ["{topic}"]
schema = "{schema}"
max_offsets_per_trigger = 25

[[sink]]
name = "log"
{log}
partition_by = ["region"]

[[sink]]
name = "base"
{base}
keys = ["id", "region"]
sequence = "ts"
delete_when = "op = 'd'"
exclude = ["op"]
"""
LAKES = {"delta": DeltaLake, "iceberg": IcebergLake}
SECRET = "hush-hush-hush"
CATALOG = 'catalog = {type = "sql", uri = "sqlite:///catalog.db", warehouse = "warehouse"}'
TABLES = {
    "delta": {name: f'format = "delta"\npath = "tables/{name}"' for name in ("log", "base")},
    "iceberg": {name: f'format = "iceberg"\ntable = "shop.{name}"\n{CATALOG}' for name in ("log", "base")},
}


class Declared:
    """A pipeline's file, and what its tables have."""

    def __init__(self, topics: Topics, directory: Path, kind: str, tables: Mapping[str, str] | None = None) -> None:
        self.topics, self.topic, self.kind = topics, topics.make(), kind
        self._tables = tables or TABLES[kind]
        self.file = directory / "changes.toml"
        self.write()

    def write(self, schema: str = SCHEMA, more: str = "") -> None:
        known = {"servers": self.topics.servers, "topic": self.topic, "schema": schema}
        self.file.write_text(HEAD.format(**known, **self._tables) + more)

    @property
    def pipeline(self) -> Pipeline:
        return load(self.file)

    def run(self) -> None:
        run(self.pipeline, self.topics.spark)

    def lake(self, name: str) -> Any:
        (sink,) = [one for one in self.pipeline.sinks if one.name == name]
        assert isinstance(sink, LakeSink)
        return open_lake(self.pipeline, sink)

    def rows(self, name: str, *columns: str) -> list[tuple[Any, ...]]:
        """The rows as the package reads them."""
        table = self.lake(name).table
        found = table.to_pyarrow_table() if self.kind == "delta" else table.scan().to_arrow()
        return sorted(tuple(one[name] for name in columns) for one in found.select(columns).to_pylist())

    def again(self) -> None:
        """Forget that the last batch has ended, as after a crash."""
        commits = self.file.parent / "state" / "shared" / "changes" / "commits"
        max(commits.glob("[0-9]*"), key=lambda path: int(path.name)).unlink()


def test_a_table_has_each_batch_once(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    declared, changes = Declared(topics, tmp_path, "delta"), Changes(1)
    sent = changes.records(30)
    send(topics, declared.topic, *sent)
    declared.run()
    declared.again()
    sent += (more := changes.records(10))
    send(topics, declared.topic, *more)
    declared.run()
    assert declared.rows("base", "id", "region", "ts", "name") == changes.rows
    wanted = sorted((one["name"], one["region"]) for one in map(json.loads, sent))
    assert declared.rows("log", "name", "region") == wanted


@pytest.mark.long  # the test before it has the short form
@pytest.mark.parametrize("kind", TABLES)
def test_batches_are_written_once_and_newer_rows_replace_older_ones(
    topics: Topics, spark: SparkSession, tmp_path: Path, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    declared, changes = Declared(topics, tmp_path, kind), Changes(1)
    sent = changes.records(60)
    send(topics, declared.topic, *sent)
    declared.run()
    assert declared.rows("base", "id", "region", "ts", "name") == changes.rows

    # Repeat the last batch, and go on.
    declared.again()
    sent += (more := changes.records(20))
    send(topics, declared.topic, *more)
    declared.run()
    assert declared.rows("base", "id", "region", "ts", "name") == changes.rows
    wanted = sorted((one["name"], one["region"]) for one in map(json.loads, sent))
    assert declared.rows("log", "name", "region") == wanted
    # Spark reads the same, and the audit finds each record.
    assert sorted(map(tuple, read_lake(spark, declared.lake("log")).select("name", "region").collect())) == wanted
    (audit,) = audit_pipeline(declared.pipeline, spark, sinks=["log"]).audits
    assert audit.report.ok
    assert audit.report.total.arrived == 80

    # A new column is added to the tables.
    declared.write(schema=f"{SCHEMA}, note STRING")
    send(topics, declared.topic, json.dumps({"id": "new", "region": 5, "ts": 1, "name": "n", "op": "u", "note": "hi"}))
    declared.run()
    assert declared.rows("base", "id", "note")[-1] == ("new", "hi")
    # One of another type is refused before anything is written.
    declared.write(schema=SCHEMA.replace("name STRING", "name BIGINT"))
    with pytest.raises(DeclarationError, match=r"name is BIGINT here and STRING in the table.* CAST"):
        compile_pipeline(declared.pipeline, spark, trigger="available-now")[0].start()

    # A new checkpoint does not fit the tables until they are reset.
    declared.write()
    (tmp_path / "state").rename(tmp_path / "old")
    with pytest.raises(WrittenError, match=r"has rows of sink log of pipeline changes with another checkpoint"):
        declared.run()
    assert main(["pipeline", "reset", str(declared.file), "--all", "--yes"]) == 0
    assert "base" in capsys.readouterr().out
    declared.run()
    assert len(declared.rows("log", "name")) == 81


@pytest.mark.long
def test_the_end_of_a_version_leaves_columns_that_the_pipeline_no_longer_has(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = LakeSink(name="versions", format="delta", path=str(tmp_path), keys=["id", "valid_from"], sequence="_version")
    columns = "1L AS id, {0}L AS valid_from, CAST(NULL AS BIGINT) AS valid_to, '{0}' AS _version"
    for batch, select in enumerate((f"{columns.format(10)}, 'x' AS note", columns.format(20))):
        rows = spark.sql(f"SELECT {select}")
        LakeWriter(sink, DeltaLake(str(tmp_path), {}), rows, "q").write(rows, batch)
    stored = read_lake(spark, DeltaLake(str(tmp_path), {})).select("valid_from", "valid_to", "note").collect()
    assert sorted(map(tuple, stored)) == [(10, 20, "x"), (20, None, None)]
    odd = spark.sql(f"SELECT {columns.format(30).replace('1L', '1D')}")
    with pytest.raises(StepError, match="keys has id, which is double"):
        LakeWriter(sink, DeltaLake(str(tmp_path), {}), odd, "q")
    assert "valid_from" in shape(dataclasses.replace(sink, sequence="Valid_From"), rows).columns


def fail_once(monkeypatch: pytest.MonkeyPatch, lake: type[Any], moment: str, seen: set[Any]) -> None:
    """Let each batch fail once at a step: before its files are written, before or after its commit."""
    from ottla.spark.pipelines.lakes.sink import LakeWriter

    def fail(what: Any) -> None:
        if what not in seen:
            seen.add(what)
            raise RuntimeError("planted")

    commit, written = lake.commit, LakeWriter._written

    def committing(self: Any, change: Any) -> None:
        if moment == "before commit":
            fail((self.what, change.batch))
        commit(self, change)
        if moment == "after commit":
            fail((self.what, change.batch))

    def writing(self: Any, rows: Any) -> Any:
        found = written(self, rows)
        if moment == "files written":
            fail((self._lake.what, self._lake.last_batch(self._query)))
        return found

    monkeypatch.setattr(lake, "commit", committing)
    monkeypatch.setattr(LakeWriter, "_written", writing)


@pytest.mark.long
@pytest.mark.parametrize("moment", ["files written", "before commit", "after commit"])
@pytest.mark.parametrize("kind", TABLES)
def test_every_batch_may_fail_at_every_step(
    topics: Topics, tmp_path: Path, kind: str, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    declared, changes, seen = Declared(topics, tmp_path, kind), Changes(2), set[Any]()
    sent = changes.records(60)
    send(topics, declared.topic, *sent)
    fail_once(monkeypatch, LAKES[kind], moment, seen)
    failures = 0
    while True:
        try:
            declared.run()
            break
        except Exception as error:
            failures += 1
            if "planted" not in str(error) or failures > 20:
                raise
    assert failures >= 3
    assert declared.rows("base", "id", "region", "ts", "name") == changes.rows
    assert declared.rows("log", "name") == sorted((json.loads(one)["name"],) for one in sent)


@pytest.mark.long
@pytest.mark.parametrize("kind", TABLES)
def test_others_read_the_tables(
    topics: Topics, spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB over Arrow, and Spark over the Parquet files; windows are upserted as they change, totals overwritten."""
    duckdb = pytest.importorskip("duckdb", reason="needs pip install duckdb")
    declared = Declared(topics, tmp_path, kind)
    monkeypatch.setenv("LAKE_SECRET", SECRET)
    form = {
        "delta": 'format = "delta"\npath = "tables/NAME"',
        "iceberg": f'format = "iceberg"\ntable = "a.NAME"\n{CATALOG}',
    }
    declared.file.write_text(
        f'''name = "windows"
checkpoint = "state"
bootstrap_servers = "{topics.servers}"

[[source]]
name = "events"
topics = ["{declared.topic}"]
schema = "at TIMESTAMP, user STRING, amount DECIMAL(9,2)"

[[step]]
name = "minutes"
window = "1 minute"
event_time = "at"
group_by = ["user"]
aggregate = {{total = "sum(amount)"}}

[[step]]
name = "totals"
sql = "SELECT user, sum(amount) AS total FROM events GROUP BY user"

[[sink]]
name = "minutes"
input = "minutes"
keys = ["window_start", "user"]
{form[kind].replace("NAME", "minutes")}
storage = {{aws_secret_access_key = "${{env:LAKE_SECRET}}"}}

[[sink]]
name = "totals"
input = "totals"
mode = "overwrite"
{form[kind].replace("NAME", "totals")}
'''
    )
    for batch in range(2):
        rows = [{"at": f"2026-11-01T00:0{n % 3}:00Z", "user": f"u{n % 2}", "amount": n + batch} for n in range(12)]
        send(topics, declared.topic, *map(json.dumps, rows))
        declared.run()
    assert [(name, int(total)) for name, total in declared.rows("totals", "user", "total")] == [("u0", 66), ("u1", 78)]
    frame = read_lake(spark, declared.lake("minutes"))
    found = frame.toArrow()
    # The secret is in no file and in no plan.
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert SECRET not in frame._jdf.queryExecution().toString()
    assert int(duckdb.from_arrow(found).aggregate("sum(total)").fetchall()[0][0]) == 144
    assert len(found) == 6
    if kind == "delta":
        files = declared.lake("totals").table.file_uris()
        assert int(spark.read.parquet(*files).selectExpr("sum(total)").collect()[0][0]) == 144
