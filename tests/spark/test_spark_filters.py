"""Filters narrow a batch query on a real Spark, with and without filter pushdown."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import DataFrame, SparkSession

from ottla.spark.planning import PUSHDOWN
from spark.conftest import Topics

pytestmark = pytest.mark.spark

START = 1_700_000_000_000


def tasks(frame: DataFrame) -> int:
    return int(frame.rdd.getNumPartitions())


@pytest.fixture
def unpushed(spark: SparkSession) -> Iterator[None]:
    spark.conf.set(PUSHDOWN, "false")
    yield
    spark.conf.set(PUSHDOWN, "true")


def test_filters_narrow_and_stay_true(topics: Topics) -> None:
    topic = topics.make(3, retention_ms="-1")
    times = [0, 5000, 1000, 9000, 2000]  # in no order, as the records of several producers
    for partition in range(3):
        for number, time in enumerate(times):
            stamp = START + time + 100_000 * partition
            topics.fill(topic, 1, partition=partition, first=10 * partition + number, timestamp=stamp)
    cases: list[tuple[str, list[int], int | None]] = [
        ("partition = 1", [10, 11, 12, 13, 14], 1),
        ("partition in (0, 2) and offset >= 3", [3, 4, 23, 24], None),
        ("offset = 2", [2, 12, 22], None),
        ("partition > 7", [], None),
        (f"partition = 0 and timestamp >= timestamp_millis({START + 2000})", [1, 3, 4], None),
        (f"partition = 0 and timestamp < timestamp_millis({START + 2000})", [0, 2], None),
        (f"timestamp > timestamp_millis({START + 150_000})", [20, 21, 22, 23, 24], 1),
        (f"timestamp = timestamp_millis({START + 9000})", [3], None),
        (f"topic = '{topic}' and cast(value as string) = '22'", [22], None),
    ]
    for condition, wanted, count in cases:
        frame = topics.read(topic).where(condition)
        assert sorted(int(row.value) for row in frame.select("value").collect()) == wanted, condition
        assert count is None or tasks(frame) == count, condition


def test_a_session_without_the_setting_reads_as_well(topics: Topics, unpushed: None) -> None:
    topic = topics.make(2)
    topics.fill(topic, 3)
    topics.fill(topic, 3, partition=1, first=10)
    assert topics.values(topic) == [0, 1, 2, 10, 11, 12]
    frame = topics.read(topic).where("partition = 1 and offset > 0")
    assert tasks(frame) == 2
    assert sorted(int(row.value) for row in frame.select("value").collect()) == [11, 12]
