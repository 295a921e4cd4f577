"""Streaming queries on a real Spark: admission control, checkpoints, groups, growth, deletion, data loss."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

import ottla
from compat.waiting import until
from ottla.errors import RequestTimedOut
from ottla.spark import DataLoss, OptionError, commit_finished
from ottla.spark.source import COLUMNS, OttlaSource, StreamReader
from ottla.types import TopicPartition
from spark.conftest import Topics, drain, table

pytestmark = pytest.mark.spark

START = 1_700_000_000_000


def test_available_now_takes_batches_of_a_size_and_commits_the_last_one_too(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make(2)
    topics.fill(topic, 6)
    topics.fill(topic, 2, partition=1, first=6)
    frame = topics.stream(topic, startingOffsets="earliest", maxOffsetsPerTrigger=3, group_id=topic)
    batches = drain(frame, tmp_path)
    assert [one.numInputRows for one in batches] == [3, 3, 2]
    assert table(topics.spark, tmp_path) == list(range(8))
    assert topics.committed(topic) == {f"{topic}-0": 6, f"{topic}-1": 2}


def test_a_query_resumes_from_its_checkpoint(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    topics.fill(topic, 5)
    frame = topics.stream(topic, startingOffsets="earliest", kafka_group_id=topic, minPartitions=2)
    drain(frame, tmp_path)
    topics.fill(topic, 5, first=5)
    topics.admin.create_partitions({topic: 2})
    topics.fill(topic, 5, first=10, partition=1)
    batches = drain(frame, tmp_path)
    assert sum(one.numInputRows for one in batches) == 10
    assert table(topics.spark, tmp_path) == list(range(15))
    assert topics.committed(topic) == {f"{topic}-0": 10, f"{topic}-1": 5}
    assert drain(frame, tmp_path) == []


def test_a_query_starts_where_a_group_is(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    topics.fill(topic, 5)
    topics.admin.alter_group_offsets(topic, {TopicPartition(topic, 0): 3})
    drain(topics.stream(topic, startingOffsets="committed", group_id=topic), tmp_path)
    assert table(topics.spark, tmp_path) == [3, 4]
    assert topics.committed(topic) == {f"{topic}-0": 5}


def test_new_topics_and_partitions_are_picked_up_while_a_query_runs(topics: Topics, tmp_path: Path) -> None:
    first = topics.make()
    topics.fill(first, 3, first=100)  # before the query starts, which begins at the end by default
    query = (
        topics.stream(None, subscribePattern=f"{first}.*", group_id=first)
        .writeStream.format("memory")
        .queryName("growing")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )

    def values() -> list[int]:
        if query.exception():
            raise AssertionError(query.exception())
        return sorted(int(row.value) for row in topics.spark.table("growing").select("value").collect())

    try:
        until(lambda: "Waiting" in query.status["message"] or query.recentProgress, "the query has begun", 60)
        topics.fill(first, 3)
        until(lambda: values() == [0, 1, 2], "records of the first partition came")
        topics.admin.create_partitions({first: 2})
        topics.fill(first, 3, first=3, partition=1)
        second = topics.make(name=f"{first}-more")
        topics.fill(second, 3, first=6)
        until(lambda: values() == list(range(9)), "records of the new ones came")
        wanted = {f"{first}-0": 6, f"{first}-1": 3, f"{second}-0": 3}
        until(lambda: topics.committed(first) == wanted, "all is committed while the query runs")
        assert json.loads(query.lastProgress.sources[0].latestOffset)[second] == {"0": 3}
    finally:
        query.stop()


# test_spark_reading.py passes over such records, and a test below over a deleted topic.
@pytest.mark.parametrize("fails", [True, pytest.param(False, marks=pytest.mark.long)])
def test_retention_overtakes_a_query(topics: Topics, tmp_path: Path, fails: bool) -> None:
    topic = topics.make()
    topics.fill(topic, 4)
    frame = topics.stream(topic, startingOffsets="earliest", failOnDataLoss=str(fails))
    drain(frame, tmp_path)
    topics.fill(topic, 6, first=4)
    topics.admin.delete_records({TopicPartition(topic, 0): 7})
    if fails:
        with pytest.raises(Exception, match=f"offsets 4 to 7 of {topic}-0 are gone"):
            drain(frame, tmp_path)
    else:
        drain(frame, tmp_path)
        assert table(topics.spark, tmp_path) == [0, 1, 2, 3, 7, 8, 9]


# test_a_topic_is_deleted_under_a_running_query has the error.
@pytest.mark.parametrize("fails", [pytest.param(True, marks=pytest.mark.long), False])
def test_a_topic_is_deleted_and_made_again(topics: Topics, tmp_path: Path, fails: bool) -> None:
    topic, other = topics.make(), topics.make()
    topics.fill(topic, 4)
    frame = topics.stream(f"{topic},{other}", startingOffsets="earliest", failOnDataLoss=str(fails))
    drain(frame, tmp_path)
    topics.admin.delete_topics(topic)
    topics.fill(other, 2, first=10)
    if fails:
        with pytest.raises(Exception, match=f"partitions were deleted while the query read them: {topic}-0"):
            drain(frame, tmp_path)
        return
    drain(frame, tmp_path)
    topics.make(name=topic)
    topics.fill(topic, 2, first=20)
    drain(frame, tmp_path)
    assert table(topics.spark, tmp_path) == [0, 1, 2, 3, 10, 11, 20, 21]


@pytest.mark.parametrize("fails", [True, False])
def test_a_checkpoint_of_other_topics_is_named_as_such(topics: Topics, tmp_path: Path, fails: bool) -> None:
    topic, other = topics.make(), topics.make()
    topics.fill(topic, 2)
    topics.fill(other, 2, first=10)
    drain(topics.stream(topic, startingOffsets="earliest"), tmp_path)
    changed = topics.stream(other, failOnDataLoss=str(fails))
    if fails:
        with pytest.raises(
            Exception, match=f"partitions that the query does not read now: {topic}-0. It was made with"
        ):
            drain(changed, tmp_path)
    else:
        drain(changed, tmp_path)
        assert table(topics.spark, tmp_path) == [0, 1, 10, 11]


def test_a_mistake_in_an_option_of_a_stream_reaches_the_user(topics: Topics, tmp_path: Path) -> None:
    frame = topics.stream(topics.make(), startingOffset="earliest")
    with pytest.raises(Exception, match="Did you mean startingOffsets") as caught:
        drain(frame, tmp_path)
    assert "UnboundLocalError" not in str(caught.value)


def test_what_a_single_batch_finished_can_be_committed_after_it(topics: Topics, tmp_path: Path) -> None:
    topic = topics.make()
    topics.fill(topic, 3)
    frame = topics.stream(topic, startingOffsets="earliest", group_id=topic)
    writer = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(once=True).start()
    assert query.awaitTermination(60)
    offsets = commit_finished(query, group_id=topic, bootstrap_servers=topics.servers)
    assert offsets == {TopicPartition(topic, 0): 3}
    assert topics.committed(topic) == {f"{topic}-0": 3}


# ── What Spark asks, without Spark ───────────────────────────────────────────────────────────────────────────────────


def reader(topics: Topics, topic: str, **options: Any) -> StreamReader:
    return OttlaSource(topics.options(topic, **options)).streamReader(COLUMNS)


def test_where_a_stream_may_begin(topics: Topics) -> None:
    topic = topics.make(2, retention_ms="-1")
    for number in range(4):
        topics.fill(topic, 1, timestamp=START + number * 1000)
        topics.fill(topic, 1, partition=1, timestamp=START + number * 2000)

    def begins(**options: Any) -> dict[str, int]:
        asked = reader(topics, topic, **options)
        try:
            return asked.initialOffset()[topic]
        finally:
            asked.stop()

    assert begins() == {"0": 4, "1": 4}
    assert begins(startingOffsets="earliest") == {"0": 0, "1": 0}
    assert begins(startingOffsets=json.dumps({topic: {"0": 3, "1": -1}})) == {"0": 3, "1": 4}
    assert begins(startingTimestamp=START + 2000) == {"0": 2, "1": 1}
    by_partition = json.dumps({topic: {"0": START + 3000, "1": START + 1}})
    assert begins(startingOffsetsByTimestamp=by_partition) == {"0": 3, "1": 1}
    late = {"startingTimestamp": START + 5000}
    assert begins(startingOffsetsByTimestampStrategy="latest", **late) == {"0": 4, "1": 3}
    with pytest.raises(OptionError, match=f"{topic}-0 has no record at or after"):
        begins(**late)


def test_an_open_transaction_is_the_end_and_a_task_does_not_wait_for_it_forever(topics: Topics) -> None:
    topic = topics.make()
    topics.fill(topic, 2)
    committed = {"kafka_isolation_level": "read_committed", "startingOffsets": "earliest"}
    asked = reader(topics, topic, **committed, kafkaConsumer_pollTimeoutMs=300, minPartitions=2)
    with ottla.Producer(bootstrap_servers=topics.servers, transactional_id=topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"2", partition=0)
        producer.flush()
        start = asked.initialOffset()
        assert asked.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 2}}
        parts = asked.partitions(start, {topic: {"0": 3}})
        assert [(one.start, one.end) for part in parts for one in part.value] == [(0, 1), (1, 3)]
        with pytest.raises(RequestTimedOut, match=r"kafkaConsumer\.pollTimeoutMs"):
            list(asked.read(parts[1]))
        producer.abort_transaction()
    assert asked.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 4}}
    rows = [batch.num_rows for one in asked.partitions(start, {topic: {"0": 4}}) for batch in asked.read(one)]
    assert sum(rows) == 2
    asked.stop()


def test_partitions_with_few_records_share_tasks(topics: Topics) -> None:
    topic = topics.make(partitions=3)
    for number in range(3):
        topics.fill(topic, 10, partition=number)
    asked = reader(topics, topic, startingOffsets="earliest")
    start = asked.initialOffset()
    end = asked.latestOffset(start, ReadAllAvailable())
    (together,) = asked.partitions(start, end)
    rows = [row for batch in asked.read(together) for row in batch.to_pylist()]
    assert len({(row["partition"], row["offset"]) for row in rows}) == len(rows) == 30
    for number in range(3):
        own = [row["offset"] for row in rows if row["partition"] == number]
        assert own == list(range(10))
    end = {topic: {"0": 400, "1": 400, "2": 400}}
    assert len(asked.partitions(start, end)) == 3
    asked.cores = 2
    assert len(asked.partitions(start, end)) == 2, "no more tasks than run at a time"
    assert len(asked.partitions(start, {topic: {"0": 40_000, "1": 40_000, "2": 40_000}})) == 3
    asked.stop()


def test_the_planner_knows_how_many_tasks_run_at_a_time(topics: Topics, tmp_path: Path) -> None:
    cores = topics.spark.sparkContext.defaultParallelism
    topic = topics.make(partitions=2 * cores)
    for number in range(2 * cores):
        topics.fill(topic, 600, partition=number, first=600 * number)
    drain(topics.stream(topic, startingOffsets="earliest"), tmp_path)
    assert table(topics.spark, tmp_path) == list(range(1200 * cores))
    assert len(list(tmp_path.rglob("part-*.parquet"))) == cores, "each task writes a file"


def test_a_small_batch_is_read_when_it_is_planned(topics: Topics) -> None:
    topic = topics.make(partitions=2)
    for number in range(2):
        topics.fill(topic, 10, partition=number)
    asked = reader(topics, topic, startingOffsets="earliest")
    start = asked.initialOffset()
    planned = asked.partitions(start, asked.latestOffset(start, ReadAllAvailable()))
    batches = asked.prefetched(planned)
    assert batches is not None
    rows = [(row["partition"], row["offset"]) for batch in batches for row in batch.to_pylist()]
    assert sorted(rows) == [(partition, offset) for partition in range(2) for offset in range(10)]
    for number in range(2):
        topics.fill(topic, 10, partition=number)
    half = {topic: {"0": 15, "1": 15}}
    middle = asked.latestOffset({topic: {"0": 10, "1": 10}}, ReadMaxRows(10))
    assert middle == half, "its records are read in the background from now on"
    batches = asked.prefetched(asked.partitions({topic: {"0": 10, "1": 10}}, half))
    assert batches is not None
    assert sum(batch.num_rows for batch in batches) == 10
    asked.latestOffset(half, ReadAllAvailable())
    batches = asked.prefetched(asked.partitions(half, {topic: {"0": 16, "1": 15}}))
    assert batches is not None
    assert [row["offset"] for batch in batches for row in batch.to_pylist()] == [15], "not what was read ahead"
    assert asked.prefetched([*planned, *planned]) is None  # several tasks
    assert asked.prefetched(asked.partitions(start, {topic: {"0": 2000, "1": 0}})) is None  # not small
    asked.stop()


def test_many_bytes_and_missing_records_are_left_to_a_worker(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> None:
    from ottla.spark import prefetching

    monkeypatch.setattr(prefetching, "PATIENCE_MS", 200)
    topic = topics.make()
    with ottla.Producer(bootstrap_servers=topics.servers) as producer:
        for _ in range(6):
            producer.send(topic, bytes(900_000))
    asked = reader(topics, topic, startingOffsets="earliest")
    assert asked.prefetched(asked.partitions({topic: {"0": 0}}, {topic: {"0": 6}})) is None
    few = asked.partitions({topic: {"0": 0}}, {topic: {"0": 2}})
    assert sum(batch.num_rows for batch in asked.prefetched(few) or ()) == 2
    assert asked.prefetched(asked.partitions({topic: {"0": 6}}, {topic: {"0": 7}})) is None  # does not arrive
    asked.stop()


def test_only_a_large_batch_needs_workers(topics: Topics, tmp_path: Path) -> None:
    """Spark counts what workers return, in all queries since it has started."""
    topic = topics.make(2)
    counts = topics.spark._jsparkSession.sharedState().statusStore()

    def from_workers(name: str) -> list[str]:
        query = (
            topics.stream(topic, startingOffsets="earliest", includeHeaders="true")
            .writeStream.format("memory")
            .queryName(name)
            .option("checkpointLocation", str(tmp_path / name))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return _metrics(counts, f"{name}\n", "data returned from Python workers")

    topics.fill(topic, 40)
    before = from_workers("first")
    assert from_workers("small") == before
    assert topics.spark.table("small").count() == 40
    for number in range(40, 1040):  # A megabyte: Spark shows the sum with one decimal.
        topics.producer.send(topic, str(number).encode().ljust(1000), partition=0)
    topics.producer.flush()
    assert from_workers("large") != before
    rows = topics.spark.sql("select cast(value as string) value from large").collect()
    assert sorted(int(row.value) for row in rows) == list(range(1040))


def _metrics(store: Any, query: str, name: str) -> list[str]:
    """A metric of the jobs of a query, by Spark's own count."""
    found = []
    executions = store.executionsList().iterator()
    while executions.hasNext():
        one = executions.next()
        metrics = one.metrics().iterator() if one.description().startswith(query) else None
        while metrics is not None and metrics.hasNext():
            metric = metrics.next()
            value = store.executionMetrics(one.executionId()).get(metric.accumulatorId())
            if metric.name() == name and value.isDefined():
                found.append(value.get())
    return found


