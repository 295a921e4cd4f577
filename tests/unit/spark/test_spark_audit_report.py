"""The report of an audit, without Spark."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import pytest

from ottla.charts import Line, Series, bar_chart, bucket_width, line_chart
from ottla.spark.audit.positions import Bounds, read_offset_log, with_positions
from ottla.spark.audit.report import COUNTS, AuditReport, Bucket, Counts, Delay, Example, PartitionAudit
from ottla.types import TopicPartition

AT = 1_763_254_800_000
SVG = "{http://www.w3.org/2000/svg}"


def report(*counts: Counts, examples: Sequence[Example] = (), **more: object) -> AuditReport:
    partitions = tuple(PartitionAudit(number, one, 0, 100) for number, one in enumerate(counts))
    buckets = tuple(Bucket(AT + number * 1000, one) for number, one in enumerate(counts))
    return AuditReport(
        "orders",
        "table t",
        "_offset",
        AT,
        partitions,
        buckets,
        1000,
        tuple(examples),
        **more,  # type: ignore[arg-type]
    )


def test_a_clean_run_is_ok() -> None:
    clean = report(
        Counts(produced=12, arrived=7, duplicates=1, dead=1, pending=1, filtered=2, expired=5, unknown=2, outside=3)
    )
    assert clean.ok
    assert clean.findings == {}
    left = "1 duplicates dropped, 1 in dead letters, 1 pending, 2 filtered"
    assert clean.verdict == f"OK: 12 produced, 7 arrived ({left}), nothing lost, nothing repeated"


@pytest.mark.parametrize("name", ["lost", "repeated", "aborted", "unkeyed", "out_of_order", "late"])
def test_what_is_wrong_makes_it_not_ok(name: str) -> None:
    found = report(Counts(produced=5, arrived=5), Counts(**{"produced": 1, name: 1}))
    assert not found.ok
    assert found.findings == {name: 1}
    assert found.verdict.startswith("NOT OK: 1 ")


def test_the_text_has_what_matters() -> None:
    example = Example("lost", 1, 17, 0, AT, "k", "line\none " + "x" * 100)
    found = report(
        Counts(produced=1000, arrived=1000),
        Counts(produced=5, arrived=4, lost=1),
        examples=[example],
        delay=Delay(80, 2500, 95_000),
        late_after=5000,
        notes=("mind this",),
    )
    lines = str(found).splitlines()
    assert lines[2].split() == ["PARTITION", "OFFSETS", "PRODUCED", "ARRIVED", "LOST", "REPEATED", "LATE"]
    assert lines[5].split() == ["all", "1,005", "1,004", "1", "0", "0"]
    assert "half within 80 ms, 95 % within 2.5 s, the last after 1.6 min, late after 5 s" in str(found)
    assert "line\N{MIDDLE DOT}one" in str(found)
    assert "note: mind this" in lines
    assert lines[-1] == "NOT OK: 1 lost (of 1,005 produced)"


def test_json_has_everything() -> None:
    told = json.loads(json.dumps(report(Counts(produced=2, lost=2), examples=[Example("lost", 0, 1)]).to_json()))
    assert told["ok"] is False
    assert told["total"] == dict.fromkeys(COUNTS, 0) | {"produced": 2, "lost": 2}
    assert told["partitions"][0] | {"partition": 0, "end": 100, "lost": 2} == told["partitions"][0]
    assert told["examples"][0]["offset"] == 1


def test_the_chart_is_a_picture_of_the_counts() -> None:
    found = report(Counts(produced=10, arrived=8, lost=2), Counts(produced=4, arrived=4, repeated=1), Counts())
    picture = ET.fromstring(found.to_svg())
    bars = [one.get("class") for one in picture.iter(f"{SVG}rect")]
    assert bars.count("arrived") == 3  # two bars and the legend
    assert bars.count("lost") == 2
    assert bars.count("repeated") == 2
    assert bars.count("hit") == 3
    assert "prefers-color-scheme: dark" in found.to_svg()


def test_charts_of_nothing_and_of_odd_names() -> None:
    empty = bar_chart(
        title="<a> & b",
        subtitle="",
        is_good=True,
        starts=[],
        width_ms=100,
        stacked=[],
        outline=Series("p", "p", []),
        findings=[],
    )
    assert "".join(ET.fromstring(empty).itertext()).count("<a> & b") == 2
    ET.fromstring(line_chart(title="t", subtitle="s", lines=[], unit="records"))
    one = line_chart(title="t", subtitle="s", lines=[Line("a", [(AT, 5), (AT + 1, 3)])], unit="records")
    assert [path.get("class") for path in ET.fromstring(one).iter(f"{SVG}path")].count("line l0") == 1


def test_buckets_are_wide_enough_for_any_time() -> None:
    for length in (0, 1, 59_000, 3_600_000, 86_400_000, 400 * 86_400_000, 50 * 365 * 86_400_000):
        width = bucket_width(AT, AT + length)
        assert (AT + length) // width - AT // width < 60 or width % 86_400_000 == 0
        assert length / width < 61


def test_offsets_of_a_checkpoint() -> None:
    sources = ['{"orders":{"0":23,"1":5},"users":{"0":7}}', "-", '{"orders":{"0":20}}', '{"logOffset":3}', "noise"]
    text = "\n".join(["v1", '{"batchWatermarkMs":0}', *sources])
    assert read_offset_log(text) == {
        TopicPartition("orders", 0): 20,
        TopicPartition("orders", 1): 5,
        TopicPartition("users", 0): 7,
    }
    known = with_positions([Bounds(0, 3, 3, 9), Bounds(1, 4, 4, 9)], {0: 8})
    assert [one.position for one in known] == [8, 4]
