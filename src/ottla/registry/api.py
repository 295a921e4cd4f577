"""The paths of Confluent's HTTP API, and what they do."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from ottla.registry import errors
from ottla.registry.errors import RegistryError
from ottla.registry.operations import Operations, Outcome
from ottla.registry.requests import Request, id_number, offer, subject, version_number
from ottla.registry.values import TYPES, Schema, Version


class Text(str):
    """An answer that is sent as it is, not as a JSON text."""


class Route(NamedTuple):
    """What serves a request. A change must be decided on the latest state."""

    run: Callable[[Operations, Request], Outcome]
    changes: bool


def route(request: Request) -> Route:
    """Find what serves a request; a `RegistryError` says that there is nothing, or not for this method."""
    allowed = set()
    for (method, *pattern), run in _ROUTES.items():
        if len(pattern) == len(request.path) and all(
            one in ("*", part) for one, part in zip(pattern, request.path, strict=True)
        ):
            if method == request.method or (method == "GET" and request.method == "HEAD"):
                changes = method in ("PUT", "DELETE") or run is _register
                return Route(run, changes)
            allowed.add(method)
    if allowed:
        raise RegistryError(405, "HTTP 405 Method Not Allowed")
    raise RegistryError(404, "HTTP 404 Not Found")


# ── subjects and versions ─────────────────────────────────────────────────────────────────────────────────────────


def _subjects(on: Operations, request: Request) -> Outcome:
    prefix = request.query.get("subjectPrefix", "").removeprefix(":*:").removeprefix(":.:")
    deleted, only = request.flag("deleted"), request.flag("deletedOnly")
    found = [
        name
        for name in sorted(on.state.subjects)
        if name.startswith(prefix) and (not on.state.has(name) if only else on.state.has(name, deleted=deleted))
    ]
    return Outcome(request.page(found))


def _versions(on: Operations, request: Request) -> Outcome:
    name = subject(request.path[1])
    deleted, only = request.flag("deleted"), request.flag("deletedOnly")
    if not on.state.has(name, deleted=deleted or only):
        raise errors.subject_not_found(name)
    negative = request.flag("deletedAsNegative")
    found = on.state.versions(name, deleted=deleted or only or negative)
    numbers = [-one.number if negative and one.deleted else one.number for one in found if one.deleted or not only]
    return Outcome(request.page(numbers))


def _found(on: Operations, request: Request, *, deleted: bool) -> Version:
    name, number = subject(request.path[1]), version_number(request.path[3])
    version = on.state.version(name, number, deleted=deleted)
    if version is None:
        if not on.state.has(name, deleted=deleted):
            raise errors.subject_not_found(name)
        raise errors.version_not_found(number)
    return version


def _version(on: Operations, request: Request) -> Outcome:
    version = _found(on, request, deleted=request.flag("deleted"))
    return Outcome(_formatted(on, version.schema, version.as_json(), request))


def _version_text(on: Operations, request: Request) -> Outcome:
    return Outcome(Text(_version(on, request).answer["schema"]))


def _referenced_by(on: Operations, request: Request) -> Outcome:
    version = _found(on, request, deleted=True)
    found = on.state.referring(version.subject, version.number, deleted=request.flag("deleted"))
    return Outcome(request.page(sorted({one.id for one in found})))


def _register(on: Operations, request: Request) -> Outcome:
    return on.register(subject(request.path[1]), offer(request), normalize=request.flag("normalize"))


def _lookup(on: Operations, request: Request) -> Outcome:
    name, given = subject(request.path[1]), offer(request)
    version = on.lookup(name, given, normalize=request.flag("normalize"), deleted=request.flag("deleted"))
    return Outcome(_formatted(on, version.schema, version.as_json(), request))


def _latest_with_metadata(on: Operations, request: Request) -> Outcome:
    name, key, value = subject(request.path[1]), request.query.get("key", ""), request.query.get("value", "")
    deleted = request.flag("deleted")
    if not on.state.has(name, deleted=deleted):
        raise errors.subject_not_found(name)
    for version in reversed(on.state.versions(name, deleted=deleted)):
        metadata = json.loads(version.schema.metadata or "{}").get("properties")
        if not key or (isinstance(metadata, dict) and metadata.get(key) == value):
            return Outcome(_formatted(on, version.schema, version.as_json(), request))
    raise errors.schema_not_found()


def _delete_subject(on: Operations, request: Request) -> Outcome:
    return on.delete_subject(subject(request.path[1]), permanent=request.flag("permanent"))


def _delete_version(on: Operations, request: Request) -> Outcome:
    name, number = subject(request.path[1]), version_number(request.path[3])
    return on.delete_version(name, number, permanent=request.flag("permanent"))


# ── ids ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _places(on: Operations, request: Request) -> list[Version]:
    """The versions with the id in the path."""
    number = id_number(request.path[2])
    found = on.state.places(number)
    if not found:
        raise errors.schema_not_found(number)
    return found


def _by_id(on: Operations, request: Request) -> Outcome:
    version = _places(on, request)[0]
    answer = _formatted(on, version.schema, {**version.schema.as_json(), "guid": version.schema.guid}, request)
    return Outcome({**answer, "maxId": on.state.largest_id} if request.flag("fetchMaxId") else answer)


def _text_by_id(on: Operations, request: Request) -> Outcome:
    return Outcome(Text(_by_id(on, request).answer["schema"]))


def _visible(on: Operations, request: Request) -> list[Version]:
    found = _places(on, request)
    shown = [one for one in found if request.flag("deleted") or not one.deleted]
    wanted = request.query.get("subject")
    return [one for one in shown if not wanted or one.subject == wanted]


def _subjects_by_id(on: Operations, request: Request) -> Outcome:
    return Outcome(request.page(sorted({one.subject for one in _visible(on, request)})))


def _versions_by_id(on: Operations, request: Request) -> Outcome:
    found = sorted((one.subject, one.number) for one in _visible(on, request))
    return Outcome(request.page([{"subject": name, "version": number} for name, number in found]))


def _by_guid(on: Operations, request: Request) -> Outcome:
    schema = on.state.by_guid(request.path[2].lower())
    if schema is None:
        raise errors.schema_not_found(request.path[2][:60])
    return Outcome(_formatted(on, schema, {**schema.as_json(), "guid": schema.guid}, request))


def _schemas(on: Operations, request: Request) -> Outcome:
    prefix = request.query.get("subjectPrefix", "").removeprefix(":*:").removeprefix(":.:")
    found: list[Version] = []
    for name in sorted(on.state.subjects):
        if name.startswith(prefix):
            versions = on.state.versions(name, deleted=request.flag("deleted"))
            found += versions[-1:] if request.flag("latestOnly") else versions
    return Outcome([one.as_json() for one in request.page(found)])


def _formatted(on: Operations, schema: Schema, answer: dict[str, Any], request: Request) -> dict[str, Any]:
    form = request.query.get("format", "").strip()
    text = on.parsed(schema).formatted(form) if form else None
    return answer if text is None else {**answer, "schema": text}


# ── compatibility, configs, modes ─────────────────────────────────────────────────────────────────────────────────


def _check(on: Operations, request: Request) -> Outcome:
    name = subject(request.path[2])
    number = version_number(request.path[4]) if len(request.path) > 4 else None
    normalize, verbose = request.flag("normalize"), request.flag("verbose")
    return on.check(name, number, offer(request), normalize=normalize, verbose=verbose)


def _scope(request: Request) -> str | None:
    return (subject(request.path[1], for_config=True) or None) if len(request.path) > 1 else None


def _config(on: Operations, request: Request) -> Outcome:
    return Outcome(on.config(_scope(request), default_to_global=request.flag("defaultToGlobal")))


def _set_config(on: Operations, request: Request) -> Outcome:
    return on.set_config(_scope(request), request.json())


def _delete_config(on: Operations, request: Request) -> Outcome:
    return on.delete_config(_scope(request))


def _mode(on: Operations, request: Request) -> Outcome:
    return Outcome(on.mode(_scope(request), default_to_global=request.flag("defaultToGlobal")))


def _set_mode(on: Operations, request: Request) -> Outcome:
    return on.set_mode(_scope(request), request.json(), force=request.flag("force"))


def _delete_mode(on: Operations, request: Request) -> Outcome:
    return on.delete_mode(_scope(request))


def _fixed(answer: Any) -> Callable[[Operations, Request], Outcome]:
    return lambda on, request: Outcome(answer)


_ROUTES: dict[tuple[str, ...], Callable[[Operations, Request], Outcome]] = {
    ("GET",): _fixed({}),
    ("GET", "subjects"): _subjects,
    ("POST", "subjects", "*"): _lookup,
    ("DELETE", "subjects", "*"): _delete_subject,
    ("GET", "subjects", "*", "metadata"): _latest_with_metadata,
    ("GET", "subjects", "*", "versions"): _versions,
    ("POST", "subjects", "*", "versions"): _register,
    ("GET", "subjects", "*", "versions", "*"): _version,
    ("DELETE", "subjects", "*", "versions", "*"): _delete_version,
    ("GET", "subjects", "*", "versions", "*", "schema"): _version_text,
    ("GET", "subjects", "*", "versions", "*", "referencedby"): _referenced_by,
    ("GET", "schemas"): _schemas,
    ("GET", "schemas", "types"): _fixed(list(TYPES)),
    ("GET", "schemas", "ids", "*"): _by_id,
    ("GET", "schemas", "ids", "*", "schema"): _text_by_id,
    ("GET", "schemas", "ids", "*", "subjects"): _subjects_by_id,
    ("GET", "schemas", "ids", "*", "versions"): _versions_by_id,
    ("GET", "schemas", "guids", "*"): _by_guid,
    ("POST", "compatibility", "subjects", "*", "versions"): _check,
    ("POST", "compatibility", "subjects", "*", "versions", "*"): _check,
    ("GET", "config"): _config,
    ("PUT", "config"): _set_config,
    ("DELETE", "config"): _delete_config,
    ("GET", "config", "*"): _config,
    ("PUT", "config", "*"): _set_config,
    ("DELETE", "config", "*"): _delete_config,
    ("GET", "mode"): _mode,
    ("PUT", "mode"): _set_mode,
    ("DELETE", "mode"): _delete_mode,
    ("GET", "mode", "*"): _mode,
    ("PUT", "mode", "*"): _set_mode,
    ("DELETE", "mode", "*"): _delete_mode,
    ("GET", "contexts"): _fixed(["."]),
}