def test_few_records_wait_for_more_until_the_delay_is_over(topics: Topics) -> None:
    topic = topics.make()
    asked = reader(topics, topic, minOffsetsPerTrigger=3, maxTriggerDelay="1m", startingOffsets="earliest")
    limit = asked.getDefaultReadLimit()
    assert limit == ReadMinRows(3)
    start = asked.initialOffset()
    assert asked.latestOffset(start, limit) == start  # and the delay begins
    topics.fill(topic, 2)
    assert asked.latestOffset(start, limit) == start
    assert asked.latestOffset(start, ReadAllAvailable()) == {topic: {"0": 2}}
    assert asked._triggered is not None
    asked._triggered -= 60  # a minute goes by
    assert asked.latestOffset(start, limit) == {topic: {"0": 2}}
    topics.fill(topic, 3)
    assert asked.latestOffset({topic: {"0": 2}}, limit) == {topic: {"0": 5}}
    asked.stop()


def test_available_now_ignores_what_is_written_later_and_waits_for_nothing(topics: Topics) -> None:
    topic = topics.make()
    topics.fill(topic, 2)
    asked = reader(topics, topic, minOffsetsPerTrigger=10, maxOffsetsPerTrigger=20, startingOffsets="earliest")
    start = asked.initialOffset()
    asked.prepareForTriggerAvailableNow()
    topics.fill(topic, 5)
    limit = asked.getDefaultReadLimit()
    assert limit == ReadMaxRows(20)
    assert asked.latestOffset(start, limit) == {topic: {"0": 2}}
    assert asked.latestOffset({topic: {"0": 2}}, limit) == {topic: {"0": 2}}
    assert asked.reportLatestOffset() == {topic: {"0": 7}}
    asked.stop()


