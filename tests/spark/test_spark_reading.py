"""Batch queries on a real Spark: columns, bounds, splitting, gaps, data loss."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime

import confluent_kafka
import pytest
from pyspark.sql.datasource import EqualTo
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import LongType, StructField, StructType

from compat.waiting import until
from ottla.spark.planning import PLANS_EACH_QUERY
from ottla.spark.source import COLUMNS, OttlaSource
from ottla.types import TopicPartition
from spark.conftest import Topics

pytestmark = pytest.mark.spark

HOUR = 3_600_000
START = 1_700_000_000_000


def failure(work: Callable[[], object]) -> str:
    """The error message of a failing query."""
    with pytest.raises(Exception) as caught:
        work()
    return str(caught.value)


def test_columns_are_those_of_sparks_kafka_source(topics: Topics) -> None:
    topic = topics.make(2, retention_ms="-1")
    topics.producer.send(topic, b"one", key=b"k", partition=1, timestamp=START, headers=[("a", b"1"), ("b", None)])
    topics.producer.send(topic, None, partition=0, timestamp=START + 1)
    topics.producer.flush(10)
    frame = topics.read(topic, includeHeaders="true")
    assert [(field.name, field.dataType.simpleString()) for field in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    empty, full = sorted(frame.collect(), key=lambda row: row.partition)
    assert (empty.key, empty.value, empty.offset, empty.headers) == (None, None, 0, None)
    assert (bytes(full.key), bytes(full.value), full.topic, full.timestampType) == (b"k", b"one", topic, 0)
    assert full.timestamp.astimezone(UTC) == datetime.fromtimestamp(START / 1000, UTC)
    assert [(one.key, one.value and bytes(one.value)) for one in full.headers] == [("a", b"1"), ("b", None)]
    assert "headers" not in topics.read(topic).columns


def test_offsets_bound_what_is_read(topics: Topics) -> None:
    topic = topics.make(2)
    topics.fill(topic, 10)
    topics.fill(topic, 10, partition=1, first=100)
    starting = json.dumps({topic: {"0": 4, "1": -2}})
    ending = json.dumps({topic: {"0": -1, "1": 3}})
    assert topics.values(topic, startingOffsets=starting, endingOffsets=ending) == [*range(4, 10), 100, 101, 102]
    assert len(topics.values(topic, startingOffsets="earliest", endingOffsets="latest")) == 20


def test_times_bound_what_is_read(topics: Topics) -> None:
    topic = topics.make(retention_ms="-1")
    for number in range(4):
        topics.fill(topic, 1, first=number, timestamp=START + number * HOUR)
    assert topics.values(topic, startingTimestamp=START + 1, endingTimestamp=START + 3 * HOUR) == [1, 2]
    by_partition = json.dumps({topic: {"0": START + 2 * HOUR}})
    assert topics.values(topic, startingOffsetsByTimestamp=by_partition) == [2, 3]
    assert topics.values(topic, endingOffsetsByTimestamp=by_partition) == [0, 1]
    late = START + 9 * HOUR
    assert "has no record at or after" in failure(lambda: topics.values(topic, startingTimestamp=late))
    assert topics.values(topic, startingTimestamp=late, startingOffsetsByTimestampStrategy="latest") == []
    assert topics.values(topic, endingTimestamp=late) == [0, 1, 2, 3]


def test_topics_by_pattern_and_partitions_by_assignment(topics: Topics) -> None:
    first, second = topics.make(2), topics.make()
    topics.fill(first, 2)
    topics.fill(first, 2, partition=1, first=10)
    topics.fill(second, 2, first=20)
    assert topics.values(None, subscribePattern=f"({first}|{second})") == [0, 1, 10, 11, 20, 21]
    assert topics.values(f"{first}, {second}") == [0, 1, 10, 11, 20, 21]
    assert topics.values(None, assign=json.dumps({first: [1], second: [0]})) == [10, 11, 20, 21]
    assert topics.values(None, subscribePattern="nothing-is-called-so") == []


def test_ranges_are_split_for_parallel_reading(topics: Topics) -> None:
    topic = topics.make(2)
    topics.fill(topic, 90)
    topics.fill(topic, 10, partition=1, first=1000)

    def tasks(**options: int) -> list[int]:
        frame = topics.read(topic, **options).groupBy(spark_partition_id()).count()
        return sorted(row["count"] for row in frame.collect())

    assert tasks() == [10, 90]
    assert tasks(minPartitions=4) == [10, 30, 30, 30]
    assert tasks(maxRecordsPerPartition=45) == [10, 45, 45]
    assert topics.values(topic, minPartitions=7) == [*range(90), *range(1000, 1010)]


def test_a_reader_that_stops_early_leaves_nothing_behind(topics: Topics) -> None:
    topic = topics.make()
    topics.fill(topic, 500)
    assert len(topics.read(topic, minPartitions=2).limit(3).collect()) == 3
    assert topics.values(topic, minPartitions=2) == list(range(500))


def test_deleted_records_fail_the_query_or_are_passed_over(topics: Topics) -> None:
    topic = topics.make()
    topics.fill(topic, 10)
    topics.admin.delete_records({TopicPartition(topic, 0): 6})
    wanted = {"startingOffsets": json.dumps({topic: {"0": 2}})}
    assert f"offsets 2 to 6 of {topic}-0 are gone" in failure(lambda: topics.values(topic, **wanted))
    assert topics.values(topic, failOnDataLoss="false", **wanted) == [6, 7, 8, 9]
    beyond = {"endingOffsets": json.dumps({topic: {"0": 20}})}
    assert "its log ends at 10" in failure(lambda: topics.values(topic, **beyond))
    assert topics.values(topic, failOnDataLoss="false", **beyond) == [6, 7, 8, 9]


def test_a_compacted_topic_has_gaps(topics: Topics) -> None:
    topic = topics.make(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="1")
    for number in range(60):
        topics.fill(topic, 1, first=number, key=b"same" if number % 10 else str(number).encode())
    frame = topics.read(topic, minPartitions=4)
    kept = until(lambda: len(found) < 40 and found if (found := _offsets(frame)) else None, "the topic is compacted")
    assert kept[-1] == 59
    assert {0, 10, 20, 30} < set(kept)


def _offsets(frame: object) -> list[int]:
    return sorted(row.offset for row in frame.select("offset").collect())  # type: ignore[attr-defined]


def test_transactions_leave_markers_and_aborted_records(topics: Topics) -> None:
    topic = topics.make()
    producer = confluent_kafka.Producer({"bootstrap.servers": topics.servers, "transactional.id": topic})
    producer.init_transactions(20)
    for number, keeps in enumerate((True, False, True)):
        producer.begin_transaction()
        producer.produce(topic, str(number).encode())
        producer.flush(20)
        (producer.commit_transaction if keeps else producer.abort_transaction)(20)
    assert topics.values(topic) == [0, 1, 2]
    assert topics.values(topic, kafka_isolation_level="read_committed") == [0, 2]
    only_a_marker = json.dumps({topic: {"0": 5}})
    assert topics.values(topic, startingOffsets=only_a_marker) == []


def test_a_batch_starts_where_a_group_is(topics: Topics) -> None:
    topic = topics.make(2)
    topics.fill(topic, 5)
    topics.fill(topic, 5, partition=1, first=10)
    topics.admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 3})
    # The other partition has no committed offset, so all of it is read.
    assert topics.values(topic, startingOffsets="committed", group_id=topic) == [3, 4, 10, 11, 12, 13, 14]


def test_a_kept_plan_reads_to_the_present_end(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark keeps the partitions of a frame in sessions without `activate`, and with Spark Connect."""
    monkeypatch.delenv(PLANS_EACH_QUERY, raising=False)
    topic = topics.make(2)
    topics.fill(topic, 5)

    def counts(**options: str) -> list[int]:
        reader = OttlaSource(topics.options(topic, **options)).reader(COLUMNS)
        kept = reader.partitions()
        assert reader.pushFilters([EqualTo(("partition",), 1)]) == [EqualTo(("partition",), 1)]
        found = [sum(batch.num_rows for one in kept for batch in reader.read(one))]
        topics.fill(topic, 2, first=5)
        topics.fill(topic, 1, partition=1)
        return [*found, sum(batch.num_rows for one in kept for batch in reader.read(one))]

    assert counts() == [5, 8]
    assert counts(maxRecordsPerPartition="3", endingOffsets=json.dumps({topic: {"0": -1, "1": 1}})) == [8, 10]
    assert counts(endingOffsets=json.dumps({topic: {"0": 2, "1": 0}})) == [2, 2]


