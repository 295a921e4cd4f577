"""Wrong and hostile requests get Confluent's error codes: never 500, never a closed connection without an answer."""

from __future__ import annotations

import json
import random
import socket
from typing import Any
from urllib.parse import quote, urlsplit

import pytest

from registry.http import call

#: The codes that a client may get for a wrong request.
CODES = {
    400, 401, 404, 405, 413, 422, 431, 40401, 40402, 40403, 40404, 40405, 40406, 40407, 40408, 40409, 40901, 42201,
    42202, 42203, 42204, 42205, 42206, 42207, 42208, 42209, 42210,
}  # fmt: skip
MISTAKES: list[tuple[str, str, Any, int, int]] = [
    ("GET", "/nothing", None, 404, 404),
    ("PATCH", "/subjects", None, 405, 405),
    ("GET", "/subjects/none/versions", None, 404, 40401),
    ("GET", "/subjects/none/versions/1", None, 404, 40401),
    ("GET", "/subjects/none/versions/0", None, 422, 42202),
    ("GET", "/subjects/none/versions/x", None, 422, 42202),
    ("GET", "/subjects/none/versions/99999999999999999999", None, 422, 42202),
    ("GET", "/subjects/none/versions/%D9%A1", None, 422, 42202),
    ("GET", "/schemas/ids/999999", None, 404, 40403),
    ("GET", "/schemas/ids/x", None, 404, 404),
    ("GET", "/schemas/ids/99999999999", None, 404, 404),
    ("GET", "/schemas/guids/x", None, 404, 40403),
    ("DELETE", "/subjects/none", None, 404, 40401),
    ("DELETE", "/subjects/none/versions/1", None, 404, 40401),
    ("POST", "/subjects/none", {"schema": '"int"'}, 404, 40401),
    ("POST", "/subjects/none/versions", None, 422, 422),
    ("POST", "/subjects/none/versions", b"{", 400, 400),
    ("POST", "/subjects/none/versions", b"[]", 400, 400),
    ("POST", "/subjects/none/versions", b"\xff\xfe", 400, 400),
    ("POST", "/subjects/none/versions", b"[" * 100_000, 400, 400),
    ("POST", "/subjects/none/versions", {}, 422, 42201),
    ("POST", "/subjects/none/versions", {"schema": 1}, 400, 400),
    ("POST", "/subjects/none/versions", {"schema": "{}"}, 422, 42201),
    ("POST", "/subjects/none/versions", {"schema": '"int"', "schemaType": "XML"}, 422, 42201),
    ("POST", "/subjects/none/versions", {"schema": "\ud800"}, 422, 42201),
    ("POST", "/subjects/none/versions", {"schema": '"int"', "references": [1]}, 400, 400),
    ("POST", "/subjects/none/versions", {"schema": '"int"', "references": [{"name": "a"}]}, 422, 42201),
    ("POST", "/subjects/none/versions", {"schema": '{"$ref": "#/x"}', "schemaType": "JSON"}, 422, 42201),
    ("POST", "/subjects/none/versions", {"schema": '{"type": "x"}', "schemaType": "JSON"}, 422, 42201),
    ("POST", "/subjects/none/versions", {"schema": '{"$schema": 7}', "schemaType": "JSON"}, 422, 42201),
    *(
        ("POST", "/subjects/none/versions", {"schema": schema, "schemaType": "JSON"}, 422, 42201)
        for schema in (
            '{"$defs": null, "allOf": [{"$ref": "#/$defs/a"}]}',
            '{"$defs": "x", "allOf": [{"$ref": "#/$defs/a"}]}',
            '{"x": {"type": "object", "dependencies": "A"}, "$ref": "#/x"}',
            '{"x": {"patternProperties": [{}]}, "properties": {"a": {"$ref": "#/x"}}}',
            '{"properties": {"const": {"$ref": "#/definitions/b"}}}',
            '{"a": ' * 5000 + "1" + "}" * 5000,
        )
    ),
    ("POST", "/subjects/none/versions", {"schema": "message A {", "schemaType": "PROTOBUF"}, 422, 42201),
    ("POST", "/subjects/%00/versions", {"schema": '"int"'}, 422, 42208),
    ("POST", "/subjects/__GLOBAL/versions", {"schema": '"int"'}, 422, 42208),
    ("POST", "/subjects/:.other:a/versions", {"schema": '"int"'}, 422, 42208),
    ("POST", "/compatibility/subjects/none/versions/7", {"schema": '"int"'}, 404, 40402),
    ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 422, 42203),
    ("PUT", "/config/none", {"compatibility": 7}, 422, 42203),
    ("PUT", "/config/none", {"normalize": "yes"}, 400, 400),
    ("PUT", "/mode/none", {"mode": "ASLEEP"}, 422, 42204),
    ("PUT", "/mode/none", {}, 422, 42204),
    ("GET", "/config/none", None, 404, 40408),
    ("GET", "/mode/none", None, 404, 40409),
    ("DELETE", "/config/none", None, 404, 40401),
]


