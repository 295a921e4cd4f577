"""Schemas without Spark: DDL, Spark's JSON and Avro; and the reasons for broken records."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from ottla.spark.pipelines.avro import AvroDecoder
from ottla.spark.pipelines.formats import missing
from ottla.spark.pipelines.reasons import Reasons
from ottla.spark.pipelines.schemas import Schema, SchemaError, from_avro, from_ddl, from_file, from_spark_json
from ottla.spark.pipelines.times import interval, millis


@pytest.mark.parametrize(
    ("text", "ddl", "required"),
    [
        ("id BIGINT NOT NULL, total DOUBLE", "`id` bigint, `total` double", ["id"]),
        ("id long, x integer, y dec(10,2)", "`id` bigint, `x` int, `y` decimal(10, 2)", []),
        ("a: array<string>, m: map<string, int>", "`a` array<string>, `m` map<string, int>", []),
        ("`odd ``name` string COMMENT 'it''s, fine'", "`odd ``name` string", []),
        ("s STRUCT<a: INT NOT NULL, b: STRUCT<c: DATE>>", "`s` struct<`a`: int, `b`: struct<`c`: date>>", []),
        ("struct<a: int, b: string>", "`a` int, `b` string", []),
        ("struct INT, map STRING", "`struct` int, `map` string", []),
        ("d INTERVAL DAY TO SECOND,\n t TIMESTAMP_LTZ", "`d` interval, `t` timestamp", []),
        ("1st VARCHAR(5) NOT NULL COMMENT 'x'", "`1st` varchar(5)", ["1st"]),
    ],
)
def test_ddl(text: str, ddl: str, required: list[str]) -> None:
    schema = from_ddl(text)
    assert schema.ddl() == ddl
    assert [one.name for one in schema.fields if one.required] == required
    assert from_ddl(schema.ddl()).ddl() == ddl


def test_required_fields_inside_of_others() -> None:
    schema = from_ddl("a INT NOT NULL, s STRUCT<b: INT NOT NULL>, l ARRAY<STRUCT<c: INT NOT NULL>>")
    assert list(missing(schema.fields, "p")) == [
        "p.`a` IS NULL",
        "p.`s` IS NOT NULL AND p.`s`.`b` IS NULL",
        "coalesce(exists(p.`l`, x0 -> (x0 IS NOT NULL AND x0.`c` IS NULL)), false)",
    ]


def test_files(tmp_path: Path) -> None:
    spark_json = {
        "type": "struct",
        "fields": [
            {"name": "id", "type": "long", "nullable": False, "metadata": {}},
            {"name": "l", "type": {"type": "array", "elementType": "string", "containsNull": True}, "nullable": True},
            {"name": "m", "type": {"type": "map", "keyType": "string", "valueType": "decimal(5,1)"}, "nullable": True},
            {"name": "s", "type": {"type": "struct", "fields": [{"name": "x", "type": "date", "nullable": True}]}},
        ],
    }
    (tmp_path / "a.json").write_text(json.dumps(spark_json))
    (tmp_path / "a.ddl").write_text("id BIGINT NOT NULL,\n l ARRAY<STRING>\n")
    (tmp_path / "bad.json").write_text("{")
    (tmp_path / "odd.avsc").write_text('{"type": "record", "name": "x"}')
    ddl = "`id` bigint, `l` array<string>, `m` map<string, decimal(5, 1)>, `s` struct<`x`: date>"
    assert from_file(tmp_path / "a.json").ddl() == ddl
    assert from_file(tmp_path / "a.json").fields[0].required
    assert from_file(tmp_path / "a.ddl").ddl() == "`id` bigint, `l` array<string>"
    with pytest.raises(SchemaError, match="invalid JSON"):
        from_file(tmp_path / "bad.json")
    with pytest.raises(SchemaError, match="missing or invalid entry: 'fields'"):
        from_file(tmp_path / "odd.avsc")
    with pytest.raises(SchemaError, match=r"df\.schema\.json\(\)"):
        from_spark_json([])


TRADE: dict[str, Any] = {
    "type": "record",
    "name": "Trade",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["BUY", "SELL"]}},
        {"name": "price", "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "size", "type": ["int", "long"]},
        {"name": "tags", "type": {"type": "map", "values": "string"}},
        {
            "name": "legs",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Leg",
                    "fields": [{"name": "side", "type": "shop.Side"}, {"name": "n", "type": ["null", "int"]}],
                },
            },
        },
    ],
}


def test_avro_schemas() -> None:
    schema = from_avro(TRADE)
    assert schema.ddl() == (
        "`id` bigint, `side` string, `price` decimal(9, 2), `at` timestamp, `size` bigint, `tags` map<string, string>, "
        "`legs` array<struct<`side`: string, `n`: int>>"
    )
    assert [one.name for one in schema.fields if not one.required] == ["price"]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (["int", "string"], "field x is a union of int, string: a column can have only one type"),
        ({"type": "int", "logicalType": "time-millis"}, "logical type time-millis, which Spark does not support"),
        ("Other", "field x has the unknown type Other"),
    ],
)
def test_avro_that_has_no_columns(kind: Any, message: str) -> None:
    with pytest.raises(SchemaError, match=message):
        from_avro({"type": "record", "name": "r", "fields": [{"name": "x", "type": kind}]})
    with pytest.raises(SchemaError, match="must be a record"):
        from_avro({"type": "string"})


def test_avro_values() -> None:
    schema = {"type": "record", "name": "r", "fields": [*TRADE["fields"][:1], *TRADE["fields"][2:4]]}
    at = datetime(2024, 5, 1, tzinfo=UTC)
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"id": 1, "price": Decimal("2.50"), "at": at})
    good = out.getvalue()
    kind = pa.struct([("id", pa.int64()), ("price", pa.decimal128(9, 2)), ("at", pa.timestamp("us", "UTC"))])
    values = [good, good[:-1], good + b"xy", None, b""]
    found = AvroDecoder(json.dumps(schema), kind).column(pa.array(values, pa.binary())).to_pylist()
    assert found[0] == {"value": {"id": 1, "price": Decimal("2.50"), "at": at}, "error": None}
    assert [one["error"] for one in found[1:]] == [
        f"the Avro value ends after {len(good) - 1} bytes: it is truncated or has another schema",
        "2 extra bytes after the Avro record: the value may have another schema",
        "the record has no value",
        "the Avro value ends after 0 bytes: it is truncated or has another schema",
    ]
    # A record that decodes but does not match the columns is broken; others are not affected.
    small = pa.struct([("id", pa.int8()), ("price", pa.decimal128(9, 2)), ("at", pa.timestamp("us", "UTC"))])
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, {"id": 1000, "price": None, "at": at})
    rows = AvroDecoder(json.dumps(schema), small).column(pa.array([good, out.getvalue()], pa.binary())).to_pylist()
    assert rows[0]["value"]["id"] == 1
    assert rows[1]["error"].startswith("the record does not match the columns")


def test_avro_values_with_the_id_of_a_registry() -> None:
    """A value of another schema is rejected, even if it happens to decode: it would be in the wrong columns."""

    def record(*fields: dict[str, Any]) -> str:
        return json.dumps({"type": "record", "name": "r", "fields": fields})

    def encoded(number: int, schema: str, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, json.loads(schema), value)
        return b"\x00" + number.to_bytes(4) + out.getvalue()

    name, city = {"name": "name", "type": "string"}, {"name": "city", "type": "string", "default": "-"}
    ours, swapped, old = record(name, city), record(city, name), record(name)
    kind = pa.struct([("name", pa.string()), ("city", pa.string())])
    decoder = AvroDecoder(ours, kind, {7: ours})
    good = encoded(7, ours, {"name": "Ann", "city": "Oslo"})
    other = encoded(9, swapped, {"name": "Bob", "city": "Rome"})
    assert decoder.one(good) == ({"name": "Ann", "city": "Oslo"}, None)
    advice = "add the schema with this id to writer_schemas of the source"
    assert decoder.one(other) == (None, f"schema id 9, expected 7: {advice}")
    missing = "the value has no schema registry header (a zero byte and the schema id in four bytes): it"
    assert decoder.one(good[5:]) == (None, f"{missing} begins with the byte 0x06")
    assert decoder.one(b"\x00\x00") == (None, f"{missing} has 2 bytes")
    # Declared schemas are converted by name; new fields get their default.
    more = AvroDecoder(ours, kind, {7: ours, 9: swapped, 3: old})
    assert more.one(other) == ({"name": "Bob", "city": "Rome"}, None)
    assert more.one(encoded(3, old, {"name": "Eve"})) == ({"name": "Eve", "city": "-"}, None)
    assert more.one(encoded(8, old, {"name": "Eve"})) == (None, f"schema id 8, expected 3 or 7 or 9: {advice}")
    assert (
        AvroDecoder(old, kind, {7: old, 3: record(city)}).one(encoded(3, record(city), {"city": "Rome"}))[1] is not None
    )


ORDERS = from_ddl(
    "id BIGINT NOT NULL, small TINYINT, ok BOOLEAN, total DECIMAL(9,2), at TIMESTAMP, raw BINARY, "
    "s STRUCT<a: INT NOT NULL>, l ARRAY<INT>, m MAP<STRING, INT>, text STRING"
)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ('{"id": 1, "id" 2}', "malformed JSON at line 1 column 16 (Expecting ':' delimiter), near '2}'"),
        ("{", "malformed JSON at line 1 column 2 (Expecting property name enclosed in double quotes), near 'the end'"),
        ("[" * 100_000, "malformed JSON: nested too deeply"),
        ("null", "the value is a JSON null, not an object"),
        ("true", "the value is a JSON boolean, not an object"),
        ('"x"', "the value is a JSON string, not an object"),
        ("5", "the value is a JSON number, not an object"),
        ("{}", "field id is missing"),
        ('{"id": true}', "field id is not a whole number: true"),
        ('{"id": 9223372036854775808}', "field id is out of the range of BIGINT: 9223372036854775808"),
        ('{"id": 1, "small": 128}', "field small is out of the range of TINYINT: 128"),
        ('{"id": 1, "ok": "yes"}', 'field ok is not true or false: "yes"'),
        ('{"id": 1, "total": {}}', "field total is not a number: {}"),
        ('{"id": 1, "at": []}', "field at is not a timestamp: []"),
        ('{"id": 1, "raw": 5}', "field raw is not base64 text: 5"),
        ('{"id": 1, "s": {"a": null}}', "field s.a is null"),
        ('{"id": 1, "s": []}', "field s is not an object: []"),
        ('{"id": 1, "l": [1, "x"]}', 'field l[1] is not a whole number: "x"'),
        ('{"id": 1, "l": {}}', "field l is not an array: {}"),
        ('{"id": 1, "m": {"k": "v"}}', 'field m.k is not a whole number: "v"'),
        ('{"id": 1, "m": 1}', "field m is not an object: 1"),
        ('{"ok": 1, "id": "x"}', 'field id is not a whole number: "x"; field ok is not true or false: 1'),
        ('{"id": 1, "text": {"any": "thing"}}', "Spark's parser rejected the value: it does not match the schema"),
        (json.dumps({"id": "x" * 100}), f'field id is not a whole number: "{"x" * 38}…'),
    ],
)
def test_reasons_for_json(value: str, reason: str) -> None:
    assert Reasons("json", ORDERS).reason(value.encode()) == reason


def test_many_reasons_are_cut() -> None:
    schema = from_ddl(", ".join(f"c{number} INT NOT NULL" for number in range(9)))
    assert Reasons("json", schema).reason(b"{}").endswith("field c4 is missing; and 4 more")


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("1", "the value has 1 fields, the schema has 3"),
        (";a;", "field n is missing"),
        ("1.5;a;2024-05-01", "field n is not a whole number: 1.5"),
        ("1;a;soon", 'field at is not a valid date: "soon"'),
        ('1;"a;b', "malformed CSV: unexpected end of data"),
        ("1;a;\n2;b;", "the value has 2 lines instead of one"),
        (" ", "the value is empty"),
    ],
)
def test_reasons_for_csv(value: str, reason: str) -> None:
    schema = from_ddl("n INT NOT NULL, word STRING, at DATE")
    assert Reasons("csv", schema, ";").reason(value.encode()) == reason


def test_reasons_of_conditions_and_bytes() -> None:
    reasons = Reasons("json", ORDERS, require=("total >= 0", "id > 1"))
    assert reasons.reason(b'{"id": 1}', [0, 1]) == "condition is false: total >= 0; condition is false: id > 1"
    assert reasons.reason(b"{}", [1]) == "field id is missing"
    assert reasons.reason(b"\xff{}") == "the value is not UTF-8 text: byte 0 is 0xff"
    assert reasons.reason(None) == "the record has no value"
    column = reasons.column(pa.array([b"{}", None]), pa.array([[], None], pa.list_(pa.int32())))
    assert column.to_pylist() == ["field id is missing", "the record has no value"]
    assert Reasons("bytes", None, require=("value <> ''",)).reason(b"\xff", [0]) == "condition is false: value <> ''"


@pytest.mark.parametrize(
    ("text", "spark", "ms"),
    [
        ("10 seconds", "10 seconds", 10_000),
        ("5m", "5 minutes", 300_000),
        ("500 ms", "500 milliseconds", 500),
        (" 1 Hour ", "1 hours", 3_600_000),
        ("2 days", "2 days", 172_800_000),
        ("1 week", "1 weeks", 604_800_000),
    ],
)
def test_times(text: str, spark: str, ms: int) -> None:
    assert (interval(text), millis(text)) == (spark, ms)


def test_no_time() -> None:
    with pytest.raises(ValueError, match="must be a duration such as 10 seconds, 5 minutes or 1 hour, not '5 moons'"):
        interval("5 moons")


def test_columns_by_name() -> None:
    assert Schema(ORDERS.fields).column("ID") == ORDERS.fields[0]
    assert ORDERS.column("none") is None
