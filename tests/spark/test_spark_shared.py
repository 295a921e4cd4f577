"""Shared reads on a real Spark: late sinks, dedupes with broken records, and sinks that come, go and fail."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crash.starts import forget
from ottla.cli.main import main
from ottla.clients.consumer.dead_letter_steps import DeadLetter
from ottla.spark.pipelines import DeclarationError, compile_pipeline, load
from ottla.spark.pipelines.compile import Flow
from ottla.spark.pipelines.status import status_of
from spark.test_spark_pipelines import committed, run, send
from spark.test_spark_restarts import follow, refused

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from spark.conftest import Topics

pytestmark = pytest.mark.spark

HEAD = """\
name = "orders"
checkpoint = "state"
bootstrap_servers = "SERVERS"

[[source]]
name = "orders"
topics = ["NAME"]
schema = "id BIGINT NOT NULL, at TIMESTAMP"
group_id = "NAME-group"
max_offsets_per_trigger = 10

[dead_letters]
topic = "DEAD"
"""
TABLE = """
[[sink]]
name = "table"
input = "orders"
format = "parquet"
path = "table"
"""
OUT = """
[[sink]]
name = "out"
input = "orders"
format = "topic"
topic = "OUT"
"""


class Declared:
    """A pipeline's file with its own topics."""

    def __init__(self, topics: Topics, directory: Path) -> None:
        self.topics = topics
        self.names = {name: topics.make() for name in ("NAME", "OUT", "DEAD")}
        self.file = directory / "orders.toml"

    def write(self, *parts: str) -> None:
        text = "".join(parts).replace("SERVERS", self.topics.servers)
        for name, topic in self.names.items():
            text = text.replace(name, topic)
        self.file.write_text(text)

    def send(self, numbers: range, broken: int | None = None) -> None:
        """Every `broken`-th record is broken."""
        values = [f'{{"id": {one}' if broken and one % broken == 0 else f'{{"id": {one}}}' for one in numbers]
        send(self.topics, self.names["NAME"], *values)

    def flows(self, trigger: str = "available-now") -> list[Flow]:
        return compile_pipeline(load(self.file), self.topics.spark, trigger=trigger)

    def run(self) -> None:
        run(load(self.file), self.topics.spark)

    def table(self) -> list[int]:
        reader = self.topics.spark.read.schema("id bigint")
        return sorted(row.id for row in reader.parquet(str(self.file.parent / "table")).collect())

    def out(self) -> list[int]:
        return sorted(json.loads(one.value)["id"] for one in committed(self.topics, self.names["OUT"]))

    def dead(self) -> list[int]:
        return sorted(DeadLetter.of(one).offset for one in committed(self.topics, self.names["DEAD"]))


@pytest.fixture
def declared(topics: Topics, tmp_path: Path) -> Declared:
    return Declared(topics, tmp_path)


