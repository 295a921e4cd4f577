"""Values with schemas of a registry: which columns they have, and how workers decode them.

The columns come from the latest version of the subject when the pipeline starts. A value may have any version: its
schema is asked for by its id, when a worker first sees it. What cannot be converted to the columns is broken.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ottla.clients.registry.client import RegistryClient, RegistryUnreachable
from ottla.clients.registry.frames import NoFrame, decode_indexes, unframed
from ottla.clients.registry.serializers import message_indexes, parsed_avro
from ottla.errors import OttlaError
from ottla.registry.errors import InvalidSchema, RegistryError
from ottla.registry.schemas import parse
from ottla.registry.values import AVRO, JSON, PROTOBUF, Version
from ottla.registry.values import Schema as Text
from ottla.spark.pipelines.avro import AvroDecoder, structs
from ottla.spark.pipelines.declaration import Source
from ottla.spark.pipelines.reasons import Reasons
from ottla.spark.pipelines.schemas import Field, Schema, SchemaError, SchemaUnreachable, Type, from_avro

if TYPE_CHECKING:
    import pyarrow as pa

TYPES = {"avro": AVRO, "json": JSON, "protobuf": PROTOBUF}
_UNKNOWN_SUBJECT, _UNKNOWN_ID = 40401, 40403
_SCALARS = {
    "INT32": "int", "SINT32": "int", "SFIXED32": "int", "INT64": "bigint", "SINT64": "bigint", "SFIXED64": "bigint",
    "UINT32": "bigint", "FIXED32": "bigint", "FLOAT": "float", "DOUBLE": "double", "BOOL": "boolean",
    "STRING": "string", "BYTES": "binary", "ENUM": "string",
}  # fmt: skip
#: What decodes the values of each schema id: a worker process keeps it from one micro-batch to the next.
_DECODERS: dict[Any, dict[int, Any]] = {}
_TIMESTAMP = "google.protobuf.Timestamp"


def subject_of(source: Source) -> str:
    """The subject of a source: declared, or that of its only topic."""
    return source.subject or f"{next(iter(source.topics), '')}-value"


def latest(source: Source) -> Version:
    """The latest version of the subject of a source, or why there is none."""
    subject = subject_of(source)
    client = RegistryClient(source.registry or "")
    try:
        found = client.latest(subject)
    except RegistryError as error:
        advice = ": send a record with a schema first, or set subject" if error.code == _UNKNOWN_SUBJECT else ""
        raise SchemaError(f"subject {subject} of the registry: {error.message.removesuffix('.')}{advice}") from None
    except RegistryUnreachable as error:
        raise SchemaUnreachable(f"{error}. Start it, or check its address") from None
    except OttlaError as error:
        raise SchemaError(str(error)) from None
    finally:
        client.close()
    wanted = TYPES[source.format]
    if found.schema.type != wanted:
        raise SchemaError(f"subject {subject} of the registry has schemas of type {found.schema.type}, not {wanted}")
    return found


def columns(source: Source) -> Schema:
    """The columns of a source with Avro or Protobuf values."""
    found = latest(source).schema
    client = RegistryClient(source.registry or "")
    try:
        if source.format == "avro":
            return from_avro(json.loads(parse(AVRO, found.text, client.references(found)).canonical()))
        return Schema(_fields(_message(_file(found, client), source.message), ()))
    except (InvalidSchema, KeyError, TypeError, AttributeError) as error:
        raise SchemaError(f"the schema of subject {subject_of(source)}: {error}") from None
    finally:
        client.close()


class RegistryDecoder:
    """Decode a column of values to structs with the record as `value`, or the reason as `error`."""

    def __init__(self, source: Source, schema: Schema, kind: pa.DataType, reader: Text | None) -> None:
        self._format = source.format
        self._message = source.message
        self._client = RegistryClient(source.registry or "")
        self._schema = schema
        self._kind = kind
        self._reader = reader
        self._key = (source.registry, source.format, source.message, repr(schema), reader)

    def column(self, values: pa.Array) -> pa.Array:
        unknown: dict[int, str] = {}
        try:
            return structs([self.one(value, unknown) for value in values.to_pylist()], self._kind)
        finally:
            self._client.close()

    def one(self, value: bytes | None, unknown: dict[int, str] | None = None) -> tuple[Any, str | None]:
        """The record, or the reason why there is none. Ids in `unknown` are not asked for again."""
        unknown = {} if unknown is None else unknown
        decoders = _DECODERS.setdefault(self._key, {})
        if value is None:
            return None, "the record has no value"
        try:
            number, rest = unframed(value)
        except NoFrame as error:
            return None, str(error)
        if number not in decoders and number not in unknown:
            try:
                decoders[number] = self._decoder(number)
            except _Unusable as error:
                unknown[number] = str(error)
        if number in unknown:
            return None, unknown[number]
        found: tuple[Any, str | None] = decoders[number](rest)
        return found

    def _decoder(self, number: int) -> Any:
        """What decodes values with a schema id. A registry that does not answer fails the task, which Spark repeats."""
        try:
            schema = self._client.by_id(number)
        except RegistryError as error:
            if error.code != _UNKNOWN_ID:
                raise
            raise _Unusable(f"schema id {number} is unknown to the registry") from None
        if schema.type != TYPES[self._format]:
            raise _Unusable(f"schema id {number} is a schema of type {schema.type}, not {TYPES[self._format]}")
        if self._format == "json":
            return self._json
        assert self._reader is not None
        self._check(number, schema)
        return self._avro(schema) if self._format == "avro" else self._protobuf(number, schema)

    def _check(self, number: int, schema: Text) -> None:
        assert self._reader is not None
        writer, reader = (parse(one.type, one.text, self._client.references(one)) for one in (schema, self._reader))
        found = reader.problems_reading(writer)
        if found:
            raise _Unusable(f"schema id {number} is not compatible with the columns of the source: {found[0]}")

    def _avro(self, schema: Text) -> Any:
        assert self._reader is not None
        writer, reader = (parsed_avro(one, self._client) for one in (schema, self._reader))
        return lambda rest: AvroDecoder.read(rest, writer, None if schema == self._reader else reader)

    def _protobuf(self, number: int, schema: Text) -> Any:
        from google.protobuf.message_factory import GetMessageClass

        assert self._reader is not None
        written = _file(schema, self._client)
        wanted = _message(_file(self._reader, self._client), self._message)
        message = GetMessageClass(wanted)
        paths = {tuple(message_indexes(one)): one.full_name for one in _all_messages(written)}

        def decode(rest: bytes) -> tuple[Any, str | None]:
            try:
                indexes, data = decode_indexes(rest)
                name = paths.get(tuple(indexes))
                if name != wanted.full_name:
                    return None, f"the value is a {name or 'message of another schema'}, not a {wanted.full_name}"
                return _values(message.FromString(data)), None
            except NoFrame as error:
                return None, str(error)
            except Exception as error:  # invalid bytes can raise anything
                return None, f"the value is not a {wanted.full_name}: {error}"

        return decode

    def _json(self, rest: bytes) -> tuple[Any, str | None]:
        try:
            text = rest.decode()
        except UnicodeDecodeError as error:
            return None, f"the value is not UTF-8 text: byte {error.start} is 0x{rest[error.start]:02x}"
        wrong = Reasons("json", self._schema).in_json(text)
        if wrong is not None:
            return None, wrong
        found = json.loads(text, parse_float=str)
        return _converted(Type("struct", self._schema.fields), found), None


class _Unusable(Exception):
    """A schema with which no value can be decoded."""


# ── Protobuf ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _file(schema: Text, client: RegistryClient) -> Any:
    from ottla.registry.protobuf.files import ProtoFile

    return ProtoFile(schema.text, client.references(schema)).descriptor


def _message(file: Any, name: str | None) -> Any:
    found = _all_messages(file)
    if name is None:
        return found[0]
    for one in found:
        if name in (one.full_name, one.name):
            return one
    raise InvalidSchema(f"no message {name}: it has {', '.join(one.full_name for one in found)}")


def _all_messages(file: Any) -> list[Any]:
    waiting, found = list(file.message_types_by_name.values()), []
    while waiting:
        one = waiting.pop(0)
        found.append(one)
        waiting += [inner for inner in one.nested_types if not inner.GetOptions().map_entry]
    if not found:
        raise InvalidSchema("it has no message")
    return found


def _fields(message: Any, around: tuple[str, ...]) -> tuple[Field, ...]:
    if message.full_name in around:
        raise SchemaError(f"message {message.full_name} contains itself, which a column cannot")
    inner = (*around, message.full_name)
    return tuple(Field(one.name, _type(one, inner)) for one in message.fields)


def _type(field: Any, around: tuple[str, ...]) -> Type:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        parts = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        return Type("map", tuple(Field(one.name, _single(one, around)) for one in parts))
    found = _single(field, around)
    return Type("array", (Field("element", found),)) if field.is_repeated else found


def _single(field: Any, around: tuple[str, ...]) -> Type:
    from google.protobuf.descriptor_pb2 import FieldDescriptorProto

    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return Type("timestamp")
        return Type("struct", _fields(field.message_type, around))
    name = FieldDescriptorProto.Type.Name(field.type).removeprefix("TYPE_")
    return Type(_SCALARS[name]) if name in _SCALARS else Type("decimal", (), (20, 0))


def _values(message: Any) -> Any:
    """A message as a dict; a message that is not set, and an optional field that is not, is None."""
    if message.DESCRIPTOR.full_name == _TIMESTAMP:
        return message.ToDatetime(tzinfo=UTC)
    return {one.name: _value(message, one) for one in message.DESCRIPTOR.fields}


def _value(message: Any, field: Any) -> Any:
    if field.has_presence and not message.HasField(field.name):
        return None
    found = getattr(message, field.name)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        inner = field.message_type.fields_by_name["value"]
        return [(key, _one(one, inner)) for key, one in found.items()]
    return [_one(one, field) for one in found] if field.is_repeated else _one(found, field)


def _one(value: Any, field: Any) -> Any:
    if field.message_type is not None:
        return _values(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return str(value) if known is None else known.name
    return Decimal(value) if field.type in (4, 6) else value


# ── JSON ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def _converted(kind: Type, given: Any) -> Any:
    """A JSON value, which is known to match, as Arrow takes it."""
    if given is None:
        return None
    if kind.name == "struct":
        return {one.name: _converted(one.type, given.get(one.name)) for one in kind.inside}
    if kind.name == "array":
        return [_converted(kind.inside[0].type, one) for one in given]
    if kind.name == "map":
        return [(key, _converted(kind.inside[1].type, one)) for key, one in given.items()]
    return _scalar(kind.name, given)


def _scalar(name: str, given: Any) -> Any:
    if name == "string":
        return given if isinstance(given, str) else json.dumps(given)
    if name == "decimal":
        return Decimal(str(given))
    if name in ("float", "double"):
        return float(given)
    if name == "binary":
        return base64.b64decode(given)
    if name == "date":
        return date.fromisoformat(given[:10])
    if name in ("timestamp", "timestamp_ntz"):
        found = datetime.fromisoformat(given) if isinstance(given, str) else datetime.fromtimestamp(float(given), UTC)
        is_local = name == "timestamp_ntz"
        return found.replace(tzinfo=None) if is_local else found if found.tzinfo else found.replace(tzinfo=UTC)
    return given


def registry_keys(source: Source) -> Sequence[str]:
    """The keys of a source that are only for a registry and are set."""
    return [key for key in ("subject", "message") if getattr(source, key) is not None]