def test_offsets_that_go_back_are_loss_of_data(topics: Topics) -> None:
    topic = topics.make()
    topics.fill(topic, 2)
    asked = reader(topics, topic)
    with pytest.raises(DataLoss, match="ends at offset 2 but was read up to 9"):
        asked.latestOffset({topic: {"0": 9}}, ReadAllAvailable())
    asked.stop()
    asked = reader(topics, topic, failOnDataLoss="false")
    end = asked.latestOffset({topic: {"0": 9}}, ReadAllAvailable())
    assert [one.size for part in asked.partitions({topic: {"0": 9}}, end) for one in part.value] == [2]
    asked.stop()


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_is_deleted_under_a_running_query(topics: Topics, fails: bool) -> None:
    topic, other = topics.make(), topics.make()
    topics.fill(topic, 5)
    asked = reader(topics, f"{topic},{other}", startingOffsets="earliest", failOnDataLoss=str(fails))
    start = asked.initialOffset()
    end = asked.latestOffset(start, ReadAllAvailable())
    task = asked.partitions(start, end)[0]
    topics.admin.delete_topics(topic)
    began = time.monotonic()
    if fails:
        with pytest.raises(DataLoss, match="the partition was deleted"):
            list(asked.read(task))
        with pytest.raises(DataLoss, match=f"deleted while the query read them: {topic}-0"):
            asked.latestOffset(start, ReadAllAvailable())
    else:
        assert list(asked.read(task)) == []
        assert asked.latestOffset(start, ReadAllAvailable()) == {other: {"0": 0}}
    assert time.monotonic() - began < 30
    asked.stop()


