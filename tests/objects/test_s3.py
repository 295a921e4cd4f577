"""Delta and Iceberg tables in an object store: exactly once, also when the store dies, and no secret in files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from objects.conftest import BUCKET, KEY, SECRET, Store
from ottla.cli.main import main
from ottla.spark.pipelines.audit.run import audit_pipeline
from spark.test_spark_lakes import Declared
from spark.test_spark_pipelines import send
from spark.upsert_cases import Changes

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark
NAMES = ("log", "base")


def tables(kind: str, store: Store) -> dict[str, str]:
    """The sinks of `Declared`, in the store."""
    if kind == "delta":
        form = f'format = "delta"\npath = "s3://{BUCKET}/NAME"\n'
        storage = {
            "aws_endpoint_url": store.url,
            "aws_allow_http": "true",
            "aws_region": "us-east-1",
            "aws_access_key_id": KEY,
            "aws_secret_access_key": "${env:STORE_SECRET}",
        }
    else:
        catalog = f'{{type = "sql", uri = "sqlite:///catalog.db", warehouse = "s3://{BUCKET}"}}'
        form = f'format = "iceberg"\ntable = "shop.NAME"\ncatalog = {catalog}\n'
        storage = {
            "s3.endpoint": store.url,
            "s3.region": "us-east-1",
            "s3.access-key-id": KEY,
            "s3.secret-access-key": "${env:STORE_SECRET}",
        }
    given = ", ".join(f'"{name}" = "{value}"' for name, value in storage.items())
    return {name: form.replace("NAME", name) + f"storage = {{{given}}}" for name in NAMES}


@pytest.fixture(params=["delta", "iceberg"])
def declared(
    request: pytest.FixtureRequest, topics: Topics, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Declared:
    monkeypatch.setenv("STORE_SECRET", SECRET)
    return Declared(topics, tmp_path, request.param, tables(request.param, store))


def names_of(sent: list[str]) -> list[tuple[Any, ...]]:
    return sorted((one["name"], one["region"]) for one in map(json.loads, sent))


def files_of(declared: Declared) -> int:
    table = declared.lake("log").table
    return len(table.file_uris() if declared.kind == "delta" else list(table.scan().plan_files()))


def test_batches_are_written_once(
    declared: Declared, spark: SparkSession, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changes = Changes(1)
    sent = changes.records(60)
    send(declared.topics, declared.topic, *sent)
    declared.run()
    declared.again()
    sent += (more := changes.records(20))
    send(declared.topics, declared.topic, *more)
    declared.run()
    assert declared.rows("base", "id", "region", "ts", "name") == changes.rows
    assert declared.rows("log", "name", "region") == names_of(sent)
    (audit,) = audit_pipeline(declared.pipeline, spark, sinks=["log"]).audits
    assert audit.report.ok
    assert audit.report.total.arrived == 80
    # Small files are joined, and the rows stay.
    files = files_of(declared)
    assert main(["table", "optimize", str(declared.file)]) == 0, capsys.readouterr()
    assert files_of(declared) < files
    assert declared.rows("base", "id", "region", "ts", "name") == changes.rows
    assert declared.rows("log", "name", "region") == names_of(sent)
    assert not [path for path in tmp_path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


def test_a_store_that_dies(declared: Declared, store: Store) -> None:
    changes = Changes(2)
    sent = changes.records(30)
    send(declared.topics, declared.topic, *sent)
    declared.run()
    store.kill()
    sent += (more := changes.records(30))
    send(declared.topics, declared.topic, *more)
    with pytest.raises(Exception, match=r"127\.0\.0\.1|lake") as failure:
        declared.run()
    assert SECRET not in str(failure.value)
    store.start()
    declared.run()
    assert declared.rows("base", "id", "region", "ts", "name") == changes.rows
    assert declared.rows("log", "name", "region") == names_of(sent)
