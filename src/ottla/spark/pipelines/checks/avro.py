"""Check the schema ids of Avro values from a schema registry."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ottla.spark.pipelines.declaration import Pipeline, Problem, Source, Table

LARGEST_ID = 2**31 - 1
_NO_ID = (
    "confluent_header = true requires schema_id, the id of schema_file in the registry: a record of another schema "
    "could be stored in the wrong columns. The id is in bytes 2 to 5 of a record: "
    "ottla consume {topic} --from-beginning -n 1 | head -c 5 | od -An -tx1"
)


def registry_problems(pipeline: Pipeline, part: Source | Table, kind: str) -> Iterator[Problem]:
    """Problems with `confluent_header`, `schema_id` and `writer_schemas` of values in the format `kind`."""
    given = [key for key in ("confluent_header", "schema_id", "writer_schemas") if _is_set(part, key)]
    if not given:
        return
    if kind != "avro":
        key = "format" if isinstance(part, Source) else "value_format"
        yield part.where.problem(f"{given[0]} requires {key} avro, not {kind or part.format}", given[0])
    elif not part.confluent_header:
        text = f"{given[0]} requires confluent_header = true: ids are in the header of a schema registry"
        yield part.where.problem(text, given[0])
    elif part.schema_id is None:
        topic = part.topic if isinstance(part, Table) else next(iter(part.topics), None)
        yield part.where.problem(_NO_ID.format(topic=topic or "TOPIC"), "confluent_header")
    elif part.schema_id > LARGEST_ID:
        yield part.where.problem(f"schema_id must be at most {LARGEST_ID}, not {part.schema_id}", "schema_id")
    else:
        yield from _writers(pipeline, part)


def _is_set(part: Source | Table, key: str) -> bool:
    value: object = getattr(part, key)
    return bool(value) if key != "schema_id" else value is not None


def _writers(pipeline: Pipeline, part: Source | Table) -> Iterator[Problem]:
    for number, file in part.writer_schemas.items():
        key = f"writer_schemas.{number}"
        path = Path(pipeline.path(str(file)))
        if not number.isdecimal() or int(number) > LARGEST_ID:
            yield part.where.problem(f'writer_schemas: {number!r} is not an id: write {{6 = "v1.avsc"}}', key)
        elif int(number) == part.schema_id:
            yield part.where.problem(f"writer_schemas: {number} is the id of schema_file: remove it here", key)
        elif not path.is_file():
            yield part.where.problem(f"writer_schemas: file {path} not found", key)
        elif (wrong := _invalid(path)) is not None:
            yield part.where.problem(f"writer_schemas: {path} is not an Avro schema: {wrong}", key)


def _invalid(path: Path) -> str | None:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        parse_schema(json.loads(path.read_text()))
    except UnknownType as error:
        return f"unknown type {error.name}"
    except (SchemaParseException, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return None
