"""Rules and limits without Spark: their checks, how batches are judged, and what later runs know."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.spark.pipelines import DeadLetters, Expect, FileSink, Pipeline, Source, Sql
from ottla.spark.pipelines.checks.pipeline import check
from ottla.spark.pipelines.limits import ALL_OF, NOT_ALL, WINDOW, Counted, Watch, parse_limit
from ottla.spark.pipelines.loading import load
from ottla.spark.pipelines.progress import Board
from ottla.spark.pipelines.rule_counts import CountsError, exceeded, forget, save, sentence, stored_rules
from ottla.spark.pipelines.rules import OBSERVED, ROWS, counts_of, limits_of

ORDERS = Source(name="orders", topics=["orders"], schema="id BIGINT NOT NULL, total DOUBLE")
LARGE = Sql(name="large", sql="SELECT * FROM orders")


def made(*rules: Expect, **more: Any) -> Pipeline:
    given: dict[str, Any] = {
        "name": "orders",
        "checkpoint": "state",
        "bootstrap_servers": "localhost:9092",
        "sources": [ORDERS],
        "sinks": [FileSink(name="table", path="table")],
        "expects": rules,
    }
    return Pipeline(**{**given, **more})


def told(*rules: Expect, **more: Any) -> list[str]:
    return [one.message for one in check(made(*rules, **more))]


# ── Checks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_rule_in_toml_with_its_lines(tmp_path: Path) -> None:
    file = tmp_path / "orders.toml"
    file.write_text(
        """\
