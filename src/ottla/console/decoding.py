"""Read values with a schema registry, for pages: Avro, JSON Schema and Protobuf in Confluent's frame."""

from __future__ import annotations

import importlib
import json
import threading
import time
from typing import Any

from ottla.clients.registry.client import RegistryClient, RegistryUnreachable
from ottla.clients.registry.frames import NoFrame, decode_indexes, unframed
from ottla.clients.registry.serializers import RegistryAvroDeserializer
from ottla.clients.serializers import SerializationError
from ottla.console.views.values import Decoded, Undecoded, as_json
from ottla.errors import OttlaError
from ottla.registry.errors import RegistryError
from ottla.registry.values import AVRO, JSON

PAUSE_SECONDS = 10.0
"""After a registry did not answer, it is not asked for so long: a page must not wait once for each record."""


class Decoder:
    """Reads values with the schemas of a registry; threads can share it.

    decoder = Decoder("http://127.0.0.1:8081")
    decoder.decode(value)
    """

    def __init__(self, url: str) -> None:
        self._client = RegistryClient(url)
        self._avro = RegistryAvroDeserializer(self._client)
        self._files: dict[int, Any] = {}
        self._lock = threading.Lock()
        self._silent_until = 0.0
        self._silence = ""

    def decode(self, data: bytes) -> Decoded | Undecoded:
        """The value, or why it cannot be read."""
        with self._lock:
            if time.monotonic() < self._silent_until:
                return Undecoded(self._silence)
            try:
                return self._decoded(data)
            except RegistryUnreachable as error:
                self._silent_until, self._silence = time.monotonic() + PAUSE_SECONDS, str(error)
                return Undecoded(str(error))
            except RegistryError as error:
                return Undecoded(f"schema id {unframed(data)[0]}: {error}")
            except (NoFrame, SerializationError, OttlaError) as error:
                return Undecoded(str(error))

    def _decoded(self, data: bytes) -> Decoded:
        number, rest = unframed(data)
        kind = self._client.by_id(number).type
        if kind == AVRO:
            return Decoded("Avro", as_json(self._avro.deserialize("", data)), number)
        if kind == JSON:
            try:
                return Decoded("JSON Schema", as_json(json.loads(rest)), number)
            except ValueError as error:
                raise SerializationError(f"schema id {number}: the value is not JSON: {error}") from None
        return Decoded("Protobuf", self._protobuf(number, rest), number)

    def _protobuf(self, number: int, rest: bytes) -> str:
        try:
            factory = importlib.import_module("google.protobuf.message_factory")
            printing = importlib.import_module("google.protobuf.json_format")
            files = importlib.import_module("ottla.registry.protobuf.files")
        except ImportError:
            raise OttlaError("the package protobuf is missing: pip install 'ottla[registry]'") from None
        if number not in self._files:
            schema = self._client.by_id(number)
            self._files[number] = files.ProtoFile(schema.text, self._client.references(schema))
        file = self._files[number]
        indexes, message = decode_indexes(rest)
        try:
            found = list(file.descriptor.message_types_by_name.values())[indexes[0]]
            for index in indexes[1:]:
                found = found.nested_types[index]
            parsed = factory.GetMessageClass(found).FromString(message)
            text: str = printing.MessageToJson(parsed, indent=None, descriptor_pool=file.pool)
        except Exception as error:
            raise SerializationError(f"schema id {number}: {type(error).__name__}: {error}") from None
        return text