def until(condition: Callable[[], Any], what: str, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        time.sleep(0.05)


BLOCKING = """
import os, time
from pyspark.sql.functions import udf

def wait_for(frame, file):
    @udf("bigint")
    def waited(number):
        while not os.path.exists(file):
            time.sleep(0.02)
        return number
    return frame.withColumn("id", waited("id"))
"""
SLOW = """
[[step]]
name = "slowly"
input = "orders"
python = "blocking:wait_for"
arguments = {file = "GATE"}

[[sink]]
name = "out"
input = "slowly"
format = "topic"
topic = "OUT"
max_delay = "500 milliseconds"
"""


@contextmanager
def running(flow: Flow) -> Iterator[Any]:
    query = flow.start()
    try:
        yield query
    finally:
        query.stop()


@pytest.mark.long  # `make crash-pipelines` has late sinks, too
def test_a_stalled_sink_holds_nobody_up_and_catches_up_exactly_once(declared: Declared, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    (tmp_path / "blocking.py").write_text(BLOCKING)
    declared.write(HEAD, TABLE, SLOW.replace("GATE", str(gate)))
    spark, group = declared.topics.spark, f"{declared.names['NAME']}-group"
    declared.send(range(25), broken=10)
    (flow,) = declared.flows("0 seconds")
    assert list(flow.readers) == ["table", "out", "dead-letters.orders"]
    assert flow.shared is not None
    with running(flow):
        until(lambda: len(declared.table()) == 22, "the table has everything")
        until(lambda: flow.shared and flow.shared.waiting == {"out": 3}, "three batches wait")
        begin = time.monotonic()
        declared.send(range(25, 35))
        until(lambda: len(declared.table()) == 32, "the table goes on")
        behind = time.monotonic() - begin
        assert declared.dead() == [0, 10, 20]
        assert declared.out() == []
    until(lambda: sum(declared.topics.committed(group).values()) > 0, "the shared read commits")
    assert declared.topics.committed(f"{group}.out") == {}, "nothing is committed for the sink that is behind"
    (late,) = [one for one in status_of(load(declared.file)).flows if one.name == "out"]
    assert (late.waiting, late.shares, late.lag) == (4, "orders", None)

    # The process dies; another one goes on. It writes what is stored before anything else.
    spark.sparkContext.cancelAllJobs()
    until(lambda: flow.shared and flow.shared.error, "the old thread ends")
    gate.touch()
    (flow,) = declared.flows()
    assert flow.shared is not None
    with running(flow) as query:
        assert query.awaitTermination(100)
        until(lambda: flow.shared and not flow.shared.waiting, "it catches up")
        flow.shared.close(0)
    everything = [one for one in range(35) if one >= 25 or one % 10]
    assert declared.out() == declared.table() == everything
    assert declared.dead() == [0, 10, 20]
    assert not list((tmp_path / "state/shared/orders/late/out").iterdir())
    assert declared.topics.committed(f"{group}.out") == {f"{declared.names['NAME']}-0": 35}
    assert behind < 30, "a batch does not wait for a sink that is late already"


def test_a_late_sink_that_fails_is_named(
    declared: Declared, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(declared.topics.spark), "stop", lambda spark: None)
    (tmp_path / "breaking.py").write_text(
        "from pyspark.sql.functions import udf\n"
        "@udf('bigint')\ndef halved(number):\n    return number // (number - 7)\n"
        "def break_it(frame):\n    return frame.withColumn('id', halved('id'))\n"
    )
    step = '[[step]]\nname = "slowly"\ninput = "orders"\npython = "breaking:break_it"\n'
    declared.write(HEAD, TABLE, step, SLOW[SLOW.index("[[sink]]") :])
    declared.send(range(10))
    assert main(["pipeline", "run", str(declared.file), "-q"]) == 1
    error = capsys.readouterr().err.splitlines()[0]
    assert error.startswith("ottla: error: flow out: ZeroDivisionError: ")
    assert "(line 4 of breaking.py, in halved)" in error
    assert not [one for one in threading.enumerate() if one.name == "late sink out" and one.is_alive()]


DEDUPE = """
[[step]]
name = "unique"
input = "orders"
dedupe = ["id"]
within = "1 hour"
event_time = "at"

[[step]]
name = "even"
sql = "SELECT id, at FROM unique WHERE id % 2 = 0"
"""


@pytest.mark.long
def test_broken_records_pass_a_shared_dedupe(declared: Declared, topics: Topics) -> None:
    """They are not repeats of each other, never too late, and do not move the watermark."""
    sinks = (TABLE + OUT).replace('"orders"', '"unique"', 1).replace('"orders"', '"even"', 1)
    declared.write(HEAD, DEDUPE, sinks)
    source = declared.names["NAME"]

    def event(number: int, hour: int) -> str:
        return f'{{"id": {number}, "at": "2026-01-01T{hour:02}:00:00Z"}}'

    # A broken record with a time in the future must not make the others late.
    send(topics, source, event(1, 0), event(2, 0), '{"id": "x", "at": "2030-01-01T00:00:00Z"}', "x", "x", event(2, 0))
    declared.run()
    send(topics, source, event(1, 0), event(3, 9), "x", event(4, 9))
    declared.run()
    send(topics, source, event(5, 0), '{"id": "late", "at": "2026-01-01T00:00:00Z"}', event(3, 9), event(6, 9))
    declared.run()
    (flow,) = declared.flows()
    assert list(flow.readers) == ["table", "out", "dead-letters.orders"]
    assert declared.table() == [1, 2, 3, 4, 6], "5 is later than an hour"
    assert declared.out() == [2, 4, 6]
    assert declared.dead() == [2, 3, 4, 8, 11]


@pytest.mark.long  # tests/unit/spark/pipelines/test_shared_layout.py tests the rules
def test_sinks_that_come_and_go(declared: Declared, spark: SparkSession) -> None:
    declared.write(HEAD, TABLE, OUT)
    declared.send(range(12), broken=5)
    declared.run()
    new = TABLE.replace('"table"', '"later"')
    declared.write(HEAD, TABLE, OUT, new)
    declared.send(range(12, 20))
    # One that is new reads by itself, from the beginning.
    assert [flow.name for flow in declared.flows()] == ["shared.orders", "later"]
    declared.run()
    everything = [one for one in range(20) if one % 5 or one >= 12]
    assert sorted(row.id for row in spark.read.parquet(str(declared.file.parent / "later")).collect()) == everything
    # One that was removed cannot come back: it would miss records.
    declared.write(HEAD, TABLE, new)
    declared.send(range(20, 25))
    declared.run()
    declared.write(HEAD, TABLE, OUT, new)
    with pytest.raises(DeclarationError) as caught:
        declared.flows()
    advice = str(caught.value)
    assert "out was removed from the shared read of source orders after batch 2" in advice
    follow(advice)
    assert [flow.name for flow in declared.flows()] == ["shared.orders", "out", "later"]
    # One that needs state now cannot leave: its rows would be repeated.
    declared.write('read = "separate"\n', HEAD, TABLE, OUT, new)
    with pytest.raises(DeclarationError, match="table is part of the shared read of source orders, but now it needs"):
        declared.flows()


@pytest.mark.long  # tests/spark/test_spark_restarts.py does it with separate reads
def test_a_deleted_checkpoint_of_a_shared_read_loses_no_rows(declared: Declared, spark: SparkSession) -> None:
    import shutil

    declared.write(HEAD, TABLE, OUT)
    declared.send(range(8))
    declared.run()
    shutil.rmtree(declared.file.parent / "state")
    declared.send(range(8, 12))
    advice = refused(declared.file, spark, "shared.orders")
    assert "the batches 0 to 0 would be skipped and their rows lost" in advice.lower()
    follow(advice)
    declared.run()
    assert declared.table() == list(range(12))


def test_queries_do_not_change_the_environment_that_they_share(declared: Declared, spark: SparkSession) -> None:
    """Spark would add names to it when a query starts, while another one sends its tasks: see tests/crash/starts.py."""
    declared.write('read = "separate"\n', HEAD, TABLE, OUT)
    declared.send(range(3))
    environment = forget(spark)
    flows = declared.flows()
    before = set(environment)
    for query in [flow.start() for flow in flows]:
        assert query.awaitTermination(100)
    assert set(environment) == before
