"""What sources with a registry decode and refuse, without Spark."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from ottla.clients.registry.client import RegistryUnreachable
from ottla.registry.values import Schema
from ottla.serializers import RegistryAvroSerializer, RegistryJsonSerializer, RegistryProtobufSerializer
from ottla.spark.pipelines import Source
from ottla.spark.pipelines.registry import RegistryDecoder, columns, latest
from ottla.spark.pipelines.schemas import SchemaError, from_ddl
from registry.http import call
from registry.test_serializers import messages


def avro(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


ID = {"name": "id", "type": "long"}
NOTE = {"name": "note", "type": "string", "default": "-"}
TOTAL = {"name": "total", "type": "double", "default": 0.0}


def decoder(source: Source, reader: Schema | None = None) -> RegistryDecoder:
    found = columns(source) if source.format != "json" else from_ddl(source.schema or "")
    return RegistryDecoder(
        source, found, pa.null(), reader or (latest(source).schema if source.format != "json" else None)
    )


def test_avro_versions_mix_and_a_new_one_is_picked_up(url: str, subject: str) -> None:
    first = RegistryAvroSerializer(url, avro(ID)).serialize(subject, {"id": 1})
    second = RegistryAvroSerializer(url, avro(ID, NOTE)).serialize(subject, {"id": 2, "note": "b"})
    source = Source(name="orders", topics=[subject], format="avro", registry=url)
    assert columns(source).names == ["id", "note"]
    found = decoder(source)
    assert found.one(first) == ({"id": 1, "note": "-"}, None)
    assert found.one(second) == ({"id": 2, "note": "b"}, None)
    third = RegistryAvroSerializer(url, avro(ID, NOTE, TOTAL)).serialize(subject, {"id": 3, "note": "c", "total": 1.5})
    assert found.one(third) == ({"id": 3, "note": "c"}, None)

    call(url, "PUT", f"/config/{subject}-value", {"compatibility": "NONE"})
    text = avro({"name": "id", "type": "string"})
    fourth = RegistryAvroSerializer(url, text).serialize(subject, {"id": "x"})
    reason = found.one(fourth)[1] or ""
    assert f"schema id {int.from_bytes(fourth[1:5])} is not compatible with the columns of the source" in reason
    assert "TYPE_MISMATCH" in reason


def test_values_that_cannot_be_decoded_say_why(url: str, subject: str) -> None:
    good = RegistryAvroSerializer(url, avro(ID)).serialize(subject, {"id": 1})
    found = decoder(Source(name="orders", topics=[subject], format="avro", registry=url))
    assert found.one(None)[1] == "the record has no value"
    assert "no schema registry header" in (found.one(b"{}")[1] or "")
    assert found.one(b"\0\0\x0f\x42\x3f\0")[1] == "schema id 999999 is unknown to the registry"
    assert "extra bytes" in (found.one(good + b"x")[1] or "")
    other = RegistryJsonSerializer(url, {"type": "object"}).serialize(f"{subject}-json", {})
    assert "is a schema of type JSON, not AVRO" in (found.one(other)[1] or "")


def test_a_registry_that_does_not_answer_makes_no_dead_letters(url: str, subject: str) -> None:
    RegistryAvroSerializer(url, avro(ID)).serialize(subject, {"id": 1})
    source = Source(name="orders", topics=[subject], format="avro", registry=url)
    away = Source(name="orders", topics=[subject], format="avro", registry="http://127.0.0.1:9")
    found = RegistryDecoder(away, columns(source), pa.null(), latest(source).schema)
    with pytest.raises(RegistryUnreachable, match="does not answer"):
        found.one(b"\0\0\0\0\x01\0")
    with pytest.raises(SchemaError, match=r"does not answer: .*\. Start it, or check its address"):
        columns(away)
    with pytest.raises(SchemaError, match="subject none-value of the registry: Subject 'none-value' not found: send a"):
        columns(Source(name="orders", topics=["none"], format="avro", registry=url))


def test_json_values_have_the_declared_columns(url: str, subject: str) -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    value = {"id": 7, "at": "2024-05-01T10:00:00Z", "price": 1.10, "tags": ["a"], "more": 1}
    data = RegistryJsonSerializer(url, schema).serialize(subject, value)
    ddl = "id BIGINT NOT NULL, at TIMESTAMP, price DECIMAL(9,2), tags ARRAY<STRING>, note STRING"
    found = decoder(Source(name="orders", topics=[subject], format="json", registry=url, schema=ddl))
    record, error = found.one(data)
    assert error is None
    assert (record["id"], str(record["price"]), record["tags"], record["note"]) == (7, "1.1", ["a"], None)
    assert record["at"] == datetime(2024, 5, 1, 10, tzinfo=UTC)
    assert found.one(data[:5] + b"{}")[1] == "field id is missing"
    assert "malformed JSON" in (found.one(data[:5] + b"{")[1] or "")


def test_protobuf_values_have_the_columns_of_the_message(url: str, subject: str) -> None:
    order, line = messages()
    source = Source(name="orders", topics=[subject], format="protobuf", registry=url, message="shop.Order")
    serializer = RegistryProtobufSerializer(url, order)
    data = serializer.serialize(subject, order(id=7, to={"city": "Oslo"}, at={"seconds": 5}))
    assert columns(source).ddl() == "`id` bigint, `to` struct<`city`: string>, `at` timestamp"
    found = decoder(source)
    record = {"id": 7, "to": {"city": "Oslo"}, "at": datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)}
    assert found.one(data) == (record, None)
    assert found.one(serializer.serialize(subject, order()))[0] == {"id": 0, "to": None, "at": None}
    other = RegistryProtobufSerializer(url, line).serialize(subject, line(sku="x"))
    assert found.one(other)[1] == "the value is a shop.Order.Line, not a shop.Order"
    assert "the value is not a shop.Order" in (found.one(data[:-1])[1] or "")
    with pytest.raises(SchemaError, match=r"no message Ordr: it has shop.Unused, shop.Order, shop.Order.Line"):
        columns(Source(name="orders", topics=[subject], format="protobuf", registry=url, message="Ordr"))


def test_a_subject_of_another_type_is_refused_before_the_start(url: str, subject: str) -> None:
    RegistryJsonSerializer(url, json.dumps({"type": "object"})).serialize(subject, {})
    with pytest.raises(SchemaError, match="has schemas of type JSON, not AVRO"):
        columns(Source(name="orders", topics=[subject], format="avro", registry=url))
