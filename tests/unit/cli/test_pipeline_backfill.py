"""The options of ``ottla pipeline backfill``; tests/spark runs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import main
from ottla.cli.pipeline.backfill import _as_json, _lines
from ottla.spark.pipelines import JdbcSink, Pipeline, Source
from ottla.spark.pipelines.backfill.plan import NotPossible, Plan, Range, check_sink
from ottla.spark.pipelines.backfill.run import Backfilled
from ottla.spark.pipelines.loading import load

TEXT = """\
name = "orders"
checkpoint = "state"
bootstrap_servers = "localhost:1"
[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT"
[[step]]
name = "unique"
dedupe = ["id"]
within = "1 hour"
[[sink]]
name = "files"
format = "parquet"
path = "table"
[[sink]]
name = "base"
format = "jdbc"
url = "jdbc:x:y"
table = "t"
origin = true
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "orders.toml").write_text(TEXT)
    return tmp_path / "orders.toml"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--from", "2026-11-08", "--to", "2026-11-01"], "--to must be after --from"),
        (["--from", "2026-11-08", "--sink", "filles"], "the pipeline has no sink filles. Did you mean files?"),
        (["--from", "soon"], "'soon' is not a time"),
        ([], "the following arguments are required: --from"),
    ],
)
def test_wrong_options_are_told(
    file: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = main(["pipeline", "backfill", str(file), *options])
    except SystemExit as end:
        code = end.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_sinks_that_cannot_replace_rows_are_refused(file: Path) -> None:
    pipeline = load(file)
    files, base = pipeline.sinks
    with pytest.raises(NotPossible, match=r"sink files: it cannot replace rows\. Set another path or topic"):
        check_sink(pipeline, files)
    with pytest.raises(NotPossible, match="sink base: step unique keeps state"):
        check_sink(pipeline, base)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"keys": ["id"], "mode": "update"}, "with mode update, its rows are results of all records"),
        ({}, "its rows do not say from which record they are"),
        ({"keys": ["id"]}, "it has keys and no sequence, so an old row would replace a newer one"),
        ({"keys": ["id"], "sequence": "ts", "delete_when": "x < 0"}, "a row that delete_when has deleted leaves noth"),
        ({"keys": ["id"], "sequence": "ts"}, None),
        ({"origin": True}, None),
    ],
)
def test_what_would_not_be_exact_is_refused(keys: dict[str, Any], message: str | None) -> None:
    sink = JdbcSink(name="base", url="jdbc:x:y", table="t", **keys)
    source = Source(name="orders", topics=["orders"], schema="id BIGINT")
    pipeline = Pipeline(name="p", checkpoint="c", bootstrap_servers="x:1", sources=[source], sinks=[sink])
    if message is None:
        check_sink(pipeline, sink)
        return
    with pytest.raises(NotPossible, match=message):
        check_sink(pipeline, sink)


def test_the_result_names_offsets_and_rows() -> None:
    plan = Plan("base", (Range("orders", 0, 5, 15),), ("orders-0: the pipeline itself writes the rest",))
    assert _lines(Backfilled(plan, 9, 1), dry_run=True) == [
        "base: 9 rows would be written, 1 broken record left out",
        "  TOPIC   PARTITION  FROM OFFSET  TO OFFSET  OFFSETS\n  orders          0            5         15       10",
        "  note: orders-0: the pipeline itself writes the rest",
    ]
    found = _as_json(Backfilled(plan, 9, 0), dry_run=False)
    assert found["ranges"] == [{"topic": "orders", "partition": 0, "from": 5, "to": 15}]
    assert (found["written"], found["rows"]) == (True, 9)
