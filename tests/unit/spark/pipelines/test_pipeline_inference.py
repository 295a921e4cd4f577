"""`ottla pipeline init`: inferred schemas accept the samples, and the written pipeline is valid."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.spark.pipelines import Pipeline, load
from ottla.spark.pipelines.inference import case_text, guess, pipeline_text
from ottla.spark.pipelines.inference.text import name_of
from ottla.spark.pipelines.inference.types import column_ddl
from ottla.spark.pipelines.reasons import Reasons
from ottla.spark.pipelines.schemas import from_ddl
from ottla.testing.pipelines.cases import read_case

NO_REASON = "Spark's parser rejected the value: it does not match the schema"


def guessed(*values: Any) -> Any:
    return guess([one if isinstance(one, bytes | None) else json.dumps(one).encode() for one in values])


def ddl(*values: Any) -> str:
    return ", ".join(column_ddl(one) for one in guessed(*values).fields)


def rejected(found: Any, values: list[bytes]) -> list[str]:
    """The reasons for which a source with the written schema would reject values."""
    schema = from_ddl(", ".join(column_ddl(one) for one in found.fields))
    reasons = Reasons(found.format, schema, found.separator)
    return [reason for one in values if (reason := reasons.reason(one)) != NO_REASON]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([{"id": 1, "ok": True}, {"id": 2, "ok": False}], "id BIGINT NOT NULL, ok BOOLEAN NOT NULL"),
        ([{"id": 1}, {"id": None}], "id BIGINT"),
        ([{"id": 1}, {}], "id BIGINT"),
        ([{"x": 1}, {"x": 2.5}], "x DOUBLE NOT NULL"),
        ([{"x": 2**63}], "x DECIMAL(38, 0) NOT NULL"),
        ([{"x": 10**40}], "x STRING NOT NULL"),
        ([{"x": 1}, {"x": "1"}], "x STRING NOT NULL"),
        ([{"x": None}], "x STRING"),
        ([{"at": "2026-01-01T12:00:00Z"}, {"at": "2026-01-01 12:00:00.123+02:00"}], "at TIMESTAMP NOT NULL"),
        ([{"at": "2026-01-01"}], "at DATE NOT NULL"),
        ([{"at": "2026-01-01"}, {"at": "2026-01-01T12:00:00Z"}], "at STRING NOT NULL"),
        ([{"at": "2026-02-30"}], "at STRING NOT NULL"),
        ([{"at": "2026-01-01T12:00:00+23:00"}], "at STRING NOT NULL"),
        (
            [{"lines": [{"item": "a", "n": 1}, {"item": "b"}]}, {"lines": []}],
            "lines ARRAY<STRUCT<item: STRING NOT NULL, n: BIGINT>> NOT NULL",
        ),
        ([{"a": {"b": {"c": 1}}}], "a STRUCT<b: STRUCT<c: BIGINT NOT NULL> NOT NULL> NOT NULL"),
        ([{"a": []}], "a ARRAY<STRING> NOT NULL"),
        ([{"a": {}}], "a MAP<STRING, STRING> NOT NULL"),
        ([{"m": {f"key {number}": number}} for number in range(30)], "m MAP<STRING, BIGINT> NOT NULL"),
        ([{"a b": 1, "é": 2, "c`d": 3}], "`a b` BIGINT NOT NULL, `é` BIGINT NOT NULL, `c``d` BIGINT NOT NULL"),
        ([{"id": 1, "ID": 2}, {"id": 3}], "id BIGINT NOT NULL"),
        ([{"id": 1, "_topic": "x", "": 2, "a\nb": 3}], "id BIGINT NOT NULL"),
    ],
)
def test_json_schemas(values: list[Any], expected: str) -> None:
    assert ddl(*values) == expected


def test_notes_tell_what_is_open() -> None:
    values = [
        {"x": 1, "n": None, "e": [], "ts": 1_767_225_600_000, "s": {"v": 1}},
        {"x": "1", "ID": 1, "id": 2, "s": {"v": []}},
    ]
    assert guessed(*values).notes == {
        "x": "number or string in the sample, so it is kept as text",
        "n": "always null in the sample",
        "e": "always an empty array in the sample",
        "s.v": "array or number in the sample, so it is kept as text",
        "id": "left out: Spark cannot tell it from ID",
        "ts": "probably a time in milliseconds: use timestamp_millis(ts) in a SQL step",
    }


def test_formats() -> None:
    assert guessed({"id": 1}, b"broken").format == "json"
    assert guessed({"id": 1}, b"broken").others == 1
    assert guessed({"id": 1}, None).nulls == 1
    assert guessed(b"a line", b"another, with a comma").format == "text"
    assert guessed(b"\xff\x00", b"\x00").format == "bytes"
    assert guessed(b"\0\0\0\0\7\2\xff", b"\0\0\0\0\x09\4").registry_ids == (7, 9)
    assert guessed({}).format == "text"
    assert guessed(None).format == "bytes"


def test_csv() -> None:
    found = guessed(b'1;2.5;"a;b";2026-01-01;true', b"2;3;;2026-01-02;false")
    assert (found.format, found.separator, found.escape) == ("csv", ";", '"')
    assert ", ".join(map(column_ddl, found.fields)) == (
        "c1 BIGINT NOT NULL, c2 DOUBLE NOT NULL, c3 STRING, c4 DATE NOT NULL, c5 BOOLEAN NOT NULL"
    )
    assert guessed(b"007,a", b"008,b").format == "text"
    assert guessed(b"1\ta", b"2\tb").separator == "\t"


def test_the_event_time_and_the_key() -> None:
    values = [
        {"n": i // 2, "order_id": f"o{i}", "stored_at": "2026-01-01T00:00:00Z", "at": "2026-01-01T00:00:00Z"}
        for i in range(20)
    ]
    found = guessed(*values)
    assert (found.event_time, found.key, found.repeats) == ("at", "order_id", 0)
    assert guessed(*values, *values[:3]).repeats == 3
    assert guessed(*values, *values[:3]).key == "order_id"
    assert guessed(*values[:5]).key is None
    assert guessed(*({"x": number / 2, "at": None} for number in range(20))).key is None


JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**40), 10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.datetimes().map(lambda one: one.isoformat())
    | st.dates().map(str),
    lambda inside: st.lists(inside, max_size=3) | st.dictionaries(st.text("abAB. é`", max_size=3), inside, max_size=3),
    max_leaves=10,
)
OBJECTS = st.lists(st.dictionaries(st.text(max_size=4), JSON, max_size=4), min_size=1, max_size=8)


@given(OBJECTS)
def test_inferred_json_schemas_accept_the_samples(objects: list[Any]) -> None:
    values = [json.dumps(one).encode() for one in objects]
    found = guess(values)
    if found.format == "json":
        assert rejected(found, values) == []


CELLS = st.text("0123456789.-eE ", max_size=5) | st.sampled_from(["true", "false", "2026-01-01", "a b"])


@given(st.lists(st.lists(CELLS, min_size=3, max_size=3), min_size=2, max_size=8), st.sampled_from(",;\t|"))
def test_inferred_csv_schemas_accept_the_samples(rows: list[list[str]], separator: str) -> None:
    values = [separator.join(row).encode() for row in rows]
    found = guess(values)
    if found.format == "csv":
        assert rejected(found, [one for one in values if one.strip()]) == []


def written(tmp_path: Path, topic: str, values: list[bytes | None]) -> Pipeline:
    text = pipeline_text(topic, "localhost:9092", guess(values), about="3 of 7 records")
    assert all(len(line) <= 120 for line in text.splitlines() if line.startswith("#"))
    (tmp_path / "made.toml").write_text(text)
    return load(tmp_path / "made.toml")


@given(objects=OBJECTS, topic=st.from_regex(r"[a-zA-Z0-9._-]{1,20}", fullmatch=True))
def test_the_written_pipeline_is_valid(
    tmp_path_factory: pytest.TempPathFactory, objects: list[Any], topic: str
) -> None:
    values: list[bytes | None] = [json.dumps(one, ensure_ascii=False).encode("utf-8", "replace") for one in objects]
    found = written(tmp_path_factory.mktemp("written"), topic, values)
    assert found.sources[0].topics == [topic]
    if guess(values).fields:
        assert [one.name for one in from_ddl(found.sources[0].schema or "").fields] == [
            one.name for one in guess(values).fields
        ]


@pytest.mark.parametrize(
    "values",
    [
        [b"text"],
        [b"\xff"],
        [b"1,a", b"2,b"],
        [b'1\t"a"', b'2\t"b"'],
        [None],
        [b'{"id": 1}', None, b"broken"],
        [b"\0\0\0\0\1x"],
        [b'{"${HOME}": 1, "a\\\\b": 2}'],
        [json.dumps({"id": number}).encode() for number in [*range(20), 1]],
    ],
)
def test_every_format_is_valid(tmp_path: Path, values: list[bytes | None]) -> None:
    found = written(tmp_path, "a.topic", values)
    assert found.name == "a_topic"
    assert found.sources[0].format == guess(values).format


def test_repeats_are_removed_and_a_key_is_suggested(tmp_path: Path) -> None:
    values: list[bytes | None] = [json.dumps({"id": number}).encode() for number in range(20)]
    assert written(tmp_path, "orders", values).steps == []
    assert '# dedupe = ["id"]' in (tmp_path / "made.toml").read_text()
    (step,) = written(tmp_path, "orders", [*values, values[0]]).steps
    assert getattr(step, "keys", None) == ["id"]


def test_the_written_case_can_be_read(tmp_path: Path) -> None:
    values = [b'{"id": 1, "note": "it\'s"}', b"\xff", b'{"id": 2}', b'{"id": 3}', b'{"id": 4}']
    pipeline = written(tmp_path, "orders", list(values))
    file = tmp_path / "one.toml"
    file.write_text(case_text("orders", "orders", values, file="made.toml"))
    assert tomllib.loads(file.read_text())["expected"] == {"table": []}
    (batch,) = read_case(file, pipeline).batches
    assert batch == {"orders": [values[0].decode(), values[2].decode(), values[3].decode()]}


def test_names_fit_into_sql() -> None:
    assert [name_of(topic) for topic in ("Orders", "-", "Order", "a.b", "7up")] == [
        "Orders",
        "topic",
        "topic_Order",
        "a_b",
        "topic_7up",
    ]
