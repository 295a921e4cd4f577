"""What `ottla pipeline audit` knows from the declaration, without Spark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.spark.audit.report import AuditReport, Counts, PartitionAudit
from ottla.spark.pipelines import (
    ConsoleSink,
    Dedupe,
    FileSink,
    JdbcSink,
    Join,
    Pipeline,
    Source,
    Sql,
    TopicSink,
    Window,
)
from ottla.spark.pipelines.audit.declared import NotAuditable, check_fits, notes_of, since_of, starts_of, upstream_of
from ottla.spark.pipelines.audit.report import PipelineAudit, SinkAudit
from ottla.spark.pipelines.declaration import Sink

ORDERS = Source(name="orders", topics=["orders"], schema="id BIGINT")
USERS = Source(name="users", topics=["users"], schema="id BIGINT")
UNIQUE = Dedupe(name="unique", input="orders", keys=["id"], within="1 hour")
STEPS = [
    UNIQUE,
    Sql(name="large", sql="SELECT * FROM Unique WHERE total > 1"),
    Join(name="named", join="people", on=["id"]),
    Window(name="sums", window="1 hour", aggregate={"n": "count(*)"}),
    Sql(name="both", sql="SELECT o.id FROM orders o JOIN users ON o.id = users.id"),
]


@pytest.mark.parametrize(
    ("given", "sources", "steps"),
    [
        ("orders", ["orders"], []),
        ("unique", ["orders"], ["unique"]),
        ("large", ["orders"], ["unique", "large"]),
        ("sums", ["orders"], ["unique", "large", "named", "sums"]),
        (None, ["orders", "users"], ["both"]),
    ],
)
def test_what_a_sink_depends_on(given: str | None, sources: list[str], steps: list[str]) -> None:
    sink = FileSink(name="table", path="t", input=given)
    pipeline = Pipeline(name="p", checkpoint="c", sources=[ORDERS, USERS], steps=STEPS, sinks=[sink])
    found = upstream_of(pipeline, sink)
    assert [one.name for one in found.sources] == sources
    assert [one.name for one in found.steps] == steps
    assert found.dedupe == (UNIQUE if "unique" in steps else None)


@pytest.mark.parametrize(
    ("sink", "reason"),
    [
        (ConsoleSink(name="s"), "it keeps no rows"),
        (FileSink(name="s", path="t", format="csv", origin=True), "CSV files do not name their columns"),
        (FileSink(name="s", path="t", format="json"), "set origin = true"),
        (FileSink(name="s", path="t", origin=False), "set origin = true"),
        (TopicSink(name="s", topic="t"), "set origin = true"),
        (TopicSink(name="s", topic="t", origin=True, mode="update"), "with mode update, its rows change"),
        (JdbcSink(name="s", url="u", table="t"), "set origin = true"),
        (JdbcSink(name="s", url="u", table="t", origin=True, keys=["id"]), "later rows replace earlier ones"),
        (FileSink(name="s", path="t", format="json", origin=True), None),
        (FileSink(name="s", path="t"), None),
        (TopicSink(name="s", topic="t", origin=True), None),
    ],
)
def test_which_sinks_say_where_their_rows_are_from(sink: Sink, reason: str | None) -> None:
    if reason is None:
        check_fits(sink)
        return
    with pytest.raises(NotAuditable, match=reason):
        check_fits(sink)


def test_where_a_source_begins() -> None:
    assert (since_of(ORDERS, "orders", None), starts_of(ORDERS, "orders")) == (None, {})
    given = replace(ORDERS, starting_offsets={"orders": {"0": 23, "1": -2}})
    assert (since_of(given, "orders", None), starts_of(given, "orders")) == (None, {0: 23, 1: 0})
    timed = replace(ORDERS, starting_timestamp=5_000, starting_offsets="latest")
    assert [since_of(timed, "orders", one) for one in (None, 1_000, 9_000)] == [5_000, 5_000, 9_000]
    for begins in ("latest", "committed", {"orders": {"0": -1}}):
        open_end = replace(ORDERS, starting_offsets=begins)
        with pytest.raises(NotAuditable, match=r"source orders begins at .*use --since"):
            since_of(open_end, "orders", None)
        assert since_of(open_end, "orders", 7_000) == 7_000


def report(**counts: int) -> AuditReport:
    return AuditReport("orders", "sink table", "_offset", 0, (PartitionAudit(0, Counts(**counts)),))


def test_notes_say_what_the_audit_cannot_know() -> None:
    sink = FileSink(name="table", path="t", input="named")
    pipeline = Pipeline(name="p", checkpoint="c", sources=[ORDERS, USERS], steps=STEPS, sinks=[sink])

    def notes(**counts: int) -> list[str]:
        return list(notes_of(report(**counts), upstream_of(pipeline, sink)))

    assert notes(produced=5, arrived=5) == []
    assert [one[:16] for one in notes(produced=5, filtered=5)] == ["filtered records", "tables (people) "]
    assert notes(produced=5, lost=1)[-1].startswith("dedupe also drops events that are later than 1 hour")
    assert notes(produced=5, repeated=1)[-1].startswith("dedupe keeps repeats that are more than 1 hour apart")


def test_the_result_has_all_sinks() -> None:
    good, bad = SinkAudit("a", report(produced=3, arrived=3)), SinkAudit("b", report(produced=3, lost=1))
    found = PipelineAudit("p", (good,), {"c": "it keeps no rows"})
    assert found.ok
    assert str(found).splitlines()[-1] == "sink c was not audited: it keeps no rows"
    assert not PipelineAudit("p", (good, bad), {}).ok
    told: dict[str, Any] = PipelineAudit("p", (good, bad), {"c": "x"}).to_json()
    assert (told["ok"], told["not_audited"], [one["sink"] for one in told["audits"]]) == (False, {"c": "x"}, ["a", "b"])
