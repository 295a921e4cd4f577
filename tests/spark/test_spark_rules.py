"""Rules, limits and exit codes of `ottla pipeline run` on a real Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.cli.pipeline import run as run_command
from ottla.spark.pipelines import DeclarationError, compile_pipeline, exit_codes, load, rule_counts
from ottla.spark.pipelines.places import Remote
from spark.conftest import Topics

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_session")]

HEAD = """\
name = "orders"
checkpoint = "state"

[[source]]
name = "orders"
topics = ["TOPIC"]
schema = "id BIGINT NOT NULL, customer STRING, total DOUBLE"

[[sink]]
name = "table"
format = "parquet"
path = "table"

[dead_letters]
topic = "TOPIC.dead"
"""


class Made:
    """A pipeline in a directory, and its topic."""

    def __init__(self, topics: Topics, directory: Path, more: str = "") -> None:
        self.topics = topics
        self.topic = topics.make()
        topics.make(name=f"{self.topic}.dead")
        self.file = directory / "orders.toml"
        self.table = directory / "table"
        self.write(HEAD + more)

    def write(self, text: str) -> None:
        self.file.write_text(text.replace("TOPIC", self.topic))

    def change(self, old: str, new: str) -> None:
        assert old in self.file.read_text()
        self.file.write_text(self.file.read_text().replace(old, new))

    def send(self, orders: Iterable[Any]) -> None:
        values = (one if isinstance(one, str) else json.dumps(one) for one in orders)
        for future in [self.topics.producer.send(self.topic, value.encode()) for value in values]:
            future.result(20)

    def run(self, *more: str) -> int:
        return main(["pipeline", "run", str(self.file), "--once", *more])

    def ids(self) -> list[int]:
        if not self.table.exists():
            return []
        # The first run of a test may have written an empty file with another schema.
        return sorted(row.id for row in self.topics.spark.read.schema("id long").parquet(str(self.table)).collect())

    def letters(self) -> list[tuple[int, str]]:
        """The offset and the reason of each dead letter."""
        rows = self.topics.read(f"{self.topic}.dead", includeHeaders="true").collect()
        headers = [{one["key"]: bytes(one["value"]).decode() for one in row.headers} for row in rows]
        return sorted((int(one["dead-letter-offset"]), one["dead-letter-error-message"]) for one in headers)


@pytest.fixture
def made(topics: Topics, tmp_path: Path) -> Callable[[str], Made]:
    return lambda more: Made(topics, tmp_path, more)


def order(number: int, **more: Any) -> dict[str, Any]:
    return {"id": number, "customer": "c", "total": 1.5, **more}


RULES = """
[[step]]
name = "priced"
sql = "SELECT *, total * 2 AS price FROM orders"

[[expect]]
name = "named"
input = "orders"
that = "customer IS NOT NULL"

[[expect]]
name = "positive"
input = "orders"
that = "total >= 0"
otherwise = "dead-letter"

