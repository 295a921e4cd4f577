"""Ask a schema registry: Confluent's, ours, or another with the same API."""

from __future__ import annotations

import base64
import json
import threading
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from ottla.errors import ConfigError, OttlaError
from ottla.registry.errors import RegistryError
from ottla.registry.values import AVRO, Reference, Schema, Version

_SECONDS = 10.0
_TYPE = "application/vnd.schemaregistry.v1+json"


class RegistryUnreachable(OttlaError):
    """The registry did not answer."""


class RegistryClient:
    """Requests to a registry, whose answers are remembered where they cannot change. Threads can share it.

        client = RegistryClient("http://127.0.0.1:8081")
        client.register("orders-value", Schema('"string"'))

    A URL such as ``https://name:password@host`` logs in.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"registry: {hidden(url)!r} is not a URL such as http://127.0.0.1:8081")
        self._path = parts.path.rstrip("/")
        self._headers = {"Content-Type": _TYPE, "Accept": f"{_TYPE}, application/json"}
        if parts.username is not None:
            login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        self._start()

    def _start(self) -> None:
        self._lock = threading.Lock()
        self._connection: HTTPConnection | None = None
        self._by_id: dict[int, Schema] = {}
        self._ids: dict[tuple[str, Schema, bool], int] = {}
        self._versions: dict[tuple[str, int], Version] = {}

    def __getstate__(self) -> dict[str, Any]:
        # Workers of Spark get a client without a connection.
        return {"url": self.url, "_path": self._path, "_headers": self._headers}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start()

    # ── requests ──────────────────────────────────────────────────────────────────────────────────────────────────

    def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Add a schema to a subject, unless it is there, and return its id."""
        path = f"/subjects/{quote(subject, safe='')}/versions?normalize={str(normalize).lower()}"
        return self._id((subject, schema, True), path)

    def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The id of a schema that a subject has."""
        path = f"/subjects/{quote(subject, safe='')}?normalize={str(normalize).lower()}"
        return self._id((subject, schema, False), path)

    def version_of(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """The version of a subject that has a schema."""
        path = f"/subjects/{quote(subject, safe='')}?normalize={str(normalize).lower()}"
        return int(self.call("POST", path, {**schema.as_json(), "schemaType": schema.type})["version"])

    def _id(self, key: tuple[str, Schema, bool], path: str) -> int:
        if key not in self._ids:
            schema = key[1]
            body = {**schema.as_json(), "schemaType": schema.type}
            self._ids[key] = int(self.call("POST", path, body)["id"])
        return self._ids[key]

    def by_id(self, number: int) -> Schema:
        """The schema with an id."""
        if number not in self._by_id:
            self._by_id[number] = _schema(self.call("GET", f"/schemas/ids/{number}"))
        return self._by_id[number]

    def version(self, subject: str, number: int) -> Version:
        """A version of a subject, deleted ones too."""
        if (subject, number) not in self._versions:
            path = f"/subjects/{quote(subject, safe='')}/versions/{number}?deleted=true"
            self._versions[subject, number] = _version(self.call("GET", path))
        return self._versions[subject, number]

    def latest(self, subject: str) -> Version:
        """The latest version of a subject, asked for each time."""
        return _version(self.call("GET", f"/subjects/{quote(subject, safe='')}/versions/latest"))

    def references(self, schema: Schema) -> dict[str, str]:
        """The texts of all schemas that a schema refers to by their names, those that others need first."""
        found: dict[str, str] = {}
        for one in schema.references:
            other = self.version(one.subject, one.version).schema
            found = {**found, **{name: text for name, text in self.references(other).items() if name not in found}}
            found.setdefault(one.name, other.text)
        return found

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the JSON of the answer; an error of the registry is a `RegistryError`."""
        data = None if body is None else json.dumps(body).encode()
        with self._lock:
            status, text = self._send(method, path, data)
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"message": text.decode(errors="replace")[:200]}
        if status >= 300:
            code = answer.get("error_code") if isinstance(answer, dict) else None
            raise RegistryError(code if isinstance(code, int) else status, str(answer.get("message", answer)))
        return answer

    def _send(self, method: str, path: str, data: bytes | None) -> tuple[int, bytes]:
        for is_last in (False, True):
            if self._connection is None:
                parts = urlsplit(self.url)
                kind = HTTPSConnection if parts.scheme == "https" else HTTPConnection
                self._connection = kind(parts.hostname or "", parts.port, timeout=_SECONDS)
                is_last = True
            try:
                self._connection.request(method, f"{self._path}{path}", data, self._headers)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (OSError, HTTPException) as error:
                # A kept connection may have been closed meanwhile: try once more with a new one.
                self.close()
                if is_last:
                    raise RegistryUnreachable(
                        f"the schema registry {hidden(self.url)} does not answer: {error}"
                    ) from None
        raise AssertionError

    def __del__(self) -> None:
        # A serializer has no end, so that nobody closes its client.
        if "_connection" in self.__dict__:
            self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def hidden(url: str) -> str:
    """A URL without its password."""
    parts = urlsplit(url)
    return url if parts.password is None else url.replace(f":{parts.password}@", ":***@", 1)


def _schema(answer: dict[str, Any]) -> Schema:
    references = tuple(Reference(one["name"], one["subject"], one["version"]) for one in answer.get("references") or ())
    return Schema(answer["schema"], answer.get("schemaType") or AVRO, references)


def _version(answer: dict[str, Any]) -> Version:
    return Version(answer["subject"], answer["version"], answer["id"], _schema(answer))
