"""Serializers with a schema registry, in the format of Confluent's: both sides can be mixed."""

from __future__ import annotations

import base64
import importlib
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, Literal

from ottla.clients.registry.client import RegistryClient
from ottla.clients.registry.frames import NoFrame, decode_indexes, encode_indexes, framed, unframed
from ottla.clients.serializers import SerializationError
from ottla.errors import ConfigError, OttlaError
from ottla.registry.errors import InvalidSchema, RegistryError
from ottla.registry.values import AVRO, JSON, PROTOBUF, Reference, Schema

#: How a subject is named: after the topic, the record, or both; or a function of both.
SubjectName = Literal["topic", "record", "topic-record"] | Callable[[str, str], str]


class _Subjects:
    """Finds or registers the schema of a serializer."""

    def __init__(
        self,
        registry: str | RegistryClient,
        subject_name: SubjectName,
        is_key: bool,
        auto_register: bool,
        use_latest_version: bool,
        normalize: bool,
    ) -> None:
        self.client = RegistryClient(registry) if isinstance(registry, str) else registry
        if not callable(subject_name) and subject_name not in ("topic", "record", "topic-record"):
            raise ConfigError(f"subject_name is topic, record, topic-record or a function, not {subject_name!r}")
        self._name = subject_name
        self._part = "key" if is_key else "value"
        self._auto = auto_register
        self._latest = use_latest_version
        self._normalize = normalize
        self._found: dict[str, tuple[int, Schema]] = {}

    def subject(self, topic: str, record: str) -> str:
        if callable(self._name):
            return self._name(topic, record)
        if self._name == "topic":
            return f"{topic}-{self._part}"
        if not record:
            raise SerializationError(
                f"subject_name={self._name!r} needs a schema with a name (in JSON Schema: a title)"
            )
        return record if self._name == "record" else f"{topic}-{record}"

    def resolve(self, topic: str, record: str, schema: Schema) -> tuple[int, Schema]:
        """The id to write, and the schema that it means."""
        subject = self.subject(topic, record)
        if subject not in self._found:
            try:
                self._found[subject] = self._ask(subject, schema)
            except RegistryError as error:
                raise SerializationError(f"subject {subject}: {error} (error {error.code} of the registry)") from error
        return self._found[subject]

    def version(self, subject: str, schema: Schema) -> int:
        """The version of a subject that has a schema, which is registered if that is allowed."""
        try:
            if self._auto:
                self.client.register(subject, schema, normalize=self._normalize)
            return self.client.version_of(subject, schema, normalize=self._normalize)
        except RegistryError as error:
            raise SerializationError(f"subject {subject}: {error} (error {error.code} of the registry)") from error

    def _ask(self, subject: str, schema: Schema) -> tuple[int, Schema]:
        if self._latest:
            latest = self.client.latest(subject)
            return latest.id, latest.schema
        find = self.client.register if self._auto else self.client.lookup
        return find(subject, schema, normalize=self._normalize), schema


class _Serializer:
    """What the serializers of all three types have in common."""

    def __init__(
        self,
        registry: str | RegistryClient,
        *,
        subject_name: SubjectName = "topic",
        is_key: bool = False,
        auto_register: bool = True,
        use_latest_version: bool = False,
        normalize: bool = False,
    ) -> None:
        self._subjects = _Subjects(registry, subject_name, is_key, auto_register, use_latest_version, normalize)


