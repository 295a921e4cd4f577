"""Our serializers and confluent-kafka's read each other's values, for all three types."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

import ottla
from ottla.errors import ConfigError
from ottla.registry.errors import RegistryError
from ottla.registry_server.server import RegistryServer
from ottla.serializers import (
    RegistryAvroDeserializer,
    RegistryAvroSerializer,
    RegistryClient,
    RegistryJsonDeserializer,
    RegistryJsonSerializer,
    RegistryProtobufDeserializer,
    RegistryProtobufSerializer,
    SerializationError,
)

AVRO = json.dumps(
    {
        "type": "record",
        "name": "Order",
        "namespace": "shop",
        "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": ["null", "string"], "default": None}],
    }
)
JSON = json.dumps(
    {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
        "additionalProperties": False,
    }
)


def messages(folder: str = "shop") -> tuple[Any, Any]:
    """The classes shop.Order, which imports shop.Address and a well-known file, and shop.Order.Line inside it."""
    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    address = descriptor_pb2.FileDescriptorProto(name=f"{folder}/address.proto", package="shop", syntax="proto3")
    message = address.message_type.add(name="Address")
    message.field.add(name="city", number=1, type=9, label=1)
    order = descriptor_pb2.FileDescriptorProto(name=f"{folder}/order.proto", package="shop", syntax="proto3")
    order.dependency.extend([f"{folder}/address.proto", "google/protobuf/timestamp.proto"])
    order.message_type.add(name="Unused")
    message = order.message_type.add(name="Order")
    message.field.add(name="id", number=1, type=3, label=1)
    message.field.add(name="to", number=2, type=11, label=1, type_name=".shop.Address")
    message.field.add(name="at", number=3, type=11, label=1, type_name=".google.protobuf.Timestamp")
    message.nested_type.add(name="Line").field.add(name="sku", number=1, type=9, label=1)
    pool.Add(address)
    pool.Add(order)
    found = [pool.FindMessageTypeByName(name) for name in ("shop.Order", "shop.Order.Line")]
    first, second = map(message_factory.GetMessageClass, found)
    return first, second


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_in_both_directions(client: SchemaRegistryClient, url: str, subject: str) -> None:
    value = {"id": 7, "note": "é"}
    ours, theirs = RegistryAvroSerializer(url, AVRO), AvroSerializer(client, AVRO)
    data = ours.serialize(subject, value)
    assert theirs(value, context(subject)) == data
    assert AvroDeserializer(client)(data, context(subject)) == value
    assert RegistryAvroDeserializer(url).deserialize(subject, data) == value
    assert client.get_versions(f"{subject}-value") == [1]
    newer = json.loads(AVRO)
    newer["fields"].append({"name": "total", "type": "double", "default": 0.5})
    reader = RegistryAvroDeserializer(url, reader_schema=newer)
    assert reader.deserialize(subject, data) == {**value, "total": 0.5}


def test_json_in_both_directions(client: SchemaRegistryClient, url: str, subject: str) -> None:
    value = {"id": 7}
    ours, theirs = RegistryJsonSerializer(url, JSON), JSONSerializer(JSON, client)
    data = ours.serialize(subject, value)
    assert theirs(value, context(subject))[:5] == data[:5]
    assert JSONDeserializer(JSON, schema_registry_client=client)(data, context(subject)) == value
    assert RegistryJsonDeserializer(url).deserialize(subject, theirs(value, context(subject))) == value
    with pytest.raises(SerializationError, match="'id' is a required property"):
        ours.serialize(subject, {})
    with pytest.raises(SerializationError, match="at id: 'x' is not of type 'integer'"):
        ours.serialize(subject, {"id": "x"})


def test_protobuf_in_both_directions(client: SchemaRegistryClient, url: str, subject: str) -> None:
    order, line = messages(subject)
    with pytest.raises(SerializationError, match=r"address\.proto: .*not found"):
        RegistryProtobufSerializer(url, order, auto_register=False).serialize(subject, order(id=7))
    for value in (order(id=7, to={"city": "Oslo"}, at={"seconds": 5}), line(sku="x")):
        message_type = type(value)
        topic = f"{subject}-{message_type.DESCRIPTOR.name}"
        ours, theirs = RegistryProtobufSerializer(url, message_type), ProtobufSerializer(message_type, client)
        data = ours.serialize(topic, value)
        assert theirs(value, context(topic)) == data
        assert ProtobufDeserializer(message_type, {}, client)(data, context(topic)) == value
        assert RegistryProtobufDeserializer(url, message_type).deserialize(topic, data) == value
        reader = RegistryClient(url)
        stored = reader.latest(f"{topic}-value").schema
        reader.close()
        assert [one.name for one in stored.references] == [f"{subject}/address.proto"]
        assert "message Order {" in stored.text


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("topic", "{topic}-key"), ("record", "shop.Order"), ("topic-record", "{topic}-shop.Order")],
)
def test_subject_names(client: SchemaRegistryClient, url: str, subject: str, strategy: Any, expected: str) -> None:
    serializer = RegistryAvroSerializer(url, AVRO, subject_name=strategy, is_key=True)
    serializer.serialize(subject, {"id": 1, "note": None})
    assert expected.format(topic=subject) in client.get_subjects()


def test_without_registration_and_with_the_latest_version(url: str, subject: str) -> None:
    value = {"id": 1, "note": None}
    with pytest.raises(SerializationError, match=f"subject {subject}-value: .*40401"):
        RegistryAvroSerializer(url, AVRO, auto_register=False).serialize(subject, value)
    newer = json.loads(AVRO)
    newer["fields"].append({"name": "total", "type": "double", "default": 0.5})
    first = RegistryAvroSerializer(url, AVRO).serialize(subject, value)
    second = RegistryAvroSerializer(url, newer).serialize(subject, {**value, "total": 1.0})
    latest = RegistryAvroSerializer(url, AVRO, use_latest_version=True).serialize(subject, value)
    assert latest[:5] == second[:5] != first[:5]
    assert RegistryAvroDeserializer(url).deserialize(subject, latest) == {**value, "total": 0.5}
    again = RegistryAvroSerializer(url, AVRO, auto_register=False).serialize(subject, value)
    assert again == first


def test_an_incompatible_schema_and_unknown_ids_are_told(url: str, subject: str) -> None:
    RegistryAvroSerializer(url, AVRO).serialize(subject, {"id": 1, "note": None})
    other = json.loads(AVRO)
    other["fields"][0]["type"] = "string"
    with pytest.raises(SerializationError, match="incompatible with an earlier schema"):
        RegistryAvroSerializer(url, other).serialize(subject, {"id": "1", "note": None})
    with pytest.raises(SerializationError, match="Schema 999999 not found"):
        RegistryAvroDeserializer(url).deserialize(subject, b"\0" + (999_999).to_bytes(4) + b"x")
    with pytest.raises(SerializationError, match="no schema registry header"):
        RegistryAvroDeserializer(url).deserialize(subject, b"{}")


def test_mistakes_of_a_program_are_told(url: str, subject: str) -> None:
    with pytest.raises(ConfigError, match="schema is not JSON"):
        RegistryAvroSerializer(url, '{"type": ')
    with pytest.raises(ConfigError, match="schema is not JSON"):
        RegistryJsonSerializer(url, "{")
    with pytest.raises(ConfigError, match="a class that protoc has generated is required, not <class 'dict'>"):
        RegistryProtobufSerializer(url, dict)
    with pytest.raises(SerializationError, match=r"a google\.protobuf\.Timestamp is required, not dict"):
        RegistryProtobufSerializer(url, timestamp_pb2.Timestamp).serialize(subject, {})
    avro = RegistryAvroSerializer(url, AVRO).serialize(subject, {"id": 1, "note": None})
    with pytest.raises(SerializationError, match="is a schema of type AVRO, not JSON"):
        RegistryJsonDeserializer(url).deserialize(subject, avro)


def test_our_clients_use_them(broker: ottla.Broker, url: str, subject: str) -> None:
    servers = {"bootstrap_servers": broker.bootstrap_servers}
    with ottla.Producer(**servers, value_serializer=RegistryAvroSerializer(url, AVRO)) as producer:
        producer.send(subject, {"id": 1, "note": None}).get(30)
    options = {"value_deserializer": RegistryAvroDeserializer(url), "auto_offset_reset": "earliest"}
    with ottla.Consumer(**servers, **options, group_id=subject) as consumer:
        consumer.subscribe([subject])
        assert next(iter(consumer)).value == {"id": 1, "note": None}


LOGINS = {"": 401, "alice:wrong@": 401, "bob:s3cret@": 401, "alice:s3cret@": 200}


def test_a_registry_with_users(broker: ottla.Broker) -> None:
    async def scene() -> list[int]:
        server = RegistryServer(broker.client_config(), users={"alice": "s3cret"})
        await server.start()
        try:
            return [await asyncio.to_thread(code, server.url, login) for login in LOGINS]
        finally:
            await server.stop()

    def code(url: str, login: str) -> int:
        client = RegistryClient(url.replace("//", f"//{login}"))
        try:
            client.call("GET", "/subjects")
        except RegistryError as error:
            return error.code
        finally:
            client.close()
        return 200

    assert asyncio.run(scene()) == list(LOGINS.values())
