"""The audit on a real Spark: it finds exactly the planted problems, and none in a clean run."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import ottla
from compat.waiting import until
from ottla.cli import main as cli
from ottla.clients.consumer.dead_letter_steps import Policy
from ottla.spark.audit import AuditError, AuditReport, audit
from ottla.spark.audit.report import COUNTS
from ottla.types import TopicPartition
from spark.conftest import Topics

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.spark

HOUR = 3_600_000
START = 1_700_000_000_000


def found(report: AuditReport, partition: int | None = None) -> dict[str, int]:
    """The non-zero counts of one partition or of all."""
    counts = report.total
    if partition is not None:
        counts = next(one.counts for one in report.partitions if one.partition == partition)
    return {name: count for name, count in asdict(counts).items() if count}


def run(topics: Topics, source: str, **more: Any) -> AuditReport:
    return audit(topics.spark, source, bootstrap_servers=topics.servers, **more)


def rows(topics: Topics, source: str, places: Iterable[tuple[int, int]]) -> DataFrame:
    """A table with origin columns, which also has rows of other topics."""
    ours = [(source, partition, offset) for partition, offset in places]
    others = [("another-topic", 0, offset) for offset in range(5)]
    return topics.spark.createDataFrame(ours + others, "_topic string, _partition int, _offset long")


def dead(topics: Topics, topic: str, source: str, *places: tuple[int, int]) -> None:
    """Write dead letters like `ottla.DeadLetters`."""
    policy = Policy(topic)
    for partition, offset in places:
        record = ottla.ConsumerRecord(source, partition, offset, START, 0, None, b"broken")
        letter = next(policy.letters(record, ValueError("broken"), 1))
        topics.producer.send(topic, letter.value, key=letter.key, headers=letter.headers).result(20)


@pytest.fixture(scope="module")
def planted(topics: Topics) -> tuple[str, str]:
    """A topic with all kinds of offsets, its dead letters, and a group in the middle of it."""
    source, letters = topics.make(4, retention_ms="-1"), topics.make()
    topics.fill(source, 20, partition=0, timestamp=START)
    with ottla.Producer(bootstrap_servers=topics.servers, transactional_id=source) as producer:
        producer.init_transactions()
        for count, keeps in ((5, True), (3, False), (4, True)):
            producer.begin_transaction()
            for number in range(count):
                producer.send(source, str(number).encode(), partition=1, timestamp=START + HOUR)
            producer.flush(20)
            (producer.commit_transaction if keeps else producer.abort_transaction)()
    topics.fill(source, 10, partition=2, timestamp=START + 2 * HOUR)
    topics.admin.delete_records({TopicPartition(source, 2): 4})
    dead(topics, letters, source, (0, 9), (0, 9), (0, 2))
    dead(topics, letters, "another-topic", (0, 3))
    ends = {0: 20, 1: 15, 2: 8}
    topics.admin.alter_group_offsets(source, {TopicPartition(source, part): end for part, end in ends.items()})
    return source, letters


# Partition 0: 3 and 7 lost, 5 three times, 9 dead, 2 both. 1: offsets 0-4, 10-13 are records, 6-8 were aborted. 2: 4-9.
FAULTY = [
    *((0, offset) for offset in (*range(20), 5, 5) if offset not in (3, 7, 9)),
    *((1, offset) for offset in (0, 1, 2, 3, 4, 6, 7, 10, 11, 12, 13)),
    *((2, offset) for offset in range(8)),
]


@pytest.fixture
def command(topics: Topics, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """Run `ottla audit` with the session of the tests, without stopping it."""
    monkeypatch.setattr(type(topics.spark), "stop", lambda spark: None)
    monkeypatch.setenv("OTTLA_BOOTSTRAP_SERVERS", topics.servers)
    return lambda *arguments: cli.main(["audit", *map(str, arguments)])


@pytest.mark.long  # test_spark_pipeline_audit has the short form.
def test_what_is_planted_in_a_table_is_found(
    topics: Topics, planted: tuple[str, str], command: Callable[..., int], tmp_path: Path, capsys: Any
) -> None:
    source, letters = planted
    table, chart = tmp_path / "table", tmp_path / "audit.svg"
    rows(topics, source, FAULTY).write.parquet(str(table))
    known = ["--dead-letters", letters, "--group", source]
    assert command(source, "--table", table, *known, "--json", "--chart", chart) == 1
    told = json.loads(capsys.readouterr().out)
    counts = [{name: one[name] for name in COUNTS if one[name]} for one in told["partitions"]]
    assert counts == [
        {"produced": 20, "arrived": 17, "dead": 1, "lost": 2, "repeated": 2},
        {"produced": 9, "arrived": 9, "aborted": 2},
        {"produced": 6, "arrived": 4, "pending": 2, "expired": 4},
        {},
    ]
    assert told["findings"] == {"lost": 2, "repeated": 2, "aborted": 2}
    examples = [
        tuple(one[name] for name in ("kind", "partition", "offset", "times", "value")) for one in told["examples"]
    ]
    assert examples == [("lost", 0, 3, 0, "3"), ("lost", 0, 7, 0, "7"), ("repeated", 0, 5, 3, "5")]
    assert [(one["produced"], one["lost"]) for one in told["buckets"]] == [(20, 2), (9, 0), (6, 0)]
    assert any("retention" in note and "partition 2 before 4" in note for note in told["notes"])
    assert chart.read_text().startswith("<svg")


ID = "get_json_object(cast(value as string), '$.id')"


@pytest.mark.long  # test_spark_pipeline_audit has the short form.
def test_a_pipeline_with_dedupe_dead_letters_and_more_to_come(topics: Topics, tmp_path: Path) -> None:
    """Audit a query by its checkpoint; some records are repeated, one is broken, some arrive later."""
    source, letters = topics.make(2), topics.make()
    for number in range(10):
        for _ in range(3 if number == 4 else 1):
            topics.producer.send(source, b'{"id": %d}' % number, partition=number % 2).result(20)
    topics.producer.send(source, b"broken", partition=0).result(20)
    dead(topics, letters, source, (0, 7))
    table, checkpoint = str(tmp_path / "table"), str(tmp_path / "checkpoint")
    query = (
        topics.stream(source, startingOffsets="earliest")
        .selectExpr(f"cast({ID} as int) id", "topic _topic", "partition _partition", "offset _offset", "timestamp")
        .where("id is not null")
        .dropDuplicates(["id"])
        .writeStream.option("path", table)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(60)
    topics.producer.send(source, b'{"id": 10}', partition=1).result(20)
    topics.producer.send(source, b'{"id": 4}', partition=1).result(20)
    clean = {"produced": 15, "arrived": 10, "duplicates": 2, "dead": 1, "pending": 2}
    known = {"dead_letters": letters, "checkpoint": checkpoint, "key": ID}
    report = run(topics, source, table=table, **known)
    assert found(report) == clean
    assert report.ok
    # One lost, one twice, a copy of a duplicate that should have been dropped, and one that the source never had.
    kept = topics.spark.read.parquet(table).where("id <> 3")
    faulty = kept.union(kept.where("id in (5, 4)")).union(kept.where("id = 6").withColumn("id", kept.id + 100))
    report = run(topics, source, table=faulty, target_key="id", arrival="timestamp", late_after=5, key=ID)
    assert found(report) == {
        "produced": 15,
        "arrived": 9,
        "duplicates": 3,
        "lost": 2,
        "unkeyed": 1,
        "repeated": 2,
        "unknown": 1,
    }
    assert {(one.kind, one.partition, one.offset) for one in report.examples} == {
        *{("lost", 1, 1), ("lost", 1, 5), ("unkeyed", 0, 7)},
        *{("repeated", 0, 2), ("repeated", 1, 2)},
    }


def test_order_and_time_in_a_topic(topics: Topics) -> None:
    source, target = topics.make(2, retention_ms="-1"), topics.make(1, retention_ms="-1")
    for number in range(12):
        key = None if number > 8 else b"ab"[number % 2 : number % 2 + 1]
        topics.fill(source, 1, first=number, partition=number % 2, key=key, timestamp=START + number)
    # Key b: 3 behind 5 and 7. Records without a key (9, 11) have no order; 10 has none before it. 0 is late, 8 twice.
    for number in (5, 7, 2, 3, 1, 4, 6, 8, 8, 11, 9, 0):
        late = 60_000 if number in (0, 8) else 10
        key = None if number > 8 else b"ab"[number % 2 : number % 2 + 1]
        origin = {"topic": source, "partition": number % 2, "offset": number // 2}
        headers = [(f"origin-{name}", str(value).encode()) for name, value in origin.items()]
        topics.fill(target, 1, first=number, key=key, timestamp=START + number + late, headers=headers)
    report = run(topics, source, topic=target, late_after=1000)
    assert found(report, 0) == {"produced": 6, "arrived": 5, "lost": 1, "repeated": 1, "out_of_order": 1, "late": 2}
    assert found(report, 1) == {"produced": 6, "arrived": 6, "out_of_order": 2}
    assert report.delay is not None
    assert (report.delay.median, report.delay.longest) == (10, 60_000)
    strict = run(topics, source, topic=target, order="partition", origin_headers=True, since=START + 1)
    assert found(strict, 0) == {"produced": 5, "arrived": 4, "lost": 1, "repeated": 1, "outside": 1}
    assert found(strict, 1) == {"produced": 6, "arrived": 6, "out_of_order": 3}


def test_compaction_loses_nothing(topics: Topics) -> None:
    source = topics.make(cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", segment_ms="1")
    for number in range(60):
        topics.fill(source, 1, first=number, key=b"same" if number % 10 else str(number).encode())
    frame = topics.read(source)
    until(lambda: len(set(frame.select("offset").collect())) < 40, "the topic is compacted")
    report = run(topics, source, table=rows(topics, source, [(0, offset) for offset in range(60)]))
    assert report.ok
    assert report.total.arrived == report.total.produced == 60 - report.total.unknown
    assert report.total.unknown > 20
    assert "compaction" in str(report)


def test_a_clean_table_is_ok(
    topics: Topics, planted: tuple[str, str], command: Callable[..., int], tmp_path: Path, capsys: Any
) -> None:
    """Use other origin columns, without a topic column."""
    source, letters = planted
    known = ["--dead-letters", letters, "--group", source]
    correct = {*FAULTY, (0, 3), (0, 7)} - {(1, 6), (1, 7)}
    places = topics.spark.createDataFrame(sorted(correct), "p int, o long")
    places.write.json(str(tmp_path / "table"))
    assert command(source, "--table", tmp_path / "table", "--format", "json", "--origin", "p,o", *known) == 0
    assert "OK: 35 produced, 32 arrived (1 in dead letters, 2 pending)" in capsys.readouterr().out
    assert command(source, "--table", tmp_path / "nowhere", *known) == 3
    assert "nowhere as parquet" in capsys.readouterr().err
    assert command(source, "--table", tmp_path / "table", "--format", "json", "--group", "nobody") == 3
    assert "group nobody has no committed offsets" in capsys.readouterr().err


def test_mistakes_are_told(topics: Topics, planted: tuple[str, str], tmp_path: Path) -> None:
    source, _ = planted
    table = topics.spark.createDataFrame([(1,)], "id int")
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({}, "set either table or topic"),
        ({"topic": source}, "the same topic"),
        ({"table": table}, "no column _partition"),
        ({"table": table, "target_key": "id"}, "target_key requires key"),
        ({"table": table, "key": "valu", "target_key": "id"}, "'valu' does not work for topic"),
        ({"table": table, "key": "value +", "target_key": "id"}, "not a valid SQL expression"),
        ({"table": table, "key": "value", "target_key": "ident"}, "'ident' does not work for a table"),
        ({"table": table, "late_after": 5}, "late_after requires arrival"),
        ({"table": table, "checkpoint": str(tmp_path)}, "is not a checkpoint"),
        ({"table": table, "checkpoint": str(tmp_path), "group": "g"}, "not both"),
        ({"table": table, "order": "time"}, "order must be one of"),
    ]
    for arguments, reason in mistakes:
        with pytest.raises(AuditError, match=reason):
            run(topics, source, **arguments)
