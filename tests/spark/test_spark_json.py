"""A JSON value is one object and nothing else: Spark's parser alone would ignore what follows it."""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.spark.pipelines import load
from ottla.spark.pipelines.formats import Format
from ottla.spark.pipelines.reasons import Reasons

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
SCHEMA = "id BIGINT NOT NULL, a STRING, b STRUCT<c: ARRAY<INT>>"
DEBEZIUM = '{"before": null, "after": {"id": 1}, "op": "c", "ts_ms": 1}'
FOLLOWED = [
    *("{}}}", '{} {"id": 2}', '{}{"id": 2}', '{},{"id": 2}', '{},"id":2}', "{} or so", "{} }", "{}]}", '{}"}', "{},"),
    *("{}]", "{}\n{}", "{},{},{}", "[{}]", "[{}],{}", "{{{}}}", "{}//", '{},"value":{}}', ",{}", "x{}", '{},"x":{}'),
]
PIECES = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    " ",
    "\n",
    "0",
    "1",
    "null",
    '"id":',
    '"id":1',
    '{"id":1}',
    '"b":{"c":[1]}',
]
GOOD = ['{"id":1}', '{"id":1,"a":"}{ }] {"}', '{"id":1,"b":{"c":[1,2]}}', ' {"id":1} \n', '{"id":1,"a":null,"b":null}']


def readable(
    spark: SparkSession, directory: Path, values: list[str], *, kind: str = "json", more: str = ""
) -> list[bool]:
    """Whether a source takes each value for a good record."""
    file = directory / "json.toml"
    file.write_text(
        f"""
name = "json"
checkpoint = "state"
bootstrap_servers = "localhost:1"

[[source]]
name = "orders"
topics = ["orders"]
format = "{kind}"
schema = "{SCHEMA}"
{more}

[[sink]]
name = "table"
format = "parquet"
path = "table"
"""
    )
    pipeline = load(file)
    form = Format(pipeline, pipeline.sources[0])
    rows = [(number, value.encode(), None) for number, value in enumerate(values)]
    frame = form.parse(spark.createDataFrame(rows, "number INT, _value BINARY, _key BINARY").coalesce(1))
    kept = {row.number for row in frame.where(form.good()).select("number").collect()}
    return [number in kept for number in range(len(values))]


@pytest.mark.parametrize(("kind", "good"), [("json", '{"id":1}'), ("json", GOOD[2]), ("debezium", DEBEZIUM)])
def test_nothing_may_follow_an_object(spark: SparkSession, tmp_path: Path, kind: str, good: str) -> None:
    broken = [one.replace("{}", good) if "{{" not in one else one.format(good) for one in FOLLOWED]
    found = readable(spark, tmp_path, [good, f" {good}\r\n\t", *broken], kind=kind)
    assert found[:2] == [True, True]
    assert [value for value, is_good in zip(broken, found[2:], strict=True) if is_good] == []


def test_values_made_of_pieces_are_judged_as_by_another_parser(spark: SparkSession, tmp_path: Path) -> None:
    made = random.Random(7)
    values = [*GOOD, *("".join(made.choices(PIECES, k=made.randint(1, 8))) for _ in range(4000))]
    for good in GOOD:
        for _ in range(200):
            at = made.randint(0, len(good))
            values.append(good[:at] + made.choice(["", *PIECES]) + good[at + made.choice([0, 0, 1, 5]) :])
    file = tmp_path / "json.toml"
    found = readable(spark, tmp_path, values)
    pipeline = load(file)
    reasons = Reasons("json", Format(pipeline, pipeline.sources[0]).schema)
    expected = [reasons.in_json(value) is None for value in values]
    assert 150 < sum(expected) < len(values)
    differences = [value for value, ours, theirs in zip(values, found, expected, strict=True) if ours != theirs]
    assert differences == []


def test_options_hold_for_the_whole_value(spark: SparkSession, tmp_path: Path) -> None:
    values = ["{'id':1}", "{'id':1}}", '{"id":1} // one', '{"id":1} /* one */ {"id":2}', '/* one */ {"id":1}', "{id:1}"]
    assert readable(spark, tmp_path, values) == [True, False, False, False, False, False]
    more = 'options = {allowComments = "true", allowUnquotedFieldNames = "true"}'
    assert readable(spark, tmp_path, values, more=more) == [True, False, True, False, True, True]
