"""Serializers and deserializers: named, classes, instances, functions."""

from __future__ import annotations

import inspect
import re
import sys
from typing import Any

import pytest

import ottla.serializers
from ottla.clients import serializers
from ottla.clients.serializers import (
    JsonDeserializer,
    JsonSerializer,
    SerializationError,
    StringDeserializer,
    StringSerializer,
)
from ottla.errors import ConfigError, OttlaError


class Doubling:
    def serialize(self, topic: str, value: Any) -> bytes:
        return f"{topic}:{value * 2}".encode()

    def deserialize(self, topic: str, data: bytes) -> Any:
        return data[: len(data) // 2]


@pytest.mark.parametrize(
    ("given", "value", "data"),
    [
        ("string", "é", b"\xc3\xa9"),
        (StringSerializer("latin-1"), "é", b"\xe9"),
        ("JSON", {"b": [1, None], "a": "ü"}, '{"a":"ü","b":[1,null]}'.encode()),
        (str.encode, "x", b"x"),
        (lambda value: None, "x", None),
        (Doubling, 4, b"t:8"),
        (Doubling(), 4, b"t:8"),
        ("ottla.clients.serializers.StringSerializer", "x", b"x"),
    ],
)
def test_serializers(given: Any, value: Any, data: bytes | None) -> None:
    serialize = serializers.serializer(given, "value.serializer")
    assert serialize is not None
    assert serialize("t", value) == data


@pytest.mark.parametrize("given", [None, "bytes", serializers.BytesSerializer, serializers.BytesSerializer()])
def test_bytes_need_no_serializer(given: Any) -> None:
    assert serializers.serializer(given, "value.serializer") is None


@pytest.mark.parametrize(
    ("given", "data", "value"),
    [
        ("string", b"\xc3\xa9", "é"),
        (StringDeserializer("latin-1"), b"\xe9", "é"),
        (JsonDeserializer(), b'{"a": 1}', {"a": 1}),
        (bytes.decode, b"x", "x"),
        (int, b"17", 17),
        (Doubling, b"abcd", b"ab"),
    ],
)
def test_deserializers(given: Any, data: bytes, value: Any) -> None:
    deserialize = serializers.deserializer(given, "value.deserializer")
    assert deserialize is not None
    assert deserialize("t", data) == value
    assert serializers.deserializer("bytes", "value.deserializer") is None


def test_invalid_serializers_are_rejected() -> None:
    with pytest.raises(ConfigError, match="neither a Serializer nor a function"):
        serializers.serializer(5, "value.serializer")
    with pytest.raises(ConfigError, match="neither a Deserializer nor a function"):
        serializers.deserializer(5, "value.deserializer")
    with pytest.raises(ConfigError, match="no serializer named 'text'"):
        serializers.serializer("text", "value.serializer")


@pytest.mark.parametrize(
    ("given", "instead"),
    [
        ("str", 'Write "string".'),
        ("utf-8", 'Write "string".'),
        ("org.apache.kafka.common.serialization.StringSerializer", 'Write "string".'),
        ("org.apache.kafka.common.serialization.ByteArrayDeserializer", 'Write "bytes".'),
        ("avro", "AvroX(schema), or RegistryAvroX("),
        ("io.confluent.kafka.serializers.KafkaAvroSerializer", "RegistryAvroX("),
        ("json-schema", "RegistryJsonX("),
        ("protobuf", "RegistryProtobufX("),
        ("yaml", "yaml.safe_"),
        ("pickle", "Use bytes, string, json, a function such as lambda"),
    ],
)
def test_names_of_others_say_what_exists(given: str, instead: str) -> None:
    for end, method in (("Serializer", serializers.serializer), ("Deserializer", serializers.deserializer)):
        with pytest.raises(ConfigError, match=re.escape(instead.replace("X", end))) as caught:
            method(given, "value.serializer")
        for name, arguments in re.findall(r"(\w+Serializer|\w+Deserializer)\((.*?)\)", str(caught.value)):
            needed = inspect.signature(getattr(ottla.serializers, name)).bind(*arguments.split(", "))
            assert needed.args, "the class takes these arguments"
        assert "module.utf" not in str(caught.value)


def test_wrong_types_say_what_to_do() -> None:
    with pytest.raises(SerializationError, match=r"bytes are required, not str: encode it, or set .*value_serializer"):
        serializers.BytesSerializer().serialize("t", "text")
    with pytest.raises(SerializationError, match="takes str, not int"):
        StringSerializer().serialize("t", 5)
    assert JsonSerializer(default=str).serialize("t", {1}) == b'"{1}"'


def test_avro() -> None:
    pytest.importorskip("fastavro")
    schema = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
    data = serializers.AvroSerializer(schema).serialize("t", {"id": 7})
    assert data == b"\x0e"
    newer = {**schema, "fields": [*schema["fields"], {"name": "note", "type": "string", "default": "-"}]}
    assert serializers.AvroDeserializer(schema).deserialize("t", data) == {"id": 7}
    assert serializers.AvroDeserializer(schema, newer).deserialize("t", data) == {"id": 7, "note": "-"}


def test_avro_says_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(OttlaError, match=r"pip install 'ottla\[avro\]'"):
        serializers.AvroSerializer("{}")
