"""Encode sample records: what a test writes, as the bytes that a producer would send.

    {id = 1, total = 9.5}                        a value in the format of the source
    {id = 1, _key = "a", _timestamp = 2026-01-01T12:00:00Z, _headers = {trace = "7"}}
    "any text", or b"bytes" in Python            the value as it is, for example a broken one
    {_key = "a"}, or None in Python              a record without a value

Names with an underscore are those of the origin columns, so they never clash with the columns of a schema.
"""

from __future__ import annotations

import base64
import binascii
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any, TypeAlias

from ottla.errors import OttlaError
from ottla.spark.pipelines.checks.pipeline import declared_schema
from ottla.spark.pipelines.declaration import Pipeline, Source
from ottla.spark.pipelines.registry import subject_of
from ottla.spark.pipelines.runner import reads
from ottla.suggestions import did_you_mean
from ottla.testing.pipelines.registered import Registered, Schemas, avro_bytes, framed
from ottla.types import Millis

Batch: TypeAlias = Mapping[str, Sequence[Any]]
"""The records of a micro-batch, by source."""

_ABOUT = ("_key", "_key_base64", "_value", "_value_base64", "_timestamp", "_headers", "_partition", "_topic", "_schema")


class RecordError(OttlaError):
    """A sample record that cannot be encoded."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A record to send."""

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: Millis | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    partition: int = 0


def encoded(given: Any, source: Source, pipeline: Pipeline, schemas: Schemas | None = None) -> Encoded:
    """Encode a record of a source; raises RecordError. `schemas` are those of a registry."""
    if not isinstance(given, Mapping):
        return Encoded(_topic(None, source), None, _raw(given))
    about = {name: value for name, value in given.items() if name.startswith("_")}
    for name in about:
        if name not in _ABOUT:
            near = did_you_mean(name, _ABOUT) or f" The names are {', '.join(_ABOUT)}."
            raise RecordError(f"{name} is unknown.{near}")
    fields = {name: value for name, value in given.items() if name not in about}
    return Encoded(
        topic=_topic(about.get("_topic"), source),
        key=_part(about, "_key"),
        value=_value(fields, about, source, pipeline, schemas or {}),
        timestamp=_timestamp(about.get("_timestamp")),
        headers=_headers(about.get("_headers", {})),
        partition=_partition(about.get("_partition", 0)),
    )


def _value(
    fields: Mapping[str, Any], about: Mapping[str, Any], source: Source, pipeline: Pipeline, schemas: Schemas
) -> bytes | None:
    given = "_value" in about or "_value_base64" in about
    if given and fields:
        raise RecordError(f"it has both _value and fields ({', '.join(fields)}): write one of them")
    if given or (about and not fields):
        return _part(about, "_value")
    if source.registry:
        return _registered(fields, about.get("_schema"), source, schemas.get(subject_of(source), ()))
    if source.format == "csv":
        return _csv(fields, source, pipeline)
    return _avro(fields, source, pipeline) if source.format == "avro" else _json(fields)


def _registered(fields: Mapping[str, Any], version: Any, source: Source, schemas: Sequence[Registered]) -> bytes | None:
    """A value with the header of a registry, in the latest version of its schema or another one."""
    if not schemas or source.format == "protobuf":
        advice = f'add [registry] with {subject_of(source)} = "FILE", or ' if source.format != "protobuf" else ""
        raise RecordError(f"the value needs a schema: {advice}write _value_base64 with the header and the data")
    number = len(schemas) if version is None else version
    if isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= len(schemas):
        raise RecordError(f"_schema must be a version from 1 to {len(schemas)}, not {version!r}")
    schema = schemas[number - 1]
    data = _json(fields) if source.format == "json" else _avro_data(fields, json.loads(schema.text))
    return framed(schema.id, data)


def _raw(given: Any) -> bytes | None:
    if given is None or isinstance(given, bytes):
        return given
    if isinstance(given, str):
        return given.encode("utf-8", "surrogateescape")
    return _json(given)


