"""deliver=exactly-once: a driver that dies between any two steps, zombies, and the same on a real Spark."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from compat.waiting import until
from ottla.clients.consumer.blocking import Consumer
from ottla.clients.producer import transaction_requests
from ottla.clients.producer.prepared import PreparingProducer
from ottla.consuming.values import ConsumerGroupMetadata, OffsetAndMetadata
from ottla.spark import exactly_once as once
from ottla.spark.exactly_once import Delivered, NotDelivered, Write
from ottla.spark.ledger import Ledger
from ottla.spark.options import WriteOptions
from ottla.types import TopicPartition
from spark.conftest import Topics
from spark.test_spark_reading import failure

pytestmark = pytest.mark.spark


def delivered(topics: Topics, topic: str, *, closed: bool = True) -> list[int]:
    """The records for read_committed consumers; with `closed`, no transaction may be open."""
    found: list[int] = []
    keys = [TopicPartition(topic, one.partition) for one in topics.admin.describe_topics([topic])[topic].partitions]
    config = {"bootstrap.servers": topics.servers, "isolation.level": "read_committed"}
    with Consumer(config) as consumer:

        def is_closed() -> bool:  # Kafka writes the markers after it has answered
            high = topics.admin.list_offsets(dict.fromkeys(keys, "latest"))
            return {key: one.offset for key, one in high.items()} == consumer.end_offsets(keys)

        if closed:
            until(is_closed, "no transaction is open")
        ends = consumer.end_offsets(keys)
        consumer.assign(keys)
        consumer.seek_to_beginning(*keys)

        def read() -> bool:
            found.extend(int(value) for value in consumer.poll_arrow(0.05).column("value").to_pylist())
            return all(consumer.position(key) >= ends[key] for key in keys)

        until(read, "everything was read")
    return sorted(found)


class Job:
    """Drive one query step by step, like Spark. Every run is a driver, and old drivers keep running."""

    def __init__(self, topics: Topics, partitions: int = 2) -> None:
        self.topics = topics
        self.topic = topics.make(partitions)
        self.prefix = f"job-{uuid4().hex[:8]}"
        given = topics.options(None, topic=self.topic, deliver="exactly-once")
        self.options = WriteOptions.of(given, streaming=True)

    def write(self, run: str, batch: int) -> Write:
        return Write(self.prefix, run, batch)

    def task(self, write: Write, index: int, rows: list[int]) -> Delivered:
        return once.write_task(self.options, write, index, self._tables(rows))

    def _tables(self, rows: list[int]) -> Iterator[tuple[str, pa.RecordBatch]]:
        for row in rows:
            yield self.topic, pa.record_batch({"value": pa.array([str(row)])})

    def tasks(self, write: Write, *shares: list[int]) -> list[Delivered]:
        return [self.task(write, index, rows) for index, rows in enumerate(shares)]

    def run(self, run: str, batch: int, *shares: list[int]) -> list[Delivered]:
        """A whole batch."""
        messages = self.tasks(self.write(run, batch), *shares)
        once.commit_all(self.options, messages)
        return messages

    def decide(self, messages: list[Delivered]) -> None:
        prepared = {one.index: one.prepared for one in messages if one.prepared is not None}
        once.decide(self.options, messages[0].write, self.topic, prepared)

    def end(self, *messages: Delivered) -> None:
        with once._borrowed(self.options) as producer:
            assert set(producer.end([one.prepared for one in messages if one.prepared], commit=True).values()) <= {None}


@pytest.fixture(scope="module", autouse=True)
def closed() -> Iterator[None]:
    yield
    once.close_idle()


# ── A driver that dies between two steps ─────────────────────────────────────────────────────────────────────────────


def dies_in_a_task(job: Job, write: Write) -> None:
    if job.task(write, 0, [10, 11]).prepared is None:
        return  # decided: the other task would write nothing
    with PreparingProducer(job.options.producer_config()) as producer:
        producer.take_over(write.id_of(1))
        producer.begin_transaction()
        producer.producer.send(job.topic, b"12", partition=0)
        producer.prepare()  # as `kill -9` does: nothing is aborted


def dies_before_the_decision(job: Job, write: Write) -> None:
    job.tasks(write, [10, 11], [12])


def dies_in_the_decision(job: Job, write: Write) -> None:
    """Leave an open transaction that has written to the ledger."""
    job.tasks(write, [10, 11], [12])
    with PreparingProducer(job.options.producer_config()) as producer:
        producer.take_over(write.prefix)
        producer.begin_transaction()
        unseen = OffsetAndMetadata(write.batch + 1, Ledger(write.prefix, 1000, "nobody").to_metadata())
        producer.send_offsets_to_transaction(
            {TopicPartition(job.topic, 0): unseen}, ConsumerGroupMetadata(write.prefix)
        )
        producer.prepare()  # as `kill -9` does


def dies_after_the_decision(job: Job, write: Write) -> None:
    job.decide(job.tasks(write, [10, 11], [12]))


def dies_between_two_commits(job: Job, write: Write) -> None:
    messages = job.tasks(write, [10, 11], [12])
    job.decide(messages)
    job.end(messages[1])


def dies_before_spark_notes_the_end(job: Job, write: Write) -> None:
    once.commit_all(job.options, job.tasks(write, [10, 11], [12]))


DEATHS = [
    dies_in_a_task,
    dies_before_the_decision,
    dies_in_the_decision,
    dies_after_the_decision,
    dies_between_two_commits,
    dies_before_spark_notes_the_end,
]


@pytest.mark.parametrize(
    "shares", [([10, 11], [12]), ([10, 11, 12],), ([10], [11], [12])], ids=["same", "one", "three"]
)
@pytest.mark.parametrize("dies", DEATHS)
def test_a_driver_dies_and_the_batch_comes_again(
    topics: Topics, dies: Callable[[Job, Write], None], shares: tuple[list[int], ...]
) -> None:
    """Even with another plan, decided rows are not written again, and nothing stays open."""
    job = Job(topics)
    job.run("first", 0, [1], [2])
    dies(job, job.write("first", 1))
    job.run("second", 1, *shares)
    assert delivered(topics, job.topic) == [1, 2, 10, 11, 12]
    job.run("second", 1, *shares)
    job.run("second", 2, [20], [], [21])
    assert delivered(topics, job.topic) == [1, 2, 10, 11, 12, 20, 21]


@pytest.mark.parametrize("version", [1, 2])
def test_drivers_die_again_and_again(topics: Topics, version: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Test both versions of the transaction protocol."""
    if version == 1:
        monkeypatch.setattr(transaction_requests, "_version", lambda connection: 1)
    job = Job(topics)
    for number, dies in enumerate([*DEATHS, *reversed(DEATHS)]):
        dies(job, job.write(f"run-{number}", 0))
    job.run("last", 0, [10, 11], [12])
    assert delivered(topics, job.topic) == [10, 11, 12]