@pytest.mark.parametrize(("method", "path", "body", "status", "code"), MISTAKES)
def test_mistakes_have_confluents_codes(url: str, method: str, path: str, body: Any, status: int, code: int) -> None:
    found, answer = call(url, method, path, body)
    assert (found, answer["error_code"]) == (status, code), answer
    assert answer["message"]


SEEDS = [
    {"schema": '{"type":"record","name":"A","fields":[{"name":"x","type":["null","int"],"default":null}]}'},
    {"schema": '{"type":"enum","name":"E","symbols":["A","B"],"default":"A"}', "schemaType": "AVRO"},
    {
        "schema": '{"type":"object","properties":{"a":{"oneOf":[{"type":"integer"},{"$ref":"#/definitions/b"}]}},'
        '"definitions":{"b":{"type":"array","items":[{"type":"string"}],"additionalItems":false}},"required":["a"]}',
        "schemaType": "JSON",
    },
    {
        "schema": 'syntax = "proto3"; package p; message A { oneof o { int32 a = 1; B b = 2; } map<string, B> m = 3; '
        "message B { optional bytes c = 1 [deprecated = true]; } enum E { Z = 0; } reserved 7, 9 to max; }",
        "schemaType": "PROTOBUF",
    },
]
PIECES = [
    '"',
    "{",
    "}",
    "[",
    "]",
    "null",
    "-1",
    "1e999",
    "\\u0000",
    "type",
    "name",
    "int",
    "$ref",
    "=",
    ";",
    " ",
    "é",
    "",
]


def mutated(text: str, random: random.Random) -> str:
    for _ in range(random.randint(1, 3)):
        start = random.randrange(len(text) + 1)
        end = min(len(text), start + random.choice([0, 1, 1, 3, 10]))
        text = text[:start] + random.choice(PIECES) + text[end:]
    return text


@pytest.mark.parametrize("seed", range(4))
def test_random_requests_never_fail_in_the_registry(url: str, seed: int) -> None:
    source = random.Random(seed)
    names = [f"fuzz-{seed}", "", "a b", "ü/ü", "..", ":.:x", "%", "a" * 300]
    seen = set()
    for _ in range(300):
        body = dict(source.choice(SEEDS))
        body["schema"] = mutated(body["schema"], source)
        if source.random() < 0.2:
            body[source.choice(["schemaType", "references", "version", "id", "metadata"])] = source.choice(
                [None, 0, -5, "JSON", [], {}, [{"name": "a", "subject": "b", "version": 1}], True]
            )
        subject = quote(source.choice(names), safe="")
        method, path = source.choice(
            [
                ("POST", f"/subjects/{subject}/versions"),
                ("POST", f"/subjects/{subject}"),
                ("POST", f"/compatibility/subjects/{subject}/versions/latest?verbose=true"),
                ("GET", f"/subjects/{subject}/versions/{source.choice([1, 'latest', -1, 'x'])}?format=serialized"),
                ("DELETE", f"/subjects/{subject}?permanent={source.choice(['true', 'false', 'x'])}"),
                (
                    "GET",
                    f"/schemas/ids/{source.randint(-2, 40)}/{source.choice(['', 'schema', 'subjects', 'versions'])}",
                ),
            ]
        )
        data = json.dumps(body).encode()
        if source.random() < 0.1:
            data = mutated(data.decode(), source).encode(errors="replace")
        status, answer = call(url, method, path, data)
        assert status < 500, (method, path, body, answer)
        if status != 200:
            assert answer["error_code"] in CODES, (method, path, body, answer)
            seen.add(answer["error_code"])
    assert {42201, 40401} <= seen


@pytest.mark.parametrize(
    "data",
    [
        b"\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/3\r\n\r\n",
        b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET / HTTP/1.1\r\nno header\r\n\r\n",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
    ],
)
def test_what_is_not_http_gets_an_answer(url: str, data: bytes) -> None:
    host, port = urlsplit(url).netloc.split(":")
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(data)
        answer = connection.recv(65536)
    assert answer.split(b" ")[1] in (b"400", b"413", b"431")


def test_chunked_bodies_and_kept_connections(url: str, subject: str) -> None:
    host, port = urlsplit(url).netloc.split(":")
    body = b'{"schema": "\\"int\\""}'
    head = f"POST /subjects/{subject}/versions HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:5], body[5:])) + b"0\r\n\r\n"
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        for _ in range(2):
            connection.sendall(head + chunks)
            answer = connection.recv(65536)
            assert answer.startswith(b"HTTP/1.1 200"), answer