class RegistryAvroSerializer(_Serializer):
    """Avro with the id of its schema.

        serializer = RegistryAvroSerializer("http://127.0.0.1:8081", schema)
        producer = ottla.Producer(bootstrap_servers="…", value_serializer=serializer)

    ``auto_register=False`` only looks the schema up; ``use_latest_version=True`` writes with the latest version of the
    subject. ``subject_name`` is "topic" (``orders-value``, or ``orders-key`` with ``is_key=True``), "record" or
    "topic-record", or a function of topic and record name.
    """

    def __init__(self, registry: str | RegistryClient, schema: Mapping[str, Any] | str, **options: Any) -> None:
        super().__init__(registry, **options)
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self._schema = Schema(text, AVRO)
        self._parsed: dict[int, Any] = {}
        found = _parsed(text) if text.lstrip().startswith(("{", "[", '"')) else text
        name = found.get("name", "") if isinstance(found, dict) else ""
        space = found.get("namespace", "") if isinstance(found, dict) else ""
        self._record = f"{space}.{name}" if space and "." not in name else name

    def serialize(self, topic: str, value: Any) -> bytes:
        number, schema = self._subjects.resolve(topic, self._record, self._schema)
        if number not in self._parsed:
            self._parsed[number] = parsed_avro(schema, self._subjects.client)
        out = io.BytesIO()
        try:
            _module("fastavro").schemaless_writer(out, self._parsed[number], value)
        except Exception as error:
            raise SerializationError(f"the value does not match the schema: {type(error).__name__}: {error}") from error
        return framed(number, out.getvalue())


class RegistryAvroDeserializer:
    """The reverse of `RegistryAvroSerializer`; `reader_schema` converts all versions to one by Avro's rules."""

    def __init__(self, registry: str | RegistryClient, reader_schema: Mapping[str, Any] | str | None = None) -> None:
        self._client = RegistryClient(registry) if isinstance(registry, str) else registry
        given = json.dumps(reader_schema) if isinstance(reader_schema, Mapping) else reader_schema
        self._reader = None if given is None else parsed_avro(Schema(given), self._client)
        self._parsed: dict[int, Any] = {}

    def deserialize(self, topic: str, data: bytes) -> Any:
        number, rest = _unframed(data)
        if number not in self._parsed:
            self._parsed[number] = parsed_avro(_by_id(self._client, number, AVRO), self._client)
        try:
            return _module("fastavro").schemaless_reader(io.BytesIO(rest), self._parsed[number], self._reader)
        except Exception as error:
            raise SerializationError(f"schema id {number}: {type(error).__name__}: {error}") from error


class RegistryJsonSerializer(_Serializer):
    """JSON with the id of its JSON Schema; values that the schema does not accept are refused."""

    def __init__(
        self, registry: str | RegistryClient, schema: Mapping[str, Any] | str, *, validate: bool = True, **options: Any
    ) -> None:
        super().__init__(registry, **options)
        text = schema if isinstance(schema, str) else json.dumps(schema)
        self._schema = Schema(text, JSON)
        found = _parsed(text)
        self._record = str(found.get("title", "")) if isinstance(found, dict) else ""
        self._validate = validate
        self._validators: dict[int, Any] = {}

    def serialize(self, topic: str, value: Any) -> bytes:
        number, schema = self._subjects.resolve(topic, self._record, self._schema)
        if self._validate:
            if number not in self._validators:
                self._validators[number] = json_validator(schema, self._subjects.client)
            _check_json(self._validators[number], value)
        return framed(number, json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode())


class RegistryJsonDeserializer:
    """The reverse of `RegistryJsonSerializer`."""

    def __init__(self, registry: str | RegistryClient, *, validate: bool = True) -> None:
        self._client = RegistryClient(registry) if isinstance(registry, str) else registry
        self._validate = validate
        self._validators: dict[int, Any] = {}

    def deserialize(self, topic: str, data: bytes) -> Any:
        number, rest = _unframed(data)
        if self._validate and number not in self._validators:
            self._validators[number] = json_validator(_by_id(self._client, number, JSON), self._client)
        try:
            value = json.loads(rest)
        except ValueError as error:
            raise SerializationError(f"schema id {number}: the value is not JSON: {error}") from error
        if self._validate:
            _check_json(self._validators[number], value)
        return value


