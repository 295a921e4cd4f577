"""The records of the topic ``_schemas``, in the format of Confluent's registry."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeGuard

from ottla.registry.values import AVRO, Reference, Schema, Version

#: A key and a value as JSON objects; a value of None deletes.
Record = tuple[dict[str, Any], dict[str, Any] | None]


class Key(NamedTuple):
    """A key that was read: the subject is None for what holds for all subjects."""

    kind: str
    subject: str | None
    version: int


def schema_key(subject: str, version: int) -> dict[str, Any]:
    return {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}


def schema_record(version: Version) -> Record:
    """The record of a version of a subject."""
    schema = version.schema
    fields: dict[str, Any] = {"subject": version.subject, "version": version.number, "id": version.id}
    fields["md5"] = base64.b64encode(schema.digest()).decode()
    value = {**fields, **schema.as_json(), "deleted": version.deleted}
    return schema_key(version.subject, version.number), value


def config_key(subject: str | None) -> dict[str, Any]:
    return {"keytype": "CONFIG", **({} if subject is None else {"subject": subject}), "magic": 0}


def mode_key(subject: str | None) -> dict[str, Any]:
    return {"keytype": "MODE", **({} if subject is None else {"subject": subject}), "magic": 0}


def delete_subject_record(subject: str, last: int) -> Record:
    """The record that deletes all versions of a subject up to one, softly."""
    key = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": 0}
    return key, {"subject": subject, "version": last}


def encoded(part: Mapping[str, Any] | None) -> bytes | None:
    """A key or value as bytes."""
    if part is None:
        return None
    return json.dumps(part, separators=(",", ":"), ensure_ascii=False).encode(errors="surrogatepass")


def decoded_key(data: bytes | None) -> Key | None:
    """The key of a record; None for one that is not of a registry."""
    found = _object(data)
    if found is None or not isinstance(found.get("keytype"), str):
        return None
    subject, version = found.get("subject"), found.get("version", 0)
    if not isinstance(subject, str | None) or not _is_whole(version):
        return None
    return Key(found["keytype"], subject, version)


def decoded_value(data: bytes | None) -> dict[str, Any] | None:
    return _object(data)


def version_of(key: Key, value: Mapping[str, Any]) -> Version | None:
    """The version in a SCHEMA record; None if it is damaged."""
    number, text, kind = value.get("id"), value.get("schema"), value.get("schemaType") or AVRO
    given = value.get("references") or []
    if key.subject is None or not _is_whole(number) or not isinstance(text, str) or not isinstance(kind, str):
        return None
    if not isinstance(given, list):
        return None
    references = []
    for one in given:
        try:
            references.append(Reference(str(one["name"]), str(one["subject"]), int(one["version"])))
        except (KeyError, TypeError, ValueError):
            return None
    schema = Schema(
        text,
        kind,
        tuple(references),
        _dumped(value.get("metadata")),
        _dumped(value.get("ruleSet")),
    )
    return Version(key.subject, key.version, number, schema, value.get("deleted") is True)


def _is_whole(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _dumped(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True) if value else ""


def _object(data: bytes | None) -> dict[str, Any] | None:
    try:
        found = json.loads(data or b"null")
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
