"""Steps with latest, without Spark: checks, the statements for SQL databases, and the keys of sinks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from changes.orders import check
from ottla.spark.pipelines import DeclarationError, JdbcSink, load
from ottla.spark.pipelines.changes.sinks import with_keys
from ottla.spark.pipelines.graph.parts import boxes
from ottla.spark.pipelines.reasons import Reasons
from ottla.spark.pipelines.schemas import from_ddl

TEXT = """\
name = "shop"
checkpoint = "state"
bootstrap_servers = "localhost:9092"

[[source]]
name = "changes"
topics = ["changes"]
schema = "id BIGINT, ts BIGINT, op STRING"

[[step]]
name = "rows"
{step}
{more}
[[sink]]
name = "table"
input = "rows"
{sink}
"""
STEP = 'latest = ["id"]\nsequence = "ts"\n'
JDBC = 'format = "jdbc"\nurl = "jdbc:x:y"\ntable = "rows"\n'


def written(tmp_path: Path, step: str = STEP, sink: str = JDBC, more: str = "") -> Path:
    (tmp_path / "shop.toml").write_text(TEXT.format(step=step, sink=sink, more=more))
    return tmp_path / "shop.toml"


@pytest.mark.parametrize("engine", ["sqlite", "duckdb"])
def test_random_orders_of_changes_leave_the_same_tables(engine: str) -> None:
    """`make changes` tries 1,000."""
    if engine == "duckdb":
        pytest.importorskip("duckdb")
    check(10 if engine == "sqlite" else 1, seed=7, engine=engine)


@pytest.mark.parametrize(
    ("step", "sink", "more", "message"),
    [
        ('latest = ["id"]', JDBC, "", 'sequence is missing, such as sequence = "ts"'),
        ('latest = []\nsequence = "ts"', JDBC, "", "latest is empty: name the key columns"),
        ('latest = ["id"]\nsequence = []', JDBC, "", "sequence is empty: name a column"),
        (f'{STEP}exclude = ["id"]', JDBC, "", "exclude contains id, which is part of latest: remove it"),
        (STEP, 'format = "parquet"\npath = "t"', "", "a parquet sink only adds rows, and the changes of rows replace"),
        (STEP, 'format = "topic"\ntopic = "t"', "", "a topic sink only adds rows"),
        (STEP, f'{JDBC}keys = ["id"]', "", "step rows with latest sets it: remove keys from the sink"),
        (
            STEP,
            JDBC,
            '[[step]]\nname = "later"\nsql = "SELECT * FROM rows"\n',
            "step rows with latest must be the last one before a sink, because the sink applies its changes: use the "
            "input of rows here, and move rows after this step",
        ),
        (f'{STEP}history = "yes"', JDBC, "", "history must be true or false, not 'yes'"),
    ],
)
def test_problems_are_told(tmp_path: Path, step: str, sink: str, more: str, message: str) -> None:
    file = written(tmp_path, step, sink, more)
    with pytest.raises(DeclarationError) as caught:
        load(file)
    assert message in caught.value.problems[0].message
    assert len(caught.value.problems) == 1


@pytest.mark.parametrize(("history", "keys"), [("false", ["id"]), ("true", ["id", "valid_from"])])
def test_sinks_get_the_keys_of_the_step(tmp_path: Path, history: str, keys: list[str]) -> None:
    pipeline = load(written(tmp_path, f"{STEP}history = {history}\n"))
    found = with_keys(pipeline)
    (sink,) = found.sinks
    assert isinstance(sink, JdbcSink)
    assert (sink.keys, sink.sequence, sink.where) == (keys, "_version", pipeline.sinks[0].where)
    assert found.directory == pipeline.directory


def test_the_graph_says_what_the_step_keeps(tmp_path: Path) -> None:
    pipeline = load(written(tmp_path, f"{STEP}history = true\ndeletes = \"op = 'd'\"\n"))
    (box,) = [one for one in boxes(pipeline) if one.title == "rows"]
    assert box.lines == ("all versions by id", "in the order of ts", "deletes: op = 'd'")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"id": 1}, "the value is not an envelope of Debezium: it has no op; the envelope has no time"),
        ({"op": "t", "ts_ms": 1}, 'op is "t" (truncate), expected one of c, u, r, d'),
        ({"op": "x", "ts_ms": 1}, 'op is "x", expected one of c, u, r, d'),
        ({"op": "d", "ts_ms": 1}, "op is d, but neither before nor the record key has a column of the schema"),
        ({"op": "u", "ts_ms": 1}, "op is u, but after has no row"),
        ({"op": "u", "after": {"id": "x"}, "source": {"ts_ms": 1}}, 'field after.id is not a whole number: "x"'),
        ({"schema": {}, "payload": {"op": "c", "after": {}, "ts_ms": 1}}, "field after.id is missing"),
    ],
)
def test_a_wrong_envelope_gets_its_reason(value: object, reason: str) -> None:
    found = Reasons("debezium", from_ddl("id BIGINT NOT NULL")).reason(json.dumps(value).encode())
    assert found.startswith(reason)
