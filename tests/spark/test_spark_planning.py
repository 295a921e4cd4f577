"""Each query is planned by itself, as with Spark's Kafka source: new records, filters, output modes, tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from spark.conftest import Topics, drain
from spark.conftest import table as table_of
from spark.test_spark_filters import tasks

pytestmark = pytest.mark.spark


def test_frames_and_views_see_new_records(topics: Topics) -> None:
    topic = topics.make()
    topics.fill(topic, 3)
    frame = topics.read(topic)
    frame.createOrReplaceTempView("of_a_frame")
    options = ", ".join(f"`{name}` '{value}'" for name, value in topics.options(topic).items())
    topics.spark.sql(f"CREATE OR REPLACE TEMPORARY VIEW using_ottla USING ottla OPTIONS ({options})")

    def counts() -> list[int]:
        views = [topics.spark.sql(f"SELECT * FROM {view}") for view in ("of_a_frame", "using_ottla")]
        return [one.count() for one in (frame, *views)]

    assert counts() == [3, 3, 3]
    topics.fill(topic, 5, first=3)
    assert counts() == [8, 8, 8]
    assert frame.where("offset in (select max(offset) from using_ottla)").count() == 1


def test_a_cached_frame_keeps_its_rows(topics: Topics) -> None:
    topic = topics.make()
    topics.fill(topic, 3)
    frame = topics.read(topic).cache()
    assert frame.count() == 3
    topics.fill(topic, 2, first=3)
    assert frame.count() == 3
    frame.unpersist()
    assert frame.count() == 5


def test_a_filter_belongs_to_its_query_only(topics: Topics) -> None:
    topic = topics.make(3)
    for partition in range(3):
        topics.fill(topic, 4, partition=partition, first=10 * partition)
    frame = topics.read(topic)
    one = frame.where("partition = 1")
    assert (one.count(), frame.count(), one.where("offset >= 3").count(), frame.count()) == (4, 12, 1, 12)
    assert (tasks(one), tasks(frame)) == (1, 3)
    assert frame.where("partition = 0").union(frame.where("offset = 2")).count() == 4 + 3
    assert one.join(frame.where("partition = 2").withColumnRenamed("value", "other"), "offset").count() == 4


def test_a_table_keeps_its_options(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    topics.fill(topic, 3)
    options = topics.options(topic, includeHeaders="true", startingOffsets=f'{{"{topic}": {{"0": 1}}}}')
    given = ", ".join(f"`{name}` '{value}'" for name, value in options.items())
    topics.spark.sql(f"CREATE TABLE orders_table USING ottla OPTIONS ({given})")
    try:
        table = topics.spark.table("orders_table")
        assert "headers" in table.columns
        assert table.count() == 2
        topics.fill(topic, 1, first=3)
        assert topics.spark.sql("SELECT * FROM orders_table WHERE offset > 1").count() == 2
        drain(topics.spark.readStream.table("orders_table"), tmp_path)
        assert table_of(topics.spark, tmp_path) == [1, 2, 3]
    finally:
        topics.spark.sql("DROP TABLE orders_table")


def test_a_stream_reports_how_far_it_is_behind(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(2)
    topics.fill(topic, 6)
    topics.fill(topic, 2, partition=1, first=6)
    batches = drain(topics.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=4), tmp_path)
    names = ("minOffsetsBehindLatest", "maxOffsetsBehindLatest", "avgOffsetsBehindLatest")
    found = [[one.sources[0].metrics[name] for name in names] for one in batches]
    assert found == [["1", "3", "2.0"], ["0", "0", "0.0"]]


@pytest.mark.parametrize("mode", ["update", "complete"])
def test_aggregates_are_written_in_update_and_complete_mode(topics: Topics, tmp_path: Path, mode: str) -> None:
    source, target = topics.make(), topics.make()
    options = topics.options(None, topic=target, checkpointLocation=tmp_path, deliver="exactly-once")

    def run() -> None:
        frame = topics.stream(source, startingOffsets="earliest")
        totals = frame.selectExpr("cast(cast(value as string) as int) % 2 odd").groupBy("odd").count()
        rows = totals.selectExpr("concat(odd, ':', count) value")
        query = rows.writeStream.format("ottla").options(**options).outputMode(mode)
        assert query.trigger(availableNow=True).start().awaitTermination(60)

    def written() -> list[Any]:
        return sorted(bytes(row.value).decode() for row in topics.read(target).collect())

    topics.fill(source, 4)
    run()
    assert written() == ["0:2", "1:2"]
    topics.fill(source, 1, first=5)
    run()
    assert written() == (["0:2", "1:2", "1:3"] if mode == "update" else ["0:2", "0:2", "1:2", "1:3"])
