"""Reading, printing and comparing schemas."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.registry.errors import InvalidSchema
from ottla.registry.schemas import parse


def avro_problems(reader: Any, writer: Any) -> list[str]:
    return parse("AVRO", json.dumps(reader)).problems_reading(parse("AVRO", json.dumps(writer)))


def json_problems(reader: Any, writer: Any) -> list[str]:
    return parse("JSON", json.dumps(reader)).problems_reading(parse("JSON", json.dumps(writer)))


def proto_problems(reader: str, writer: str) -> list[str]:
    head = 'syntax = "proto3"; '
    return parse("PROTOBUF", head + reader).problems_reading(parse("PROTOBUF", head + writer))


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "R",
        "fields": [{"name": name, "type": kind, **rest} for name, kind, rest in fields],
    } | more


AVRO = [
    # reader, writer, kinds of problems
    ("long", "int", []),
    ("int", "long", ["TYPE_MISMATCH"]),
    ("bytes", "string", []),
    (["null", "int"], "int", []),
    ("int", ["null", "int"], ["TYPE_MISMATCH"]),
    (["null", "long"], ["null", "int"], []),
    (["null", "int"], ["null", "string"], ["MISSING_UNION_BRANCH"]),
    ({"type": "array", "items": "long"}, {"type": "array", "items": "int"}, []),
    ({"type": "map", "values": "int"}, {"type": "map", "values": "string"}, ["TYPE_MISMATCH"]),
    (record(("a", "int", {})), record(("a", "int", {}), ("b", "int", {})), []),
    (record(("a", "int", {}), ("b", "int", {})), record(("a", "int", {})), ["READER_FIELD_MISSING_DEFAULT_VALUE"]),
    (record(("a", "int", {}), ("b", "int", {"default": 1})), record(("a", "int", {})), []),
    (record(("b", "int", {"aliases": ["a"]})), record(("a", "int", {})), []),
    (record(name="S", aliases=["R"]), record(), []),
    (record(name="S"), record(), ["NAME_MISMATCH"]),
    (record(namespace="x"), record(namespace="y"), []),
    (
        {"type": "enum", "name": "E", "symbols": ["A"]},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        ["MISSING_ENUM_SYMBOLS"],
    ),
    (
        {"type": "enum", "name": "E", "symbols": ["A"], "default": "A"},
        {"type": "enum", "name": "E", "symbols": ["A", "B"]},
        [],
    ),
    ({"type": "fixed", "name": "F", "size": 4}, {"type": "fixed", "name": "F", "size": 8}, ["FIXED_SIZE_MISMATCH"]),
    (record(("next", ["null", "R"], {})), record(("next", ["null", "R"], {})), []),
]


@pytest.mark.parametrize(("reader", "writer", "expected"), AVRO)
def test_avro_resolution(reader: Any, writer: Any, expected: list[str]) -> None:
    found = avro_problems(reader, writer)
    assert [one.split("'")[1] for one in found] == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("string", '"string"'),
        ('{"type":"string"}', '"string"'),
        ('{"type":"long","logicalType":"timestamp-millis"}', '{"type":"long","logicalType":"timestamp-millis"}'),
        (
            '{"fields":[{"type":{"type":"int"},"name":"x","order":"ascending"}],"name":"n.A","type":"record"}',
            '{"type":"record","name":"A","namespace":"n","fields":[{"name":"x","type":"int"}]}',
        ),
        (
            '{"type":"record","name":"A","namespace":"n","fields":[{"name":"next","type":["null","n.A"]}]}',
            '{"type":"record","name":"A","namespace":"n","fields":[{"name":"next","type":["null","A"]}]}',
        ),
    ],
)
def test_avro_has_one_form(text: str, expected: str) -> None:
    assert parse("AVRO", text).canonical() == expected
    assert parse("AVRO", expected).canonical() == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"type":"recrod","name":"A"}', "undefined name: 'recrod'"),
        ('{"type":"record","fields":[]}', "record has no name"),
        ('{"type":"record","name":"A","fields":[{"name":"x"}]}', "field x has no type"),
        ('{"type":"record","name":"A","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}', "x twice"),
        ('{"type":"enum","name":"E","symbols":["A","A"]}', "symbol A twice"),
        ('["int","int"]', "a union contains int twice"),
        ('{"type":"fixed","name":"F"}', "no size"),
        ('{"type":"record","name":"1A","fields":[]}', "is not a name"),
        ("{", "not JSON"),
    ],
)
def test_wrong_avro_says_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse("AVRO", text)


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "additionalProperties": False}


INT, TEXT = {"type": "integer"}, {"type": "string"}
JSON = [
    # reader (new), writer (old), kinds of problems
    (closed(a=INT, b=TEXT), closed(a=INT), []),
    (closed(a=INT), closed(a=INT, b=TEXT), ["PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL"]),
    ({"type": "object", "properties": {"a": INT}}, {"type": "object"}, ["PROPERTY_ADDED_TO_OPEN_CONTENT_MODEL"]),
    ({"type": "object"}, {"type": "object", "properties": {"a": INT}}, []),
    (closed(a=INT) | {"required": ["a"]}, closed(), ["REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"]),
    (closed(a={**INT, "default": 1}) | {"required": ["a"]}, closed(), []),
    (closed(a=INT) | {"required": ["a"]}, closed(a=INT), ["REQUIRED_ATTRIBUTE_ADDED"]),
    (closed(a=INT), closed(a=INT) | {"required": ["a"]}, []),
    (closed(a={"type": "number"}), closed(a=INT), []),
    (closed(a=INT), closed(a={"type": "number"}), ["TYPE_NARROWED"]),
    (closed(a=TEXT), closed(a=INT), ["TYPE_CHANGED"]),
    (closed(), {"type": "object"}, ["ADDITIONAL_PROPERTIES_REMOVED"]),
    ({"type": "string", "maxLength": 5}, TEXT, ["MAX_LENGTH_ADDED"]),
    ({"type": "string", "maxLength": 5}, {"type": "string", "maxLength": 3}, []),
    ({"type": "integer", "minimum": 5}, {"type": "integer", "minimum": 3}, ["MINIMUM_INCREASED"]),
    ({"enum": ["a", "b"]}, {"enum": ["a"]}, []),
    ({"enum": ["a"]}, {"enum": ["a", "b"]}, ["ENUM_ARRAY_NARROWED"]),
    ({"oneOf": [INT, TEXT]}, INT, []),
    (INT, {"oneOf": [INT, TEXT]}, ["TYPE_CHANGED"]),
    ({"oneOf": [INT, TEXT, {"type": "null"}]}, {"oneOf": [TEXT, INT]}, []),
    ({"oneOf": [INT]}, {"oneOf": [INT, TEXT]}, ["SUM_TYPE_NARROWED"]),
    ({"type": ["integer", "null"]}, INT, []),
    ({"type": "array", "items": TEXT}, {"type": "array", "items": INT}, ["TYPE_CHANGED"]),
    ({}, INT, []),
    (INT, {}, ["TYPE_CHANGED"]),
    (
        {"$ref": "#/definitions/a", "definitions": {"a": closed(next={"$ref": "#/definitions/a"})}},
        {"$ref": "#/definitions/a", "definitions": {"a": closed(next={"$ref": "#/definitions/a"})}},
        [],
    ),
]


@pytest.mark.parametrize(("reader", "writer", "expected"), JSON)
def test_json_schema_changes(reader: Any, writer: Any, expected: list[str]) -> None:
    assert [one.split("'")[1] for one in json_problems(reader, writer)] == expected


PROTO = [
    # reader (new), writer (old), kinds of problems
    ("message A { int32 a = 1; string b = 2; }", "message A { int32 a = 1; }", []),
    ("message A { int32 a = 1; }", "message A { int32 a = 1; string b = 2; }", []),
    ("message A { int32 b = 1; }", "message A { int32 a = 1; }", []),
    ("message A { int64 a = 1; }", "message A { int32 a = 1; }", []),
    ("message A { bytes a = 1; }", "message A { string a = 1; }", []),
    ("message A { string a = 1; }", "message A { int32 a = 1; }", ["FIELD_SCALAR_KIND_CHANGED"]),
    ("message A { B a = 1; message B {} }", "message A { int32 a = 1; message B {} }", ["FIELD_KIND_CHANGED"]),
    ("message A { repeated int32 a = 1; }", "message A { int32 a = 1; }", ["FIELD_NUMERIC_LABEL_CHANGED"]),
    ("message A { repeated string a = 1; }", "message A { string a = 1; }", []),
    ("message A {}", "message A {} message B {}", ["MESSAGE_REMOVED"]),
    ("message A {} message B {}", "message A {}", []),
    ("package p; message A {}", "package q; message A {}", ["PACKAGE_CHANGED"]),
    (
        "message A { oneof o { int32 a = 1; } }",
        "message A { oneof o { int32 a = 1; string b = 2; } }",
        ["ONEOF_FIELD_REMOVED"],
    ),
    (
        "message A { oneof o { int32 a = 1; string b = 2; } }",
        "message A { int32 a = 1; string b = 2; }",
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
    ("message A { oneof o { int32 a = 1; } }", "message A { int32 a = 1; }", []),
    (
        "message A { map<string, int32> a = 1; }",
        "message A { map<string, string> a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    ("message A { optional int32 a = 1; }", "message A { int32 a = 1; }", []),
]


@pytest.mark.parametrize(("reader", "writer", "expected"), PROTO)
def test_protobuf_changes(reader: str, writer: str, expected: list[str]) -> None:
    assert [one.split("'")[1] for one in proto_problems(reader, writer)] == expected


LONG_PROTO = """
// An order.
syntax = "proto3";
package shop.v1;
import public "google/protobuf/timestamp.proto";
option java_package = "com.shop"; /* for Java */
option (own.option).part = { a: 1 b: "}" };
message Order {
  option deprecated = true;
  int64 id = 1 [(own.field) = -5, json_name = "ID"];
  optional string note = 2;
  repeated Line lines = 3 [packed = false];
  map<string, Line> by_name = 4;
  google.protobuf.Timestamp at = 0x5;
  oneof payment { Card card = 6; string cash = 7; }
  State state = 8;
  reserved 10, 12 to 14, 2000 to max;
  reserved "old", 'older';
  message Line { string sku = 1; sint32 message = 2; }
  message Card { string option = 1; }
  enum State { option allow_alias = true; NEW = 0; FRESH = 0; DONE = -1 [deprecated = true]; reserved 5 to max; }
}
service Shop {
  rpc Get (Order) returns (stream Order) { option deprecated = true; }
  rpc Put(stream .shop.v1.Order) returns (Order); }
