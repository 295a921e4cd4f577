"""Serializers and deserializers under their public names: text, JSON, Avro, and with a schema registry.

Any function will do as well.

>>> from ottla.serializers import JsonSerializer
>>> JsonSerializer(default=str).serialize("orders", {"total": 12})
b'{"total":12}'
"""

from __future__ import annotations

from ottla.clients.registry.client import RegistryClient
from ottla.clients.registry.serializers import (
    RegistryAvroDeserializer,
    RegistryAvroSerializer,
    RegistryJsonDeserializer,
    RegistryJsonSerializer,
    RegistryProtobufDeserializer,
    RegistryProtobufSerializer,
)
from ottla.clients.serializers import (
    AvroDeserializer,
    AvroSerializer,
    BytesDeserializer,
    BytesSerializer,
    Deserializer,
    JsonDeserializer,
    JsonSerializer,
    SerializationError,
    Serializer,
    StringDeserializer,
    StringSerializer,
)

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "BytesDeserializer",
    "BytesSerializer",
    "Deserializer",
    "JsonDeserializer",
    "JsonSerializer",
    "RegistryAvroDeserializer",
    "RegistryAvroSerializer",
    "RegistryClient",
    "RegistryJsonDeserializer",
    "RegistryJsonSerializer",
    "RegistryProtobufDeserializer",
    "RegistryProtobufSerializer",
    "SerializationError",
    "Serializer",
    "StringDeserializer",
    "StringSerializer",
]