def test_a_mistake_in_an_option_reaches_the_user(topics: Topics) -> None:
    topic = topics.make()
    assert "Did you mean startingOffsets?" in failure(lambda: topics.values(topic, startingOffset="earliest"))


def test_mistakes_that_only_the_cluster_knows_of_are_told_in_words(topics: Topics) -> None:
    topic = topics.make()

    def plan(subscribe: str | None, **options: str) -> str:
        source = OttlaSource(topics.options(subscribe, **options))
        return failure(lambda: source.reader(COLUMNS).partitions())

    assert "topic nowhere does not exist" in plan("nowhere")
    assert "of the option assign does not exist" in plan(None, assign=json.dumps({topic: [7]}))
    missing = json.dumps({topic: {"3": 0}})
    assert f"does not name partition {topic}-0" in plan(topic, startingOffsets=missing)
    too_much = json.dumps({topic: {"0": 0, "1": 0}})
    assert f"names partition {topic}-1, which is not read" in plan(topic, endingOffsets=too_much)
    back = {"startingOffsets": json.dumps({topic: {"0": 5}}), "endingOffsets": json.dumps({topic: {"0": 3}})}
    assert "is after the end offset" in plan(topic, **back)
    other = StructType([StructField("a", LongType())])
    assert "the columns of a topic are fixed" in failure(lambda: OttlaSource(topics.options(topic)).reader(other))
