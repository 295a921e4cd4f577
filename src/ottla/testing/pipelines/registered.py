"""Schemas of a registry in tests: files in the case take the place of the registry of the pipeline.

    [registry]
    orders-value = ["order-v1.avsc", "order-v2.avsc"]      # the versions of a subject, oldest first

A registry beside the embedded broker gets them, and records are written with one of them.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from ottla.clients.registry.client import RegistryClient
from ottla.errors import OttlaError
from ottla.registry.errors import RegistryError
from ottla.registry.values import Schema
from ottla.spark.pipelines.declaration import Pipeline, Source, changed
from ottla.spark.pipelines.registry import TYPES, subject_of

Files: TypeAlias = Mapping[str, Sequence[Path]]
"""The files of the versions of each subject."""


class Registered(NamedTuple):
    """A version of a schema."""

    id: int
    text: str


Schemas: TypeAlias = Mapping[str, Sequence[Registered]]


class NotRegistered(OttlaError):
    """The registry does not accept the schemas of a test."""


def subjects(pipeline: Pipeline) -> dict[str, Source]:
    """The sources with a registry, by subject."""
    return {subject_of(one): one for one in pipeline.sources if one.registry}


def unregistered(files: Files) -> dict[str, list[Registered]]:
    """The schemas without their ids, to check records before there is a registry."""
    return {subject: [Registered(0, one.read_text()) for one in some] for subject, some in files.items()}


def register(url: str, pipeline: Pipeline, files: Files) -> dict[str, list[Registered]]:
    """Give the schemas to a registry; raises NotRegistered."""
    known = subjects(pipeline)
    client = RegistryClient(url)
    found: dict[str, list[Registered]] = {}
    try:
        for subject, some in files.items():
            for file in some:
                text = file.read_text()
                try:
                    number = client.register(subject, Schema(text, TYPES[known[subject].format]))
                except RegistryError as error:
                    raise NotRegistered(f"{file}: {error.message}") from None
                found.setdefault(subject, []).append(Registered(number, text))
    finally:
        client.close()
    return found


def with_registry(pipeline: Pipeline, files: Files, url: str) -> Pipeline:
    """The pipeline with another registry for the sources whose schemas are given."""
    sources = [
        changed(one, registry=url) if one.registry and subject_of(one) in files else one for one in pipeline.sources
    ]
    return changed(pipeline, sources=sources)


def without_registry(pipeline: Pipeline, files: Files) -> Pipeline:
    """The pipeline for a check before there is a registry: the columns come from the files."""
    return changed(pipeline, sources=[_plain(one, files) for one in pipeline.sources])


def _plain(source: Source, files: Files) -> Source:
    if not source.registry or subject_of(source) not in files:
        return source
    plain = changed(source, registry=None, subject=None, message=None)
    if source.format == "avro":
        return changed(plain, schema_file=source.schema_file or str(files[subject_of(source)][-1].resolve()))
    # Only Spark knows the columns of protobuf.
    return plain if source.format == "json" else changed(plain, format="bytes", event_time=None, watermark=None)


def framed(number: int, data: bytes) -> bytes:
    """Data after the header of a registry."""
    return b"\0" + number.to_bytes(4, "big") + data


def avro_bytes(schema: Any, fields: Mapping[str, Any]) -> bytes:
    """Raises what fastavro raises, which can be anything."""
    from fastavro import parse_schema, schemaless_writer

    stream = io.BytesIO()
    schemaless_writer(stream, parse_schema(schema), dict(fields))
    return stream.getvalue()