"""
OLD_PROTO = """
message A {
  required int32 a = 1;
  optional string b = 2 [default = "x\\n\\"é"];
  repeated group G = 3 { optional int32 c = 1; }
  extensions 100 to 199;
}
extend A { optional int32 z = 100; }
enum E { X = 1; }
"""


@pytest.mark.parametrize("text", [LONG_PROTO, OLD_PROTO, 'edition = "2023"; message A { int32 a = 1; }'])
def test_a_proto_text_survives_printing_and_the_binary_form(text: str) -> None:
    first = parse("PROTOBUF", text)
    printed = first.canonical()
    again = parse("PROTOBUF", printed)
    assert again.canonical() == printed
    assert again.formatted("serialized") == first.formatted("serialized")
    assert parse("PROTOBUF", first.formatted("serialized") or "").canonical() == printed


def test_a_name_that_would_mean_another_type_stays_full() -> None:
    text = (
        'syntax = "proto3"; package p; message B { int32 x = 1; } message A { .p.B b = 1; message B { string y = 1; } }'
    )
    again = parse("PROTOBUF", parse("PROTOBUF", text).canonical())
    assert again.formatted("serialized") == parse("PROTOBUF", text).formatted("serialized")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "declares no message"),
        ('syntax = "proto4";', "unknown syntax"),
        ('syntax = "proto3";\nmessage A { int32 a = 1 }', "line 2: expected ';', found '}'"),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "duplicate field number"),
        ('syntax = "proto3"; message A { Foo a = 1; }', "Foo"),
        ('syntax = "proto3"; message A { required int32 a = 1; }', "required is not allowed"),
        ("message A { int32 a = 1; }", "expected optional, required or repeated"),
        (
            'syntax = "proto3"; import "x.proto"; message A {}',
            'the import .x.proto. is missing: give it in "references"',
        ),
        ("message A { option", "expected"),
        ("Zm9v", "neither a .proto text nor"),
        ("message A " + "{ message A " * 100, "nested too deeply"),
    ],
)
def test_wrong_proto_texts_say_what_is_wrong(text: str, reason: str) -> None:
    with pytest.raises(InvalidSchema, match=reason):
        parse("PROTOBUF", text)
