"""Broken schemas are refused with a reason. Others have one form, and read what they wrote."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.registry.errors import InvalidSchema
from ottla.registry.schemas import parse

SEEDS = {
    "AVRO": [
        {
            "type": "record",
            "name": "A",
            "namespace": "n",
            "fields": [
                {"name": "x", "type": ["null", "int"], "default": None},
                {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["A", "B"], "default": "A"}},
                {"name": "m", "type": {"type": "map", "values": {"type": "array", "items": "n.A"}}},
                {"name": "f", "type": {"type": "fixed", "name": "F", "size": 4, "aliases": ["G"]}},
            ],
        },
    ],
    "JSON": [
        {
            "$id": "http://x/y",
            "$defs": {
                "a": {
                    "type": ["object", "null"],
                    "patternProperties": {"^x": {"type": "integer", "minimum": 1}},
                    "dependencies": {"a": ["b"]},
                }
            },
            "allOf": [{"$ref": "#/$defs/a"}],
            "properties": {"b": {"oneOf": [{"const": 1}, {"type": "array", "items": [{"enum": ["x"]}]}]}},
            "not": {"required": ["z"]},
        },
    ],
}
VALUES = [
    None, True, 0, -1, 1.5, "", "x", [], {}, "int", "integer", ["null"], ["string", "null"], {"type": "string"},
    {"$ref": "#"}, {"$ref": "#/$defs/b"}, [{}], {"a": {}}, 10**30, {"type": "array", "items": "int"},
]  # fmt: skip
KEYS = [
    "type",
    "items",
    "properties",
    "required",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "enum",
    "const",
    "$ref",
    "additionalProperties",
    "patternProperties",
    "dependencies",
    "$defs",
    "minimum",
    "multipleOf",
    "maxLength",
    "prefixItems",
    "contains",
    "unevaluatedProperties",
    "default",
    "name",
    "fields",
    "symbols",
    "size",
    "values",
    "aliases",
    "namespace",
    "doc",
    "logicalType",
    "$id",
    "$schema",
    "$anchor",
]


def places(part: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(part, dict | list):
        for key in part if isinstance(part, dict) else range(len(part)):
            yield from places(part[key], (*path, key))


def changed(schema: Any, source: random.Random) -> Any:
    schema = json.loads(json.dumps(schema))
    for _ in range(source.randint(1, 3)):
        *around, last = source.choice([path for path in places(schema) if path] or [("type",)])
        inner = schema
        for key in around:
            inner = inner[key]
        value = json.loads(json.dumps(source.choice(VALUES)))
        if isinstance(inner, dict) and source.random() < 0.3:
            inner[source.choice(KEYS)] = value
        elif source.random() < 0.2 and (isinstance(inner, list) or last in inner):
            del inner[last]
        else:
            inner[last] = value
    return schema


@pytest.mark.parametrize("kind", list(SEEDS))
def test_changed_schemas_are_refused_or_sound(kind: str) -> None:
    source = random.Random(7)
    sound = 0
    for _ in range(1500):
        seed = source.choice(SEEDS[kind])
        text = json.dumps(changed(seed, source))
        try:
            found = parse(kind, text)
        except InvalidSchema:
            continue
        printed = found.canonical()
        again = parse(kind, printed)
        assert again.canonical() == printed, text
        assert again.problems_reading(found) == [], text
        found.problems_reading(parse(kind, json.dumps(seed)))
        parse(kind, json.dumps(seed)).problems_reading(found)
        sound += 1
    assert sound > 200