class RegistryProtobufSerializer(_Serializer):
    """A Protobuf message with the id of its schema; the files that it imports are registered as references."""

    def __init__(self, registry: str | RegistryClient, message_type: Any, **options: Any) -> None:
        super().__init__(registry, **options)
        self._descriptor = _descriptor(message_type)
        self._indexes = encode_indexes(message_indexes(self._descriptor))
        self._schema: Schema | None = None

    def serialize(self, topic: str, value: Any) -> bytes:
        given = getattr(value, "DESCRIPTOR", None)
        if given is None or given.full_name != self._descriptor.full_name:
            what = type(value).__name__ if given is None else given.full_name
            raise SerializationError(f"a {self._descriptor.full_name} is required, not {what}")
        if self._schema is None:
            self._schema = self._with_imports(self._descriptor.file)
        number, _ = self._subjects.resolve(topic, self._descriptor.full_name, self._schema)
        return framed(number, self._indexes + value.SerializeToString())

    def _with_imports(self, file: Any) -> Schema:
        """The schema of a file; the files that it imports are registered first, under their names."""
        from ottla.registry.protobuf.files import KNOWN

        references = []
        for other in file.dependencies:
            if other.name in KNOWN:
                continue
            schema = self._with_imports(other)
            references.append(Reference(other.name, other.name, self._subjects.version(other.name, schema)))
        return Schema(base64.b64encode(file.serialized_pb).decode(), PROTOBUF, tuple(references))


class RegistryProtobufDeserializer:
    """Values of `RegistryProtobufSerializer` as messages of `message_type`."""

    def __init__(self, registry: str | RegistryClient, message_type: Any) -> None:
        # Protobuf needs no schema to read: numbers of fields are in the data. The registry is not asked.
        self._client = RegistryClient(registry) if isinstance(registry, str) else registry
        self._type = message_type

    def deserialize(self, topic: str, data: bytes) -> Any:
        _, rest = _unframed(data)
        try:
            return self._type.FromString(decode_indexes(rest)[1])
        except Exception as error:
            raise SerializationError(f"not a {self._type.DESCRIPTOR.full_name}: {error}") from error


def message_indexes(descriptor: Any) -> list[int]:
    """Where a message is in its file.

    A message that is inside others has an index for each of them, from the outside to the inside.
    """
    outer = descriptor.containing_type
    siblings = descriptor.file.message_types_by_name if outer is None else outer.nested_types_by_name
    index = list(siblings).index(descriptor.name)
    return [index] if outer is None else [*message_indexes(outer), index]


def parsed_avro(schema: Schema, client: RegistryClient) -> Any:
    """A schema for fastavro, with the named types of its references."""
    fastavro = _module("fastavro")
    named: dict[str, Any] = {}
    try:
        for text in client.references(schema).values():
            fastavro.parse_schema(json.loads(text), named_schemas=named)
        text = schema.text.strip()
        return fastavro.parse_schema(json.loads(text) if text[:1] in '{["' else text, named_schemas=named)
    except (fastavro.schema.SchemaParseException, ValueError) as error:
        raise SerializationError(f"not an Avro schema: {error}") from error


def json_validator(schema: Schema, client: RegistryClient) -> Any:
    """A validator for values of a JSON Schema."""
    _module("jsonschema")
    from ottla.registry.json_schema.parsing import Document

    try:
        return Document(schema.text, client.references(schema)).validator()
    except InvalidSchema as error:
        raise SerializationError(f"not a JSON Schema: {error}") from error


def _check_json(validator: Any, value: Any) -> None:
    for error in validator.iter_errors(value):
        at = "/".join(map(str, error.absolute_path))
        raise SerializationError(f"the value does not match the schema{f' at {at}' if at else ''}: {error.message}")


def _parsed(schema: str) -> Any:
    try:
        return json.loads(schema)
    except ValueError as error:
        raise ConfigError(f"schema is not JSON: {error}") from None


def _descriptor(message_type: Any) -> Any:
    found = getattr(message_type, "DESCRIPTOR", None)
    if found is None or not isinstance(message_type, type):
        raise ConfigError(f"a class that protoc has generated is required, not {message_type!r}")
    return found


def _unframed(data: bytes) -> tuple[int, bytes]:
    try:
        return unframed(data)
    except NoFrame as error:
        raise SerializationError(str(error)) from None


def _by_id(client: RegistryClient, number: int, kind: str) -> Schema:
    try:
        schema = client.by_id(number)
    except RegistryError as error:
        raise SerializationError(f"schema id {number}: {error}") from error
    if schema.type != kind:
        raise SerializationError(f"schema id {number} is a schema of type {schema.type}, not {kind}")
    return schema


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise OttlaError(f"the package {name} is missing: pip install 'ottla[registry]'") from None
