"""Serializers and deserializers under their public names: text, JSON and Avro; any function will do as well.

>>> from ottla.serializers import JsonSerializer
>>> JsonSerializer(default=str).serialize("orders", {"total": 12})
b'{"total":12}'
"""

from __future__ import annotations

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
    "SerializationError",
    "Serializer",
    "StringDeserializer",
    "StringSerializer",
]
