"""Serializers and deserializers: bytes, text, JSON, Avro, and any function.

A serializer is an object with `serialize(topic, value)`, or a function of the value; a deserializer one with
`deserialize(topic, data)`, or a function of the bytes. None stays None in both directions, without a call: it is a
record without a value (or key).

    Producer(value_serializer="json", key_serializer=str.encode)
    Consumer(value_deserializer=JsonDeserializer())
"""

from __future__ import annotations

import importlib
import io
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

from ottla.errors import ConfigError, OttlaError
from ottla.runtime.plugins import instance

Serialize = Callable[[str, Any], bytes | None]
Deserialize = Callable[[str, bytes], Any]


class SerializationError(OttlaError):
    """A value could not be serialized, or bytes could not be deserialized."""


@runtime_checkable
class Serializer(Protocol):
    """Serializes the keys or values of a topic."""

    def serialize(self, topic: str, value: Any) -> bytes | None: ...


@runtime_checkable
class Deserializer(Protocol):
    """Deserializes keys or values."""

    def deserialize(self, topic: str, data: bytes) -> Any: ...


class BytesSerializer:
    """Passes bytes on unchanged; also accepts objects with a buffer: bytearray, memoryview.

    >>> BytesSerializer().serialize("topic", bytearray(b"abc"))
    b'abc'
    """

    def serialize(self, topic: str, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, bytearray | memoryview):
            return bytes(value)
        raise SerializationError(
            f"bytes are required, not {type(value).__name__}: encode it, or set key_serializer or value_serializer"
            ' ("string" for text, "json" for JSON)'
        )


class BytesDeserializer:
    def deserialize(self, topic: str, data: bytes) -> bytes:
        return data


class StringSerializer:
    """Text in an encoding.

    >>> StringSerializer().serialize("topic", "é")
    b'\\xc3\\xa9'
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def serialize(self, topic: str, value: Any) -> bytes:
        if not isinstance(value, str):
            raise SerializationError(f"the string serializer takes str, not {type(value).__name__}")
        return value.encode(self.encoding)


class StringDeserializer:
    def __init__(self, encoding: str = "utf-8") -> None:
        self.encoding = encoding

    def deserialize(self, topic: str, data: bytes) -> str:
        return data.decode(self.encoding)


class JsonSerializer:
    """Compact JSON in UTF-8. Names are sorted, so that equal keys give equal bytes.

    >>> JsonSerializer().serialize("topic", {"b": 1, "a": [True, None]})
    b'{"a":[true,null],"b":1}'
    """

    def __init__(self, default: Callable[[Any], Any] | None = None) -> None:
        self._encoder = json.JSONEncoder(
            separators=(",", ":"), sort_keys=True, ensure_ascii=False, default=default, check_circular=True
        )

    def serialize(self, topic: str, value: Any) -> bytes:
        return self._encoder.encode(value).encode()


class JsonDeserializer:
    def deserialize(self, topic: str, data: bytes) -> Any:
        return json.loads(data)


class AvroSerializer:
    """Avro's binary encoding of a schema, without a container or a registry (needs ``pip install ottla[avro]``)."""

    def __init__(self, schema: Mapping[str, Any] | str) -> None:
        self._fastavro = _fastavro()
        self._schema = self._fastavro.parse_schema(_schema(schema))

    def serialize(self, topic: str, value: Any) -> bytes:
        out = io.BytesIO()
        self._fastavro.schemaless_writer(out, self._schema, value)
        return out.getvalue()


class AvroDeserializer:
    """The reverse of `AvroSerializer`; `reader_schema` resolves to another schema by Avro's rules."""

    def __init__(self, schema: Mapping[str, Any] | str, reader_schema: Mapping[str, Any] | str | None = None) -> None:
        self._fastavro = _fastavro()
        self._schema = self._fastavro.parse_schema(_schema(schema))
        self._reader = None if reader_schema is None else self._fastavro.parse_schema(_schema(reader_schema))

    def deserialize(self, topic: str, data: bytes) -> Any:
        return self._fastavro.schemaless_reader(io.BytesIO(data), self._schema, self._reader)