@pytest.mark.parametrize("version", [1, 2])
def test_a_decided_transaction_that_the_broker_aborted_is_written_again(
    topics: Topics, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if version == 1:
        monkeypatch.setattr(transaction_requests, "_version", lambda connection: 1)
    job = Job(topics)
    dies_after_the_decision(job, job.write("first", 0))
    with once._borrowed(job.options) as producer:  # what transaction.timeout.ms does: another epoch, and abort
        producer.take_over(f"{job.prefix}-1")
    with pytest.raises(NotDelivered, match="has no rows for this task, because its plan has changed"):
        job.run("second", 0, [10, 11, 12])
    messages = job.tasks(job.write("third", 0), [10, 11], [12])
    assert [one.rows for one in messages] == [0, 1]
    job.decide(messages)  # and this driver dies, too
    job.run("fourth", 0, [10, 11], [12])
    assert delivered(topics, job.topic) == [10, 11, 12]


# ── Zombies ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_an_old_driver_decides_nothing_any_more(topics: Topics) -> None:
    job = Job(topics)
    old = job.tasks(job.write("old", 0), [1], [2])
    new = job.task(job.write("new", 0), 0, [1])
    with pytest.raises(NotDelivered, match="another run of this query has taken over"):
        once.commit_all(job.options, old)
    new_messages = [new, job.task(job.write("new", 0), 1, [2])]
    once.abort_all(job.options, old)
    once.commit_all(job.options, new_messages)
    assert delivered(topics, job.topic) == [1, 2]


def test_an_old_driver_that_has_decided_may_go_on_or_not(topics: Topics) -> None:
    job = Job(topics)
    old = job.tasks(job.write("old", 0), [1], [2])
    job.decide(old)
    once.abort_all(job.options, old)  # Spark calls it when a commit has failed: what is decided stays
    job.run("new", 0, [1], [2])
    job.end(*old)  # it ends what has ended
    job.run("new", 1, [3])
    with pytest.raises(NotDelivered, match="another run"):
        once.decide(job.options, job.write("old", 2), job.topic, {})
    assert delivered(topics, job.topic) == [1, 2, 3]


def test_an_old_task_is_fenced_and_its_rows_never_count(topics: Topics) -> None:
    job = Job(topics)
    write = job.write("first", 0)
    seen = threading.Event()
    go_on = threading.Event()

    def slow() -> Iterator[tuple[str, pa.RecordBatch]]:
        yield from job._tables([1])
        seen.set()
        assert go_on.wait(30)
        yield from job._tables([2])

    told: list[str] = []
    zombie = threading.Thread(
        target=lambda: told.append(failure(lambda: once.write_task(job.options, write, 0, slow())))
    )
    zombie.start()
    assert seen.wait(30)
    job.run("second", 0, [1, 2])
    go_on.set()
    zombie.join(30)
    assert told, "the old task believes that it has written"
    assert delivered(topics, job.topic) == [1, 2]


def test_another_attempt_of_a_task_takes_over_before_the_decision(topics: Topics) -> None:
    job = Job(topics)
    write = job.write("first", 0)
    messages = job.tasks(write, [1], [2])
    job.task(write, 1, [2])  # as with speculation, and Spark takes the result of the first attempt
    told = failure(lambda: once.commit_all(job.options, messages))
    assert "turn off spark.speculation" in told
    once.abort_all(job.options, messages)
    job.run("second", 0, [1], [2])
    assert delivered(topics, job.topic) == [1, 2]


def test_tasks_of_which_spark_says_nothing_are_aborted_too(topics: Topics) -> None:
    job = Job(topics)
    for write in (job.write("first", 0), Write(job.prefix, "", 0, decides=False)):
        first, second = job.tasks(write, [1], [2])
        assert second.prepared is not None
        once.abort_all(job.options, [first, None])
        assert delivered(topics, job.topic) == []


def test_all_tasks_of_a_new_run_start_at_once(topics: Topics) -> None:
    job = Job(topics)
    dies_before_the_decision(job, job.write("first", 0))
    write = job.write("second", 0)
    found: list[Delivered] = []
    threads = [
        threading.Thread(target=lambda index=index: found.append(job.task(write, index, [index]))) for index in range(8)
    ]
    for one in threads:
        one.start()
    for one in threads:
        one.join(60)
    once.commit_all(job.options, found)
    assert delivered(topics, job.topic) == list(range(8))


# ── Batch writes ─────────────────────────────────────────────────────────────────────────────────────────────────────


def save(frame: DataFrame, topics: Topics, **options: Any) -> None:
    given = topics.options(None, deliver="exactly-once", **options)
    frame.write.format("ottla").mode("append").options(**given).save()


def test_a_batch_write_counts_as_a_whole_or_not_at_all(topics: Topics) -> None:
    topic = topics.make(2)
    numbers = topics.spark.range(0, 40, 1, 2)
    fails = numbers.selectExpr("if(id = 35, raise_error('no'), cast(id as string)) value")
    assert "no" in failure(lambda: save(fails, topics, topic=topic))
    assert delivered(topics, topic) == []
    save(numbers.selectExpr("cast(id as string) value"), topics, topic=topic)
    assert delivered(topics, topic) == list(range(40))
    first = numbers.selectExpr("cast(id + 100 as string) value", f"'{topic}' topic").where("id < 2")
    for _ in range(2):
        save(first, topics, txnAppId="app", txnVersion=3)
    save(numbers.selectExpr("'7' value", f"'{topic}' topic"), topics, txnAppId="app", txnVersion=2)
    assert delivered(topics, topic) == [*range(40), 100, 101]
    too_long = failure(lambda: save(first, topics, kafka_transaction_timeout_ms="900000000"))
    assert "kafka.transaction.timeout.ms to at most its transaction.max.timeout.ms" in too_long


# ── Streams ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stream_is_stopped_fails_and_repeats_a_batch(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(2), topics.make(2)
    topics.fill(source, 20)
    topics.fill(source, 20, partition=1, first=20)
    checkpoint = tmp_path / "checkpoint"

    def run(value: str = "value") -> str | None:
        frame = topics.stream(source, startingOffsets="earliest", maxOffsetsPerTrigger=30).selectExpr(f"{value} value")
        options = topics.options(None, topic=target, deliver="exactly-once", checkpointLocation=checkpoint)
        query = frame.writeStream.format("ottla").options(**options).trigger(availableNow=True).start()
        try:
            query.awaitTermination(60)
        except Exception as error:
            return str(error)
        return None

    broken = run("if(cast(value as string) = '12', raise_error('broken'), value)")
    assert "broken" in (broken or "")
    assert delivered(topics, target, closed=False) == []
    assert run() is None
    assert delivered(topics, target) == list(range(40))
    last = max(int(path.name) for path in (checkpoint / "commits").iterdir() if path.name.isdecimal())
    (checkpoint / "commits" / str(last)).unlink()  # the driver died before Spark recorded the end of the batch
    (checkpoint / "commits" / f".{last}.crc").unlink(missing_ok=True)
    topics.fill(source, 3, first=40)
    assert run() is None
    assert delivered(topics, target) == list(range(43))


def test_what_a_foreach_batch_writes_comes_once(topics: Topics, tmp_path: Path) -> None:
    source, target = topics.make(), topics.make(2)
    topics.fill(source, 10)
    fails = [True]

    def write(frame: DataFrame, batch: int) -> None:
        save(frame.select("value"), topics, topic=target, txnAppId=source, txnVersion=batch)
        if fails:
            raise RuntimeError("the next sink is down")

    def run() -> None:
        frame = topics.stream(source, startingOffsets="earliest")
        query = frame.writeStream.foreachBatch(write).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query.trigger(availableNow=True).start().awaitTermination(60)

    assert "the next sink is down" in failure(run)
    assert delivered(topics, target) == list(range(10))
    fails.clear()
    run()
    assert delivered(topics, target) == list(range(10))
