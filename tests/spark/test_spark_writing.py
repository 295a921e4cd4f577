"""Batch and streaming writes on a real Spark: targets, contents, and errors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType

from ottla.producing.partitioning import partition_for_key
from ottla.spark.source import OttlaSource
from spark.conftest import Topics
from spark.test_spark_reading import failure

pytestmark = pytest.mark.spark


def write(frame: DataFrame, topics: Topics, **options: Any) -> None:
    frame.write.format("ottla").mode("append").options(**topics.options(None, **options)).save()


def test_rows_come_back_as_they_were_written(topics: Topics) -> None:
    topic = topics.make(3)
    frame = topics.spark.sql(
        """select cast(id as string) key, concat('value-', id) value, 'left out' other,
                  array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) headers
           from range(100)"""
    ).repartition(2)
    write(frame, topics, topic=topic)
    found = topics.read(topic, includeHeaders="true").collect()
    assert sorted(bytes(row.value).decode() for row in found) == sorted(f"value-{number}" for number in range(100))
    for row in found:
        assert row.partition == partition_for_key(bytes(row.key), 3)
        assert bytes(row.value).decode() == f"value-{bytes(row.key).decode()}"
        assert [(one.key, one.value) for one in row.headers] == [("h", row.key)]


def test_topics_and_partitions_may_come_from_columns(topics: Topics) -> None:
    first, second = topics.make(2), topics.make(2)
    frame = topics.spark.sql(
        f"""select if(id < 4, '{first}', '{second}') topic, cast(id % 2 as int) partition,
                   if(id = 0, null, cast(id as string)) value from range(6)"""
    )
    write(frame, topics)
    rows = topics.read(f"{first},{second}").collect()
    found = sorted((row.topic == second, row.partition, -1 if row.value is None else int(row.value)) for row in rows)
    assert found == [(False, 0, -1), (False, 0, 2), (False, 1, 1), (False, 1, 3), (True, 0, 4), (True, 1, 5)]
    write(frame, topics, topic=first)  # the option overrides the column
    assert topics.read(first).count() == 10


def test_a_stream_flows_from_topic_to_topic(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(2), topics.make(2)
    topics.fill(source, 50, key=b"k")
    options = topics.options(None, topic=target, checkpointLocation=tmp_path / "checkpoint")

    def run() -> None:
        frame = topics.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=30, group_id=source)
        frame = frame.selectExpr("key", "cast(cast(value as string) + 1000 as string) value")
        query = frame.writeStream.format("ottla").options(**options).trigger(availableNow=True).start()
        assert query.awaitTermination(60)

    run()
    topics.fill(source, 5, first=50, partition=1)
    run()
    assert topics.values(target) == list(range(1000, 1055))
    assert topics.committed(source) == {f"{source}-0": 50, f"{source}-1": 5}


def test_what_is_not_acknowledged_fails_the_query(topics: Topics) -> None:
    topic = topics.make(max_message_bytes="1000")
    large = topics.spark.sql("select repeat('x', 5000) value")
    assert "MessageTooLarge" in failure(lambda: write(large, topics, topic=topic))
    nowhere = topics.spark.sql("select 'x' value, 7 partition")
    assert "partition" in failure(lambda: write(nowhere, topics, topic=topic))
    no_topic = topics.spark.sql("select 'x' value, cast(null as string) topic")
    assert "a row has no topic" in failure(lambda: write(no_topic, topics))
    assert topics.read(topic).count() == 0


def test_mistakes_are_told_before_anything_is_written(topics: Topics) -> None:
    def told(columns: dict[str, DataType], *, overwrite: bool = False, **options: str) -> str:
        schema = StructType([StructField(name, kind) for name, kind in columns.items()])
        source = OttlaSource(topics.options(None, **options))
        assert overwrite or failure(lambda: source.streamWriter(schema, overwrite))
        return failure(lambda: source.writer(schema, overwrite))

    value: dict[str, DataType] = {"value": StringType()}
    assert "the column value is missing" in told({"number": LongType()}, topic="t")
    assert "no topic: set the option topic" in told(value)
    assert "column value has type bigint" in told({"value": LongType()}, topic="t")
    assert "column partition has type bigint" in told({**value, "partition": LongType()}, topic="t")
    assert "column headers has type string" in told({**value, "headers": StringType()}, topic="t")
    assert "one of at-least-once, exactly-once" in told(value, topic="t", deliver="twice")
    assert "acks" in told(value, topic="t", kafka_acks="some")
    assert "cannot be overwritten" in told(value, overwrite=True, topic="t")