def test_a_group_with_members_keeps_its_offsets_and_the_query_goes_on(
    topics: Topics, caplog: pytest.LogCaptureFixture
) -> None:
    from ottla.clients.consumer.blocking import Consumer

    topic = topics.make()
    topics.fill(topic, 2)
    with Consumer(bootstrap_servers=topics.servers, group_id=topic, enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        until(lambda: consumer.poll(0.1) is not None and consumer.assignment(), "the consumer is a member")
        asked = reader(topics, topic, group_id=topic)
        assert asked.latestOffset({topic: {"0": 1}}, ReadAllAvailable()) == {topic: {"0": 2}}
        assert f"could not commit the offset of {topic}-0 to group {topic}" in caplog.text
        asked.stop()


def test_readers_travel_without_their_connections_and_workers_keep_theirs(topics: Topics) -> None:
    import pickle

    from ottla.spark import reading

    topic = topics.make()
    topics.fill(topic, 20)
    asked = reader(topics, topic, startingOffsets="earliest")
    start = asked.initialOffset()
    end = asked.latestOffset(start, ReadAllAvailable())
    partitions = asked.partitions(start, end)
    reading.close_idle()
    for _ in range(3):
        travelled = pickle.loads(pickle.dumps(asked))
        assert sum(batch.num_rows for batch in travelled.read(partitions[0])) == 20
    assert [len(kept) for kept in reading._idle.values()] == [1]
    asked.stop()
    reading.close_idle()


def test_a_stream_passes_over_gaps_and_has_headers(topics: Topics, tmp_path: Path) -> None:
    """Transaction markers and aborted records at the end; assigned partitions; a processing time trigger."""
    topic = topics.make(2)
    with ottla.Producer(bootstrap_servers=topics.servers, transactional_id=topic) as producer:
        producer.init_transactions()
        for number in range(4):
            producer.begin_transaction()
            producer.send(topic, str(number).encode(), partition=0, headers=[("n", str(number).encode())])
            producer.flush()
            (producer.abort_transaction if number % 2 else producer.commit_transaction)()
    topics.fill(topic, 3, partition=1, first=100)  # not assigned
    assign = json.dumps({topic: [0]})
    options = {"assign": assign, "includeHeaders": "true", "kafka_isolation_level": "read_committed"}
    query = (
        topics.stream(None, startingOffsets="earliest", group_id=topic, maxRecordsPerPartition=2, **options)
        .writeStream.format("memory")
        .queryName("gaps")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(processingTime="50 milliseconds")
        .start()
    )
    try:
        until(lambda: query.exception() or topics.committed(topic) == {f"{topic}-0": 8}, "the markers are passed", 60)
        assert query.exception() is None
    finally:
        query.stop()
    rows = topics.spark.sql("select cast(value as string) value, headers from gaps").collect()
    assert sorted((row.value, bytes(row.headers[0].value).decode()) for row in rows) == [("0", "0"), ("2", "2")]


def test_a_query_that_is_stopped_in_python_does_not_overflow_the_stack(topics: Topics) -> None:
    """Spark searches the text of the error, and its expression recurses for each character."""
    jvm, context = topics.spark._jvm, topics.spark.sparkContext._jsc.sc()
    assert jvm is not None
    text = "py4j.protocol.Py4JJavaError: An error occurred while calling o1.call.\n" + "\tat a.line(Of.java:1)\n" * 500
    error = jvm.py4j.Py4JException(text + ": java.lang.InterruptedException")
    execution = jvm.org.apache.spark.sql.execution.streaming.runtime.StreamExecution
    assert execution.isInterruptionException(error, context)