[[expect]]
name = "cheap"
that = "price < 100"
otherwise = "drop"
at_most = 2
"""


def test_warn_drop_and_dead_letter(
    made: Callable[[str], Made], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = made(RULES)
    pipeline.send(order(number) for number in range(20))
    pipeline.send([order(20, customer=None), order(21, total=-1), order(22, total=60), "{", order(24, total=None)])
    metrics = tmp_path / "metrics"
    assert pipeline.run("--metrics-file", str(metrics)) == exit_codes.DONE
    told = capsys.readouterr()
    assert pipeline.ids() == [*range(21), 24], "NULL is not false"
    (broken, malformed) = pipeline.letters()
    assert broken == (21, "condition is false: total >= 0 (rule positive)")
    assert (malformed[0], malformed[1][:14]) == (23, "malformed JSON")

    assert [re.split(" {2,}", line) for line in told.out.splitlines()[-3:]] == [
        ["cheap", "table", "1 of 23 (4.3 %)", "1 of 23 (4.3 %)", "2"],
        ["named", "table", "1 of 23 (4.3 %)", "1 of 23 (4.3 %)", "-"],
        ["positive", "table", "1 of 24 (4.2 %)", "1 of 24 (4.2 %)", "-"],
    ]
    assert "rule cheap broken by 1 of 23 (4.3 %)" in told.err
    assert 'ottla_pipeline_rule_violations_total{pipeline="orders",flow="table",rule="cheap"} 1' in metrics.read_text()
    assert main(["pipeline", "status", str(pipeline.file), "--json"]) == 0
    status = json.loads(capsys.readouterr().out)
    counts = {one["rule"]: (one["rows"], one["violations"]) for one in status["rules"]}
    assert counts == {"cheap": (23, 1), "named": (23, 1), "positive": (24, 1), "dead-letters.orders": (25, 2)}

    # The next run counts from zero, and one batch goes over the limit. Good rows of the batch are written.
    pipeline.send([order(30), *(order(number, total=70) for number in (31, 32, 33))])
    assert pipeline.run("--json") == exit_codes.LIMIT_EXCEEDED
    told = capsys.readouterr()
    assert told.err.splitlines()[-1] == (
        "ottla: error: limit exceeded: rule cheap: 3 of 4 (75 %) rows of flow table broke it, at_most is 2"
    )
    *batches, last = [json.loads(line) for line in told.out.splitlines()]
    assert {"rows": 4, "violations": 3} in [one["rules"].get("cheap") for one in batches]
    assert (last["event"], last["exit_code"]) == ("limit_exceeded", 4)
    assert pipeline.ids() == [*range(21), 24, 30]

    # A retry does not hide it, until the user decides.
    assert pipeline.run() == exit_codes.LIMIT_EXCEEDED
    assert "an earlier run exceeded a limit: rule cheap" in capsys.readouterr().err
    pipeline.change("at_most = 2", "at_most = 3")
    assert pipeline.run() == exit_codes.DONE


FAILS = """
[[step]]
name = "priced"
sql = "SELECT id, total * 2 AS price FROM orders WHERE total IS NOT NULL"

[[expect]]
name = "positive"
input = "orders"
that = "total >= 0"
otherwise = "fail"

[[expect]]
name = "cheap"
that = "price <> 20 AND 'it''s' = 'it''s'"
otherwise = "fail"
"""


def test_fail_writes_nothing_of_the_batch(made: Callable[[str], Made], capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = made(FAILS)
    pipeline.send(order(number) for number in range(3))
    assert pipeline.run() == exit_codes.DONE
    pipeline.send([order(3), order(4, total=10)])
    for _ in range(2):
        assert pipeline.run() == exit_codes.DATA_REFUSED, "later runs stop at the same place"
        assert (
            "flow table: rule cheap: price <> 20 AND 'it''s' = 'it''s' is false for the row {\"id\":4,\"price\":20.0}"
        ) in capsys.readouterr().err
    pipeline.change("price <> 20", "price <> 0")
    pipeline.send([order(5, total=-7)])
    assert pipeline.run() == exit_codes.DATA_REFUSED
    assert (
        f"rule positive: total >= 0 is false for the record of {pipeline.topic}-0 at offset 5"
    ) in capsys.readouterr().err
    assert pipeline.ids() == [0, 1, 2, 3, 4]


def test_a_wrong_schema_is_not_success(made: Callable[[str], Made], capsys: pytest.CaptureFixture[str]) -> None:
    """All records become dead letters. Without a declared limit, this still must not look like success."""
    pipeline = made("")
    pipeline.change("id BIGINT NOT NULL", "number BIGINT NOT NULL")
    pipeline.send(order(number) for number in range(12))
    assert pipeline.run() == exit_codes.LIMIT_EXCEEDED
    assert "limit exceeded: source orders: all 12 records were broken. Does the schema" in capsys.readouterr().err
    assert pipeline.run() == exit_codes.LIMIT_EXCEEDED, "a scheduler retries"
    pipeline.change("number BIGINT NOT NULL", "id BIGINT NOT NULL")
    assert main(["pipeline", "replay", str(pipeline.file)]) == 0
    assert pipeline.run() == exit_codes.DONE
    assert pipeline.ids() == list(range(12))


@pytest.mark.long
def test_a_limit_for_dead_letters(made: Callable[[str], Made], capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = made('at_most = "10%"\n')
    pipeline.send([*(order(number) for number in range(18)), "{", "["])
    assert pipeline.run() == exit_codes.DONE, "at most 10 %"
    pipeline.send([order(20), "{"])
    assert pipeline.run() == exit_codes.LIMIT_EXCEEDED
    assert (
        "source orders: 1 of 2 (50 %) records became dead letters, at_most of [dead_letters] is 10%"
    ) in capsys.readouterr().err
    pipeline.send([order(22)])
    assert pipeline.run("--accept-limits") == exit_codes.DONE
    assert pipeline.run() == exit_codes.DONE
    assert pipeline.ids() == [*range(18), 20, 22]


@pytest.mark.long
def test_a_checkpoint_that_only_spark_can_reach_keeps_the_counts(
    made: Callable[[str], Made], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = made("at_most = 1\n")
    spark = pipeline.topics.spark
    monkeypatch.setattr(rule_counts, "place", lambda where, spark: None if spark is None else Remote(where, spark))
    monkeypatch.setattr(run_command, "local_path", lambda where: None)
    pipeline.send([order(0), "{", "["])
    log = ["--log", str(pipeline.file.parent / "log")]
    assert pipeline.run(*log) == exit_codes.LIMIT_EXCEEDED
    assert rule_counts.exceeded(load(pipeline.file, default_servers=pipeline.topics.servers), spark)
    assert pipeline.run(*log) == exit_codes.LIMIT_EXCEEDED
    assert "an earlier run exceeded a limit: source orders: 2 of 3" in capsys.readouterr().err
    assert pipeline.run("--accept-limits", *log) == exit_codes.DONE


def test_a_broken_record_without_dead_letters_is_refused(
    made: Callable[[str], Made], capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = made("")
    pipeline.write(HEAD.partition("[dead_letters]")[0])
    pipeline.send([order(0), "{"])
    assert pipeline.run() == exit_codes.DATA_REFUSED
    assert f"the record of {pipeline.topic}-0 at offset 1 does not match the json schema" in capsys.readouterr().err


STATEFUL = """
[[step]]
name = "unique"
input = "orders"
dedupe = ["id"]
within = "1 hour"

