"""Sample records of pipeline tests become what a producer would send."""

from __future__ import annotations

import io
import json
from dataclasses import replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from fastavro import schemaless_reader

from ottla.spark.pipelines.declaration import FileSink, Pipeline, Source
from ottla.testing.pipelines.records import Encoded, RecordError, encoded


def encode(given: Any, source: Source | None = None) -> Encoded:
    source = source or Source(name="orders", topics=["orders", "more"], schema="id BIGINT")
    sink = FileSink(name="table", path="out")
    return encoded(given, source, Pipeline(name="p", checkpoint="c", sources=[source], sinks=[sink]))


def test_a_table_becomes_json_and_names_with_underscore_describe_the_record() -> None:
    given = {
        "id": 1,
        "at": datetime(2026, 1, 1, 12, tzinfo=UTC),
        "lines": [{"day": date(2026, 1, 2)}],
        "_key": "a",
        "_timestamp": datetime(2026, 1, 1, tzinfo=UTC),
        "_headers": {"trace": "7"},
        "_partition": 2,
        "_topic": "more",
    }
    found = encode(given)
    assert json.loads(found.value or b"") == {
        "id": 1,
        "at": "2026-01-01T12:00:00+00:00",
        "lines": [{"day": "2026-01-02"}],
    }
    assert found == Encoded("more", b"a", found.value, 1_767_225_600_000, (("trace", b"7"),), 2)


@pytest.mark.parametrize(
    ("given", "value"),
    [
        ("not JSON", b"not JSON"),
        (b"\xff\x00", b"\xff\x00"),
        (None, None),
        ({"_key": "a"}, None),
        ({"_key": "a", "_value": "text"}, b"text"),
        ({"_value_base64": "/wA="}, b"\xff\x00"),
        ({"_value": {"id": 1}}, b'{"id": 1}'),
        ({}, b"{}"),
    ],
)
def test_values_can_be_given_as_they_are(given: Any, value: bytes | None) -> None:
    assert encode(given).value == value


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"id": 1, "_kye": "a"}, "_kye is unknown. Did you mean _key?"),
        ({"id": 1, "_value": "x"}, "both _value and fields (id)"),
        ({"_value": "x", "_value_base64": "eA=="}, "both _value and _value_base64"),
        ({"_value_base64": "é"}, "_value_base64 is not base64"),
        ({"id": 1, "_topic": "other"}, "source orders does not read topic other"),
        ({"id": 1, "_timestamp": "noon"}, "_timestamp is not a time such as"),
        ({"id": 1, "_timestamp": -1}, "_timestamp is not a time such as"),
        ({"id": 1, "_headers": ["x"]}, "_headers must be a table"),
        ({"id": 1, "_partition": "x"}, "_partition must be a whole number"),
        ({"id": object()}, "has no JSON form"),
    ],
)
def test_mistakes_are_told(given: Any, message: str) -> None:
    with pytest.raises(RecordError) as caught:
        encode(given)
    assert message in str(caught.value)


def test_a_pattern_needs_the_topic() -> None:
    source = Source(name="orders", pattern=r"orders-\w+", schema="id BIGINT")
    assert encode({"id": 1, "_topic": "orders-eu"}, source).topic == "orders-eu"
    with pytest.raises(RecordError, match="_topic is missing"):
        encode({"id": 1}, source)


def test_csv_has_the_columns_of_the_schema() -> None:
    source = Source(
        name="o", topics=["o"], format="csv", schema="id INT, name STRING, ok BOOLEAN, day DATE", options={"sep": ";"}
    )
    assert (
        encode({"name": "a;b", "id": 1, "ok": True, "day": date(2026, 1, 2)}, source).value
        == b'1;"a;b";true;2026-01-02'
    )
    assert encode({"id": 2}, source).value == b"2;;;"
    with pytest.raises(RecordError, match=r"no column nmae\. Did you mean name\?"):
        encode({"nmae": "x"}, source)


def test_avro_has_the_schema_of_the_file(tmp_path: Path) -> None:
    schema = {"type": "record", "name": "T", "fields": [{"name": "id", "type": "long"}]}
    (tmp_path / "t.avsc").write_text(json.dumps(schema))
    source = Source(name="o", topics=["o"], format="avro", schema_file=str(tmp_path / "t.avsc"))
    assert schemaless_reader(io.BytesIO(encode({"id": 5}, source).value or b""), schema, None) == {"id": 5}
    registered = replace(source, confluent_header=True, schema_id=7)
    assert encode({"id": 5}, registered).value == b"\0\0\0\0\7\x0a"
    with pytest.raises(RecordError, match="does not match the Avro schema"):
        encode({"id": "five"}, source)
    with pytest.raises(RecordError, match=r"no field idd\. Did you mean id\?"):
        encode({"idd": 5}, source)
