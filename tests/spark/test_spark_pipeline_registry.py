"""Sources with a schema registry on a real Spark: all three formats, versions that mix, and dead letters."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from compat.waiting import until
from ottla.clients.consumer.dead_letter_steps import DeadLetter
from ottla.registry_server.server import RegistryThread
from ottla.serializers import RegistryAvroSerializer, RegistryJsonSerializer, RegistryProtobufSerializer
from ottla.spark.pipelines import DeadLetters, FileSink, Pipeline, Source, compile_pipeline, load
from registry.http import call
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


@pytest.mark.long  # tests/registry/test_pipeline_registry.py has the decoder alone
def test_a_running_query_meets_new_versions(topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    registry = RegistryThread({"bootstrap.servers": topics.servers})
    try:
        _new_versions(registry.url, topics, spark, tmp_path)
    finally:
        registry.stop()


def _new_versions(url: str, topics: Topics, spark: SparkSession, tmp_path: Path) -> None:
    topic, dead = topics.make(), topics.make()
    send(topics, topic, RegistryAvroSerializer(url, avro(ID)).serialize(topic, {"id": 1}))
    pipeline = Pipeline(
        name="live",
        checkpoint=str(tmp_path / "state"),
        bootstrap_servers=topics.servers,
        sources=[Source(name="orders", topics=[topic], format="avro", registry=url)],
        sinks=[FileSink(name="all", path=str(tmp_path / "all"))],
        dead_letters=DeadLetters(topic=dead),
    )

    def stored() -> list[int]:
        if not (tmp_path / "all" / "_spark_metadata" / "0").exists():
            return []
        return sorted(row.id for row in spark.read.schema("id BIGINT").parquet(str(tmp_path / "all")).collect())

    queries = [flow.start() for flow in compile_pipeline(pipeline, spark)]
    try:
        until(lambda: stored() == [1], "the first version", 60)
        send(topics, topic, RegistryAvroSerializer(url, avro(ID, NOTE)).serialize(topic, {"id": 2, "note": "b"}))
        until(lambda: stored() == [1, 2], "a compatible version", 60)
        call(url, "PUT", f"/config/{topic}-value", {"compatibility": "NONE"})
        other = avro({"name": "id", "type": "string"})
        send(topics, topic, RegistryAvroSerializer(url, other).serialize(topic, {"id": "x"}))
        send(topics, topic, RegistryAvroSerializer(url, avro(ID)).serialize(topic, {"id": 3}))
        until(lambda: stored() == [1, 2, 3], "the records after an incompatible version", 60)
        (letter,) = until(lambda: committed(topics, dead), "the dead letter", 60)
        reason = DeadLetter.of(letter).error_message or ""
        assert "is not compatible with the columns of the source" in reason
        assert all(query.isActive for query in queries)
    finally:
        for query in queries:
            query.stop()