[[step]]
name = "sums"
window = "1 day"
group_by = ["customer"]
aggregate = {total = "sum(total)"}

[[expect]]
name = "once"
input = "unique"
that = "id < 5"
otherwise = "drop"

[[expect]]
name = "small"
input = "sums"
that = "total < 4"

[[expect]]
name = "positive"
input = "orders"
that = "total > 0"
otherwise = "drop"

[[sink]]
name = "sums"
format = "topic"
topic = "TOPIC.sums"
mode = "update"
"""


@pytest.mark.long
def test_rules_before_and_after_steps_with_state(
    made: Callable[[str], Made], capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = made(STATEFUL)
    pipeline.change('path = "table"', 'path = "table"\ninput = "unique"')
    pipeline.send([*(order(number % 6, customer="ab"[number % 2]) for number in range(12)), order(9, total=0)])
    assert pipeline.run("--json") == exit_codes.DONE, capsys.readouterr().err
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    counts = {(one["rule"], one["flow"]): (one["rows"], one["violations"]) for one in last["rules"]}
    assert counts == {
        ("positive", "table"): (13, 1),
        ("once", "table"): (6, 1),
        ("positive", "sums"): (13, 1),
        ("once", "sums"): (6, 1),
        ("small", "sums"): (2, 1),
        ("dead-letters.orders", "dead-letters.orders"): (13, 0),
    }
    assert pipeline.ids() == [0, 1, 2, 3, 4]


def test_what_spark_refuses_is_told_with_the_line_of_the_rule(made: Callable[[str], Made], topics: Topics) -> None:
    pipeline = made(RULES)
    text = pipeline.file.read_text()
    for old, new, message in (
        ("price < 100", "prize < 100", "prize"),
        ("price < 100", "price + 100", "that must be true or false, but price + 100 is of type double"),
        ("total >= 0", "totl >= 0", "totl"),
        ("customer IS NOT NULL", "customer IS NOTT", "NOTT"),
    ):
        pipeline.file.write_text(text.replace(old, new))
        with pytest.raises(DeclarationError) as caught:
            compile_pipeline(load(pipeline.file, default_servers=topics.servers), topics.spark)
        assert len(caught.value.problems) == 1, caught.value
        (problem,) = caught.value.problems
        assert problem.line == text[: text.index(old)].count("\n") + 1
        assert message in problem.message