def _part(about: Mapping[str, Any], name: str) -> bytes | None:
    coded = about.get(f"{name}_base64")
    if coded is None:
        return _raw(about.get(name))
    if name in about:
        raise RecordError(f"it has both {name} and {name}_base64: write one of them")
    try:
        return base64.b64decode(coded, validate=True)
    except (binascii.Error, ValueError, TypeError):
        raise RecordError(f"{name}_base64 is not base64") from None


def _json(given: Any) -> bytes:
    return json.dumps(given, ensure_ascii=False, default=plain_json).encode("utf-8", "surrogateescape")


def plain_json(given: Any) -> Any:
    """JSON for what TOML and Python know and JSON does not."""
    if isinstance(given, datetime | date | time):
        return given.isoformat()
    if isinstance(given, bytes):
        return base64.b64encode(given).decode()
    if isinstance(given, Decimal):
        return float(given)
    if isinstance(given, Mapping):
        return dict(given)
    raise RecordError(f"{given!r} has no JSON form")


def _csv(fields: Mapping[str, Any], source: Source, pipeline: Pipeline) -> bytes:
    schema = declared_schema(source, pipeline)
    names = schema.names if schema is not None else []
    for name in fields:
        if name not in names:
            near = did_you_mean(name, names) or f" The columns are {', '.join(names)}."
            raise RecordError(f"the schema has no column {name}.{near}")
    line = io.StringIO()
    writer = csv.writer(line, delimiter=str(source.options.get("sep", ",")), lineterminator="")
    writer.writerow([_csv_cell(fields.get(name)) for name in names])
    return line.getvalue().encode()


def _csv_cell(given: Any) -> str:
    if given is None:
        return ""
    if isinstance(given, bool):
        return str(given).lower()
    return str(plain_json(given)) if isinstance(given, datetime | date) else str(given)


def _avro(fields: Mapping[str, Any], source: Source, pipeline: Pipeline) -> bytes:
    data = _avro_data(fields, json.loads(Path(pipeline.path(source.schema_file or "")).read_text()))
    return framed(source.schema_id or 0, data) if source.confluent_header else data


def _avro_data(fields: Mapping[str, Any], schema: Any) -> bytes:
    known = [one["name"] for one in schema["fields"]]
    for name in fields:
        if name not in known:
            near = did_you_mean(name, known) or f" The fields are {', '.join(known)}."
            raise RecordError(f"the Avro schema has no field {name}.{near}")
    try:
        return avro_bytes(schema, fields)
    except Exception as error:  # a value of another type can raise anything
        raise RecordError(f"it does not match the Avro schema: {type(error).__name__}: {error}") from None


def _topic(given: Any, source: Source) -> str:
    known = [*source.topics, *(source.assign or {})]
    if given is None:
        if not known:
            raise RecordError(f'_topic is missing: source {source.name} reads topics that match "{source.pattern}"')
        return known[0]
    if not isinstance(given, str) or not reads(source, given):
        raise RecordError(f"source {source.name} does not read topic {given}")
    return given


def _timestamp(given: Any) -> Millis | None:
    if isinstance(given, str):
        try:
            given = datetime.fromisoformat(given)
        except ValueError:
            raise RecordError(f"_timestamp is not a time such as 2026-01-01T12:00:00Z: {given!r}") from None
    if isinstance(given, datetime):
        aware = given if given.tzinfo is not None else given.replace(tzinfo=UTC)
        return round(aware.timestamp() * 1000)
    if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
        return given
    raise RecordError(f"_timestamp is not a time such as 2026-01-01T12:00:00Z: {given!r}")


def _headers(given: Any) -> tuple[tuple[str, bytes | None], ...]:
    if not isinstance(given, Mapping):
        raise RecordError('_headers must be a table such as {trace = "7"}')
    return tuple((name, _raw(value)) for name, value in given.items())


def _partition(given: Any) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not 0 <= given < 1000:
        raise RecordError(f"_partition must be a whole number from 0 to 999, not {given!r}")
    return given