def _schema(schema: Mapping[str, Any] | str) -> Any:
    return json.loads(schema) if isinstance(schema, str) else dict(schema)


def _fastavro() -> Any:
    try:
        return importlib.import_module("fastavro")
    except ImportError:
        raise OttlaError("Avro needs fastavro: pip install 'ottla[avro]'") from None


_SERIALIZERS: dict[str, type] = {"bytes": BytesSerializer, "string": StringSerializer, "json": JsonSerializer}
_DESERIALIZERS: dict[str, type] = {
    "bytes": BytesDeserializer,
    "string": StringDeserializer,
    "json": JsonDeserializer,
}


_EXAMPLES = {
    "yaml": {"serialize": "lambda value: yaml.safe_dump(value).encode()", "deserialize": "yaml.safe_load"},
    "": {"serialize": "lambda value: str(value).encode()", "deserialize": "lambda data: int(data)"},
}
_ELSEWHERE = {
    **dict.fromkeys(("str", "text", "unicode", "utf-8", "utf8", "utf_8"), "string"),
    **dict.fromkeys(("bytearray", "raw"), "bytes"),
    "kafkaavro": "avro",
    **dict.fromkeys(("json-schema", "json_schema", "kafkajsonschema"), "jsonschema"),
    **dict.fromkeys(("proto", "kafkaprotobuf"), "protobuf"),
}
"""Our names for other names, and for Java classes without Serializer or Deserializer at the end."""
_CLASSES = {
    "avro": {
        "serialize": "AvroSerializer(schema), or RegistryAvroSerializer(url, schema) with a schema registry",
        "deserialize": "AvroDeserializer(schema), or RegistryAvroDeserializer(url) with a schema registry",
    },
    "jsonschema": {
        "serialize": "RegistryJsonSerializer(url, schema) with a schema registry",
        "deserialize": "RegistryJsonDeserializer(url) with a schema registry",
    },
    "protobuf": {
        "serialize": "RegistryProtobufSerializer(url, message_type) with a schema registry",
        "deserialize": "RegistryProtobufDeserializer(url, message_type) with a schema registry",
    },
}
"""What exists for formats that need more than a name."""
_JAVA = ("org.apache.kafka.", "io.confluent.")
_END = re.compile("(de)?serializer$")


def serializer(value: Any, name: str) -> Serialize | None:
    """The function of `key.serializer` or `value.serializer`; None for unchanged bytes."""
    return _function(value, name, _SERIALIZERS, "serialize")


def deserializer(value: Any, name: str) -> Deserialize | None:
    """The function of `key.deserializer` or `value.deserializer`; None for unchanged bytes."""
    return _function(value, name, _DESERIALIZERS, "deserialize")


def _instead(value: str, known: Mapping[str, type], method: str) -> str:
    """What to write instead of a name that does not exist."""
    short = _END.sub("", value.rpartition(".")[2].lower())
    here = _ELSEWHERE.get(short, short)
    if here in known:
        return f'Write "{here}".'
    if here in _CLASSES:
        return f"From ottla.serializers, use {_CLASSES[here][method]}."
    example = _EXAMPLES.get(here, _EXAMPLES[""])[method]
    return f"Use {', '.join(known)}, a function such as {example}, or the import path of one (package.module.function)."


def _function(value: Any, name: str, known: Mapping[str, type], method: str) -> Callable[[str, Any], Any] | None:
    if isinstance(value, str) and value.lower() in known:
        found = known[value.lower()]()
    elif isinstance(value, str) and (not {".", ":"} & set(value) or value.startswith(_JAVA)):
        raise ConfigError(f"{name}: there is no {method}r named {value!r}. {_instead(value, known, method)}")
    elif isinstance(value, type) and not hasattr(value, "serialize") and not hasattr(value, "deserialize"):
        found = value  # a class that converts its argument, such as str or a dataclass
    else:
        found = instance(value, name)
    if found is None or isinstance(found, known["bytes"]):
        return None
    if hasattr(found, method):
        return getattr(found, method)  # type: ignore[no-any-return]
    if callable(found):
        return lambda _, given: found(given)
    raise ConfigError(f"{name}: {found!r} is neither a {method.capitalize()}r nor a function.")
