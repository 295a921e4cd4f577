"""Check a source whose values have schemas of a registry."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from urllib.parse import urlsplit

from ottla.spark.pipelines.declaration import Problem, Source
from ottla.spark.pipelines.registry import TYPES, registry_keys

_PACKAGES = {"avro": "fastavro", "json": "json", "protobuf": "google.protobuf"}


def registry_source_problems(source: Source) -> Iterator[Problem]:
    """Problems with `registry`, `subject` and `message`, which can be seen without a registry."""
    if source.registry is None:
        if source.format == "protobuf":
            yield source.where.problem('protobuf requires a schema registry: registry = "http://…"', "format")
        for key in registry_keys(source):
            yield source.where.problem(f"{key} requires registry, the URL of a schema registry", key)
        return
    if source.format not in TYPES:
        text = f"registry requires format avro, json or protobuf, not {source.format}"
        yield source.where.problem(text, "registry")
        return
    parts = urlsplit(source.registry)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        yield source.where.problem("registry must be a URL such as http://127.0.0.1:8081", "registry")
    for key in ("confluent_header", "schema_id", "writer_schemas"):
        if getattr(source, key):
            yield source.where.problem(f"{key} is not for a source with registry: the registry has all ids", key)
    if source.message is not None and source.format != "protobuf":
        yield source.where.problem(f"message requires format protobuf, not {source.format}", "message")
    if source.format == "protobuf" and (source.schema or source.schema_file):
        key = "schema" if source.schema else "schema_file"
        yield source.where.problem(f"protobuf has the columns of the schema in the registry: remove {key}", key)
    if source.format == "avro" and source.schema:
        yield source.where.problem("avro has the columns of the schema in the registry: remove schema", "schema")
    if source.options:
        yield source.where.problem("options are not for a source with registry: Spark does not parse it", "options")
    if source.subject is None and len(source.topics) != 1 and source.format != "json":
        text = 'several topics need a subject for the columns: subject = "orders-value"'
        yield source.where.problem(text, "registry")
    if _missing(_PACKAGES[source.format]):
        text = f"{source.format} with a registry needs a package: pip install 'ottla[registry]'"
        yield source.where.problem(text, "format")


def _missing(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is None
    except ModuleNotFoundError:
        return True
