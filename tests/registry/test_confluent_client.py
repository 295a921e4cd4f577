"""confluent-kafka's registry client against our registry."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from confluent_kafka.schema_registry import (
    ConfigCompatibilityLevel,
    Schema,
    SchemaReference,
    SchemaRegistryClient,
    ServerConfig,
)
from confluent_kafka.schema_registry.error import SchemaRegistryError

from compat.waiting import until
from ottla import Broker
from registry.http import call


def avro(*fields: str, name: str = "Order") -> Schema:
    """A record with fields such as ``id:int`` or ``note:string=``, which has a default."""
    declared = []
    for one in fields:
        field, _, kind = one.partition(":")
        kind, equals, default = kind.partition("=")
        declared.append({"name": field, "type": kind, **({"default": default} if equals else {})})
    return Schema(json.dumps({"type": "record", "name": name, "fields": declared}), "AVRO")


def json_schema(properties: dict[str, str], *, closed: bool = True, required: tuple[str, ...] = ()) -> Schema:
    declared = {name: {"type": kind} for name, kind in properties.items()}
    schema = {"type": "object", "properties": declared, "required": list(required), "additionalProperties": not closed}
    return Schema(json.dumps(schema), "JSON")


def proto(*fields: str) -> Schema:
    lines = " ".join(f"{one};" for one in fields)
    return Schema(f'syntax = "proto3"; message Order {{ {lines} }}', "PROTOBUF")


def error_of(client: SchemaRegistryClient, method: str, *args: object) -> tuple[int, int]:
    with pytest.raises(SchemaRegistryError) as caught:
        getattr(client, method)(*args)
    return caught.value.http_status_code, caught.value.error_code


FIRST = {"AVRO": avro("id:int"), "JSON": json_schema({"id": "integer"}), "PROTOBUF": proto("int32 id = 1")}
COMPATIBLE = {
    "AVRO": avro("id:int", "note:string="),
    "JSON": json_schema({"id": "integer", "note": "string"}),
    "PROTOBUF": proto("int32 id = 1", "string note = 2"),
}
INCOMPATIBLE = {
    "AVRO": avro("id:string"),
    "JSON": json_schema({"id": "string"}),
    "PROTOBUF": proto("string id = 1"),
}


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_a_subject_lives_and_dies(client: SchemaRegistryClient, subject: str, kind: str) -> None:
    first = client.register_schema(subject, FIRST[kind])
    assert client.register_schema(subject, FIRST[kind]) == first
    second = client.register_schema(subject, COMPATIBLE[kind])
    assert second > first
    assert client.get_versions(subject) == [1, 2]
    latest = client.get_latest_version(subject)
    assert (latest.version, latest.schema_id, latest.schema.schema_type) == (2, second, kind)
    assert client.lookup_schema(subject, FIRST[kind]).version == 1
    client.clear_caches()
    assert client.get_schema(first).schema_str == client.get_version(subject, 1).schema.schema_str
    assert subject in client.get_subjects()
    assert error_of(client, "register_schema", subject, INCOMPATIBLE[kind]) == (409, 40901)
    assert not client.test_compatibility(subject, INCOMPATIBLE[kind])
    assert client.test_compatibility(subject, COMPATIBLE[kind])
    messages = client.test_compatibility_all_versions(subject, INCOMPATIBLE[kind], verbose=True)
    assert not messages

    assert client.delete_version(subject, 1) == 1
    assert client.get_versions(subject) == [2]
    client.clear_caches()
    assert error_of(client, "get_version", subject, 1) == (404, 40402)
    assert client.get_version(subject, 1, deleted=True).schema_id == first
    assert client.get_schema(first).schema_str, "data with the id can still be read"
    assert client.delete_subject(subject) == [2]
    assert error_of(client, "get_versions", subject) == (404, 40401)
    assert error_of(client, "delete_subject", subject) == (404, 40404)
    assert client.delete_subject(subject, permanent=True) == [1, 2]
    assert error_of(client, "delete_subject", subject) == (404, 40401)


@pytest.mark.parametrize("kind", ["AVRO", "JSON", "PROTOBUF"])
def test_the_same_schema_has_one_id_in_all_subjects(client: SchemaRegistryClient, subject: str, kind: str) -> None:
    number = client.register_schema(subject, FIRST[kind])
    assert client.register_schema(f"{subject}-other", FIRST[kind]) == number
    assert {subject, f"{subject}-other"} <= set(client.get_subjects_by_schema_id(number))
    assert [one.version for one in client.get_schema_versions(number) if one.subject == subject] == [1]


LEVELS = ("NONE", "BACKWARD", "FORWARD", "FULL", "BACKWARD_TRANSITIVE", "FORWARD_TRANSITIVE", "FULL_TRANSITIVE")


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("kind", ["AVRO", "PROTOBUF"])
def test_compatibility_levels(client: SchemaRegistryClient, subject: str, kind: str, level: str) -> None:
    client.set_compatibility(subject, level)
    assert client.get_compatibility(subject) == level
    client.register_schema(subject, FIRST[kind])
    assert client.test_compatibility(subject, COMPATIBLE[kind])
    assert client.test_compatibility(subject, INCOMPATIBLE[kind]) == (level == "NONE")


@pytest.mark.parametrize(("level", "fits"), [("BACKWARD", False), ("FORWARD", True), ("FULL", False)])
def test_the_direction_of_a_level(client: SchemaRegistryClient, subject: str, level: str, fits: bool) -> None:
    client.set_compatibility(subject, level)
    client.register_schema(subject, avro("id:int"))
    # The old schema reads what the new one writes, but a new reader finds no note in old data.
    assert client.test_compatibility(subject, avro("id:int", "note:string")) == fits


def test_transitive_levels_look_at_all_versions(client: SchemaRegistryClient, subject: str) -> None:
    # The third has a field without a default that the second had and the first had not.
    for level, expected in (("BACKWARD", True), ("BACKWARD_TRANSITIVE", False)):
        name = f"{subject}-{level}"
        client.set_compatibility(name, "NONE")
        client.register_schema(name, avro("id:int"))
        client.register_schema(name, avro("id:int", "note:string="))
        client.set_compatibility(name, level)
        assert client.test_compatibility_all_versions(name, avro("id:int", "note:string")) == expected


def test_references_of_all_types(client: SchemaRegistryClient, subject: str) -> None:
    parts = {
        "AVRO": (avro("city:string", name="Address"), "Address", avro("to:Address")),
        "JSON": (
            json_schema({"city": "string"}),
            "address.json",
            Schema('{"type": "object", "properties": {"to": {"$ref": "address.json"}}}', "JSON"),
        ),
        "PROTOBUF": (
            Schema('syntax = "proto3"; package a; message Address { string city = 1; }', "PROTOBUF"),
            "address.proto",
            Schema('syntax = "proto3"; import "address.proto"; message Order { a.Address to = 1; }', "PROTOBUF"),
        ),
    }
    for kind, (part, name, whole) in parts.items():
        inner, outer = f"{subject}-{kind}-part", f"{subject}-{kind}"
        assert error_of(client, "register_schema", outer, whole) == (422, 42201)
        client.register_schema(inner, part)
        given = Schema(whole.schema_str, kind, [SchemaReference(name, inner, 1)])
        number = client.register_schema(outer, given)
        assert client.get_schema(number).references == [SchemaReference(name, inner, 1)]
        assert client.get_referenced_by(inner, 1) == [number]
        assert client.lookup_schema(outer, given).schema_id == number
        assert error_of(client, "delete_subject", inner) == (422, 42206)
        assert error_of(client, "delete_version", inner, 1) == (422, 42206)
        missing = Schema(whole.schema_str, kind, [SchemaReference(name, inner, 7)])
        assert error_of(client, "register_schema", f"{outer}-x", missing) == (422, 42201)
        client.delete_subject(outer)
        assert client.delete_subject(inner) == [1]


def test_configs_and_modes(client: SchemaRegistryClient, subject: str) -> None:
    assert client.get_compatibility() == "BACKWARD"
    assert error_of(client, "get_compatibility", subject) == (404, 40408)
    assert error_of(client, "set_compatibility", subject, "SIDEWAYS") == (422, 42203)
    client.set_config(subject, ServerConfig(compatibility=ConfigCompatibilityLevel.FULL))
    assert client.get_compatibility(subject) == "FULL"
    client.delete_config(subject)
    assert error_of(client, "get_compatibility", subject) == (404, 40408)

    assert client.get_global_mode() == "READWRITE"
    assert error_of(client, "get_mode", subject) == (404, 40409)
    assert error_of(client, "update_mode", subject, "SLEEPING") == (422, 42204)
    client.update_mode(subject, "READONLY")
    assert client.get_mode(subject) == "READONLY"
    assert error_of(client, "register_schema", subject, FIRST["AVRO"]) == (422, 42205)
    client.delete_mode(subject)
    client.register_schema(subject, FIRST["AVRO"])
    assert error_of(client, "update_mode", subject, "IMPORT") == (422, 42205)
    client.update_mode(subject, "IMPORT", True)


def test_import_mode_keeps_ids_and_versions(url: str, subject: str) -> None:
    call(url, "PUT", f"/mode/{subject}", {"mode": "IMPORT"})
    body = {"schema": '"bytes"', "id": 700_001, "version": 5}
    assert call(url, "POST", f"/subjects/{subject}/versions", body)[1]["id"] == 700_001
    assert call(url, "GET", f"/subjects/{subject}/versions")[1] == [5]
    other = {"schema": '"long"', "id": 700_001}
    assert call(url, "POST", f"/subjects/{subject}/versions", other)[1]["error_code"] == 42205
    # An id is only for the mode that imports.
    assert call(url, "POST", f"/subjects/{subject}-x/versions", body)[1]["error_code"] == 42205


def test_a_deleted_version_can_be_registered_again(client: SchemaRegistryClient, subject: str) -> None:
    number = client.register_schema(subject, FIRST["AVRO"])
    client.delete_subject(subject)
    client.clear_caches()
    assert client.register_schema(subject, FIRST["AVRO"]) == number
    assert client.get_versions(subject) == [2]
    # What came before is gone for good, as in Confluent's registry.
    assert client.get_versions(subject, deleted=True) == [2]


def test_paths_that_the_client_does_not_use(url: str, subject: str) -> None:
    text = '{"type": "record", "name": "A", "namespace": "n", "fields": [{"name": "x", "type": {"type": "int"}}]}'
    stored = '{"type":"record","name":"A","namespace":"n","fields":[{"name":"x","type":"int"}]}'
    _, answer = call(url, "POST", f"/subjects/{subject}/versions", {"schema": text})
    number = answer["id"]
    assert call(url, "GET", f"/schemas/ids/{number}/schema") == (200, json.loads(stored))
    assert call(url, "GET", f"/schemas/ids/{number}?fetchMaxId=true")[1]["maxId"] >= number
    assert call(url, "GET", f"/subjects/{subject}/versions/latest/schema") == (200, json.loads(stored))
    assert call(url, "GET", f"/schemas/guids/{answer['guid']}")[1]["schema"] == stored
    assert call(url, "GET", "/schemas/types") == (200, ["JSON", "PROTOBUF", "AVRO"])
    assert call(url, "GET", "/contexts") == (200, ["."])
    assert call(url, "GET", "/") == (200, {})
    assert call(url, "GET", "/v1/metadata/id")[1]["scope"]["clusters"]["kafka-cluster"]
    assert [one["subject"] for one in call(url, "GET", f"/schemas?subjectPrefix={subject}")[1]] == [subject]
    assert call(url, "GET", f"/subjects?subjectPrefix={subject}&offset=0&limit=1") == (200, [subject])
    call(url, "DELETE", f"/subjects/{subject}")
    assert call(url, "GET", f"/subjects?subjectPrefix={subject}")[1] == []
    assert call(url, "GET", f"/subjects?subjectPrefix={subject}&deleted=true")[1] == [subject]
    assert call(url, "GET", f"/subjects?subjectPrefix={subject}&deletedOnly=true")[1] == [subject]
    assert call(url, "GET", f"/subjects/{subject}/versions?deletedAsNegative=true&deleted=true")[1] == [-1]
    assert call(url, "DELETE", f"/subjects/{subject}/versions/1")[1]["error_code"] == 40406


def test_normalized_schemas_are_the_same(url: str, subject: str) -> None:
    one = {"schemaType": "JSON", "schema": '{"type": "object", "title": "t"}'}
    other = {"schemaType": "JSON", "schema": '{"title": "t", "type": "object"}'}
    _, first = call(url, "POST", f"/subjects/{subject}/versions?normalize=true", one)
    _, second = call(url, "POST", f"/subjects/{subject}/versions?normalize=true", other)
    assert first["id"] == second["id"]
    assert call(url, "POST", f"/subjects/{subject}?normalize=true", other)[1]["id"] == first["id"]
    assert call(url, "POST", f"/subjects/{subject}", one)[1]["error_code"] == 40403


def test_two_registries_agree(broker: Broker, client: SchemaRegistryClient, subject: str) -> None:
    from ottla.registry_server.server import RegistryThread

    other = RegistryThread(broker.client_config())
    try:
        with SchemaRegistryClient({"url": other.url}) as second:
            names = [f"{subject}-{number}" for number in range(10)]
            for number, name in enumerate(names):
                (client, second)[number % 2].register_schema(name, avro(f"f{number}:int", name=f"N{number}"))
            ids = [[one.get_latest_version(name).schema_id for name in names] for one in (client, second)]
    finally:
        other.stop()
    assert ids[0] == ids[1]
    assert len(set(ids[0])) == len(names)


def test_two_registries_write_at_the_same_time(broker: Broker, url: str, subject: str) -> None:
    from ottla.registry_server.server import RegistryThread

    def register(where: str, numbers: range) -> list[tuple[int, int]]:
        bodies = [{"schema": json.dumps({"type": "fixed", "name": f"F{one}", "size": 1})} for one in numbers]
        found = [call(where, "POST", f"/subjects/{subject}/versions", body)[1] for body in bodies]
        return [(one["version"], one["id"]) for one in found]

    call(url, "PUT", f"/config/{subject}", {"compatibility": "NONE"})
    other = RegistryThread(broker.client_config())
    try:
        with ThreadPoolExecutor(4) as pool:
            urls = (url, other.url, url, other.url)
            parts = [range(number * 100, number * 100 + 15) for number in range(4)]
            found = [one for part in pool.map(register, urls, parts) for one in part]

        def show() -> list[Any]:
            return [call(one, "GET", f"/schemas?subjectPrefix={subject}")[1] for one in (url, other.url)]

        # A registry may list what the other one has written only some milliseconds later.
        until(lambda: [len(one) for one in show()] == [60, 60], "both list all schemas")
        shown = show()
    finally:
        other.stop()
    assert sorted(version for version, _ in found) == list(range(1, 61)), "each version was given once"
    assert len({number for _, number in found}) == 60
    assert shown[0] == shown[1]
    assert sorted((one["version"], one["id"]) for one in shown[0]) == sorted(found)
