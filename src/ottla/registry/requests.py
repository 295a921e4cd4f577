"""Requests to a registry, and what they contain. Whatever a client sends ends as a value or as a `RegistryError`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ottla.registry import errors
from ottla.registry.errors import RegistryError
from ottla.registry.values import AVRO, LARGEST, LATEST, Reference, Schema

_DEFAULT_CONTEXT = ":.:"


@dataclass(frozen=True, slots=True)
class Request:
    """A request: the decoded parts of the path, the query and the body."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""

    def flag(self, name: str) -> bool:
        return self.query.get(name, "").lower() == "true"

    def number(self, name: str, default: int) -> int:
        """A number of the query; a wrong one is as a wrong address, as in Confluent's registry."""
        text = self.query.get(name)
        if text is None or not text:
            return default
        return _whole(text)

    def page(self, found: list[Any]) -> list[Any]:
        """The part of a list that ``offset`` and ``limit`` ask for."""
        start, limit = max(0, self.number("offset", 0)), self.number("limit", -1)
        return found[start:] if limit < 0 else found[start : start + limit]

    def json(self) -> dict[str, Any]:
        """The body, which must be a JSON object."""
        if not self.body.strip():
            raise errors.unprocessable("the request has no body")
        try:
            found = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise RegistryError(400, f"the body is not JSON: {error}") from None
        if not isinstance(found, dict):
            raise RegistryError(400, "the body is not a JSON object")
        return found


@dataclass(frozen=True, slots=True)
class Offer:
    """A schema that a client sends, with the version and the id that it wants, or 0 and -1."""

    schema: Schema
    version: int = 0
    id: int = -1


def offer(request: Request) -> Offer:
    """The schema in the body of a request."""
    body = request.json()
    text, kind = _get(body, "schema", str, ""), _get(body, "schemaType", str, AVRO)
    references = tuple(_reference(one) for one in _get(body, "references", list, []))
    version, schema_id = _get(body, "version", int, 0), _get(body, "id", int, -1)
    if abs(version) > LARGEST or abs(schema_id) > LARGEST:
        raise RegistryError(400, "version and id are whole numbers of 32 bits")
    schema = Schema(_encodable(text), kind, references, _stored(body, "metadata"), _stored(body, "ruleSet"))
    return Offer(schema, version, schema_id)


def subject(given: str, *, for_config: bool = False) -> str:
    """The subject in a path."""
    name = given.removeprefix(_DEFAULT_CONTEXT)
    if any(ord(one) < 32 or 127 <= ord(one) < 160 or 0xD800 <= ord(one) < 0xE000 for one in name):
        raise errors.invalid_subject(repr(given)[1:-1])
    if name in ("__GLOBAL", "__EMPTY") or (not name and not for_config):
        raise errors.invalid_subject(given)
    if name.startswith(":."):
        raise RegistryError(
            42208, f"The specified subject '{given}' has a context. Only the default context is served."
        )
    return name


def version_number(text: str) -> int:
    """The version in a path: a number, or LATEST."""
    if text.lower() == "latest" or text == "-1":
        return LATEST
    if not text.isascii() or not text.isdecimal() or not 1 <= int(text[:20]) <= LARGEST:
        raise errors.invalid_version(text)
    return int(text)


def id_number(text: str) -> int:
    """The id in a path."""
    return _whole(text)


def _whole(text: str) -> int:
    digits = text.removeprefix("-")
    if not digits.isascii() or not digits.isdecimal() or len(digits) > 10 or int(digits) > LARGEST:
        raise RegistryError(404, "HTTP 404 Not Found")
    return int(text)


def _reference(given: Any) -> Reference:
    if not isinstance(given, dict):
        raise RegistryError(400, "a reference is an object with name, subject and version")
    name, other = _get(given, "name", str, ""), _get(given, "subject", str, "")
    return Reference(_encodable(name), subject(other) if other else "", _get(given, "version", int, -1))


def _stored(body: dict[str, Any], key: str) -> str:
    value = _get(body, key, dict, None)
    return json.dumps(value, separators=(",", ":"), sort_keys=True) if value else ""


def _get(body: dict[str, Any], key: str, kind: type, default: Any) -> Any:
    value = body.get(key)
    if value is None:
        return default
    if not isinstance(value, kind) or isinstance(value, bool):
        raise RegistryError(400, f"{key} has the wrong type: {json.dumps(value)[:60]}")
    return value


def _encodable(text: str) -> str:
    """A text without lone surrogates, which no UTF-8 has."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise errors.invalid_schema("the schema is not valid Unicode") from None
    return text