name = "orders"
checkpoint = "state"
bootstrap_servers = "localhost:9092"
[[source]]
name = "orders"
topics = ["orders"]
schema = "id BIGINT NOT NULL, total DOUBLE"
[[sink]]
name = "table"
format = "parquet"
path = "table"
[[expect]]
name = "positive"
that = "total >= 0"
otherwise = "drop"
at_most = "1%"
[dead_letters]
topic = "dead"
at_most = 100
"""
    )
    pipeline = load(file)
    assert pipeline.expects == [Expect(name="positive", that="total >= 0", otherwise="drop", at_most="1%")]
    assert {name: str(one) for name, one in limits_of(pipeline).items()} == {
        "positive": "1%",
        "dead-letters.orders": "100",
    }
    file.write_text(file.read_text().replace('"drop"', '"dorp"').replace('"1%"', '"one"').replace("= 100", '= "0.5"'))
    with pytest.raises(Exception, match=r"15: otherwise must be one of .* Did you mean drop") as caught:
        load(file)
    assert "19: at_most must be a number of rows or a percentage, such as 100 or \"1%\", not '0.5'" in str(caught.value)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        (Expect(name="a", that="x", at_most="200%"), "at_most must be a number of rows or a percentage"),
        (Expect(name="a", that="x", at_most=-1), "at_most must be a number of rows or a percentage"),
        (Expect(name="a", that="x", at_most=True), "at_most must be a whole number or a string, not true"),
        (Expect(name="a b", that="x"), "name must consist of letters, digits, _, . and -"),
        (Expect(name="dead-letters.orders", that="x"), "names that start with dead-letters. are reserved"),
        (Expect(name="a", that="x", input="oders"), "source or step oders does not exist. Did you mean orders?"),
        (Expect(name="a", that=""), "that is empty"),
        (Expect(name="a", that="x", otherwise="fail", at_most=1), "at_most has no meaning: remove at_most"),
        (Expect(name="a", that="x", otherwise="dead-letter"), "otherwise = dead-letter requires [dead_letters]"),
    ],
)
def test_what_is_wrong_with_a_rule(rule: Expect, message: str) -> None:
    (found,) = told(rule)
    assert message in found


def test_dead_letters_need_the_record() -> None:
    letters = DeadLetters(topic="dead")
    rule = Expect(name="a", that="x", otherwise="dead-letter")
    assert told(rule, dead_letters=letters) == []
    assert told(replace(rule, input="orders"), dead_letters=letters, steps=[LARGE]) == []
    (after_a_step,) = told(rule, dead_letters=letters, steps=[LARGE])
    assert 'the rows of step large no longer have their records: set input = "orders", or use' in after_a_step
    (skips,) = told(rule, dead_letters=letters, sources=[replace(ORDERS, on_error="skip")])
    assert "source orders has on_error = skip: remove on_error" in skips


def test_a_rule_must_be_before_a_sink() -> None:
    sinks = [FileSink(name="table", path="table", input="orders")]
    (found,) = told(Expect(name="a", that="x"), steps=[LARGE], sinks=sinks)
    assert found.startswith("no sink uses large, so the rule would never be checked")
    assert told(Expect(name="a", that="x", input="orders"), steps=[LARGE], sinks=sinks) == []
    missing = Sql(name="large", sql_file="nowhere.sql")
    (found,) = told(Expect(name="a", that="x"), steps=[missing])
    assert "nowhere.sql not found" in found


def test_names_of_rules_are_distinct() -> None:
    (found,) = told(Expect(name="a", that="x"), Expect(name="A", that="y"))
    assert found.startswith("the name A is already used")


# ── Limits ────────────────────────────────────────────────────────────────────────────────────────────────────────


def judged(limit: int | str | None, *batches: tuple[int, int]) -> tuple[Counted | None, Counted | None]:
    """What exceeded the limit during the run, and at its end; each batch has violations and rows."""
    watch = Watch(NOT_ALL if limit is None else parse_limit(limit))
    for violations, rows in batches:
        watch.add(Counted(rows, violations))
    during = watch.exceeded
    watch.end()
    return during, watch.exceeded


def test_a_count_is_of_the_run() -> None:
    assert judged(3, (1, 5), (2, 5)) == (None, None)
    assert judged(3, (1, 5), (2, 5), (1, 5)) == (Counted(15, 4), Counted(15, 4))
    assert judged(0, (1, 1)) == (Counted(1, 1), Counted(1, 1))


def test_a_percentage_is_of_a_large_batch_or_of_several_small_ones() -> None:
    # A large batch counts by itself, however good the rest was.
    assert judged("1%", (0, 1_000_000), (60, 5_000))[0] == Counted(5_000, 60)
    # One bad row of three does not stop a stream; too many of the last 1,000 do.
    assert judged("1%", (1, 3), *[(0, 100)] * 20) == (None, None)
    assert judged("1%", *[(0, 100)] * 50, *[(2, 100)] * 6)[0] == Counted(1_000, 12)
    assert judged("1%", *[(1, 10)] * 11)[0] == Counted(110, 11), "no more rows can bring it to 1 % of 1,000"


def test_the_end_of_a_run_is_judged_however_small() -> None:
    assert judged("1%", (1, 50)) == (None, Counted(50, 1))
    assert judged("2%", (1, 50)) == (None, None), "at most 2 %"
    assert judged("0%", (1, 5)) == (Counted(5, 1), Counted(5, 1))


def test_without_a_limit_not_all_records_may_be_broken() -> None:
    assert judged(None, (ALL_OF, ALL_OF)) == (None, Counted(ALL_OF, ALL_OF))
    assert judged(None, (ALL_OF - 1, ALL_OF - 1)) == (None, None), "too few to say"
    assert judged(None, (ALL_OF, ALL_OF + 1)) == (None, None)
    assert judged(None, *[(100, 100)] * 10)[0] == Counted(WINDOW, WINDOW)
    assert judged(None, (0, 0)) == (None, None)
    assert judged("100%", (2_000, 2_000)) == (None, None), "the limit that never applies"


def test_counts_from_observations() -> None:
    observed = {
        f"{OBSERVED}orders": {ROWS: 100, "positive": 3, "named": 0},
        f"{OBSERVED}large": {ROWS: None, "round": None},
        "of the user": {ROWS: 7, "positive": 7},
    }
    assert counts_of(observed) == {"positive": Counted(100, 3), "named": Counted(100, 0), "round": Counted(0, 0)}
    assert counts_of(None) == {}


# ── Later runs ────────────────────────────────────────────────────────────────────────────────────────────────────


def batch(number: int, rows: int, written: int = -1, **rules: int) -> dict[str, Any]:
    return {
        "batchId": number,
        "timestamp": "2023-11-14T22:13:20.000Z",
        "numInputRows": rows,
        "sink": {"numOutputRows": written},
        "observedMetrics": {f"{OBSERVED}orders": {ROWS: rows, **rules}} if rules else {},
    }


def stored(pipeline: Pipeline, directory: Path, *, positive: int, dead: int) -> Pipeline:
    """Save a run with one batch of 100 rows."""
    object.__setattr__(pipeline, "directory", directory)
    (directory / "state").mkdir(exist_ok=True)
    flows = ["table", "dead-letters.orders"]
    board = Board("orders", flows, dead_letters=flows[1:], limits=limits_of(pipeline))
    for flow in flows:
        board.started(flow, flow)
    board.progress("table", batch(0, 100, positive=positive))
    board.progress("dead-letters.orders", batch(0, 100, dead))
    board.judge_run()
    save(pipeline, board)
    return pipeline


def again(pipeline: Pipeline, **changed: Any) -> list[str]:
    """What a later run says, after a change of the declaration."""
    later = replace(pipeline, **changed)
    object.__setattr__(later, "directory", pipeline.directory)
    return [sentence(one, "orders.toml") for one in exceeded(later)]


POSITIVE = Expect(name="positive", that="total >= 0", at_most="1%")


def test_an_exceeded_limit_is_held_against_later_runs_until_something_changes(tmp_path: Path) -> None:
    pipeline = stored(made(POSITIVE, dead_letters=DeadLetters(topic="dead")), tmp_path, positive=3, dead=5)
    assert again(pipeline) == ["rule positive: 3 of 100 (3 %) rows of flow table broke it, at_most is 1%"]
    assert again(pipeline, trigger="5 seconds"), "the data are the same"
    assert again(pipeline, expects=[replace(POSITIVE, at_most="2.9%")])
    assert again(pipeline, expects=[replace(POSITIVE, at_most="3%")]) == []
    assert again(pipeline, expects=[replace(POSITIVE, at_most=None)]) == []
    assert again(pipeline, expects=[replace(POSITIVE, that="total > -1")]) == []
    assert again(pipeline, expects=[]) == []
    assert again(pipeline, steps=[LARGE]) == []
    assert again(pipeline, sources=[replace(ORDERS, require=["id > 0"])]) == []


def test_dead_letters_are_held_against_later_runs_too(tmp_path: Path) -> None:
    letters = DeadLetters(topic="dead", at_most=4)
    pipeline = stored(made(dead_letters=letters), tmp_path, positive=0, dead=5)
    (told,) = again(pipeline)
    assert told == "source orders: 5 of 100 (5 %) records became dead letters, at_most of [dead_letters] is 4"
    assert again(pipeline, dead_letters=replace(letters, at_most=5)) == []
    assert again(pipeline, dead_letters=replace(letters, at_most=None)) == [], "they were not all"
    pipeline = stored(made(dead_letters=DeadLetters(topic="dead")), tmp_path, positive=0, dead=100)
    (told,) = again(pipeline)
    assert told.startswith("source orders: all 100 records were broken. Does the schema match the data?")
    assert "`ottla pipeline replay orders.toml --dry-run`" in told
    assert again(pipeline, dead_letters=DeadLetters(topic="dead", at_most="100%")) == []
    assert again(pipeline, sources=[replace(ORDERS, schema="id STRING")]) == []
    assert again(pipeline, steps=[LARGE]), "steps do not decide which records are broken"


def test_nothing_exceeded_and_nothing_stored(tmp_path: Path) -> None:
    pipeline = stored(made(POSITIVE), tmp_path, positive=1, dead=5)
    assert again(pipeline) == []
    assert [(one.rule, one.rows, one.violations) for one in stored_rules(pipeline)] == [
        ("dead-letters.orders", 100, 5),
        ("positive", 100, 1),
    ]
    (tmp_path / "state" / "rules.json").unlink()
    assert stored_rules(pipeline) == []
    assert stored_rules(made(POSITIVE, checkpoint="s3a://bucket/state")) == []


def test_a_reset_flow_starts_without_its_counts(tmp_path: Path) -> None:
    pipeline = stored(made(POSITIVE, dead_letters=DeadLetters(topic="dead", at_most=1)), tmp_path, positive=9, dead=9)
    assert len(again(pipeline)) == 2
    forget(pipeline, ["table"])
    assert [one.split(":")[0] for one in again(pipeline)] == ["source orders"]
    forget(pipeline, ["table", "dead-letters.orders"])
    assert again(pipeline) == []


def test_damaged_counts_are_not_taken_for_good_ones(tmp_path: Path) -> None:
    pipeline = stored(made(POSITIVE), tmp_path, positive=9, dead=0)
    (tmp_path / "state" / "rules.json").write_text('{"rules": [{"rule": "pos')
    with pytest.raises(CountsError, match=r"rules\.json is damaged.*then delete it"):
        exceeded(pipeline)
