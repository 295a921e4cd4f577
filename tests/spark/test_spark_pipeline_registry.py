"""Sources with a schema registry on a real Spark: all three formats, versions that mix, and dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ottla.clients.consumer.dead_letter_steps import DeadLetter
from ottla.registry_server.server import RegistryThread
from ottla.serializers import RegistryAvroSerializer, RegistryJsonSerializer, RegistryProtobufSerializer
from ottla.spark.pipelines import load
from registry.test_pipeline_registry import ID, NOTE, avro
from registry.test_serializers import messages
from spark.test_spark_pipelines import committed, run, send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics


def test_all_formats_of_a_registry(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    registry = RegistryThread({"bootstrap.servers": topics.servers})
    try:
        _scene(registry.url, topics, spark, tmp_path)
    finally:
        registry.stop()


def _scene(url: str, topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    orders, clicks, parcels, dead = (topics.make() for _ in range(4))
    message, _ = messages()
    first, second = RegistryAvroSerializer(url, avro(ID)), RegistryAvroSerializer(url, avro(ID, NOTE))
    send(topics, orders, first.serialize(orders, {"id": 1}), second.serialize(orders, {"id": 2, "note": "b"}))
    send(topics, orders, b"\0\0\x0f\x42\x3f\0", b"{}")
    send(topics, clicks, RegistryJsonSerializer(url, {"type": "object"}).serialize(clicks, {"page": "a"}))
    send(topics, parcels, RegistryProtobufSerializer(url, message).serialize(parcels, message(id=5)))
    (tmp_path / "registered.py").write_text(
        f"""
from ottla.spark.pipelines import *

pipeline = Pipeline(
    name="registered",
    checkpoint="state",
    bootstrap_servers="{topics.servers}",
    sources=[
        Source(name="orders", topics=["{orders}"], format="avro", registry="{url}"),
        Source(name="clicks", topics=["{clicks}"], format="json", registry="{url}", schema="page STRING NOT NULL"),
        Source(name="parcels", topics=["{parcels}"], format="protobuf", registry="{url}", message="Order"),
    ],
    steps=[
        Sql(
            name="all",
            sql="SELECT id, note FROM orders UNION ALL SELECT -1 AS id, page AS note FROM clicks "
            "UNION ALL SELECT id, to.city AS note FROM parcels",
        )
    ],
    sinks=[FileSink(name="all", path="all", origin=False)],
    dead_letters=DeadLetters(topic="{dead}"),
)
"""
    )
    run(load(tmp_path / "registered.py"), spark)

    def stored() -> list[tuple[int, str | None]]:
        rows = spark.read.parquet(str(tmp_path / "all")).collect()
        return sorted((row.id, row.note) for row in rows)

    expected = [(-1, "a"), (1, "-"), (2, "b"), (5, None)]
    assert stored() == expected
    told = {one.offset: one.error_message for one in map(DeadLetter.of, committed(topics, dead))}
    assert told[2] == "schema id 999999 is unknown to the registry"
    assert "no schema registry header" in told[3]
