"""`ottla pipeline audit` on a real Spark: it knows what the pipeline removes on purpose, and finds what is lost."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.spark.audit.report import COUNTS
from spark.conftest import Topics

pytestmark = [pytest.mark.spark, pytest.mark.usefixtures("own_session")]

DECLARED = """\
name = "orders"
checkpoint = "state"

[[source]]
name = "orders"
topics = ["TOPIC"]
schema = "id BIGINT NOT NULL, customer STRING, total DOUBLE"
null_values = "skip"

[[expect]]
name = "positive"
input = "orders"
that = "total >= 0"
otherwise = "dead-letter"

[[expect]]
name = "named"
input = "orders"
that = "customer IS NOT NULL"
otherwise = "drop"

[[step]]
name = "unique"
dedupe = ["id"]
within = "1 hour"

[[sink]]
name = "table"
input = "unique"
format = "parquet"
path = "table"

[dead_letters]
topic = "{topic}.dead"
"""

MORE = """
[[step]]
name = "large"
sql = "SELECT id, total, _topic, _partition, _offset FROM unique WHERE total > 10"

[[step]]
name = "bare"
sql = "SELECT id, total FROM unique"

[[step]]
name = "sums"
input = "unique"
window = "1 day"
watermark = "1 hour"
aggregate = {total = "sum(total)"}

[[sink]]
name = "large"
input = "large"
format = "topic"
topic = "TOPIC.large"
origin = true

[[sink]]
name = "bare"
input = "bare"
format = "parquet"
path = "bare"

[[sink]]
name = "sums"
input = "sums"
format = "parquet"
path = "sums"
"""


def audited(file: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, dict[str, dict[str, int]], Any]:
    """The exit code, the counts of each sink, and the whole report."""
    code = main(["pipeline", "audit", str(file), "--master", "local[2]", "--json", *more])
    told = capsys.readouterr()
    assert told.out, told.err
    found = json.loads(told.out)
    counts = {
        one["sink"]: {name: one["total"][name] for name in COUNTS if one["total"][name]} for one in found["audits"]
    }
    return code, counts, found


def started(topics: Topics, file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run the pipeline in a file over all kinds of records. Three more come when it has ended."""
    topic = topics.make(2)
    for name in ("dead", "large"):
        topics.make(name=f"{topic}.{name}")
    file.write_text(file.read_text().replace("TOPIC", topic))

    def send(number: int, **more: Any) -> None:
        order = {"id": number, "customer": "c", "total": float(number), **more}
        topics.producer.send(topic, json.dumps(order).encode(), partition=number % 2).result(20)

    for number in range(20):
        for _ in range(3 if number == 7 else 1):
            send(number)
    send(30, customer=None)
    send(31, total=-1)
    for value in (b"{", None):
        topics.producer.send(topic, value, partition=0).result(20)
    assert main(["pipeline", "run", str(file), "--once"]) == 0, capsys.readouterr().err
    for number in (40, 41, 42):
        send(number)
    capsys.readouterr()


#: Of the records, whatever the sink.
REMOVED = {"produced": 29, "duplicates": 2, "dead": 2, "pending": 3}


def test_what_is_lost_or_repeated_is_found(topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(DECLARED)
    started(topics, file, capsys)
    rows = topics.spark.read.parquet(str(tmp_path / "table"))
    rows.where("id <> 5").union(rows.where("id = 6")).write.parquet(str(tmp_path / "damaged"))
    file.write_text(file.read_text().replace('path = "table"', 'path = "damaged"'))
    code, counts, found = audited(file, capsys)
    assert code == 1
    # Filtered: the rule named, and the record without a value.
    assert counts == {"table": {**REMOVED, "arrived": 19, "filtered": 2, "lost": 1, "repeated": 1}}
    assert found["audits"][0]["findings"] == {"lost": 1, "repeated": 1}
    lost = next(one for one in found["audits"][0]["examples"] if one["kind"] == "lost")
    assert json.loads(lost["value"])["id"] == 5

    assert main(["pipeline", "audit", str(file), "--sink", "tabel"]) == 2
    assert "the pipeline has no sink tabel. Did you mean table?" in capsys.readouterr().err


@pytest.mark.long  # the tutorial's test audits a table where nothing is lost
def test_what_the_pipeline_removes_is_not_lost(
    topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(DECLARED + MORE)
    started(topics, file, capsys)
    code, counts, found = audited(file, capsys)
    assert counts == {
        "table": {**REMOVED, "arrived": 20, "filtered": 2},
        # Also totals up to 10 are filtered, and those with them that are repeated.
        "large": {"produced": 29, "arrived": 9, "dead": 2, "pending": 3, "filtered": 15},
    }
    assert found["not_audited"] == {
        "bare": "the input of sink bare has no _topic, _partition and _offset: add it to the SELECT of the steps "
        "before it",
        "sums": "step sums makes rows from several records, so no row belongs to one record",
    }
    assert code == 0
    assert any("rules and steps" in note for note in found["audits"][0]["notes"])
    assert main(["pipeline", "audit", str(file), "--sink", "sums"]) == 3, "nothing was audited"
    assert "sink sums was not audited" in capsys.readouterr().out


def test_a_pipeline_that_never_ran(topics: Topics, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic = topics.make()
    file = tmp_path / "orders.toml"
    file.write_text(DECLARED.replace("TOPIC", topic))
    assert main(["pipeline", "audit", str(file), "--sink", "table"]) == 3
    assert "sink table was not audited: " in capsys.readouterr().out
