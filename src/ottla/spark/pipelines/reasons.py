"""Find out why Spark's parsers rejected a record. Runs in workers.

Spark only marks a record as broken. These functions parse it again, slowly, and say what is wrong and where.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.spark.pipelines import debezium
from ottla.spark.pipelines.schemas import Field, Schema, Type

if TYPE_CHECKING:
    import pyarrow as pa

SHOWN = 40
MAX_REASONS = 5
_RANGES = {"tinyint": 2**7, "smallint": 2**15, "int": 2**31, "bigint": 2**63}


@dataclass(frozen=True, slots=True)
class Reasons:
    """The format, schema and conditions of a source."""

    format: str
    schema: Schema | None
    separator: str = ","
    require: tuple[str, ...] = ()
    """Conditions; each record comes with the numbers of the ones that are false."""

    def column(self, values: pa.Array, failed: pa.Array) -> pa.Array:
        """The reason for each value of a column."""
        import pyarrow

        pairs = zip(values.to_pylist(), failed.to_pylist(), strict=True)
        return pyarrow.array([self.reason(value, numbers or ()) for value, numbers in pairs], pyarrow.string())

    def reason(self, value: bytes | None, failed: Sequence[int] = ()) -> str:
        """What is wrong with a value, as one sentence."""
        if value is None:
            return "the record has no value"
        if self.format in ("avro", "protobuf", "bytes"):  # it is readable, or the decoder has reported the reason
            return _joined([f"condition is false: {self.require[number]}" for number in failed])
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            return f"the value is not UTF-8 text: byte {error.start} is 0x{value[error.start]:02x}"
        find = {"json": self._json, "debezium": self._json, "csv": self._csv}.get(self.format)
        reasons = list(find(text)) if find is not None else []
        return _joined(reasons or [f"condition is false: {self.require[number]}" for number in failed])

    def in_json(self, text: str) -> str | None:
        """What is wrong with a JSON text; None if it matches the schema."""
        found = list(self._json(text))
        return _joined(found) if found else None

    def _json(self, text: str) -> Iterator[str]:
        if not text.strip():
            yield "the value is empty"
            return
        try:
            found = json.loads(text)
        except json.JSONDecodeError as error:
            near = text[error.pos : error.pos + 20] or "the end"
            yield f"malformed JSON at line {error.lineno} column {error.colno} ({error.msg}), near {near!r}"
            return
        except RecursionError:
            yield "malformed JSON: nested too deeply"
            return
        if not isinstance(found, dict):
            yield f"the value is a JSON {_kind(found)}, not an object"
        elif self.schema is not None and self.format == "debezium":
            fields = self.schema.fields
            yield from debezium.reasons(found, lambda row: _fields(fields, row, "after."))
        elif self.schema is not None:
            yield from _fields(self.schema.fields, found, "")

    def _csv(self, text: str) -> Iterator[str]:
        fields = self.schema.fields if self.schema else ()
        if not text.strip():
            yield "the value is empty"
            return
        try:
            rows = list(csv.reader(text.splitlines(), delimiter=self.separator, strict=True))
        except csv.Error as error:
            yield f"malformed CSV: {error}"
            return
        if len(rows) != 1:
            yield f"the value has {len(rows)} lines instead of one"
        elif len(rows[0]) != len(fields):
            yield f"the value has {len(rows[0])} fields, the schema has {len(fields)}"
        else:
            for one, given in zip(fields, rows[0], strict=True):
                yield from _text(one, given)


def _joined(reasons: list[str]) -> str:
    if not reasons:
        return "Spark's parser rejected the value: it does not match the schema"
    more = f"; and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
    return "; ".join(reasons[:MAX_REASONS]) + more


def _fields(fields: Sequence[Field], found: dict[str, Any], before: str) -> Iterator[str]:
    for one in fields:
        name = f"{before}{one.name}"
        given = found.get(one.name)
        if one.name not in found or given is None:
            if one.required:
                yield f"field {name} is missing" if one.name not in found else f"field {name} is null"
        else:
            yield from _value(one.type, given, name)


def _value(kind: Type, given: Any, name: str) -> Iterator[str]:
    if kind.name == "struct":
        if isinstance(given, dict):
            yield from _fields(kind.inside, given, f"{name}.")
        else:
            yield _not(name, "an object", given)
    elif kind.name == "array":
        if not isinstance(given, list):
            yield _not(name, "an array", given)
            return
        for number, one in enumerate(given):
            if one is not None:
                yield from _value(kind.inside[0].type, one, f"{name}[{number}]")
    elif kind.name == "map":
        if not isinstance(given, dict):
            yield _not(name, "an object", given)
            return
        for key, one in given.items():
            if one is not None:
                yield from _value(kind.inside[1].type, one, f"{name}.{key}")
    else:
        yield from _scalar(kind, given, name)


def _scalar(kind: Type, given: Any, name: str) -> Iterator[str]:
    number = isinstance(given, int | float) and not isinstance(given, bool)
    if kind.name in _RANGES:
        if not isinstance(given, int) or isinstance(given, bool):
            yield _not(name, "a whole number", given)
        elif not -_RANGES[kind.name] <= given < _RANGES[kind.name]:
            yield f"field {name} is out of the range of {kind.name.upper()}: {given}"
    elif kind.name in ("float", "double", "decimal"):
        words = ("nan", "infinity", "-infinity", "+infinity", "inf", "+inf", "-inf")
        if not number and not (isinstance(given, str) and given.lower() in words):
            yield _not(name, "a number", given)
    elif kind.name == "boolean" and not isinstance(given, bool):
        yield _not(name, "true or false", given)
    elif kind.name in ("date", "timestamp", "timestamp_ntz"):
        if isinstance(given, str):
            if not _is_time(given):
                yield f"field {name} is not a valid {kind.name}: {_shown(given)}"
        elif not number or kind.name == "timestamp_ntz":
            yield _not(name, f"a {kind.name}", given)
    elif kind.name == "binary" and not isinstance(given, str):
        yield _not(name, "base64 text", given)


def _text(one: Field, given: str) -> Iterator[str]:
    """Check a CSV field."""
    if given == "":
        if one.required:
            yield f"field {one.name} is missing"
        return
    try:
        found: Any = json.loads(given) if one.type.name not in ("date", "timestamp", "timestamp_ntz") else given
    except ValueError:
        found = given
    yield from _scalar(one.type, found, one.name)


def _is_time(text: str) -> bool:
    from datetime import datetime

    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _not(name: str, wanted: str, given: Any) -> str:
    return f"field {name} is not {wanted}: {_shown(given)}"


def _shown(given: Any) -> str:
    text = json.dumps(given, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"


def _kind(given: Any) -> str:
    if given is None:
        return "null"
    if isinstance(given, bool):
        return "boolean"
    return "array" if isinstance(given, list) else "string" if isinstance(given, str) else "number"
